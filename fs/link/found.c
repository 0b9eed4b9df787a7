#include "fs/link/found.h"

#include "agent/base/cleanup.h"
#include "fs/inject/script/files.h"
#include "fs/proc/maps.h"
#include "fs/proc/procfs.h"
#include "fs/remote/memory/elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_MAX 8192

/* What the process itself calls its pid: the last of the numbers that its namespaces give it. */
static int inner_pid(pid_t pid, pid_t *out)
{
    char status[STATUS_MAX];

    ssize_t n = proc_read(pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    const char *p = proc_status_field(status, "NSpid");
    *out = pid;
    for (char *end; p; p = end) {
        long number = strtol(p, &end, 10);
        if (end == p || *p == '\n')
            break;
        *out = (pid_t)number;
        if (*end == '\n')
            break;
    }
    return 0;
}

int found_agent_refresh(const struct memory *m, struct found_agent *found)
{
    struct probe_agent_record record;

    int r = memory_read(m, found->record_addr, &record, sizeof record);
    if (r < 0)
        return r == -EFAULT ? -ENOENT : r;
    if (record.magic != RECORD_MAGIC)
        return -ENOENT;
    if (record.version != PROTO_VERSION || record.size != sizeof record)
        return -EOPNOTSUPP;
    found->record = record;
    found->running = record.state == RECORD_RUNNING && record.pid == found->pid;
    return 0;
}

int found_agent_at(const struct memory *m, uint64_t base, struct found_agent *out)
{
    struct elf_image image;

    int r = elf_image_read(m, base, &image);
    if (r == 0)
        r = elf_image_symbol(m, &image, AGENT_RECORD_SYMBOL, &out->record_addr, NULL);
    if (r == 0)
        r = elf_image_symbol(m, &image, AGENT_START_SYMBOL, &out->start_addr, NULL);
    if (r == 0)
        r = inner_pid(m->pid, &out->pid);
    if (r < 0)
        return r == -ESRCH || r == -EPERM ? r : -ENOENT;
    out->base = base;
    out->bias = image.bias;
    return found_agent_refresh(m, out);
}

static bool is_candidate(const struct mapping *mapping)
{
    return mapping->offset == 0 && mapping->readable &&
           (strstr(mapping->path, "probe-agent") || strstr(mapping->path, "probing") ||
            strstr(mapping->path, SCRIPT_FILES_PREFIX));
}

int found_agent_find(const struct memory *m, struct found_agent *out)
{
    _cleanup_(maps_deinit) struct maps maps = {0};
    int best = -ENOENT;
    size_t looked = 0;

    int r = maps_read(m->pid, &maps);
    if (r < 0)
        return r;
    for (size_t i = 0; i < maps.n && looked < FOUND_IMAGES_MAX; i++) {
        struct found_agent found;
        if (!is_candidate(&maps.items[i]))
            continue;
        looked++;
        r = found_agent_at(m, maps.items[i].start, &found);
        if (r == -ESRCH || r == -EPERM)
            return r;
        if (r == 0 && (best < 0 || found.running))
            *out = found;
        if (r == 0 || (r == -EOPNOTSUPP && best == -ENOENT))
            best = r;
        if (r == 0 && found.running)
            break;
    }
    return best;
}
