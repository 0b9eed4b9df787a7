/* Commands: whatever a write asks for runs on a thread of its own.
 *
 * A command may wait, for a target's GIL or for what somebody wrote to be done, and the threads
 * that answer the kernel may not. So each gets a thread, of which a few stay for the next ones;
 * there is an upper bound, and all can be told to end. */
#pragma once

#include "fs/base/interrupt.h"
#include "fs/base/shares.h"

#include <pthread.h>
#include <stdint.h>

#define COMMANDS_MAX 256           /* at once ... */
#define COMMANDS_EACH 64           /* ... of one user, and ... */
#define COMMANDS_KEPT 32           /* ... for root alone */
#define COMMANDS_WATCH_NS 50000000 /* between two looks at one that is watched */
#define COMMANDS_IDLE 4            /* threads that wait for a command: making one takes longest */

struct commands;
struct commands_thread;

/* The first member of a larger structure, which is the command's own. */
struct command {
    struct interrupt interrupt;
    void (*run)(struct command *command);
    void (*done)(struct command *command); /* gives back what it is a member of */
    uint64_t until_ns; /* of CLOCK_MONOTONIC, when it is interrupted if it still runs; 0: never */
    bool (*unwanted)(struct command *command); /* asked now and then, once it is watched */
    bool watched;
    uid_t uid; /* whose it is */
    struct commands *commands;
    struct command *previous, *next; /* of those that run */
};

/* All that run. */
struct commands {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* one began that has a time, or one ended */
    struct command *first;
    struct shares shares; /* of those that run */
    struct commands_thread *idle;
    unsigned nidle, nthreads; /* of nthreads, the timer's left out */
    bool ending;              /* none is begun any more */
    bool timed;               /* there is a thread that interrupts those whose time has come */
    pthread_t timer;
};

void commands_init(struct commands *commands);
/* None may run any more. */
void commands_deinit(struct commands *commands);

/* Sets up the members above; the functions and until_ns are the caller's to set before. */
void command_init(struct command *command, struct commands *commands, uid_t uid);
void command_deinit(struct command *command);
/* Calls command->run on a thread of its own, and command->done after it, which deinits it. -EAGAIN:
 * too many run; -EDQUOT: too many of this user; -ENOMEM: there is no thread to be had; -ESHUTDOWN:
 * all are ending. Then the command stays the caller's. */
int command_start(struct command *command);
/* Interrupts it once `unwanted` says so, perhaps at once. May be called from its init until it has
 * ended, from any thread, more than once. */
void command_watch(struct command *command);

/* Interrupts all that run and waits for their end. False: some still run after deadline_ns; what
 * they use can't be freed then. No command can be begun from now on. */
bool commands_end(struct commands *commands, uint64_t deadline_ns);
