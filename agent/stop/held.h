/* The threads that are held, as hold.c, which holds them, and hold_job.c, which has
 * them run something, know them. */
#pragma once

#include "agent/stop/hold.h"

#include <pthread.h>

/* A held thread, on its stack. What isn't its own business alone is under the agent's lock. */
struct held {
    struct held *next;
    struct interpreter *interpreter;
    const struct hold *hold;
    struct probe_stop *stop;
    pthread_t thread;
    uint64_t state; /* PyThreadState_GetID() */
    pid_t tid;
    pthread_cond_t told; /* `going` or `job` has changed */
    const char *going;   /* NULL; or why it is told to go on, as events have it */
    struct job *job;     /* NULL: none */
    uint64_t until_ns;   /* CLOCK_MONOTONIC */
    unsigned forks;      /* fork_count() */
    int jumped_to;       /* line; 0: it hasn't jumped */
    bool stepped;        /* a step ended here */
    bool is_main;        /* it is the one that runs signal handlers */
};

/* newest first; those that are told to go on are in it until they have the GIL */
extern struct held *held_all;
/* this thread's, so what it evaluates isn't held; NULL: none */
extern __thread struct held *held_own;

/* With the lock: it goes on, once it has run its job. why: as events have it. */
void held_tell(struct held *held, const char *why);
/* Runs the job of this thread, with the GIL. */
void held_run_job(void);
