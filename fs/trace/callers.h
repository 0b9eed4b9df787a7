/* Which threads of this machine wait for an answer of ours.
 *
 * A thread inside a FUSE request sleeps uninterruptibly in the kernel: a ptrace stop only comes
 * once the request is answered. Whoever means to stop a thread asks here first, and again while
 * it waits for the stop: otherwise a Python program that reads its own backtrace would make the
 * daemon wait for itself.
 *
 * The set belongs to the process, as errno belongs to a thread: the one exception to "no global
 * mutable state", so that fs/trace needs to know nothing of FUSE. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* One request in flight; lives on the stack of the thread that answers it, or wherever a reply
 * that comes later is kept. */
struct request {
    pid_t tid;
    struct request *previous, *next;
};

/* Puts a request of thread tid into the set; 0 (a thread of a foreign pid
 * namespace) is kept out. */
void request_begin(struct request *request, pid_t tid);
/* Takes it out; call it before the reply is sent, for the thread runs on with the reply. */
void request_end(struct request *request);

/* Whether thread tid waits for an answer of this daemon now. */
bool requests_waiting(pid_t tid);
