/* How asyncio's tasks lie in memory, and where their lists begin.
 *
 * From 3.14 on the target says it: the section .AsyncioDebug of the image that holds the _asyncio
 * module (struct _Py_AsyncioModuleDebugOffsets, Modules/_asynciomodule.c; 13 words). 3.12 and 3.13
 * say nothing: the layout of TaskObj is constant within each (from the debug information of
 * builds of both), and whoever reads a task checks first that its type has that size. All values
 * are bytes; -1: this version has no such field. */
#pragma once

#include "fs/proc/maps.h"
#include "fs/remote/objects/runtime.h"

struct asyncio {
    bool known;        /* false: no C implementation is loaded; what follows is void */
    int32_t task_size; /* tp_basicsize of _asyncio.Task */
    /* FutureObj, which a TaskObj begins with */
    int32_t loop, callback0, callbacks, state;
    int32_t awaited_by, awaited_by_is_set;
    /* TaskObj */
    int32_t waiter, coro, name, node;
    int32_t must_cancel; /* a byte, of which bit must_cancel_bit counts */
    uint8_t must_cancel_bit;
    int32_t cancels; /* int: requests to cancel so far */
    /* PyThreadState, PyInterpreterState */
    int32_t tstate_loop, tstate_task, tstate_tasks, interp_tasks;
};

/* Finds all that. Costs a few dozen reads of memory and of a file's section headers: not for a
 * moment when a target is stopped. -EOPNOTSUPP: before 3.12, or a 3.14 or later that doesn't say
 * (its file can't be opened, or what it says makes no sense); -ESRCH, -EPERM, -ENOMEM. */
int asyncio_find(const struct memory *memory, const struct maps *maps,
                 const struct runtime *runtime, struct asyncio *out);

/* asyncio_find() as far as it is needed to tell which task runs, from 3.9 on: up to 3.11 nothing
 * but loop, coro, name and callback0 is set. */
int asyncio_find_running(const struct memory *memory, const struct maps *maps,
                         const struct runtime *runtime, struct asyncio *out);

/* The 13 words of the section, of an interpreter whose objects have a head of that size. -EINVAL:
 * they make no sense. */
#define ASYNCIO_DEBUG_SIZE (13 * 8)
int asyncio_parse_debug(const uint8_t *bytes, int32_t head, struct asyncio *out);
