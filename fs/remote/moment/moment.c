#include "fs/remote/moment/moment.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/proc/lwp.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define NAP_NS 200000 /* between tries that failed because the target ran */

struct search {
    struct target *target;
    moment_work *work;
    void *arg;
    struct moment *moment;
    bool no_stopping;      /* another tracer is there */
    bool starved;          /* the holder didn't get the processor that it needs to stop */
    pid_t torn;            /* the holder, stopped in the middle of what `work` reads; or 0 */
    struct lwp_list *lwps; /* of a process in another pid namespace; read once */
};

/* ---- who holds the GIL ---- */

/* Up to 3.10 a thread state only has the pthread_t; and the number in it is the parent's in a
 * forked child of some versions. Where libc keeps the kernel's number: glibc's struct pthread.tid
 * (nptl/descr.h, unmoved for two decades), musl's (src/internal/pthread_impl.h). */
static const uint32_t tid_in_pthread[] = {0x2d0, 0x30};

pid_t moment_tid(struct target *target, const struct lwp_list *lwps, const struct stack *stack)
{
    const struct lwp *lwp = stack->native_id > 0 ? lwp_find_inner(lwps, stack->native_id) : NULL;

    for (size_t i = 0; !lwp && i < ARRAY_SIZE(tid_in_pthread); i++) {
        int32_t tid;
        if (!memory_read(&target->memory, stack->thread_id + tid_in_pthread[i], &tid, sizeof tid) &&
            tid > 0)
            lwp = lwp_find_inner(lwps, tid);
    }
    return lwp ? lwp->tid : 0;
}

/* The holder's number, without listing all threads where that isn't needed. */
static pid_t holder_tid(struct search *search, const struct stack *stack)
{
    struct target *target = search->target;

    if (stack->native_id > 0 && !target->foreign && lwp_state(target->pid, stack->native_id))
        return stack->native_id;
    if (!search->lwps->n && lwp_list_read(target->pid, LWP_STATES, search->lwps) < 0)
        return 0;
    return moment_tid(target, search->lwps, stack);
}

static bool is_running(pid_t pid, pid_t tid) { return lwp_state(pid, tid) == 'R'; }

/* The threads that hold a GIL now and run. -EAGAIN: a holder isn't known yet. */
static int running_holders(struct search *search, const struct gil *gils, pid_t *holders, size_t *n)
{
    struct target *target = search->target;

    *n = 0;
    for (size_t i = 0; i < target->walk.ngils; i++) {
        if (!gils[i].locked)
            continue;
        const struct stack *s = walk_find(&target->walk, gils[i].holder);
        pid_t tid = s ? holder_tid(search, s) : 0;
        if (!tid || *n == TRACER_STOPPED_MAX)
            return -EAGAIN;
        if (is_running(target->pid, tid))
            holders[(*n)++] = tid;
    }
    return 0;
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

/* Without stopping anybody: everything is read twice. */
static int try_quietly(struct search *search)
{
    struct target *target = search->target;
    pid_t holders[TRACER_STOPPED_MAX];
    size_t n;

    int r = walk_once(search);
    if (r == 0)
        r = running_holders(search, target->walk.gils, holders, &n);
    if (r == 0 && n && !search->no_stopping && !search->starved)
        r = -EAGAIN; /* in vain: it is stopped next, and what was copied now needn't be then */
    if (r == 0)
        r = run_work(search);
    return r == 0 ? view_verify(target->view) : r;
}

static bool same_gils(const struct gil *a, const struct gil *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].locked != b[i].locked || (a[i].locked && a[i].holder != b[i].holder))
            return false;
    return true;
}

struct stopping {
    struct search *search;
    const struct gil *gils; /* as they were when the holders were chosen */
    struct gil *now;
    const pid_t *holders;
    size_t n;
};

static int read_stopped(struct tracer *tracer, struct stopping *st)
{
    struct search *search = st->search;
    struct target *target = search->target;
    struct moment *moment = search->moment;
    size_t ngils = target->walk.ngils;

    int r = walk_read_gils(&target->walk, &target->memory, &target->runtime, st->now);
    if (r == 0 && !same_gils(st->gils, st->now, ngils))
        r = -EAGAIN;
    if (r == 0)
        r = walk_once(search);
    if (r == 0 && target->walk.ngils != ngils)
        r = -EAGAIN;
    if (r < 0)
        return r;
    moment->tracer = tracer;
    moment->holders = st->holders;
    moment->nholders = st->n;
    r = run_work(search);
    moment->tracer = NULL;
    search->torn = r == -EAGAIN ? st->holders[0] : 0;
    if (r < 0)
        return r;
    /* A GIL is marked as locked a moment before its new holder is noted: one that was just being
     * handed on shows itself now. Other interpreters' GILs may have changed too. */
    r = walk_read_gils(&target->walk, &target->memory, &target->runtime, st->now);
    if (r == 0 && !same_gils(st->gils, st->now, ngils))
        r = -EAGAIN;
    if (r == 0 && st->n < ngils)
        r = view_verify(target->view);
    return r;
}

/* Failures that are of this try only: the process itself may live, and the next try finds out. */
static bool is_passing(int error)
{
    return error == -EBUSY || error == -ETIMEDOUT || error == -EDEADLK || error == -ENFILE ||
           error == -ESRCH || error == -EFAULT;
}

static int stop_and_read(struct tracer *tracer, void *arg)
{
    struct stopping *st = arg;
    struct moment *moment = st->search->moment;
    int r = 0;

    _guard_mutex_(&st->search->target->tracing);
    for (size_t i = 0; i < st->n && r == 0; i++)
        r = tracer_stop(tracer, st->holders[i]);
    if (r == 0)
        r = read_stopped(tracer, st);
    else if (r ==
             -ETIMEDOUT) /* it waits for a processor: reading twice without stopping it may do */
        st->search->starved = true;
    else if (r != -ESRCH && is_passing(r))
        st->search->no_stopping = true;
    if (is_passing(r))
        r = -EAGAIN;
    uint64_t ns = tracer_resume(tracer);
    pacing_paused(&st->search->target->pacing, st->search->target->pid, ns);
    moment->pause_ns += ns;
    return r;
}

/* With the GIL's holders stopped, where they are known and run; -EAGAIN where not. */
static int try_stopping(struct search *search)
{
    struct target *target = search->target;
    size_t ngils = target->walk.ngils, n;
    pid_t holders[TRACER_STOPPED_MAX];

    if (!ngils || search->no_stopping)
        return -EAGAIN;
    pacing_wait(&target->pacing, target->pid);
    _cleanup_free_ struct gil *gils = calloc(2 * ngils, sizeof *gils);
    if (!gils)
        return -ENOMEM;
    int r = walk_read_gils(&target->walk, &target->memory, &target->runtime, gils);
    if (r == 0)
        r = running_holders(search, gils, holders, &n);
    if (r < 0)
        return r;
    if (!n)
        return -EAGAIN;
    struct stopping st = {search, gils, gils + ngils, holders, n};
    return tracer_run(stop_and_read, &st);
}

/* ---- the last resort ---- */

/* Drops the inner frames that an earlier walk doesn't confirm. */
static void keep_common(struct stack *s, const struct raw_frame *before, size_t nbefore)
{
    size_t common = 0;

    while (common < s->n && common < nbefore) {
        const struct raw_frame *a = &s->frames[s->n - 1 - common];
        const struct raw_frame *b = &before[nbefore - 1 - common];
        if (a->addr != b->addr || a->code != b->code || a->lasti != b->lasti)
            break;
        common++;
    }
    s->torn = common < s->n || common < nbefore;
    if (!s->torn)
        return;
    memmove(s->frames, s->frames + (s->n - common), common * sizeof *s->frames);
    s->n = common;
    s->nanchors = 0; /* native frames are not placed on such a stack */
}

/* Two walks; what they agree on, outermost first, is shown, and the rest is marked as torn. */
static int compare_walks(struct search *search)
{
    struct target *target = search->target;
    struct walk *walk = &target->walk;
    size_t total = 0;

    int r = walk_once(search);
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
    for (size_t i = 0; i < walk->n; i++) {
        struct stack *s = &walk->stacks[i];
        size_t k = i; /* the list rarely changes */
        if (k >= nstacks || before[k].tstate != s->tstate)
            for (k = 0; k < nstacks && before[k].tstate != s->tstate;)
                k++;
        keep_common(s, k < nstacks ? frames + before[k].at : NULL, k < nstacks ? before[k].n : 0);
    }
    return run_work(search);
}

int moment_run(struct target *target, moment_work *work, void *arg, struct moment *moment)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
    struct search search = {
        .target = target, .work = work, .arg = arg, .moment = moment, .lwps = &lwps};
    uint64_t start = monotonic_ns();
    int r = -EAGAIN;

    *moment = (struct moment){.walk = &target->walk, .verified = true};
    code_cache_trim(target->codes);
    for (int i = 0; i < MOMENT_TRIES && r == -EAGAIN; i++) {
        if (i >= MOMENT_TRIES_MIN && monotonic_ns() - start > MOMENT_DEADLINE_NS)
            break;
        if (i > 8)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        if (search.torn)
            pacing_let_run(target->pid, search.torn);
        search.torn = 0;
        search.starved = false;
        r = try_stopping(&search); /* at once where the last walk's knowledge suffices */
        if (r == -EAGAIN)
            r = try_quietly(&search);
    }
    for (int i = 0; i < MOMENT_TRIES && r == -EAGAIN; i++) {
        moment->verified = false;
        r = compare_walks(&search);
    }
    return r;
}
