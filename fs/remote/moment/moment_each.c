/* moment_run_each(): threads without a GIL, one after the other. */
#include "fs/remote/moment/moment_search.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/proc/runs.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <string.h>

/* How often it is tried to find a thread asleep or to stop it; else how often in a row it must look
 * the same as before, and within how many looks. */
#define EACH_TRIES 4
#define EACH_EQUAL 3
#define EACH_LOOKS 12
#define EACH_NOT 1 /* there is a GIL */

/* One thread, which may have several thread states, one an interpreter: all are read at once. */
struct each {
    struct search *search;
    struct view *view; /* of it alone */
    pid_t tid;
    bool waited;              /* until the process may be paused again */
    struct raw_frame *before; /* the frames of one as they were read before */
    size_t before_alloc;
};

static int walk_one(struct each *each)
{
    struct target *target = each->search->target;
    struct walk *walk = &target->walk;
    int r = 0;

    view_reset(each->view);
    for (size_t i = 0; i < walk->n && r == 0; i++)
        if (walk->stacks[i].tid == each->tid)
            r = walk_again(walk, i, each->view, &target->runtime, target->codes);
    return r;
}

static int stop_and_read_one(struct tracer *tracer, void *arg)
{
    struct each *each = arg;
    struct search *search = each->search;
    struct moment *moment = search->moment;
    uint64_t ns;

    int r = tracer_interrupt(tracer, each->tid);
    moment->late = r == -ETIMEDOUT;
    if (r == 0 || r == -ETIMEDOUT)
        r = walk_one(each);
    else if (r == -EPERM || r == -EBUSY)
        search->no_stopping = true;
    if (r == 0) {
        moment->tracer = tracer;
        moment->holders = &each->tid;
        moment->nholders = 1;
        r = search_work(search);
        moment->tracer = NULL;
        moment->nholders = 0;
    }
    if (tracer_resume(tracer, &ns) < 0 && r == 0)
        r = -ETIMEDOUT;
    pacing_paused(&search->target->pacing, search->target->pid, ns);
    moment->pause_ns += ns;
    return r;
}

/* A thread that sleeps, unless it wakes up meanwhile: -EBUSY. */
static int read_asleep(struct each *each)
{
    pid_t pid = each->search->target->pid;
    struct runs before, after;

    if (runs_read(pid, each->tid, &before) < 0 || lwp_state(pid, each->tid) == 'R')
        return -EBUSY;
    int r = walk_one(each);
    if (r == 0 && (runs_read(pid, each->tid, &after) < 0 || after.ns != before.ns ||
                   after.n != before.n || lwp_state(pid, each->tid) == 'R'))
        r = -EBUSY;
    return r;
}

/* Where it can't be stopped: a stack that looks the same several times, or what of it does. A
 * program that does the same again and again may look the same twice, so that is not enough. */
static int read_running(struct each *each, size_t at)
{
    struct target *target = each->search->target;
    struct stack *s = &target->walk.stacks[at];
    size_t nbefore = 0;
    int same = 0;

    for (int i = 0; i < EACH_LOOKS && same < EACH_EQUAL; i++) {
        nbefore = s->n;
        if (ARRAY_GROW(each->before, each->before_alloc, nbefore) < 0)
            return -ENOMEM;
        if (nbefore)
            memcpy(each->before, s->frames, nbefore * sizeof *s->frames);
        view_reset(each->view);
        int r = walk_again(&target->walk, at, each->view, &target->runtime, target->codes);
        if (r < 0)
            return r;
        bool equal = s->n == nbefore && stack_common(s, each->before, nbefore) == nbefore;
        same = equal ? same + 1 : 0;
    }
    if (same < EACH_EQUAL) {
        stack_keep_common(s, each->before, nbefore, true);
        each->search->moment->verified = false;
    }
    return 0;
}

static int read_one(struct each *each)
{
    struct search *search = each->search;
    struct target *target = search->target;
    int r = -EBUSY;

    for (int i = 0; i < EACH_TRIES && is_passing(r); i++) {
        r = read_asleep(each);
        if (r != -EBUSY || search->no_stopping)
            continue;
        if (each->waited || !pacing_wait(&target->pacing, target->pid))
            r = tracer_read(&target->tracing, stop_and_read_one, each);
        each->waited = true;
    }
    if (!is_passing(r))
        return r;
    r = 0;
    for (size_t i = 0; i < target->walk.n && r == 0; i++)
        if (target->walk.stacks[i].tid == each->tid)
            r = read_running(each, i);
    return r;
}

/* Those that have slept all the while have been read by the walk itself. */
static int read_each(struct search *search, pid_t only)
{
    struct target *target = search->target;
    struct walk *walk = &target->walk;
    struct each each = {.search = search};

    int r = lwp_list_read(target->pid, LWP_RUNS, search->lwps);
    if (r == 0)
        r = search_walk(search);
    if (r < 0 || !walk->without_gil)
        return r < 0 ? r : EACH_NOT;
    lwp_list_see_moved(target->pid, search->lwps);
    for (size_t i = 0; i < walk->n; i++) {
        walk->stacks[i].tid = moment_tid(target, search->lwps, &walk->stacks[i]);
        if (!walk->stacks[i].tid && walk->stacks[i].native_id > 0)
            return -EAGAIN; /* it has just begun */
    }
    r = view_new(&target->memory, &each.view);
    for (size_t i = 0; i < walk->n && r == 0; i++) {
        struct lwp *lwp = lwp_find(search->lwps, walk->stacks[i].tid);
        if (!lwp || !lwp->moved || (only && lwp->tid != only))
            continue;
        each.tid = lwp->tid;
        r = read_one(&each);
        lwp->moved = false;
    }
    view_free(each.view);
    free(each.before);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    return r == 0 ? search_work(search) : r;
}

int moment_run_each(struct target *target, pid_t only, moment_work *work, void *arg,
                    struct moment *moment)
{
    int r = -EAGAIN;

    if (target->core || target->runtime.offsets.gil_enabled < 0)
        return moment_run(target, work, arg, moment);
    code_cache_trim(target->codes);
    *moment = (struct moment){.walk = &target->walk};
    target->along = NULL;
    for (int i = 0; i < MOMENT_TRIES_MIN && r == -EAGAIN; i++) {
        _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
        _cleanup_(search_deinit) struct search search = {
            .target = target, .work = work, .arg = arg, .moment = moment, .lwps = &lwps};
        moment->verified = true;
        r = read_each(&search, only);
    }
    return r == EACH_NOT || r == -EAGAIN ? moment_run(target, work, arg, moment) : r;
}
