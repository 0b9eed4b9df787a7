/* asyncio in a profile: under a task that runs, its name and those that await it instead of the
 * event loop's frames; and of tasks that wait, what for and how long.
 *
 * Which task runs, whoever takes a sample says, in that very moment. The rest is a census: all
 * tasks as fs/remote/tasks finds them, read now and then while the process goes on; what two
 * readings in a row don't agree on is left out. It reads ten times a second, and so seldom that it
 * takes one fiftieth of a processor at most. CPython 3.9 to 3.15; a census from 3.12 on.
 *
 * Thread-safe. Takes the target's lock. */
#pragma once

#include "fs/remote/tasks/tasks.h"
#include "fs/sampler/names.h"

#define SAMPLER_TASKS_ABOVE 512     /* frames of those that await a task, and its name */
#define SAMPLER_TASKS_NAME 80       /* code points of a name */
#define SAMPLER_TASKS_UNNAMED 64    /* names that asyncio gave, and ... */
#define SAMPLER_TASKS_NAMED 512     /* ... others; beyond, digits are shown as *, ... */
#define SAMPLER_TASKS_FOLDED 1024   /* ... and with so many in all the whole name */
#define SAMPLER_TASKS_NS 100000000u /* between two censuses, at least, and ... */
#define SAMPLER_TASKS_SHARE 50      /* ... so many times as long as the last one took */

struct sampler_tasks;

/* target, names and store outlive it. -ENOMEM. */
int sampler_tasks_new(struct target *target, struct sampler_names *names, struct store *store,
                      struct sampler_tasks **out);
void sampler_tasks_free(struct sampler_tasks *tasks);

/* Finds where the task stands that a thread runs: in the thread state (asyncio->tstate_task), or in
 * the dict at *running, by event loops. False: there is no asyncio, so far. */
bool sampler_tasks_where(struct sampler_tasks *tasks, struct asyncio *asyncio, uint64_t *running);

/* Does what is due. waits: adds to the store how long tasks have waited, those of thread tid (0:
 * all). True: what sampler_tasks_where() says is another thing now. */
bool sampler_tasks_look(struct sampler_tasks *tasks, uint64_t now, bool waits, pid_t tid);

/* A task that ran in a sample. */
struct running_task {
    uint64_t task, coro;
    uint64_t awaiter, awaiter_coro; /* the task that awaits it, if that is known; 0 */
    const uint8_t *name;            /* the object that is its name, as it begins */
    size_t size;                    /* bytes of that */
};
/* Finds it in a stack that was read through a view, at the same moment: *at is the index of its
 * coroutine's frame. running->name is the view's. False: none runs that is known. The caller holds
 * target->lock. */
bool sampler_tasks_find(struct sampler_tasks *tasks, struct view *view, const struct stack *stack,
                        struct running_task *running, size_t *at);
/* Two samples with the same key show the same task and the same ones above it. */
struct task_key {
    uint64_t task, coro, awaiter, name, census;
};
void sampler_tasks_key(struct sampler_tasks *tasks, const struct running_task *running,
                       struct task_key *out);
/* Shows tasks in a sample's frames, the outermost first, of which the one at index `at` is that of
 * the task's coroutine: in place of the frames of the event loop, from the outermost one to that,
 * come those that await the task, and its name. out: room for n + SAMPLER_TASKS_ABOVE. How many
 * there are; -ENOMEM. */
ssize_t sampler_tasks_show(struct sampler_tasks *tasks, const struct running_task *running,
                           const uint32_t *ids, size_t n, size_t at, uint32_t *out);
