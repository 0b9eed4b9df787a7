#include "fs/trace/watch_ptrace_parts.h"

#include "fs/cleanup.h"
#include "fs/clock.h"
#include "fs/procfs.h"
#include "fs/worker.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* A signal that comes just before its thread enters waitpid(2) is in vain: it is sent again. */
#define WAKE_NS 500000u
/* A thread that doesn't stop for as long is in an uninterruptible system call. */
#define STOP_NS 200000000ull
#define START_NS 2000000000ull

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct watch_tracer *all;

/* ---- waiting for its thread ---- */

int watch_wake_signal(void) { return SIGRTMIN + 3; }

static void look_up(int signal) {}

/* Has its thread look at what is wanted, once. With the lock. */
static void stir(struct watch_tracer *tracer)
{
    tracer->stirred = true;
    pthread_cond_signal(&tracer->wanted_change);
    if (!tracer->idle)
        pthread_kill(tracer->thread, watch_wake_signal());
}

/* Waits for a moment, or until its thread has looked again. With the lock. */
static void wait_a_bit(struct watch_tracer *tracer)
{
    const struct timespec t = timespec_of(monotonic_ns() + WAKE_NS);
    uint64_t rounds = tracer->rounds;

    stir(tracer);
    while (tracer->rounds == rounds &&
           pthread_cond_clockwait(&tracer->changed, &tracer->lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT)
        continue;
}

/* Waits until its thread has looked since. With the lock. */
static void wait_round(struct watch_tracer *tracer)
{
    uint64_t rounds = tracer->rounds, until = monotonic_ns() + STOP_NS;

    while (tracer->rounds == rounds && !tracer->gone && monotonic_ns() < until)
        wait_a_bit(tracer);
}

/* ---- its life ---- */

void watch_tracer_unref(struct watch_tracer *tracer)
{
    if (atomic_fetch_sub(&tracer->refs, 1) > 1)
        return;
    if (tracer->stat >= 0)
        close(tracer->stat);
    pthread_cond_destroy(&tracer->changed);
    pthread_cond_destroy(&tracer->wanted_change);
    pthread_mutex_destroy(&tracer->lock);
    free(tracer->tracees);
    free(tracer);
}

static void enlist(struct watch_tracer *tracer)
{
    _guard_mutex_(&all_lock);
    tracer->next = all;
    all = tracer;
}

static void delist(struct watch_tracer *tracer)
{
    struct watch_tracer **at = &all;

    _guard_mutex_(&all_lock);
    while (*at && *at != tracer)
        at = &(*at)->next;
    if (*at)
        *at = tracer->next;
}

/* With a reference; NULL: there is none. */
static struct watch_tracer *find(pid_t pid)
{
    _guard_mutex_(&all_lock);
    for (struct watch_tracer *tracer = all; tracer; tracer = tracer->next) {
        if (tracer->pid == pid) {
            atomic_fetch_add(&tracer->refs, 1);
            return tracer;
        }
    }
    return NULL;
}

static int start(struct watch_tracer *tracer)
{
    struct sigaction action = {.sa_handler = look_up}; /* not SA_RESTART: waitpid(2) is to return */

    sigaction(watch_wake_signal(), &action, NULL);
    atomic_fetch_add(&tracer->refs, 1);
    int r = worker_start(watch_main, tracer, "probefs-watcher", &tracer->thread);
    if (r < 0) {
        watch_tracer_unref(tracer);
        return r;
    }
    pthread_detach(tracer->thread);

    _guard_mutex_(&tracer->lock);
    while (!tracer->started)
        pthread_cond_wait(&tracer->changed, &tracer->lock);
    return tracer->error;
}

int watch_tracer_new(pid_t pid, struct watch_tracer **out, struct text *why)
{
    struct watch_tracer *tracer = calloc(1, sizeof *tracer);

    if (!tracer)
        return -ENOMEM;
    pthread_mutex_init(&tracer->lock, NULL);
    pthread_cond_init(&tracer->changed, NULL);
    pthread_cond_init(&tracer->wanted_change, NULL);
    atomic_init(&tracer->refs, 1);
    tracer->pid = pid;
    tracer->why = why;
    tracer->version = 1;
    tracer->stat = watch_open_stat(pid);
    int r = tracer->stat < 0 ? tracer->stat : start(tracer);
    if (r < 0) {
        watch_tracer_unref(tracer);
        return r;
    }
    enlist(tracer);
    *out = tracer;
    return 0;
}

void watch_tracer_free(struct watch_tracer *tracer)
{
    if (!tracer)
        return;
    uint64_t until = monotonic_ns() + STOP_NS;
    pthread_mutex_lock(&tracer->lock);
    tracer->ending = true;
    while (!tracer->gone && monotonic_ns() < until)
        wait_a_bit(tracer);
    pthread_mutex_unlock(&tracer->lock);
    delist(tracer);
    watch_tracer_unref(tracer);
}

/* ---- what it watches ---- */

static int explain(const struct watch_tracer *tracer, struct text *why)
{
    if (tracer->unhandled) {
        text_puts(why, "SIGTRAP, by which a write is told, has no handler any more: the program has set another one, "
                       "or a thread that blocks SIGTRAP has written");
        return -ECANCELED;
    }
    return tracer->error;
}

/* With the lock. */
static void set_place(struct watch_tracer *tracer, unsigned slot, const struct watch_place *place)
{
    uint64_t until = monotonic_ns() + STOP_NS;

    tracer->places[slot] = place ? *place : (struct watch_place){0};
    tracer->version++;
    wait_round(tracer);
    while (tracer->late && !tracer->gone && !tracer->error && monotonic_ns() < until)
        wait_a_bit(tracer);
}

static int explain_refused(const struct watch_tracer *tracer, struct text *why)
{
    int r = atomic_load(&tracer->refused);

    if (r != -ENOSPC)
        return r;
    text_printf(why, "no debug register is free in thread %d: all %d are taken, by watches of this file or by somebody "
                     "else's perf events", (int)atomic_load(&tracer->refused_tid), PROTO_WATCHES_MAX);
    return -EBUSY;
}

int watch_tracer_set(struct watch_tracer *tracer, unsigned slot, const struct watch_place *place, struct text *why)
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

int watch_tracer_attend(struct watch_tracer *tracer, uint64_t *hits)
{
    _guard_mutex_(&tracer->lock);
    stir(tracer);
    *hits = atomic_load(&tracer->hits);
    return tracer->unhandled ? -ECANCELED : tracer->error;
}

/* ---- for others who trace ---- */

static pid_t process_of(pid_t tid)
{
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return 0;
    const char *field = proc_status_field(status, "Tgid");
    return field ? (pid_t)strtol(field, NULL, 10) : 0;
}

int watch_hold(pid_t tid, uint64_t deadline_ns, struct watch_hold *hold)
{
    uint64_t until = monotonic_ns() + deadline_ns;
    struct watch_tracer *tracer = find(process_of(tid));

    if (!tracer)
        return -ENOENT;
    *hold = (struct watch_hold){.tracer = tracer, .tid = tid};
    pthread_mutex_lock(&tracer->lock);
    hold->next = tracer->holds;
    tracer->holds = hold;
    while (!hold->stopped && !tracer->alone && monotonic_ns() < until)
        wait_a_bit(tracer);
    bool gone = tracer->alone;
    pthread_mutex_unlock(&tracer->lock);
    if (hold->stopped)
        return 0;
    watch_release(hold);
    return gone ? -ENOENT : -ETIMEDOUT;
}

void watch_release(struct watch_hold *hold)
{
    struct watch_tracer *tracer = hold->tracer;
    struct watch_hold **at = &tracer->holds;

    pthread_mutex_lock(&tracer->lock);
    while (*at != hold)
        at = &(*at)->next;
    *at = hold->next;
    wait_round(tracer);
    pthread_mutex_unlock(&tracer->lock);
    watch_tracer_unref(tracer);
}

int watch_pause(pid_t pid)
{
    uint64_t until = monotonic_ns() + STOP_NS;
    struct watch_tracer *tracer = find(pid);

    if (!tracer)
        return 0;
    pthread_mutex_lock(&tracer->lock);
    tracer->paused++;
    wait_round(tracer);
    while (!tracer->alone && !tracer->gone && monotonic_ns() < until)
        wait_a_bit(tracer);
    bool alone = tracer->alone || tracer->gone;
    pthread_mutex_unlock(&tracer->lock);
    if (!alone)
        watch_go_on(pid);
    watch_tracer_unref(tracer);
    return alone ? 0 : -ETIMEDOUT;
}

void watch_go_on(pid_t pid)
{
    struct watch_tracer *tracer = find(pid);

    if (!tracer)
        return;
    pthread_mutex_lock(&tracer->lock);
    if (tracer->paused)
        tracer->paused--;
    stir(tracer);
    pthread_mutex_unlock(&tracer->lock);
    watch_tracer_unref(tracer);
}
