/* Registers and stacks of a process's threads, each taken with as little disturbance as it takes:
 * of a sleeping thread from /proc, of the GIL's holder while it is stopped anyway, and of a thread
 * that runs without the GIL (in numpy, in torch) by a stop of its own, for a few microseconds. */
#pragma once

#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/native/native.h"

#define CAPTURE_SINGLES_MAX 64 /* threads that are taken singly, in one reading */
#define CAPTURE_TRIES 4        /* each */

struct capture {
    struct target *target;
    struct lwp_list *lwps;
    pid_t only;                  /* 0: all threads */
    struct native_stack *stacks; /* one for each of lwps */
    uint64_t pause_ns;           /* for which single running threads were stopped, in all */
};

/* Before the moment: those that sleep, of all threads or only of one. lwps stays the caller's. */
int capture_begin(struct capture *capture, struct target *target, struct lwp_list *lwps,
                  pid_t only);
/* Within it: the holders that are stopped. */
int capture_holders(struct capture *capture, const struct moment *moment);
/* After it: unwinds all, and takes singly those that ran, if they have not left the Python frames
 * that the walk saw. */
int capture_unwind(struct capture *capture, const struct walk *walk);
/* Whether more of a stopped thread's stack is wanted than was copied: another reading gets it. */
bool capture_too_short(const struct capture *capture);
void capture_end(struct capture *capture);
