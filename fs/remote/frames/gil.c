#include "fs/remote/frames/gil.h"

#include "fs/remote/frames/frames.h"

#include <errno.h>

#define INTERVAL_MAX 10000000u /* microseconds; 5,000 unless the program chose otherwise */

/* The interpreter with this id. */
static int find_interpreter(const struct memory *memory, const struct runtime *rt, int64_t id,
                            uint64_t *out)
{
    const struct offsets *o = &rt->offsets;
    uint64_t addr, found;

    int r = memory_read(memory, rt->addr + (uint64_t)o->rt_interpreters_head, &addr, sizeof addr);
    for (int i = 0; r == 0 && addr && i < WALK_INTERPRETERS_MAX; i++) {
        r = memory_read(memory, addr + (uint64_t)o->interp_id, &found, sizeof found);
        if (r == 0 && (int64_t)found == id) {
            *out = addr;
            return 0;
        }
        if (r == 0)
            r = memory_read(memory, addr + (uint64_t)o->interp_next, &addr, sizeof addr);
    }
    return r < 0 ? r : -ENOENT;
}

int gil_interval_find(const struct memory *memory, const struct runtime *rt, int64_t id,
                      uint64_t *out)
{
    const struct offsets *o = &rt->offsets;
    uint64_t interp, gil = rt->addr + (uint64_t)o->rt_gil, interval;

    if (!rt->supported || rt->free_threaded)
        return -EOPNOTSUPP;
    int r = find_interpreter(memory, rt, id, &interp);
    if (r == 0 && o->interp_gil >= 0)
        r = memory_read(memory, interp + (uint64_t)o->interp_gil, &gil, sizeof gil);
    if (r < 0)
        return r;
    if (!gil)
        return -ENOENT;
    gil += (uint64_t)o->gil_last_holder - sizeof interval;
    r = memory_read(memory, gil, &interval, sizeof interval);
    if (r < 0)
        return r;
    if (!interval || interval > INTERVAL_MAX)
        return -EAGAIN;
    *out = gil;
    return 0;
}

int gil_holder_find(const struct memory *memory, const struct runtime *rt, int64_t id, pid_t *out)
{
    const struct offsets *o = &rt->offsets;
    uint64_t gil, tstate, native_id;
    uint32_t locked;

    *out = 0;
    if (o->tstate_native_thread_id < 0)
        return -EOPNOTSUPP;
    int r = gil_interval_find(memory, rt, id, &gil);
    if (r < 0)
        return r;
    gil += sizeof tstate; /* now of the last holder */
    uint64_t at = gil + (uint64_t)(o->gil_locked - o->gil_last_holder);
    r = memory_read(memory, at, &locked, sizeof locked);
    if (r == 0)
        r = memory_read(memory, gil, &tstate, sizeof tstate);
    if (r < 0 || !gil_is_locked(locked) || !tstate)
        return r;
    at = tstate + (uint64_t)o->tstate_native_thread_id;
    r = memory_read(memory, at, &native_id, sizeof native_id);
    if (r == 0 && native_id <= INT32_MAX)
        *out = (pid_t)native_id;
    return r;
}
