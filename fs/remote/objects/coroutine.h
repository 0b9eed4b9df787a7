/* Coroutines and generators: where they stand, and what they await. */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/remote/memory/view.h"

/* Bytes of one that coroutine_read() looks at, from its start. */
uint32_t coroutine_size(const struct offsets *offsets);

struct coroutine {
    bool created;    /* has not begun */
    bool executing;  /* runs right now: what it awaits is on the stack of its thread */
    bool finished;   /* has no frame any more; what follows is void */
    uint64_t frame;  /* _PyInterpreterFrame, inside the object; up to 3.10 a PyFrameObject */
    uint64_t code;   /* PyCodeObject */
    int32_t lasti;   /* byte offset of the current instruction in the bytecode */
    uint64_t awaits; /* the object it awaits or delegates to (cr_await, gi_yieldfrom), or 0 */
    bool torn;       /* it awaits something that could not be read */
};

/* Reads the coroutine, generator or asynchronous generator at addr; what it awaits from 3.12 on.
 * -EFAULT: not readable, or it makes no sense. Source: Objects/genobject.c, _PyGen_yf(). */
int coroutine_read(struct view *view, const struct offsets *offsets, uint64_t addr,
                   struct coroutine *out);
