/* The agent, seen from inside the library.
 *
 * Two threads live here. The channel's (channel.c, dispatch.c) talks with the daemon and never
 * touches Python, so that it answers whatever the interpreter does. Python's (thread.c) is made with
 * the first request that needs it, has one thread state for good, and runs one request after the
 * other; if the code that it runs doesn't end when it is interrupted, as in a call into C that waits for
 * ever, it is retired and another one takes its place. A third kind (interrupt.c) lives for the moment
 * in which running code is cancelled.
 *
 * What they share is `agent`, under one lock. It is held for moments only: never while waiting for
 * the GIL or the daemon, since fork() waits for it (fork.c). */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"
#include "agent/requests.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* The daemon that doesn't read for as long is given up. */
#define AGENT_SEND_NS 2000000000ull

/* The channel's state: channel.c. */
struct channel {
    int fd;             /* our end; -1: there is none */
    int spare;          /* the end for a daemon; -1: one has it */
    ino_t fd_inode, spare_inode; /* a program may close descriptors that it does not know */
    unsigned senders;   /* threads that send now: it is not closed under them */
    bool greeted;       /* HELLO came */
    uint64_t nonce;     /* of that HELLO */
};

/* Python's thread that serves, and those that are retired: more than this don't get stuck. */
#define PYTHON_THREADS_MAX 8

/* One of Python's threads: thread.c. */
struct python_thread {
    pthread_t thread;
    bool exists;        /* it was made, and not joined */
    bool retired;       /* it ends as soon as what it runs ends */
    uint64_t welcome_ns; /* since when it waits for the GIL for `import probing`; 0: it doesn't */
    PyThreadState *state; /* in the main interpreter; NULL: not yet, or no more. Its own business,
                             but for fork */
};

/* Cancelling running code: interrupt.c. */
struct interrupter {
    bool exists;        /* the thread is under way */
    uint64_t id;        /* the request to interrupt; 0: none */
};

struct agent {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* anything below that a thread may wait for */
    bool ending;            /* the interpreter ends: no request runs any more */
    bool detaching;         /* a DETACH waits or runs */
    bool detached;          /* ...and has given up what was Python's */
    bool unloadable;        /* ...all of it */
    bool nobody_writes;     /* ...and no thread is writing rows */
    uint32_t origin;        /* enum proto_origin */
    uint64_t since_ns;      /* CLOCK_REALTIME of the start */
    uint64_t evals;
    struct channel channel;
    struct requests requests;
    struct python_thread pythons[PYTHON_THREADS_MAX];
    struct python_thread *python; /* the one that serves, or would */
    bool replaced;          /* one was retired: nobody waits for its last step inside the library */
    struct interrupter interrupter;
    struct interpreter interpreters[INTERPRETERS_MAX];
};

extern struct agent agent;
extern struct probe_agent_record probe_agent_record;

/* Holds agent.lock for the rest of the scope. */
#define _guard_agent_ _guard_mutex_(&agent.lock)

/* What READY says. Any thread; takes the lock. */
void agent_describe(struct proto_ready *out);

/* The channel's thread's last act, after a detach: nothing of ours runs any more. */
void agent_ended(void);

/* Makes the state that of a process that has no agent, keeping what is Python's: in a child after
 * fork, where the other threads are gone. */
void agent_forget(void);

/* CLOCK_MONOTONIC. */
uint64_t agent_now_ns(void);
