/* Stopping threads of a target for a moment, by ptrace(2), and letting them go whatever happens.
 *
 * A ptrace attachment belongs to a thread of ours. Each use gets a thread of its own: when that
 * thread ends, or the whole daemon is killed, the kernel detaches what it traced and lets it run.
 * That is the only sure way out for a tracee that doesn't stop in time (PTRACE_DETACH needs a
 * stopped one). PTRACE_SEIZE and PTRACE_INTERRUPT send no signal; a job control stop stays one.
 *
 * Reading a target's memory may never end (proc/may_hang.h). So who reads while threads are stopped
 * does so on another thread than the one that traces: that lets them go by a deadline. */
#pragma once

#include "agent/arch/arch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How long a thread may take to stop: one that doesn't is in an uninterruptible system call. */
#define TRACER_STOP_DEADLINE_NS 50000000ull
#define TRACER_STOPPED_MAX 64 /* threads stopped at the same time */
/* In which one that has a processor stops: 7 to 20 us from another one. */
#define TRACER_INTERRUPT_NS 20000ull
/* How long they may be stopped for reading, which takes some milliseconds. */
#define TRACER_READ_DEADLINE_NS 1000000000ull
/* What threads are called that stop others for a moment: who meets one waits for its end. */
#define TRACER_NAME "probefs-tracer"
/* Whether thread `tracer` is one of those, of whatever process; also if it is gone by now. */
bool tracer_brief(pid_t tracer);

struct tracer;

/* Runs work(tracer, arg) on a new thread and waits for its end. All that is still stopped then goes
 * on. Returns what work returned; -EAGAIN, -ENOMEM: no thread could be made. */
int tracer_run(int (*work)(struct tracer *tracer, void *arg), void *arg);
/* Runs work(tracer, arg) here, and traces on a new thread: for work that only reads and may hang.
 * The new thread holds `turn` until it lets all go on, when the work asks for that or is over, or
 * by TRACER_READ_DEADLINE_NS. Returns as above. */
int tracer_read(pthread_mutex_t *turn, int (*work)(struct tracer *tracer, void *arg), void *arg);

/* Stops one thread; one of a process that this daemon traces anyway (trace/claims.h), too. Who
 * stops several does so by ascending number, so that no two wait for each other. -EBUSY: another
 * tracer has it, and for long; -EPERM; -ESRCH: it is gone; -EDEADLK: it waits for an answer of this
 * daemon; -ENFILE: too many are stopped. -ETIMEDOUT: it did not stop in time, as it sleeps in the
 * kernel beyond interruption or gets no processor; it stops before it executes anything of its own,
 * and so stands still for whoever reads its memory, until it is let go. */
int tracer_stop(struct tracer *tracer, pid_t tid);
/* The same without waiting for a processor that it may not have: -ETIMEDOUT comes after
 * TRACER_INTERRUPT_NS, and means as much. tracer_stop() waits on then. */
int tracer_interrupt(struct tracer *tracer, pid_t tid);
/* Begins to trace one thread, which runs on; options: ptrace(2)'s. Whoever traces it for a moment,
 * another process of this daemon (owner/owner.h), or another daemon, is waited for for deadline_ns.
 * The kernel says EPERM to all of these: -EPERM, it is not allowed, whatever error a seccomp filter
 * or a security module chose; -EBUSY, another tracer has it, and for long, or the caller itself;
 * -ESRCH, it has ended. */
int tracer_seize(pid_t tid, uintptr_t options, uint64_t deadline_ns);
/* Waits until a thread that is traced has stopped, and for nothing else of it. *status: the signal,
 * and above it the PTRACE_EVENT, as in wait(2)'s status >> 8. -ESRCH: it ended; -ETIMEDOUT;
 * -EDEADLK: it waits for an answer of this daemon. */
int tracer_wait(pid_t tid, uint64_t deadline_ns, int *status);
/* The same until then (CLOCK_MONOTONIC), for as long as it is ready to run, and only gets no
 * processor; -ETIMEDOUT at once where it sleeps beyond interruption. */
int tracer_wait_ready(pid_t tid, uint64_t until_ns, int *status);
/* The registers of a stopped thread. */
int tracer_registers(struct tracer *tracer, pid_t tid, struct registers *out);
/* Lets all go on. *ns: for how long the first of them was stopped. 0; -ETIMEDOUT: they were let go
 * before, since reading took too long. */
int tracer_resume(struct tracer *tracer, uint64_t *ns);
