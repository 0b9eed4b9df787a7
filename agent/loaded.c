#include "agent/loaded.h"

#include "agent/agent.h"
#include "fs/cleanup.h"

#include <dlfcn.h>
#include <link.h>
#include <limits.h>
#include <string.h>

#define LIBRARIES_MAX 4096 /* of a process that are looked at */

/* The name of the library at a place of the loader's list. */
struct search {
    size_t at, wanted;
    char name[PATH_MAX];
};

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    if (search->at++ != search->wanted)
        return 0;
    if (info->dlpi_name && strlen(info->dlpi_name) < sizeof search->name)
        strcpy(search->name, info->dlpi_name);
    return 1;
}

/* dlopen() and dlsym() can't be called from within dl_iterate_phdr(), which holds the lock. */
static bool has_running_agent(const char *name)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return false;
    const struct probe_agent_record *record = dlsym(handle, AGENT_RECORD_SYMBOL);
    bool running = record && record != &probe_agent_record && record->magic == RECORD_MAGIC &&
                   record->state == RECORD_RUNNING && record->pid == getpid();
    dlclose(handle);
    return running;
}

bool loaded_elsewhere(void)
{
    struct search search;

    for (size_t i = 0; i < LIBRARIES_MAX; i++) {
        search.at = 0;
        search.wanted = i;
        search.name[0] = '\0';
        if (!dl_iterate_phdr(visit, &search))
            break;
        if (search.name[0] && has_running_agent(search.name))
            return true;
    }
    return false;
}
