#include "fs/sampler/sampler.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A tick may wait for a file system that doesn't answer: so long its end is waited for. */
#define STOP_DEADLINE_NS 1000000000u
#define HURRY_NS 5000000000u

struct sampler *sampler_ref(struct sampler *sampler)
{
    if (sampler)
        atomic_fetch_add(&sampler->references, 1);
    return sampler;
}

void sampler_unref(struct sampler *sampler)
{
    if (!sampler || atomic_fetch_sub(&sampler->references, 1) > 1)
        return;
    sampler_tasks_free(sampler->tasks);
    sampler_names_free(sampler->names);
    store_unref(sampler->store);
    target_unref(sampler->target);
    text_deinit(&sampler->why);
    if (sampler->wakes >= 0)
        close(sampler->wakes);
    pthread_cond_destroy(&sampler->changed);
    pthread_mutex_destroy(&sampler->using);
    pthread_mutex_destroy(&sampler->lock);
    free(sampler);
}

/* The caller holds using. */
static void note_figures(struct sampler *sampler)
{
    struct sampler_figures now;

    sampler->by->figures(sampler, &now);
    _guard_mutex_(&sampler->lock);
    sampler->last = now;
}

/* Ends the source; only the first time. */
static void finish(struct sampler *sampler)
{
    _guard_mutex_(&sampler->using);

    if (sampler->stopped)
        return;
    if (sampler->by->collect)
        sampler->by->collect(sampler);
    note_figures(sampler);
    sampler->by->stop(sampler);
    sampler->of = NULL;
    sampler->stopped = true;
}

/* Waits until `due`, or until something else is to be done. The caller holds lock. */
static void wait_until(struct sampler *sampler, uint64_t due)
{
    if (due == UINT64_MAX) {
        pthread_cond_wait(&sampler->changed, &sampler->lock);
        return;
    }
    const struct timespec at = timespec_of(due);
    pthread_cond_clockwait(&sampler->changed, &sampler->lock, CLOCK_MONOTONIC, &at);
}

static void *ticking(void *arg)
{
    struct sampler *sampler = arg;
    uint64_t due = 0;

    pthread_mutex_lock(&sampler->lock);
    while (!sampler->stopping && !sampler->over) {
        uint64_t now = monotonic_ns();
        uint64_t end = sampler->until ? sampler->until : UINT64_MAX;
        if (now >= end) {
            sampler->over = true;
        } else if (!sampler->by->tick || now < due) {
            wait_until(sampler, sampler->by->tick && due < end ? due : end);
        } else {
            pthread_mutex_unlock(&sampler->lock);
            due = sampler->by->tick(sampler, now);
            pthread_mutex_lock(&sampler->lock);
            sampler->over |= due == UINT64_MAX;
        }
    }
    pthread_mutex_unlock(&sampler->lock);
    finish(sampler);
    pthread_mutex_lock(&sampler->lock);
    sampler->threaded = false;
    pthread_cond_broadcast(&sampler->changed);
    pthread_mutex_unlock(&sampler->lock);
    sampler_unref(sampler);
    return NULL;
}

static int start_thread(struct sampler *sampler)
{
    pthread_t thread;

    if (!sampler->by->tick && !sampler->until)
        return 0;
    sampler->threaded = true;
    atomic_fetch_add(&sampler->references, 1);
    int error = worker_start(ticking, sampler, "probefs-sample", &thread);
    if (error) {
        sampler->threaded = false;
        sampler_unref(sampler);
        return error;
    }
    pthread_detach(thread);
    return 0;
}

struct kernel_wish sampler_wish(const struct sampler *sampler)
{
    const struct sampler_options *options = &sampler->options;

    return (struct kernel_wish){.pid = sampler->target->pid,
                                .tid = options->tid,
                                .hz = options->hz,
                                .clock = options->modes & SAMPLER_ON_MODES,
                                .faults = options->modes & SAMPLER_MODE(MODE_FAULTS),
                                .off = options->modes & SAMPLER_OFF_MODES,
                                .native = options->native,
                                .children = options->children};
}

static int start_one(struct sampler *sampler, const struct sampler_source *source,
                     struct text *reason)
{
    const struct sampler_source *elsewhere = sampler->target->sampled_by;

    sampler->source = source;
    sampler->by = elsewhere ? elsewhere : source;
    return sampler->by->start(sampler, reason);
}

/* The first source that can do any of it. */
static int start_source(struct sampler *sampler, struct text *why)
{
    int error = -EOPNOTSUPP;

    for (size_t i = 0; sampler_sources[i]; i++) {
        _cleanup_(text_deinit) struct text reason = TEXT_INIT;
        const struct sampler_source *source = sampler_sources[i];
        if (sampler->options.inside ? source != &sampler_inside
                                    : !(source->modes & sampler->options.modes))
            continue;
        error = start_one(sampler, source, &reason);
        if (!error)
            return 0;
        text_printf(&sampler->why, "%s: %s\n", source->name,
                    reason.data ? reason.data : strerror(-error));
        if (error == -ESRCH || error == -ENOMEM || error == -EINTR)
            break;
    }
    if (sampler->why.size)
        text_add(why, sampler->why.data, sampler->why.size - 1);
    else
        text_puts(why, "nothing here can sample that");
    return error;
}

/* One of which nothing runs yet. */
static int make(struct target *target, struct store *store, const struct sampler_options *options,
                struct sampler **out)
{
    struct sampler *sampler = calloc(1, sizeof *sampler);

    if (!sampler)
        return -ENOMEM;
    sampler->references = 1;
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_mutex_init(&sampler->using, NULL);
    pthread_cond_init(&sampler->changed, NULL);
    sampler->target = target_ref(target);
    sampler->store = store_ref(store);
    sampler->options = *options;
    sampler->wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = sampler->wakes < 0 ? -errno : 0;
    if (!error)
        error = sampler_names_new(target, store, &sampler->names);
    if (!error)
        error = sampler_tasks_new(target, sampler->names, store, &sampler->tasks);
    if (error)
        sampler_unref(sampler);
    else
        *out = sampler;
    return error;
}

/* Has it go on, once its source has begun. Takes over the reference on failure. */
static int go_on(struct sampler *sampler, uint64_t duration)
{
    sampler->since = monotonic_ns();
    sampler->until = duration ? sampler->since + duration : 0;
    int error = start_thread(sampler);
    if (error) {
        finish(sampler);
        sampler_unref(sampler);
    }
    return error;
}

int sampler_start(struct target *target, struct store *store, const struct sampler_options *options,
                  uint64_t duration, const struct interrupt *interrupt, struct text *why,
                  struct sampler **out)
{
    struct sampler *sampler;

    int error = make(target, store, options, &sampler);
    if (error) {
        text_printf(why, "it can't be made: %s", strerror(-error));
        return error;
    }
    sampler->interrupt = interrupt;
    error = start_source(sampler, why);
    sampler->interrupt = NULL;
    if (error) {
        sampler_unref(sampler);
        return error;
    }
    error = go_on(sampler, duration);
    if (!error)
        *out = sampler;
    return error;
}

int sampler_start_here(struct target *target, struct store *store,
                       const struct sampler_options *options, const struct sampler_source *source,
                       const struct sampler_door *door, struct text *why, struct sampler **out)
{
    struct sampler *sampler;

    int error = make(target, store, options, &sampler);
    if (error)
        return error;
    sampler->door = door;
    error = start_one(sampler, source, why);
    if (error) {
        sampler_unref(sampler);
        return error;
    }
    error = go_on(sampler, 0);
    if (!error)
        *out = sampler;
    return error;
}

bool sampler_stop(struct sampler *sampler, struct sampler_figures *last)
{
    const struct timespec end = timespec_of(monotonic_ns() + STOP_DEADLINE_NS);

    pthread_mutex_lock(&sampler->lock);
    bool threaded = sampler->threaded;
    sampler->stopping = true;
    eventfd_write(sampler->wakes, 1);
    pthread_cond_broadcast(&sampler->changed);
    while (sampler->threaded)
        if (pthread_cond_clockwait(&sampler->changed, &sampler->lock, CLOCK_MONOTONIC, &end) ==
            ETIMEDOUT)
            break; /* it ends once it can, and frees what it has */
    bool ended = !sampler->threaded;
    pthread_mutex_unlock(&sampler->lock);
    if (!threaded)
        finish(sampler);
    _guard_mutex_(&sampler->lock);
    *last = sampler->last;
    return ended;
}

bool sampler_over(struct sampler *sampler)
{
    _guard_mutex_(&sampler->lock);
    return sampler->over;
}

void sampler_collect(struct sampler *sampler)
{
    _guard_mutex_(&sampler->using);

    if (!sampler->stopped && sampler->by->collect)
        sampler->by->collect(sampler);
}

void sampler_hurry(struct sampler *sampler)
{
    uint64_t now = monotonic_ns();

    if (!sampler_hurries(sampler, now))
        eventfd_write(sampler->wakes, 1);
    atomic_store(&sampler->hurried, now);
}

bool sampler_hurries(const struct sampler *sampler, uint64_t now)
{
    uint64_t hurried = atomic_load(&sampler->hurried);

    return hurried && now < hurried + HURRY_NS;
}

void sampler_figures(struct sampler *sampler, struct sampler_figures *out)
{
    if (!pthread_mutex_trylock(&sampler->using)) {
        if (!sampler->stopped)
            note_figures(sampler);
        pthread_mutex_unlock(&sampler->using);
    }
    _guard_mutex_(&sampler->lock);
    *out = sampler->last;
}
