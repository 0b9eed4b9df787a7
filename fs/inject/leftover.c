#include "fs/inject/leftover.h"

#include "agent/base/clock.h"
#include "fs/inject/inject_abi.h"
#include "fs/proc/maps.h"

#include <errno.h>
#include <string.h>

#define LEFTOVER_NS 1000000000u
#define NAP_NS 1000000

/* Whether a shim is mapped still: its thread unmaps it when it is done. A library of the same name
 * is mapped privately. */
static int shim_mapped(pid_t pid)
{
    struct maps maps;
    int found = 0;

    int r = maps_read(pid, &maps);
    if (r < 0)
        return r;
    for (size_t i = 0; i < maps.n && !found; i++)
        found = maps.items[i].shared && strstr(maps.items[i].path, "/memfd:" MEMFD_NAME);
    maps_deinit(&maps);
    return found;
}

int leftover_wait(pid_t pid, const struct interrupt *interrupt)
{
    uint64_t until = monotonic_ns() + LEFTOVER_NS;
    int r;

    while ((r = shim_mapped(pid)) > 0 && monotonic_ns() < until) {
        if (interrupted(interrupt))
            return -EINTR;
        nap_ns(NAP_NS);
    }
    return r < 0 ? r : 0;
}
