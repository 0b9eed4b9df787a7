/* Since when threads and tasks stand where they stand.
 *
 * A thread that waits: the kernel says when it ran last (proc/asleep.h), and from the first look on
 * the number of times it was given a processor says that it hasn't run since. A thread that waits
 * for the GIL wakes up now and then to ask for it; it hasn't run Python since the GIL was last
 * handed on. A thread that runs is said to be seen somewhere: in the same frame at each look, with
 * a processor of its own in between. Tasks the same: certain where their loop's thread hasn't run,
 * else seen.
 *
 * A process that somebody asks about is looked at once a second from then on, until nobody has
 * asked for a minute. A look stops nobody and reads what has moved only: of a process that hangs,
 * one small file of /proc a thread. */
#pragma once

#include "fs/remote/moment/snapshot.h"
#include "fs/remote/moment/standing.h"
#include "fs/remote/moment/target.h"
#include "fs/remote/tasks/tasks.h"

#define SINCE_THREADS_MAX 1024u /* of a process that are looked at */
#define SINCE_TASKS_MAX 4096u
#define SINCE_PROCESSES_MAX 64u /* that are looked at once a second: those last asked about */
#define SINCE_LOOK_NS 1000000000u
#define SINCE_KEPT_NS 60000000000u /* after the last question */

/* Sets `standing` of the threads of a snapshot that was taken just now, and has the process looked
 * at from now on. Takes target->lock if that is free. What isn't known stays STANDS_NOT. */
void since_threads(struct target *target, struct snapshot *snapshot);
/* How long one thread has stood, as it is now: only whether it is asleep, and since when. */
struct standing since_thread(struct target *target, pid_t tid);
/* Sets `standing` of tasks that were read just now and whose loops have their threads' numbers, and
 * has those looked at from now on, unless there are more than SINCE_TASKS_MAX. asyncio: where they
 * were found. The caller may hold target->lock. */
void since_tasks(struct target *target, const struct asyncio *asyncio, struct tasks *tasks);
/* Takes one look, for looks.h. */
void since_look(struct target *target);
