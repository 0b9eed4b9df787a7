/* What a Python frame has done to locks by calling their acquire() and release().
 *
 * All ways through the bytecode of its function to where the frame stands are gone, also those by
 * exceptions: what is true on all of them is true. Of acquire() only a call without arguments
 * counts as one that has the lock afterwards. Which lock is meant is what the expression before the
 * dot stands for now (expression.h); where that was bound again in between it isn't known. A lock
 * that somebody else gives back, or a function that is called, can't be seen. */
#pragma once

#include "fs/remote/frames/exception_table.h"
#include "fs/remote/frames/expression.h"
#include "fs/remote/frames/frames.h"
#include "fs/remote/frames/instructions.h"

#define LOCK_CALLS_MAX 64 /* of one function */
#define LOCK_CALLS_KNOWN 64

/* The lock that an object with acquire() and release() stands for; 0: none that is known. */
typedef uint64_t lock_find(void *arg, uint64_t object);

struct lock_call {
    struct expression of;
    uint64_t lock; /* 0: not known */
    uint32_t at;   /* byte offset of the call without arguments, else of where the method is read */
    bool acquires;
    bool plain;   /* it acquires, without arguments */
    bool rebound; /* it releases, and the expression may stand for another object since */
};

/* What is shared by all that is asked of the frames of one moment. Zero it, but for steps. */
struct lock_calls_work {
    uint32_t steps; /* that may yet be taken: an instruction, a name, 64 bytes of a table */
    struct lock_calls_answer {
        uint64_t code, of, unknown; /* bits: which calls are of the lock, or of an unknown one */
        uint32_t stands_at, since;
        unsigned done;
        int32_t at;
    } known[LOCK_CALLS_KNOWN]; /* the last ones: frames of a recursion are alike */
};

struct lock_calls {
    struct lock_call items[LOCK_CALLS_MAX]; /* in the order of the bytecode */
    size_t n;
    bool unread; /* n is 0, but it may well call release() */

    struct bytecode code;
    struct exception_table handlers; /* from 3.11 on */
    uint32_t stands_at;              /* the instruction at which the frame stands */
    uint8_t *marks;                  /* one for each unit of two bytes */
    uint64_t addr;                   /* of the code object */
    struct lock_calls_work *work;
};

/* Finds the calls in the function's bytecode. Free *out with lock_calls_deinit(), also where there
 * are none. work must outlive it. -EFAULT, -EOPNOTSUPP, -E2BIG: it can't be told; -ENOMEM. */
int lock_calls_read(struct view *view, const struct offsets *offsets, const struct raw_frame *frame,
                    lock_find *find, void *arg, struct lock_calls_work *work,
                    struct lock_calls *out);
void lock_calls_deinit(struct lock_calls *calls);

/* What the last call on a way has done. */
#define LOCK_UNTOUCHED 1u
#define LOCK_ACQUIRED 2u
#define LOCK_RELEASED 4u

/* What was done to the lock on the ways from the function's beginning: any of these, or'd; a call
 * of release() of which the lock isn't known may have been of this one. 0: not known. *at is the
 * byte offset of the call that has acquired it, if that is what was done on all ways, and by the
 * same call; else -1. */
unsigned lock_calls_of(const struct lock_calls *calls, uint64_t lock, int32_t *at);
/* lock_calls_of() for ways from the instruction at byte offset `since`, which begins the block of a
 * with statement of the lock: a call of release() of which the lock isn't known is of another. */
unsigned lock_calls_since(const struct lock_calls *calls, uint64_t lock, uint32_t since);
