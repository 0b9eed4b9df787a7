#include "fs/watch/follow.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/link/attach.h"
#include "fs/link/found.h"
#include "fs/watch/slots.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Between two looks at the agent's record: while anything is watched, and after
 * that, when it may be again. */
#define LOOK_NS 20000000ull
#define LINGER_LOOK_NS 200000000ull
#define CHANGING_LOOK_NS 1000000ull /* while it is being changed ... */
#define CHANGING_MAX 1000           /* ... at first */
#define LINGER_NS 60000000000ull
/* So long the agent may take to note what became of a watch: it may have to wait for the GIL. */
#define TELL_NS 10000000000ull
#define DISARM_NS 1000000000ull
#define SETTLE_NS 3000000000ull /* more than by_ptrace.c takes at most */

struct watches {
    struct watches_owner owner;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool running; /* its thread is there */
    bool stirred; /* it is to look at once */
    bool ending;
    uint64_t begun, done; /* looks at the agent's record */
    unsigned held;
    bool disarmed; /* by its thread, since it is held */
    bool telling;  /* the thread that tells the agent is there */
    bool to_tell[PROTO_WATCHES_MAX];
    struct proto_armed told[PROTO_WATCHES_MAX];
};

/* What the thread knows. */
struct follower {
    struct watches *watches; /* with a reference to their owner */
    struct target *target;   /* a reference; NULL: it has ended, or it wasn't needed yet */
    struct found_agent agent;
    bool found; /* and agent is known */
    int stat;   /* for watch_handled() */
    struct {
        uint32_t change; /* of what is armed, or couldn't be; 0: nothing was seen yet */
        bool wanted;
    } slots[PROTO_WATCHES_MAX];
    struct watch_slots armed;
    uint64_t last; /* when anything was wanted, CLOCK_MONOTONIC */
    unsigned torn; /* looks in a row that say nothing, as the record was being changed */
};

int watches_new(const struct watches_owner *owner, struct watches **out)
{
    struct watches *watches = calloc(1, sizeof *watches);

    if (!watches)
        return -ENOMEM;
    watches->owner = *owner;
    pthread_mutex_init(&watches->lock, NULL);
    pthread_cond_init(&watches->changed, NULL);
    *out = watches;
    return 0;
}

void watches_free(struct watches *watches)
{
    if (!watches)
        return;
    pthread_cond_destroy(&watches->changed);
    pthread_mutex_destroy(&watches->lock);
    free(watches);
}

/* What the thread that is begun next goes on with. */
static struct watches *watches_ref(struct watches *watches)
{
    watches->owner.ref(watches->owner.of);
    return watches;
}

/* Gives up a reference, after which the watches may be gone. */
static void watches_unref(struct watches *watches) { watches->owner.unref(watches->owner.of); }

static struct target *target_of(const struct watches *watches)
{
    return watches->owner.target(watches->owner.of);
}

/* ---- telling the agent ---- */

static bool next_to_tell(struct watches *watches, struct proto_armed *out)
{
    _guard_mutex_(&watches->lock);
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) {
        if (!watches->to_tell[i])
            continue;
        watches->to_tell[i] = false;
        *out = watches->told[i];
        return true;
    }
    watches->telling = false;
    return false;
}

static void *tell_main(void *arg)
{
    struct watches *watches = arg;
    struct proto_armed armed;
    struct proto_done done;

    while (next_to_tell(watches, &armed)) {
        struct target *target = target_of(watches);
        struct session *session = target ? agent_session(target) : NULL;
        if (session)
            session_order(session, PROTO_ARMED, &armed, sizeof armed, TELL_NS, NULL, &done);
        session_unref(session);
        target_unref(target);
    }
    watches_unref(watches);
    return NULL;
}

/* Has the agent told what became of a slot, by another thread: its answer may take its time, and
 * this thread has to look. */
static void tell(const struct follower *f, unsigned slot, int error, enum watch_route route,
                 const struct text *why)
{
    struct watches *watches = f->watches;
    struct proto_armed *armed = &watches->told[slot];
    pthread_t thread;

    _guard_mutex_(&watches->lock);
    *armed = (struct proto_armed){
        .slot = slot, .change = f->slots[slot].change, .error = -error, .route = route};
    snprintf(armed->words, sizeof armed->words, "%s", why && why->data ? why->data : "");
    watches->to_tell[slot] = true;
    if (watches->telling ||
        worker_start(tell_main, watches_ref(watches), "probefs-tell", &thread) < 0) {
        if (!watches->telling)
            watches_unref(watches); /* f has one, too */
        return;
    }
    watches->telling = true;
    pthread_detach(thread);
}

/* ---- arming ---- */

static void disarm_all(struct follower *f)
{
    watch_slots_disarm_all(&f->armed);
    memset(f->slots, 0, sizeof f->slots);
}

static void change_slot(struct follower *f, unsigned slot, const struct probe_watch *watch)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    enum watch_route route = ROUTE_ANY;
    bool first = !f->slots[slot].change;
    int r = 0;

    watch_slots_disarm(&f->armed, slot);
    f->slots[slot].change = watch->change;
    f->slots[slot].wanted = watch->id;
    if (watch->id)
        r = watch_slots_arm(&f->armed, slot, watch, &route, &why);
    if (watch->id || !first)
        tell(f, slot, r, route, &why);
}

/* ---- looking ---- */

/* 0: what the record says is wanted; -EAGAIN: it is being changed; -ECANCELED: nothing may be armed
 * just now; others: it is over. */
static int read_wanted(struct follower *f, struct probe_watch *out)
{
    const struct probe_agent_record *record = &f->agent.record;

    int r = found_agent_refresh(&f->target->memory, &f->agent);
    if (r < 0)
        return r;
    if (!f->agent.running)
        return -ENOENT;
    memcpy(out, record->watches, sizeof record->watches);
    if (!record->trap || !watch_handled(f->stat))
        return -ECANCELED;
    bool same = true;
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        same = same && out[i].change == f->slots[i].change;
    if (same)
        return 0;
    r = found_agent_refresh(&f->target->memory, &f->agent);
    return r < 0 ? r : memcmp(out, record->watches, sizeof record->watches) ? -EAGAIN : 0;
}

/* Tells of the slots that were armed, by ptrace alone perhaps, and aren't any more, though they
 * should be. */
static void tell_lost(struct follower *f, bool traced_only, int error, const char *words)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    text_puts(&why, words);
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) {
        if (!watch_slots_armed(&f->armed, i) || (traced_only && f->armed.slots[i].perf))
            continue;
        watch_slots_disarm(&f->armed, i);
        tell(f, i, error, ROUTE_ANY, &why);
    }
}

static void attend(struct follower *f)
{
    int r = watch_slots_attend(&f->armed);

    if (r == -ECANCELED)
        tell_lost(f, true, r,
                  "SIGTRAP had no handler when a thread wrote: one that blocks SIGTRAP did, or the "
                  "program has set "
                  "another one");
    else if (r < 0)
        tell_lost(f, true, r, "it can't be traced any more");
}

/* Finds the agent, unless it is known. */
static bool find_agent(struct follower *f)
{
    if (f->found)
        return true;
    if (!f->target)
        f->target = target_of(f->watches);
    if (f->target && f->stat < 0)
        f->stat = watch_open_stat(f->target->pid);
    if (f->target)
        f->armed.pid = f->target->pid;
    f->found = f->target && f->stat >= 0 && agent_found(f->target, &f->agent) == 0;
    return f->found;
}

static bool has_session(struct follower *f)
{
    struct session *session = agent_session(f->target);

    session_unref(session);
    return session;
}

/* Whether it is worth looking again. */
static bool look(struct follower *f)
{
    struct probe_watch wanted[PROTO_WATCHES_MAX];

    unsigned torn = f->torn;

    f->torn = 0;
    if (!find_agent(f) || !has_session(f))
        return false;
    int r = read_wanted(f, wanted);
    if (r == -EAGAIN)
        f->torn = torn + 1;
    if (r < 0 && r != -EAGAIN && r != -ECANCELED) {
        f->found = false;
        return false;
    }
    if (r == -ECANCELED)
        attend(f); /* which knows more of why */
    if (r == -ECANCELED)
        tell_lost(f, false, r,
                  "SIGTRAP, by which a write is told, has no handler of the agent's any more");
    for (unsigned i = 0; r == 0 && i < PROTO_WATCHES_MAX; i++) {
        if (wanted[i].change & 1)
            f->torn = torn + 1;
        else if (wanted[i].change != f->slots[i].change)
            change_slot(f, i, &wanted[i]);
    }
    attend(f);
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        if (f->slots[i].wanted)
            f->last = monotonic_ns();
    return monotonic_ns() - f->last < LINGER_NS;
}

/* ---- the thread ---- */

/* Disarms all, where nothing is to be armed, and waits until something may be again. False: it
 * never may. */
static bool rest(struct follower *f)
{
    struct watches *watches = f->watches;

    pthread_mutex_lock(&watches->lock);
    bool wanted = !watches->held && !watches->ending;
    pthread_mutex_unlock(&watches->lock);
    if (wanted)
        return true;
    disarm_all(f);
    _guard_mutex_(&watches->lock);
    watches->disarmed = true;
    pthread_cond_broadcast(&watches->changed);
    while (watches->held && !watches->ending)
        pthread_cond_wait(&watches->changed, &watches->lock);
    watches->disarmed = watches->ending;
    return !watches->ending;
}

/* Waits for the next look. False: there is none, and somebody else may begin anew. */
static bool wait_next(struct follower *f, bool more)
{
    struct watches *watches = f->watches;
    bool busy = monotonic_ns() - f->last < 2 * LOOK_NS;
    bool changing = f->torn && f->torn < CHANGING_MAX;
    uint64_t nap = changing ? CHANGING_LOOK_NS : busy ? LOOK_NS : LINGER_LOOK_NS;
    const struct timespec t = timespec_of(monotonic_ns() + nap);

    _guard_mutex_(&watches->lock);
    if (!f->torn)
        watches->done = watches->begun;
    pthread_cond_broadcast(&watches->changed);
    while (more && !watches->stirred && !watches->ending && !watches->held &&
           pthread_cond_clockwait(&watches->changed, &watches->lock, CLOCK_MONOTONIC, &t) !=
               ETIMEDOUT)
        continue;
    watches->running = watches->ending ? !watches->disarmed
                                       : more || watches->stirred || watches->held;
    watches->stirred = false;
    watches->begun += watches->running;
    pthread_cond_broadcast(&watches->changed);
    return watches->running;
}

static void *follow_main(void *arg)
{
    struct follower f = {.watches = arg, .stat = -1, .last = monotonic_ns()};
    bool more;

    do {
        more = rest(&f) && look(&f);
        if (!more)
            disarm_all(&f);
    } while (wait_next(&f, more));
    if (f.stat >= 0)
        close(f.stat);
    target_unref(f.target);
    watches_unref(f.watches);
    return NULL;
}

/* ---- what others call ---- */

/* With the lock. */
static void follow(struct watches *watches)
{
    pthread_t thread;

    watches->stirred = true;
    pthread_cond_broadcast(&watches->changed);
    if (watches->running || watches->ending)
        return;
    if (worker_start(follow_main, watches_ref(watches), "probefs-watch", &thread) < 0) {
        watches_unref(watches); /* the caller has one, too */
        return;
    }
    watches->running = true;
    watches->begun++;
    pthread_detach(thread);
}

void watches_follow(struct watches *watches)
{
    _guard_mutex_(&watches->lock);
    follow(watches);
}

void watches_settle(struct watches *watches)
{
    const struct timespec t = timespec_of(monotonic_ns() + SETTLE_NS);

    _guard_mutex_(&watches->lock);
    uint64_t after = watches->begun; /* one that has begun may have read what was there before */
    follow(watches);
    while (watches->running && !watches->held && watches->done <= after &&
           pthread_cond_clockwait(&watches->changed, &watches->lock, CLOCK_MONOTONIC, &t) !=
               ETIMEDOUT)
        continue;
}

/* Waits until the thread has disarmed all. With the lock. */
static bool wait_disarmed(struct watches *watches)
{
    const struct timespec t = timespec_of(monotonic_ns() + DISARM_NS);

    pthread_cond_broadcast(&watches->changed);
    while (watches->running && !watches->disarmed)
        if (pthread_cond_clockwait(&watches->changed, &watches->lock, CLOCK_MONOTONIC, &t) ==
            ETIMEDOUT)
            break;
    return !watches->running || watches->disarmed;
}

bool watches_hold(struct watches *watches)
{
    _guard_mutex_(&watches->lock);
    watches->held++;
    return wait_disarmed(watches);
}

void watches_let_go(struct watches *watches)
{
    _guard_mutex_(&watches->lock);
    watches->held--;
    watches->stirred = true;
    pthread_cond_broadcast(&watches->changed);
}

void watches_end(struct watches *watches)
{
    _guard_mutex_(&watches->lock);
    watches->ending = true;
    wait_disarmed(watches);
}
