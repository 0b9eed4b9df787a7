/* What a held thread is told to run: an EVAL in its frames, or an order. Python's thread waits for it. */
#include "agent/held.h"

#include "agent/agent.h"
#include "agent/eval.h"
#include "agent/stops.h"
#include "agent/thread.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <stdio.h>

/* ---- in the held thread ---- */

/* With the GIL. */
void held_run_job(void)
{
    struct job *job = held_own->job;

    job->to_answer = python_run(held_own->interpreter, job->request, job->out);
    _guard_agent_;
    held_own->job = NULL;
    job->done = true;
    pthread_cond_broadcast(&agent.changed);
}

const struct park *park_own(void) { return held_own ? held_own->park : NULL; }

PyObject *park_here(void)
{
    if (!held_own)
        return NULL;
    return held_own->park->frame ? (PyObject *)held_own->park->frame : held_own->park->value;
}

void park_jumped(int line)
{
    _guard_agent_;
    held_own->jumped_to = line;
    stops_set_line(held_own->stop, line);
}

/* From 3.12 on a line that is jumped to is told of like any other, and so is, once a function is entered, its only line. Where a
 * breakpoint holds it, who hears of steps has that event still before it: from 3.12 on if it had heard before. */
int park_told_line(void)
{
    const struct park *park = held_own->park;

    if (held_own->jumped_to)
        return held_own->jumped_to;
    if (park->why != STOP_BREAKPOINT)
        return park->may_jump ? 0 : park->line;
    return python.version < 0x030c || held_own->stepped || !park->may_jump ? park->line : 0;
}

void park_go(const char *why)
{
    _guard_agent_;
    held_tell(held_own, why);
}

/* ---- in Python's thread ---- */

static bool is_meant(const struct request *request, const struct held *held)
{
    bool crash = held->park->why == STOP_CRASH;

    if (request->op == PROTO_THREAD)
        return held->tid == request->thread.tid;
    if (request->eval.flags & EVAL_IN_CRASH)
        return crash;
    if (crash && request->eval.flags & EVAL_IN_FRAME)
        return false; /* the thread's frames are others than the exception's */
    return pthread_equal(held->thread, (pthread_t)request->eval.thread);
}

/* With the lock: whom a request is meant for; NULL: nobody. */
static struct held *find_for(const struct request *request)
{
    for (struct held *held = held_all; held; held = held->next)
        if (!held->going && is_meant(request, held))
            return held;
    return NULL;
}

static bool is_for_held(const struct request *request)
{
    if (request->op == PROTO_THREAD)
        return request->thread.verb != THREAD_PAUSE;
    return request->op == PROTO_EVAL && request->eval.flags & (EVAL_ON_THREAD | EVAL_IN_FRAME | EVAL_IN_CRASH);
}

/* Has the held thread do it. -ESRCH: there is none; -EBUSY. */
static int run_there(struct job *job)
{
    _guard_agent_;
    struct held *held = find_for(job->request);
    if (!held || held->job)
        return held ? -EBUSY : -ESRCH;
    held->job = job;
    pthread_cond_signal(&held->told);
    while (!job->done)
        pthread_cond_wait(&agent.changed, &agent.lock);
    return 0;
}

/* Says why it can't be run. False: it may be run elsewhere. */
static bool refuse(const struct request *request, int r, struct proto_done *done)
{
    if (r == -EBUSY) {
        done->error = EBUSY;
        snprintf(done->words, sizeof done->words, "code that was interrupted still runs in the stopped thread");
        return true;
    }
    if (request->op == PROTO_THREAD) {
        done->error = ESRCH;
        snprintf(done->words, sizeof done->words, "the thread isn't stopped");
        return true;
    }
    if (!(request->eval.flags & EVAL_IN_CRASH))
        return false;
    done->error = ENOENT;
    snprintf(done->words, sizeof done->words, "no exception holds the process");
    return true;
}

bool park_run(struct request *request, struct evaluation *out, bool *to_answer)
{
    struct job job = {.request = request, .out = out};

    if (!is_for_held(request))
        return false;
    int r = run_there(&job);
    if (r < 0 && !refuse(request, r, &out->done))
        return false;
    *to_answer = r == 0 ? job.to_answer : requests_claim(request);
    return true;
}
