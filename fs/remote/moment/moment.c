#include "fs/remote/moment/moment_search.h"

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

/* The thread that took a GIL last: as long as it doesn't run, and nobody else has taken the GIL, no
 * Python runs under it. Without a GIL: each thread that may run Python. */
struct taker {
    struct gil gil; /* addr 0: there is none, and holder is its own thread state */
    pid_t tid;      /* 0: it has ended */
    bool runs;      /* else `before` says how much it has run */
    struct runs before;
};

void search_deinit(struct search *search)
{
    free(search->takers);
    free(search->gils);
}

/* ---- who took the GIL ---- */

/* Up to 3.10 a thread state only has the pthread_t; and the number in it is the parent's in a
 * forked child of some versions. Where libc keeps the kernel's number: glibc's struct pthread.tid
 * (nptl/descr.h, unmoved for two decades), musl's (src/internal/pthread_impl.h). */
static const uint32_t tid_in_pthread[] = {ARCH_PTHREAD_TID};

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

/* 0: the GILs are those of look_at_takers(), nobody has taken one since, and none of the first n
 * takers has run that didn't run then. -EAGAIN: else. */
static int see_nobody_took(struct search *search, size_t n)
{
    struct target *target = search->target;

    if (target->walk.ngils != search->ngils)
        return -EAGAIN;
    int r = walk_read_gils(&target->walk, &target->memory, &target->runtime, search->gils);
    for (size_t i = 0; i < n && r == 0; i++) {
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

int search_walk(struct search *search)
{
    struct target *target = search->target;

    int r = view_refresh(target->view);
    if (r == 0)
        r = walk_run(&target->walk, target->view, &target->runtime, target->codes);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    return r;
}

int search_work(struct search *search)
{
    return search->work ? search->work(search->moment, search->arg) : 0;
}

/* Without stopping anybody: everything is read twice. A program that does the same again and again
 * may show the same bytes twice and have run in between; so it must not have. */
static int try_quietly(struct search *search)
{
    int r = search_walk(search);
    if (r == 0 && !knew_takers(search))
        r = -EAGAIN;
    if (r == 0)
        r = search_work(search);
    if (r == 0)
        r = view_verify(search->target->view);
    return r == 0 ? see_nobody_took(search, search->ntakers) : r;
}

static int read_stopped(struct tracer *tracer, struct search *search)
{
    struct moment *moment = search->moment;

    int r = see_nobody_took(search, search->ngils);
    if (r == 0)
        r = search_walk(search);
    if (r == 0 && !knew_takers(search))
        r = -EAGAIN;
    if (r < 0)
        return r;
    moment->tracer = tracer;
    moment->holders = search->running;
    moment->nholders = search->nrunning;
    r = search_work(search);
    moment->tracer = NULL;
    search->torn = r == -EAGAIN ? search->running[0] : 0;
    if (r == 0 && search->nrunning < search->ntakers)
        r = view_verify(search->target->view);
    /* A GIL is marked as locked a moment before its new holder is noted: one that was just being
     * handed on shows itself now. Other interpreters' GILs may have changed too. */
    return r == 0 ? see_nobody_took(search, search->ntakers) : r;
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
        int done = search_walk(search);
        return done == 0 ? search_work(search) : done;
    }
    int r = look_at_takers(search);
    if (r == 0 && search->nrunning && !search->no_stopping &&
        pacing_wait(&target->pacing, target->pid))
        r = look_at_takers(search);
    if (r == -EAGAIN) {
        r = search_walk(search); /* who is there has changed */
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

size_t stack_common(const struct stack *s, const struct raw_frame *before, size_t nbefore)
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

void stack_keep_common(struct stack *s, const struct raw_frame *before, size_t nbefore, bool ran)
{
    size_t common = stack_common(s, before, nbefore);

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
        r = search_walk(search);
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

    r = search_walk(search);
    if (r < 0)
        return r;
    lwp_list_see_moved(target->pid, &lwps);
    for (size_t i = 0; i < walk->n; i++) {
        struct stack *s = &walk->stacks[i];
        size_t k = i; /* the list rarely changes */
        if (k >= nstacks || before[k].tstate != s->tstate)
            for (k = 0; k < nstacks && before[k].tstate != s->tstate;)
                k++;
        stack_keep_common(s, k < nstacks ? frames + before[k].at : NULL,
                          k < nstacks ? before[k].n : 0, has_run(target, &lwps, s));
    }
    return search_work(search);
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
