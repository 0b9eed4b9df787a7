/* What a held thread is told to run: an EVAL in its frames, or an order. Python's thread waits for
 * it. */
#include "agent/base/lock.h"
#include "agent/stop/held.h"
#include "agent/stop/stop_table.h"

#include <errno.h>

static unsigned jobs_run;

/* ---- in the held thread ---- */

static PyObject *here(void)
{
    return held_own->hold->frame ? (PyObject *)held_own->hold->frame : held_own->hold->value;
}

/* With the GIL. */
void held_run_job(void)
{
    struct job *job = held_own->job;

    __atomic_fetch_add(&jobs_run, 1, __ATOMIC_RELAXED);
    job->run(held_own->interpreter, here(), job->arg);
    _guard_agent_;
    held_own->job = NULL;
    job->done = true;
    pthread_cond_broadcast(&agent_changed);
}

unsigned hold_jobs_run(void) { return __atomic_load_n(&jobs_run, __ATOMIC_RELAXED); }

const struct hold *hold_own(void) { return held_own ? held_own->hold : NULL; }

void hold_jumped(int line)
{
    _guard_agent_;
    held_own->jumped_to = line;
    stops_set_line(held_own->stop, line);
}

/* From 3.12 on a line that is jumped to is told of like any other, and so is, once a function is
 * entered, its only line. Where a breakpoint holds it, who hears of steps has that event still
 * before it: from 3.12 on if it had heard before. */
int hold_told_line(void)
{
    const struct hold *hold = held_own->hold;
    bool at_line = hold->event == HEAR_LINE || hold->event == HEAR_JUMP;

    if (held_own->jumped_to)
        return held_own->jumped_to;
    if (hold->why != STOP_BREAKPOINT)
        return at_line ? 0 : hold->line;
    return python.version < 0x030c || held_own->stepped || !at_line ? hold->line : 0;
}

void hold_go(const char *why)
{
    _guard_agent_;
    held_tell(held_own, why);
}

/* ---- in Python's thread ---- */

static bool is_meant(const struct job_for *whose, const struct held *held)
{
    bool crash = held->hold->why == STOP_CRASH;

    switch (whose->who) {
    case JOB_BY_TID: return held->tid == whose->tid;
    case JOB_OF_CRASH: return crash;
    default: return !(crash && whose->in_frames) && pthread_equal(held->thread, whose->thread);
    }
}

/* With the lock. NULL: nobody. */
static struct held *find_for(const struct job_for *whose)
{
    for (struct held *held = held_all; held; held = held->next)
        if (!held->going && is_meant(whose, held))
            return held;
    return NULL;
}

int hold_run(const struct job_for *whose, struct job *job)
{
    _guard_agent_;
    struct held *held = find_for(whose);
    if (!held || held->job)
        return held ? -EBUSY : -ESRCH;
    held->job = job;
    pthread_cond_signal(&held->told);
    while (!job->done)
        pthread_cond_wait(&agent_changed, &agent_lock);
    return 0;
}
