/* One injection: what its parts (inject.c, find_thread.c) share. */
#pragma once

#include "fs/inject/borrow.h"
#include "fs/inject/inject.h"
#include "fs/inject/library_file.h"
#include "fs/inject/payload.h"
#include "fs/inject/safe_point.h"
#include "fs/inject/volunteers.h"

struct injector {
    struct target *target;
    struct memory memory;
    struct safe_points *points;
};

/* One use of an injector. */
struct operation {
    struct injector *injector;
    struct payload payload;
    struct shim_control control;
    uint64_t deadline_ns;
    const struct interrupt *interrupt;
    struct inject_result *result;
    struct text *why;
    struct volunteers volunteers;
    uint64_t begun;
    pid_t traced;          /* a thread that another tracer has; 0: it keeps us from none */
    uint64_t traced_since; /* since when such a one has kept us from all that were tried */
    uint64_t stub;
    bool stub_there;
    int fd;                   /* the memfd, or -1 */
    struct library_file file; /* where the memfd can't be opened by the target */
    struct borrow borrow;
    enum safety safety; /* of the last thread that wasn't */
    struct safety_place place;
};

/* Takes over what is mapped now, and where things are in it. -EAGAIN: that isn't known yet, since
 * the process is only beginning to run another program; -EOPNOTSUPP, -ESRCH, -EPERM, -ENOMEM. */
int operation_refresh(struct operation *o);
/* Stops one thread, in a tracer's thread, with the target's `tracing` held. 1: it stands at a safe
 * place; 0: it doesn't, and goes on; or an error as below. */
int operation_stop(struct operation *o, pid_t tid);
/* 0 while there is time; -EINTR, -ETIMEDOUT. */
int operation_patience(const struct operation *o);
/* Stops a thread at a safe place, in a tracer's thread, and holds the target's `tracing` then.
 * -EAGAIN: a new tracer is needed, since this one has a thread that doesn't stop; or an error of
 * inject_load(). */
int operation_find_thread(struct operation *o);
