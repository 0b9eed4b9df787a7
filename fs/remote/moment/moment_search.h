/* What looks for a moment, for moment.c and moment_each.c alone. */
#pragma once

#include "fs/remote/moment/moment.h"
#include "fs/trace/tracer.h"

#include <errno.h>

struct taker;

struct search {
    struct target *target;
    moment_work *work;
    void *arg;
    struct moment *moment;
    struct taker *takers; /* as they were before the reading, one for each GIL */
    struct gil *gils;     /* those GILs as they are */
    size_t ngils, ntakers, takers_alloc, gils_alloc;
    pid_t running[TRACER_STOPPED_MAX]; /* takers that run */
    size_t nrunning;
    bool no_stopping;      /* it is not allowed, or another tracer is there and stays */
    unsigned refusals;     /* of being stopped */
    pid_t torn;            /* the one stopped in the middle of what `work` reads; or 0 */
    struct lwp_list *lwps; /* of a process in another pid namespace; read once */
};

void search_deinit(struct search *search);

/* Walks all stacks, and loads the code objects that are new. Errors as walk_run(). */
int search_walk(struct search *search);
/* Runs the work, if there is any. */
int search_work(struct search *search);

/* Failures that are of this try only: the process itself may live, and the next try finds out. */
static inline bool is_passing(int error)
{
    return error == -EBUSY || error == -ETIMEDOUT || error == -EDEADLK || error == -ENFILE ||
           error == -ESRCH || error == -EFAULT;
}

/* How many frames of a stack are as they were before, from the outermost one on. */
size_t stack_common(const struct stack *s, const struct raw_frame *before, size_t nbefore);
/* Drops the inner frames that an earlier walk doesn't confirm. Of a thread that may have run
 * meanwhile that proves little. */
void stack_keep_common(struct stack *s, const struct raw_frame *before, size_t nbefore, bool ran);
