/* Threads inside somebody else's process. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define THREADS_OWN_MAX 16 /* that are there at once */
/* The kernel's numbers of the threads that thread_spawn() made and that are there; 0: none. */
extern int32_t threads_own[THREADS_OWN_MAX];

/* Starts a thread, run(arg), that no signal of the program ever interrupts. `stack`
 * bytes, or more where the program's thread-local variables need it; 0: as many as the
 * program's own threads have. out may be
 * NULL: then the thread is detached. faults: it runs the program's code, so SIGSEGV and its like
 * reach the program's handlers. 0 or -errno; -EAGAIN also: there are too many. */
int thread_spawn(size_t stack, bool faults, void *(*run)(void *), void *arg, pthread_t *out);
/* Whether a thread is one of these. In a handler of a signal, too. */
bool threads_own_has(pid_t tid);
/* In a child after fork: none is there. */
void threads_own_forget(void);
/* The kernel's number of the calling thread, also in a child of fork(). Fast: remembered.
 * Not in a handler of a signal. */
pid_t thread_tid(void);
/* Names the calling thread, at most 15 bytes. */
void thread_name(const char *name);

/* Bytes of a stack that are in memory: from an address near its top down to `bottom`. */
size_t stack_resident(const void *top, const void *bottom);
