#include "fs/watch/by_ptrace.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <signal.h>

/* A signal that comes just before its thread enters waitpid(2) is in vain: it is sent again. */
#define WAKE_NS 500000u
/* A thread that doesn't stop for as long is in an uninterruptible system call. */
#define STOP_NS 200000000ull
/* So long it may take until what is wanted is so in all threads, also where processors are rare. */
#define SET_NS 2000000000ull

/* ---- waiting for its thread ---- */

int by_ptrace_wake_signal(void) { return SIGRTMIN + 3; }

static void look_up(int signal) {}

/* Has its thread look at what is wanted, once. With the lock. */
static void stir(struct by_ptrace *tracer)
{
    tracer->stirred = true;
    pthread_cond_signal(&tracer->wanted_change);
    if (!tracer->idle)
        pthread_kill(tracer->thread, by_ptrace_wake_signal());
}

/* Waits for a moment, or until its thread has looked again. With the lock. */
static void wait_a_bit(struct by_ptrace *tracer)
{
    const struct timespec t = timespec_of(monotonic_ns() + WAKE_NS);
    uint64_t rounds = tracer->rounds;

    stir(tracer);
    while (tracer->rounds == rounds && pthread_cond_clockwait(&tracer->changed, &tracer->lock,
                                                              CLOCK_MONOTONIC, &t) != ETIMEDOUT)
        continue;
}

/* Waits until its thread has looked since. With the lock. */
static void wait_round(struct by_ptrace *tracer, uint64_t until)
{
    uint64_t rounds = tracer->rounds;

    while (tracer->rounds == rounds && !tracer->gone && monotonic_ns() < until)
        wait_a_bit(tracer);
}

/* ---- for others who trace ---- */

static void release(struct claim *claim, struct claim_hold *hold)
{
    struct by_ptrace *tracer = (struct by_ptrace *)claim;
    struct claim_hold **at = &tracer->holds;

    _guard_mutex_(&tracer->lock);
    while (*at != hold)
        at = &(*at)->next;
    *at = hold->next;
    wait_round(tracer, monotonic_ns() + STOP_NS);
}

static int hold(struct claim *claim, uint64_t deadline_ns, struct claim_hold *hold)
{
    struct by_ptrace *tracer = (struct by_ptrace *)claim;
    uint64_t until = monotonic_ns() + deadline_ns;

    pthread_mutex_lock(&tracer->lock);
    hold->next = tracer->holds;
    tracer->holds = hold;
    while (!hold->stopped && !tracer->alone && monotonic_ns() < until)
        wait_a_bit(tracer);
    bool gone = tracer->alone;
    pthread_mutex_unlock(&tracer->lock);
    if (hold->stopped)
        return 0;
    release(claim, hold);
    return gone ? -ENOENT : -ETIMEDOUT;
}

static void go_on(struct claim *claim)
{
    struct by_ptrace *tracer = (struct by_ptrace *)claim;

    _guard_mutex_(&tracer->lock);
    if (tracer->paused)
        tracer->paused--;
    stir(tracer);
}

static int pause_all(struct claim *claim)
{
    struct by_ptrace *tracer = (struct by_ptrace *)claim;
    uint64_t until = monotonic_ns() + STOP_NS;

    pthread_mutex_lock(&tracer->lock);
    tracer->paused++;
    wait_round(tracer, until);
    while (!tracer->alone && !tracer->gone && monotonic_ns() < until)
        wait_a_bit(tracer);
    bool alone = tracer->alone || tracer->gone;
    pthread_mutex_unlock(&tracer->lock);
    if (!alone)
        go_on(claim);
    return alone ? 0 : -ETIMEDOUT;
}

/* Nobody refers to it any more. */
static void free_tracer(struct claim *claim)
{
    struct by_ptrace *tracer = (struct by_ptrace *)claim;

    if (tracer->stat >= 0)
        close(tracer->stat);
    pthread_cond_destroy(&tracer->changed);
    pthread_cond_destroy(&tracer->wanted_change);
    pthread_mutex_destroy(&tracer->lock);
    free(tracer->tracees);
    free(tracer);
}

static struct claim claim_of(pid_t pid)
{
    return (struct claim){
        .pid = pid,
        .refs = 1,
        .hold = hold,
        .release = release,
        .pause = pause_all,
        .go_on = go_on,
        .free = free_tracer,
    };
}

/* ---- its life ---- */

static int start(struct by_ptrace *tracer)
{
    struct sigaction action = {.sa_handler = look_up}; /* not SA_RESTART: waitpid(2) is to return */

    sigaction(by_ptrace_wake_signal(), &action, NULL);
    claim_ref(&tracer->claim);
    int r = worker_start(by_ptrace_main, tracer, "probefs-watcher", &tracer->thread);
    if (r < 0) {
        claim_unref(&tracer->claim);
        return r;
    }
    pthread_detach(tracer->thread);

    _guard_mutex_(&tracer->lock);
    while (!tracer->started)
        pthread_cond_wait(&tracer->changed, &tracer->lock);
    return tracer->error;
}

int by_ptrace_new(pid_t pid, struct by_ptrace **out, struct text *why)
{
    struct by_ptrace *tracer = calloc(1, sizeof *tracer);

    if (!tracer)
        return -ENOMEM;
    pthread_mutex_init(&tracer->lock, NULL);
    pthread_cond_init(&tracer->changed, NULL);
    pthread_cond_init(&tracer->wanted_change, NULL);
    tracer->claim = claim_of(pid);
    tracer->why = why;
    tracer->version = 1;
    tracer->stat = watch_open_stat(pid);
    int r = tracer->stat < 0 ? tracer->stat : start(tracer);
    if (r < 0) {
        claim_unref(&tracer->claim);
        return r;
    }
    claim_enter(&tracer->claim);
    *out = tracer;
    return 0;
}

void by_ptrace_free(struct by_ptrace *tracer)
{
    if (!tracer)
        return;
    uint64_t until = monotonic_ns() + STOP_NS;
    pthread_mutex_lock(&tracer->lock);
    tracer->ending = true;
    if (!tracer->gone)
        pthread_setname_np(tracer->thread, TRACER_NAME); /* who traces next waits for it */
    while (!tracer->gone && monotonic_ns() < until)
        wait_a_bit(tracer);
    pthread_mutex_unlock(&tracer->lock);
    claim_leave(&tracer->claim);
    claim_unref(&tracer->claim);
}

/* ---- what it watches ---- */

static int explain(const struct by_ptrace *tracer, struct text *why)
{
    if (tracer->unhandled) {
        text_puts(why, "SIGTRAP, by which a write is told, has no handler any more: the program "
                       "has set another one, "
                       "or a thread that blocks SIGTRAP has written");
        return -ECANCELED;
    }
    return tracer->error;
}

/* With the lock. */
static void set_place(struct by_ptrace *tracer, unsigned slot, const struct watch_place *place)
{
    uint64_t until = monotonic_ns() + SET_NS;

    tracer->places[slot] = place ? *place : (struct watch_place){0};
    tracer->version++;
    wait_round(tracer, until);
    while (tracer->late && !tracer->gone && !tracer->error && monotonic_ns() < until)
        wait_a_bit(tracer);
}

static int explain_refused(const struct by_ptrace *tracer, struct text *why)
{
    int r = atomic_load(&tracer->refused);

    if (r != -ENOSPC)
        return r;
    text_printf(why,
                "no debug register is free in thread %d: all %d are taken, by watches of this file "
                "or by somebody "
                "else's perf events",
                (int)atomic_load(&tracer->refused_tid), PROTO_WATCHES_MAX);
    return -EBUSY;
}

int by_ptrace_set(struct by_ptrace *tracer, unsigned slot, const struct watch_place *place,
                  struct text *why)
{
    _guard_mutex_(&tracer->lock);
    if (place && watch_handled(tracer->stat))
        tracer->unhandled = false;
    else if (place && !tracer->error)
        tracer->unhandled = true;
    if (place && (tracer->unhandled || tracer->error))
        return explain(tracer, why);
    atomic_store(&tracer->refused, 0);
    set_place(tracer, slot, place);
    if (place && atomic_load(&tracer->refused)) {
        set_place(tracer, slot, NULL);
        return explain_refused(tracer, why);
    }
    return place && (tracer->unhandled || tracer->error) ? explain(tracer, why) : 0;
}

int by_ptrace_attend(struct by_ptrace *tracer, uint64_t *hits)
{
    _guard_mutex_(&tracer->lock);
    stir(tracer);
    *hits = atomic_load(&tracer->hits);
    return tracer->unhandled ? -ECANCELED : tracer->error;
}
