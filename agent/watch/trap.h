/* Memory that is watched by debug registers, and what their SIGTRAP says of it.
 *
 * A slot of probe_agent_record.watches says what is to be watched; the daemon arms it. Whoever
 * writes there gets SIGTRAP right after the instruction that wrote. The handler takes down what was
 * and what is there now and what Python code the thread runs, puts that into a queue, and returns:
 * it takes no memory, no lock, no reference (trap_value.h), and calls nothing of CPython but what
 * faulthandler does. SIGTRAP for other reasons goes on to the program's own handler, but for
 * samples of processor time (agent/sample/).
 *
 * All of this is for whoever has the main interpreter's GIL. */
#pragma once

#include "agent/cpython/signal_stack.h"
#include "agent/watch/torch_callers.h"
#include "agent/watch/trap_value.h"
#include "agent/wire/proto.h"

/* What is watched. */
struct trap_memory {
    uint64_t address;
    uint32_t length;
    bool object;   /* it holds a reference to an object, or NULL */
    bool floating; /* a float, or double */
    bool version;  /* how often a tensor of PyTorch was changed in place */
    /* what it belongs to lies in memory that stays; NULL: so does this */
    const char *const *base; /* it is there while *base + offset is the address, ... */
    int64_t offset;
    const int64_t *count; /* ... and, unless NULL, index < *count */
    int64_t index;
};

#define TRAP_NO_SLOT PROTO_WATCHES_MAX /* told by trap_push() (trap_queue.h) */

struct trap_hit {
    unsigned slot;
    uint32_t change; /* of the slot, as it was set; of NO_SLOT: a number of the caller's */
    uint64_t old_bytes, new_bytes;
    struct trap_value value; /* of an object: the new one */
    bool lost;               /* of an object: it could not be looked at */
    uint64_t number;         /* of what was written to that slot */
    PyObject *object;        /* of NO_SLOT: the new one, a reference; NULL: unbound */
    uint64_t address;        /* behind the instruction */
    int32_t tid;
    PyThreadState *state; /* of the thread, perhaps gone since; NULL: none */
    double ts;
    struct signal_stack writer;
    struct torch_callers callers; /* of a version; else none */
};

/* Whether what is watched is still there, and not something else in memory that was given back. */
static inline bool trap_is_there(const struct trap_memory *memory)
{
    return !memory->base ||
           ((uint64_t)(uintptr_t)*memory->base + (uint64_t)memory->offset == memory->address &&
            (!memory->count || memory->index < *memory->count));
}

/* Installs the handler. 0, or -errno with words. */
int trap_stand(char words[PROTO_WORDS_MAX]);
/* Whom it calls where the kernel says that a quantum of processor time has ended; late: the thread
 * had blocked SIGTRAP until now. As all of it, it takes no memory and no lock. */
void trap_on_sample(void (*take)(bool late));
/* Whether the handler must stay at trap_end(): somebody may still be told of such a quantum. */
void trap_keep(bool keep);
/* trap_stand(), and makes the queue for what is written. */
int trap_begin(char words[PROTO_WORDS_MAX]);
/* Takes the handler out again, now that a daemon has disarmed all, or none has armed anything:
 * whether nothing calls it any more. */
bool trap_end(void);
void trap_forget(void); /* in a child after fork */
/* Whether the handler still stands; puts it before one that the program has set since. */
bool trap_check(void);

/* Has a slot armed, from now on, whatever it was before. stop: who writes there is to be stopped
 * soon after. What it says as `change`. */
uint32_t trap_set(unsigned slot, uint32_t id, enum watch_route route, bool stop,
                  const struct trap_memory *memory);
void trap_clear(unsigned slot);
/* Whether a slot has been set since that a tracer may have armed; and that there is none any
 * more, or again. Any thread. */
bool trap_may_be_traced(void);
void trap_set_traced(bool traced);
/* How often anything was written to a slot since it was set, and of that, how
 * often the queue was full. */
uint64_t trap_count(unsigned slot, uint64_t *dropped);
/* Whether nothing has been written to a hit's slot since. */
bool trap_is_last(const struct trap_hit *hit);
