#include "agent/probing/other_copies.h"

#include "agent/wire/record.h"

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

static bool is_running(const struct probe_agent_record *record)
{
    return record && record != &probe_agent_record && record->magic == RECORD_MAGIC &&
           record->state == RECORD_RUNNING && record->pid == getpid();
}

/* A library with an agent that runs, if it is one; NULL: it isn't. dlopen() and dlsym() can't be
 * called from within dl_iterate_phdr(), which holds the lock. */
static void *open_running(const char *name)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle && is_running(dlsym(handle, AGENT_RECORD_SYMBOL)))
        return handle;
    if (handle)
        dlclose(handle);
    return NULL;
}

static void *find_running(void)
{
    struct search search;
    void *handle = NULL;

    for (size_t i = 0; i < LIBRARIES_MAX && !handle; i++) {
        search.at = 0;
        search.wanted = i;
        search.name[0] = '\0';
        if (!dl_iterate_phdr(visit, &search))
            break;
        if (search.name[0])
            handle = open_running(search.name);
    }
    return handle;
}

bool other_copies_run(void)
{
    void *handle = find_running();
    if (handle)
        dlclose(handle);
    return handle != NULL;
}

PyObject *other_copies_module(void)
{
    void *handle = find_running();
    PyObject *(*make)(void) = handle ? dlsym(handle, AGENT_MODULE_SYMBOL) : NULL;
    return make ? make() : NULL; /* handle stays: it may be detached just now */
}
