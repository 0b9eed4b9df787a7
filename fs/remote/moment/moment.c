#include "fs/remote/moment/moment.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/proc/runs.h"
#include "fs/remote/memory/core.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <string.h>

#define NAP_NS 200000 /* between tries that failed because the target ran */
/* So often a thread may refuse to be stopped: a thread of ours that has let go may still be its
 * tracer for a moment. */
#define REFUSALS_MAX 12
/* Of one thread without a GIL: how often it is tried to find it asleep or to stop it; else how
 * often in a row it must look the same as before, and within how many looks. */
#define EACH_TRIES 4
#define EACH_EQUAL 3
#define EACH_LOOKS 12
#define EACH_NOT 1 /* there is a GIL */

/* The thread that took a GIL last: as long as it doesn't run, and nobody else has taken the GIL, no
 * Python runs under it. Without a GIL: each thread that may run Python. */
struct taker {
    struct gil gil; /* addr 0: there is none, and holder is its own thread state */
    pid_t tid;      /* 0: it has ended */
    bool runs;      /* else `before` says how much it has run */
    struct runs before;
};

struct search {
    struct target *target;
    moment_work *work;
    void *arg;
    struct moment *moment;
    struct taker *takers; /* as they were before the reading, one for each GIL */
    struct gil *gils;     /* those GILs as they are */
    size_t ngils, ntakers, takers_alloc, gils_alloc;
    pid_t running[TRACER_STOPPED_MAX]; /* takers that run */
    size_t nrunning;
    bool no_stopping;      /* it is not allowed, or another tracer is there and stays */
    unsigned refusals;     /* of being stopped */
    pid_t torn;            /* the one stopped in the middle of what `work` reads; or 0 */
    struct lwp_list *lwps; /* of a process in another pid namespace; read once */
};

static void search_deinit(struct search *search)
{
    free(search->takers);
    free(search->gils);
}

/* ---- who took the GIL ---- */

/* Up to 3.10 a thread state only has the pthread_t; and the number in it is the parent's in a
 * forked child of some versions. Where libc keeps the kernel's number: glibc's struct pthread.tid
 * (nptl/descr.h, unmoved for two decades), musl's (src/internal/pthread_impl.h). */
static const uint32_t tid_in_pthread[] = {0x2d0, 0x30};

pid_t moment_tid(struct target *target, const struct lwp_list *lwps, const struct stack *stack)
{
    if (target->core) {
        const struct core_thread *thread = core_thread_of(target->core, stack->thread_id);
        return thread ? thread->tid : 0;
    }
    const struct lwp *lwp = stack->native_id > 0 ? lwp_find_inner(lwps, stack->native_id) : NULL;

    for (size_t i = 0; !lwp && i < ARRAY_SIZE(tid_in_pthread); i++) {
        int32_t tid;
        if (!memory_read(&target->memory, stack->thread_id + tid_in_pthread[i], &tid, sizeof tid) &&
            tid > 0)
            lwp = lwp_find_inner(lwps, tid);
    }
    return lwp ? lwp->tid : 0;
}

/* The thread that took a GIL last as the last walk knows it, without listing all threads where that
 * isn't needed; 0: it has ended, or has begun since that walk. */
static pid_t taker_tid(struct search *search, const struct gil *gil)
{
    struct target *target = search->target;
    const struct stack *stack = walk_find(&target->walk, gil->holder);

    if (!stack)
        return 0;
    if (stack->native_id > 0 && !target->foreign && lwp_state(target->pid, stack->native_id))
        return stack->native_id;
    pid_t tid = moment_tid(target, search->lwps, stack);
    if (tid)
        return tid;
    lwp_list_deinit(search->lwps); /* it may be younger than the list */
    if (lwp_list_read(target->pid, LWP_STATES, search->lwps) < 0)
        return 0;
    return moment_tid(target, search->lwps, stack);
}

/* Adds a thread that runs, unless it is there: one thread may have taken several GILs. They ascend,
 * as they are to be stopped. */
static int add_running(struct search *search, pid_t tid)
{
    size_t at = search->nrunning;

    while (at && search->running[at - 1] >= tid)
        at--;
    if (at < search->nrunning && search->running[at] == tid)
        return 0;
    if (search->nrunning == TRACER_STOPPED_MAX)
        return -EAGAIN;
    memmove(&search->running[at + 1], &search->running[at],
            (search->nrunning++ - at) * sizeof search->running[0]);
    search->running[at] = tid;
    return 0;
}

/* The state is read last: a thread that sleeps then must be given a processor before it runs on. */
static int look_at_taker(struct search *search, const struct gil *gil, struct taker *out)
{
    struct target *target = search->target;

    *out = (struct taker){.gil = *gil, .tid = taker_tid(search, gil)};
    if (!out->tid) /* a GIL may be left to nobody, and a thread state have no thread */
        return gil->locked ? -EAGAIN : 0;
    if (runs_read(target->pid, out->tid, &out->before) < 0)
        return -EAGAIN;
    out->runs = lwp_state(target->pid, out->tid) == 'R';
    return out->runs ? add_running(search, out->tid) : 0;
}

/* Notes who took the GILs that the last walk found. -EAGAIN: one that is held by nobody known. */
static int look_at_takers(struct search *search)
{
    struct target *target = search->target;
    const struct walk *walk = &target->walk;
    size_t n = walk->ngils, more = walk->without_gil ? walk->n : 0;

    search->ngils = search->ntakers = search->nrunning = 0;
    if (ARRAY_GROW(search->takers, search->takers_alloc, n + more) < 0 ||
        ARRAY_GROW(search->gils, search->gils_alloc, n) < 0)
        return -ENOMEM;
    int r = walk_read_gils(walk, &target->memory, &target->runtime, search->gils);
    for (size_t i = 0; i < n && r == 0; i++)
        r = look_at_taker(search, &search->gils[i], &search->takers[i]);
    search->ngils = search->ntakers = n;
    for (size_t i = 0; i < more && r == 0; i++)
        if (walk->stacks[i].no_gil)
            r = look_at_taker(search, &(struct gil){.holder = walk->stacks[i].tstate},
                              &search->takers[search->ntakers++]);
    return r;
}

/* 0: the GILs are those of look_at_takers(), nobody has taken one since, and no taker has run that
 * didn't run then. -EAGAIN: else. */
static int see_nobody_took(struct search *search)
{
    struct target *target = search->target;

    if (target->walk.ngils != search->ngils)
        return -EAGAIN;
    int r = walk_read_gils(&target->walk, &target->memory, &target->runtime, search->gils);
    for (size_t i = 0; i < search->ntakers && r == 0; i++) {
        const struct taker *t = &search->takers[i];
        const struct gil *now = i < search->ngils ? &search->gils[i] : &t->gil;
        struct runs runs;
        if (now->addr != t->gil.addr || now->locked != t->gil.locked ||
            now->holder != t->gil.holder)
            return -EAGAIN;
        if (t->tid && !t->runs &&
            (runs_read(target->pid, t->tid, &runs) < 0 || runs.ns != t->before.ns ||
             runs.n != t->before.n || lwp_state(target->pid, t->tid) == 'R'))
            return -EAGAIN;
    }
    return r;
}

/* Whether the walk since has found none of those who were taken for ended, and no thread beside
 * those that run without a GIL. */
static bool knew_takers(struct search *search)
{
    const struct walk *walk = &search->target->walk;
    size_t at = search->ngils;

    if (walk->ngils != search->ngils)
        return false;
    for (size_t i = 0; walk->without_gil && i < walk->n; i++)
        if (walk->stacks[i].no_gil &&
            (at == search->ntakers || search->takers[at++].gil.holder != walk->stacks[i].tstate))
            return false;
    if (at < search->ntakers)
        return false;
    for (size_t i = 0; i < search->ntakers; i++)
        if (!search->takers[i].tid && taker_tid(search, &search->takers[i].gil))
            return false;
    return true;
}

/* ---- reading ---- */

static int walk_once(struct search *search)
{
    struct target *target = search->target;

    int r = view_refresh(target->view);
    if (r == 0)
        r = walk_run(&target->walk, target->view, &target->runtime, target->codes);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    return r;
}

static int run_work(struct search *search)
{
    return search->work ? search->work(search->moment, search->arg) : 0;
}

/* Without stopping anybody: everything is read twice. A program that does the same again and again
 * may show the same bytes twice and have run in between; so it must not have. */
static int try_quietly(struct search *search)
{
    int r = walk_once(search);
    if (r == 0 && !knew_takers(search))
        r = -EAGAIN;
    if (r == 0)
        r = run_work(search);
    if (r == 0)
        r = view_verify(search->target->view);
    return r == 0 ? see_nobody_took(search) : r;
}

static int read_stopped(struct tracer *tracer, struct search *search)
{
    struct moment *moment = search->moment;

    int r = see_nobody_took(search);
    if (r == 0)
        r = walk_once(search);
    if (r == 0 && !knew_takers(search))
        r = -EAGAIN;
    if (r < 0)
        return r;
    moment->tracer = tracer;
    moment->holders = search->running;
    moment->nholders = search->nrunning;
    r = run_work(search);
    moment->tracer = NULL;
    search->torn = r == -EAGAIN ? search->running[0] : 0;
    if (r == 0 && search->nrunning < search->ntakers)
        r = view_verify(search->target->view);
    /* A GIL is marked as locked a moment before its new holder is noted: one that was just being
     * handed on shows itself now. Other interpreters' GILs may have changed too. */
    return r == 0 ? see_nobody_took(search) : r;
}

/* Failures that are of this try only: the process itself may live, and the next try finds out. */
static bool is_passing(int error)
{
    return error == -EBUSY || error == -ETIMEDOUT || error == -EDEADLK || error == -ENFILE ||
           error == -ESRCH || error == -EFAULT;
}

/* A thread that gets no processor to stop on in time can't run Python either before it is let go.
 */
static int stop_and_read(struct tracer *tracer, void *arg)
{
    struct search *search = arg;
    struct target *target = search->target;
    uint64_t ns;
    int r = 0;

    search->moment->late = false;
    for (size_t i = 0; i < search->nrunning && r == 0; i++) {
        r = target->walk.without_gil ? tracer_interrupt(tracer, search->running[i])
                                     : tracer_stop(tracer, search->running[i]);
        search->moment->late |= target->walk.without_gil && r == -ETIMEDOUT;
        if (r == -ETIMEDOUT)
            r = 0;
    }
    if (r == 0)
        r = read_stopped(tracer, search);
    else if (r == -EPERM)
        search->no_stopping = true;
    else if (r != -ESRCH && is_passing(r))
        search->no_stopping = ++search->refusals >= REFUSALS_MAX;
    if (is_passing(r) || search->no_stopping)
        r = -EAGAIN;
    if (tracer_resume(tracer, &ns) < 0) { /* not this long once more */
        search->no_stopping = true;
        r = r == 0 ? -EAGAIN : r;
    }
    pacing_paused(&target->pacing, target->pid, ns);
    search->moment->pause_ns += ns;
    return r;
}

static int try_once(struct search *search)
{
    struct target *target = search->target;

    if (target->core) {
        int done = walk_once(search);
        return done == 0 ? run_work(search) : done;
    }
    int r = look_at_takers(search);
    if (r == 0 && search->nrunning && !search->no_stopping &&
        pacing_wait(&target->pacing, target->pid))
        r = look_at_takers(search);
    if (r == -EAGAIN) {
        r = walk_once(search); /* who is there has changed */
        return r == 0 ? -EAGAIN : r;
    }
    if (r == 0 && search->nrunning && search->no_stopping)
        r = -EAGAIN;
    else if (r == 0)
        r = search->nrunning ? tracer_read(&target->tracing, stop_and_read, search)
                             : try_quietly(search);
    return r;
}

/* ---- the last resort ---- */

/* How many frames of a stack are as they were before, from the outermost one on. */
static size_t count_common(const struct stack *s, const struct raw_frame *before, size_t nbefore)
{
    size_t common = 0;

    while (common < s->n && common < nbefore) {
        const struct raw_frame *a = &s->frames[s->n - 1 - common];
        const struct raw_frame *b = &before[nbefore - 1 - common];
        if (a->addr != b->addr || a->code != b->code || a->lasti != b->lasti)
            break;
        common++;
    }
    return common;
}

/* Drops the inner frames that an earlier walk doesn't confirm. Of a thread that may have run
 * meanwhile that proves little. */
static void keep_common(struct stack *s, const struct raw_frame *before, size_t nbefore, bool ran)
{
    size_t common = count_common(s, before, nbefore);

    s->torn = ran || common < s->n || common < nbefore;
    if (!s->torn)
        return;
    if (common) /* else there may be no room at all */
        memmove(s->frames, s->frames + (s->n - common), common * sizeof *s->frames);
    s->n = common;
    s->nanchors = 0; /* native frames are not placed on such a stack */
}

static bool has_run(struct target *target, const struct lwp_list *lwps, const struct stack *s)
{
    const struct lwp *lwp = lwp_find(lwps, moment_tid(target, lwps, s));

    return !lwp || lwp->moved;
}

/* Two walks; what they agree on, outermost first, is shown, and the rest is marked as torn. */
static int compare_walks(struct search *search)
{
    struct target *target = search->target;
    struct walk *walk = &target->walk;
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
    size_t total = 0;

    int r = lwp_list_read(target->pid, LWP_RUNS, &lwps);
    if (r == 0)
        r = walk_once(search);
    if (r < 0)
        return r;
    size_t nstacks = walk->n;
    _cleanup_free_ struct raw_frame *frames = calloc(walk->frames + 1, sizeof *frames);
    _cleanup_free_ struct {
        uint64_t tstate;
        size_t at, n;
    } *before = calloc(nstacks + 1, sizeof *before);
    if (!frames || !before)
        return -ENOMEM;
    for (size_t i = 0; i < nstacks; i++) {
        const struct stack *s = &walk->stacks[i];
        before[i].tstate = s->tstate;
        before[i].at = total;
        before[i].n = s->n;
        if (s->n) /* else there may be no room at all: a thread that has only begun */
            memcpy(frames + total, s->frames, s->n * sizeof *frames);
        total += s->n;
    }

    r = walk_once(search);
    if (r < 0)
        return r;
    lwp_list_see_moved(target->pid, &lwps);
    for (size_t i = 0; i < walk->n; i++) {
        struct stack *s = &walk->stacks[i];
        size_t k = i; /* the list rarely changes */
        if (k >= nstacks || before[k].tstate != s->tstate)
            for (k = 0; k < nstacks && before[k].tstate != s->tstate;)
                k++;
        keep_common(s, k < nstacks ? frames + before[k].at : NULL, k < nstacks ? before[k].n : 0,
                    has_run(target, &lwps, s));
    }
    return run_work(search);
}

int moment_run(struct target *target, moment_work *work, void *arg, struct moment *moment)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
    _cleanup_(search_deinit) struct search search = {
        .target = target, .work = work, .arg = arg, .moment = moment, .lwps = &lwps};
    uint64_t start = monotonic_ns();
    int r = -EAGAIN;

    *moment = (struct moment){.walk = &target->walk, .verified = true};
    target->along = NULL;
    code_cache_trim(target->codes);
    for (int i = 0; i < MOMENT_TRIES && r == -EAGAIN; i++) {
        if (i >= MOMENT_TRIES_MIN && monotonic_ns() - start > MOMENT_DEADLINE_NS)
            break;
        if (i > 8)
            nap_ns(NAP_NS);
        if (search.torn)
            pacing_let_run(target->pid, search.torn);
        search.torn = 0;
        r = try_once(&search);
    }
    for (int i = 0; i < MOMENT_TRIES && r == -EAGAIN && !target->core; i++) {
        moment->verified = false;
        r = compare_walks(&search);
    }
    return r;
}

/* ---- one thread after the other ---- */

/* What is needed for that. */
struct each {
    struct search *search;
    struct view *view; /* of the one */
    size_t at;         /* its place in the walk */
    pid_t tid;
    bool waited;              /* until the process may be paused again */
    struct raw_frame *before; /* its frames as they were read before */
    size_t nbefore, before_alloc;
};

static int walk_one(struct each *each)
{
    struct target *target = each->search->target;

    view_reset(each->view);
    return walk_again(&target->walk, each->at, each->view, &target->runtime, target->codes);
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
        r = run_work(search);
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

/* Where it can't be stopped: the same several times, or what of it is. A program that does the same
 * again and again may show the same twice, so that is not enough. */
static int read_running(struct each *each)
{
    struct stack *s = &each->search->target->walk.stacks[each->at];
    int same = 0;

    for (int i = 0; i < EACH_LOOKS && same < EACH_EQUAL; i++) {
        each->nbefore = s->n;
        if (ARRAY_GROW(each->before, each->before_alloc, s->n) < 0)
            return -ENOMEM;
        if (s->n)
            memcpy(each->before, s->frames, s->n * sizeof *s->frames);
        int r = walk_one(each);
        if (r < 0)
            return r;
        same = s->n == each->nbefore && count_common(s, each->before, each->nbefore) == s->n
                   ? same + 1
                   : 0;
    }
    if (same < EACH_EQUAL) {
        keep_common(s, each->before, each->nbefore, true);
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
    return is_passing(r) ? read_running(each) : r;
}

/* Those that have slept all the while have been read by the walk itself. */
static int read_each(struct search *search)
{
    struct target *target = search->target;
    struct walk *walk = &target->walk;
    struct each each = {.search = search};

    int r = lwp_list_read(target->pid, LWP_RUNS, search->lwps);
    if (r == 0)
        r = walk_once(search);
    if (r < 0 || !walk->without_gil)
        return r < 0 ? r : EACH_NOT;
    lwp_list_see_moved(target->pid, search->lwps);
    r = view_new(&target->memory, &each.view);
    for (each.at = 0; each.at < walk->n && r == 0; each.at++) {
        each.tid = moment_tid(target, search->lwps, &walk->stacks[each.at]);
        const struct lwp *lwp = lwp_find(search->lwps, each.tid);
        if (lwp && lwp->moved)
            r = read_one(&each);
        else if (!lwp && walk->stacks[each.at].native_id > 0)
            r = -EAGAIN; /* it has just begun */
    }
    view_free(each.view);
    free(each.before);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    return r == 0 ? run_work(search) : r;
}

int moment_run_each(struct target *target, moment_work *work, void *arg, struct moment *moment)
{
    int r = -EAGAIN;

    if (target->core || target->runtime.offsets.gil_enabled < 0)
        return moment_run(target, work, arg, moment);
    code_cache_trim(target->codes);
    *moment = (struct moment){.walk = &target->walk};
    for (int i = 0; i < MOMENT_TRIES_MIN && r == -EAGAIN; i++) {
        _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
        _cleanup_(search_deinit) struct search search = {
            .target = target, .work = work, .arg = arg, .moment = moment, .lwps = &lwps};
        moment->verified = true;
        r = read_each(&search);
    }
    return r == EACH_NOT || r == -EAGAIN ? moment_run(target, work, arg, moment) : r;
}
