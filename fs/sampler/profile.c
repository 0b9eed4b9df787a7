#include "fs/sampler/profile.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#include <errno.h>

#define LEAVE_TRIES 10 /* of 0.2 s each */

struct profile {
    pid_t pid;
    uint64_t serial;          /* no two have the same */
    pthread_mutex_t starting; /* held while a sampler is made, which may hang */
    pthread_mutex_t lock;     /* for a moment, by anybody; guards what follows */
    struct store *store;
    struct sampler *sampler; /* NULL: none runs */
    struct sampler_options options;
    uint64_t duration, since, until;
    const char *source;
    struct text why;
    struct sampler_figures figures; /* of the last sampler, once it has ended */
    bool
        resumes; /* it was handed over, and is to go on: for so long; ns, 0: until told otherwise */
    uint64_t resumes_for;
    uint64_t tried;  /* CLOCK_MONOTONIC, ns: when it was last to be started unasked; 0: never */
    uint64_t parent; /* the serial of whose child it is; 0: nobody's */
    bool over;       /* the process has ended */
};

/* What all profiles have. Like the memory that it counts, it belongs to the process. */
static struct store_budget budget;
static _Atomic uint64_t serials;

int profile_new(pid_t pid, struct profile **out)
{
    struct profile *profile = calloc(1, sizeof *profile);

    if (!profile)
        return -ENOMEM;
    profile->pid = pid;
    profile->serial = atomic_fetch_add(&serials, 1) + 1;
    pthread_mutex_init(&profile->starting, NULL);
    pthread_mutex_init(&profile->lock, NULL);
    *out = profile;
    return 0;
}

/* Ends the sampler. The caller holds lock, here as below. */
static bool stop(struct profile *profile)
{
    struct sampler *sampler = steal_pointer(profile->sampler);

    if (!sampler)
        return false;
    bool ended = sampler_over(sampler);
    sampler_stop(sampler, &profile->figures);
    sampler_unref(sampler);
    if (!ended || !profile->until)
        profile->until = monotonic_ns();
    return !ended;
}

/* Takes note of one that has ended by itself. */
static void settle(struct profile *profile)
{
    if (profile->sampler && sampler_over(profile->sampler))
        stop(profile);
}

void profile_free(struct profile *profile)
{
    if (!profile)
        return;
    stop(profile);
    store_unref(profile->store);
    text_deinit(&profile->why);
    pthread_mutex_destroy(&profile->starting);
    pthread_mutex_destroy(&profile->lock);
    free(profile);
}

/* Has what is pending taken in, without the lock: that may hang. */
static void collect(struct profile *profile)
{
    pthread_mutex_lock(&profile->lock);
    struct sampler *sampler = sampler_ref(profile->sampler);
    pthread_mutex_unlock(&profile->lock);
    if (sampler)
        sampler_collect(sampler);
    sampler_unref(sampler);
}

/* Puts a sampler that has just begun in the place of the last one. -ESRCH: the process has ended
 * meanwhile. The caller holds lock, and gives its references away. */
static int install(struct profile *profile, struct store *store, struct sampler *sampler,
                   uint64_t duration)
{
    struct sampler_figures figures;

    if (profile->over) {
        sampler_stop(sampler, &figures);
        sampler_unref(sampler);
        store_unref(store);
        return -ESRCH;
    }
    stop(profile);
    store_unref(profile->store);
    profile->store = store;
    store_period(store, UINT64_C(1000000000) / sampler->options.hz);
    profile->sampler = sampler;
    profile->options = sampler->options;
    profile->duration = duration;
    profile->since = sampler->since;
    profile->until = duration ? sampler->since + duration : 0;
    profile->source = sampler->source->name;
    profile->figures = (struct sampler_figures){0};
    text_clear(&profile->why);
    if (sampler->why.size)
        text_add(&profile->why, sampler->why.data, sampler->why.size);
    return 0;
}

int profile_start(struct profile *profile, struct target *target,
                  const struct sampler_options *options, uint64_t duration,
                  const struct interrupt *interrupt, struct text *why)
{
    struct sampler *sampler;

    if (pthread_mutex_trylock(&profile->starting)) {
        text_puts(why, "a profile of it is just being started: try again");
        return -EBUSY;
    }
    pthread_mutex_lock(&profile->lock);
    struct store *store = store_ref(profile->store);
    pthread_mutex_unlock(&profile->lock);
    int error = store ? 0 : store_new(profile->pid, &budget, &store);
    if (!error)
        error = sampler_start(target, store, options, duration, interrupt, why, &sampler);
    if (error) {
        store_unref(store);
    } else {
        _guard_mutex_(&profile->lock);
        error = install(profile, store, sampler, duration);
        if (error)
            text_puts(why, "the process has ended");
    }
    pthread_mutex_unlock(&profile->starting);
    return error;
}

bool profile_stop(struct profile *profile)
{
    _guard_mutex_(&profile->lock);
    return stop(profile);
}

/* What runs is to go on some time. The caller holds lock. */
static void keep_wish(struct profile *profile)
{
    uint64_t now = monotonic_ns();

    if (!profile->sampler || (profile->until && profile->until <= now))
        return;
    profile->resumes = true;
    profile->resumes_for = profile->until ? profile->until - now : 0;
}

int profile_leave_agent(struct profile *profile)
{
    struct sampler_figures last;
    bool ended = false;

    pthread_mutex_lock(&profile->lock);
    bool is_agents = profile->sampler && profile->sampler->source == &sampler_inside;
    struct sampler *sampler = is_agents ? sampler_ref(profile->sampler) : NULL;
    pthread_mutex_unlock(&profile->lock);
    for (int i = 0; i < LEAVE_TRIES && sampler && !ended; i++)
        ended = sampler_stop(sampler, &last);
    sampler_unref(sampler);
    if (!ended)
        return is_agents ? -EBUSY : 0;
    _guard_mutex_(&profile->lock);
    if (profile->sampler != sampler) /* somebody has begun another one meanwhile */
        return -EBUSY;
    if (!sampler_over(sampler))
        keep_wish(profile);
    stop(profile);
    return 0;
}

void profile_end(struct profile *profile)
{
    if (!profile)
        return;
    _guard_mutex_(&profile->lock);
    keep_wish(profile); /* if it turns out to have executed another program */
    profile->over = true;
    stop(profile);
}

void profile_hand_over(struct profile *from, struct profile *to)
{
    pthread_mutex_lock(&from->lock);
    uint64_t now = monotonic_ns();
    bool on = from->sampler ? !from->until || from->until > now : from->resumes;
    uint64_t left = !from->sampler ? from->resumes_for : on && from->until ? from->until - now : 0;
    struct sampler_options options = from->options;
    stop(from);
    from->over = true;
    struct store *store = steal_pointer(from->store);
    pthread_mutex_unlock(&from->lock);

    _guard_mutex_(&to->lock);
    if (!store || to->store) {
        store_unref(store);
        return;
    }
    to->store = store;
    to->options = options;
    to->options.tid = 0; /* its threads have ended */
    to->since = to->until = now;
    to->source = from->source;
    to->resumes = on;
    to->resumes_for = left;
    store_mark(store, "exec", now);
}

void profile_resume(struct profile *profile, struct target *target)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    pthread_mutex_lock(&profile->lock);
    bool resumes = profile->resumes && !profile->over;
    struct sampler_options options = profile->options;
    uint64_t duration = profile->resumes_for;
    profile->resumes = false;
    pthread_mutex_unlock(&profile->lock);
    if (!resumes || profile_start(profile, target, &options, duration, NULL, &why) == 0 ||
        !why.size)
        return;
    _guard_mutex_(&profile->lock);
    text_add(&profile->why, why.data, why.size);
}

int profile_clear(struct profile *profile)
{
    collect(profile);
    _guard_mutex_(&profile->lock);

    if (!profile->store)
        return -ENODATA;
    store_clear(profile->store, monotonic_ns());
    return 0;
}

int profile_mark(struct profile *profile, const char *name)
{
    collect(profile);
    _guard_mutex_(&profile->lock);

    if (!profile->store)
        return -ENODATA;
    return store_mark(profile->store, name, monotonic_ns());
}

struct store *profile_store(struct profile *profile)
{
    collect(profile);
    _guard_mutex_(&profile->lock);

    settle(profile);
    return profile->store ? store_ref(profile->store) : NULL;
}

struct store *profile_peek(struct profile *profile, enum profile_mode *shown)
{
    if (!profile)
        return NULL;
    _guard_mutex_(&profile->lock);
    *shown = profile->options.shown;
    if (profile->sampler)
        sampler_hurry(profile->sampler);
    return profile->store ? store_ref(profile->store) : NULL;
}

bool profile_any(struct profile *profile)
{
    if (!profile)
        return false;
    _guard_mutex_(&profile->lock);
    return profile->store != NULL;
}

bool profile_running(struct profile *profile)
{
    _guard_mutex_(&profile->lock);
    settle(profile);
    return profile->sampler != NULL;
}

bool profile_try(struct profile *profile, uint64_t now, uint64_t again)
{
    _guard_mutex_(&profile->lock);
    if (profile->tried && now - profile->tried < again)
        return false;
    profile->tried = now;
    return true;
}

void profile_forgive(struct profile *profile)
{
    _guard_mutex_(&profile->lock);
    profile->tried = 0;
}

void profile_adopt(struct profile *child, const struct profile *parent)
{
    _guard_mutex_(&child->lock);
    child->parent = parent->serial;
}

bool profile_is_child(struct profile *child, const struct profile *parent)
{
    _guard_mutex_(&child->lock);
    return child->parent == parent->serial;
}

int profile_look(struct profile *profile, struct profile_state *out)
{
    collect(profile);
    _guard_mutex_(&profile->lock);

    *out = (struct profile_state){.started = profile->store != NULL};
    if (!profile->store)
        return 0;
    settle(profile);
    out->running = profile->sampler != NULL;
    out->options = profile->options;
    out->asked_for = profile->duration;
    out->since = profile->since;
    out->until = profile->until;
    out->source = profile->source;
    out->figures = profile->figures;
    if (profile->sampler)
        sampler_figures(profile->sampler, &out->figures);
    store_stats(profile->store, &out->stats);
    if (profile->why.size)
        text_add(&out->why, profile->why.data, profile->why.size);
    return text_finish(&out->why);
}

void profile_state_deinit(struct profile_state *state) { text_deinit(&state->why); }
