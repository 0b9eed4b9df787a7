/* Asking one thread to run a script (PEP 768): what is written into its thread state.
 *
 * These are the only writes: the script's path, debugger_pending_call, and bits of eval_breaker's
 * lowest byte. Source: Python/remote_debugging.c and Python/ceval_gil.c of CPython 3.14 and
 * 3.15. */
#pragma once

#include "fs/inject/script/offsets.h"
#include "fs/inject/script/wake.h"

#define SCRIPT_ORDER_PATH_MAX 512

struct script_order {
    struct target *target;
    const struct script_offsets *runtime;
    pid_t tid;
    uint64_t tstate;                /* that the thread had when it was looked at */
    const struct sleep_call *place; /* to wake it from */
    char path[SCRIPT_ORDER_PATH_MAX];
    int mem;           /* its own */
    uint64_t pause_ns; /* out: for which it was stopped */
};

/* Places an order. -EBUSY: the process is being traced, another debugger's order is pending
 * there, or it shares its parent's memory; -EAGAIN: the thread is not what it was; -ESRCH: the
 * process ends; -ETIMEDOUT, -EDEADLK: it could not be stopped; -EPERM. */
int script_order_place(struct script_order *order);
/* Whether the thread has begun to carry it out. */
bool script_order_taken(const struct script_order *order);
/* Takes it back. 1: it will never be carried out; 0: too late; errors as before. */
int script_order_withdraw(struct script_order *order);
