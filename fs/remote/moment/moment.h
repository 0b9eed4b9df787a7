/* One moment of a running interpreter: finding it, and reading within it.
 *
 * A core file is one.
 *
 * Python frames change only under the GIL. So they stand still while the thread that took it last
 * doesn't run and nobody else takes it. That thread
 *   - rests: whatever was read is read again, equal bytes mean that nothing happened in between,
 * and the kernel's count of its runs says the same (bytes alone don't: a program that does the same
 *     again and again shows the same bytes again); or
 *   - is stopped by us, whether it holds the GIL just then or not. That is checked again once it
 * has stopped and at the end: a GIL that was handed on meanwhile means another try. Only a thread
 * that runs is ever stopped, never one that sleeps. Where neither works (another tracer is there
 * and the target never rests) two walks are compared, and what they don't agree on is marked, as is
 * every thread that ran.
 *
 * Where an interpreter's GIL is off (free-threaded builds), each thread changes its own frames
 * whenever it runs, and is to itself what the taker of a GIL is above: those that run are stopped,
 * all of them together for what reads more than stacks, else one after the other, each only while
 * its stack is copied. From the interrupt on a thread can't execute anything of its own, so that
 * one without a processor isn't waited for. */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/moment/target.h"

struct lwp_list;
struct tracer;

#define MOMENT_TRIES 64
/* On a busy machine each try may take long. So it isn't the time that ends the first of them. */
#define MOMENT_TRIES_MIN 24
#define MOMENT_DEADLINE_NS 300000000ull

struct moment {
    struct walk *walk;     /* what was seen; the target's own, valid until the next moment */
    struct tracer *tracer; /* while those who took a GIL last are stopped, else NULL */
    const pid_t *holders; /* those threads; one that got no processor to stop on has no registers */
    size_t nholders;
    bool late;         /* they may not have stopped yet, and stand still: tracer_stop() waits */
    bool verified;     /* else stacks[].torn may be set */
    uint64_t pause_ns; /* for which threads were stopped, in all; 0: none was */
};

/* Work within a moment. It may run several times, and starts afresh each time; it reads only
 * through the target's view (or from stopped threads), and stays within a few milliseconds. A
 * result below 0 ends the search, -EAGAIN asks for another moment. */
typedef int moment_work(struct moment *moment, void *arg);

/* Finds a moment, walks all stacks and runs work, which may be NULL. The caller holds target->lock.
 * 0; what work returned; -ESRCH, -EPERM, -ENOMEM; -EAGAIN: no walk made sense. */
int moment_run(struct target *target, moment_work *work, void *arg, struct moment *moment);

/* The same where only the stacks are wanted, of all threads (only: 0) or of one, each as it was at
 * some moment of its own: without a GIL they are read one after the other. `work` runs while a
 * thread is stopped, which is the only holder then, and once at the end; with a GIL it runs as
 * above. */
int moment_run_each(struct target *target, pid_t only, moment_work *work, void *arg,
                    struct moment *moment);

/* The kernel's number of the thread that a stack belongs to, in the daemon's pid namespace; 0 if it
 * is none of lwps. */
pid_t moment_tid(struct target *target, const struct lwp_list *lwps, const struct stack *stack);
