#include "fs/process/profiler.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"
#include "fs/sampler/profile.h"

#include <errno.h>
#include <string.h>

#define LOOK_NS 1000000000u
#define TRY_AGAIN_NS 60000000000u /* with a process that can't be sampled */

struct profiler {
    struct registry *registry;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    pthread_t thread;
    bool running, ending;
    bool wanted; /* something is sampled, as far as one knows */
    bool all;
    struct profile_request request; /* of all */
};

int profiler_new(struct registry *registry, struct profiler **out)
{
    struct profiler *profiler = calloc(1, sizeof *profiler);

    if (!profiler)
        return -ENOMEM;
    profiler->registry = registry;
    pthread_mutex_init(&profiler->lock, NULL);
    pthread_cond_init(&profiler->changed, NULL);
    *out = profiler;
    return 0;
}

void profiler_free(struct profiler *profiler)
{
    if (!profiler)
        return;
    pthread_mutex_lock(&profiler->lock);
    profiler->ending = true;
    pthread_cond_broadcast(&profiler->changed);
    pthread_mutex_unlock(&profiler->lock);
    if (profiler->running)
        pthread_join(profiler->thread, NULL);
    pthread_cond_destroy(&profiler->changed);
    pthread_mutex_destroy(&profiler->lock);
    free(profiler);
}

/* ---- one process ---- */

struct starting {
    struct may_hang work;
    struct process *process; /* a reference */
    struct profile *parent;  /* of a child; owned by `keeps` */
    struct process *keeps;   /* a reference, or NULL */
    struct sampler_options options;
    uint64_t duration;
};

static void start(struct may_hang *work)
{
    struct starting *starting = (struct starting *)work;
    struct target *target = process_to_sample(starting->process);
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    if (target &&
        profile_start(starting->process->profile, target, &starting->options, starting->duration,
                      NULL, &why) == 0 &&
        starting->parent)
        profile_adopt(starting->process->profile, starting->parent);
    target_unref(target);
}

static void starting_free(struct may_hang *work)
{
    struct starting *starting = (struct starting *)work;

    process_unref(starting->process);
    process_unref(starting->keeps);
    free(starting);
}

/* On a thread that may hang, as whatever reads a process. */
static void start_one(struct profiler *profiler, struct process *process, struct process *parent,
                      const struct sampler_options *options, uint64_t duration)
{
    struct starting *starting = calloc(1, sizeof *starting);

    if (!starting)
        return;
    starting->work = (struct may_hang){.pid = process->pid, .run = start, .free = starting_free};
    starting->process = process_ref(process);
    starting->keeps = parent ? process_ref(parent) : NULL;
    starting->parent = parent ? parent->profile : NULL;
    starting->options = *options;
    starting->duration = duration;
    may_hang_init(&starting->work);
    may_hang_run(&starting->work, NULL);
    may_hang_unref(&starting->work);
    if (profile_any(process->profile))
        registry_watch(profiler->registry, process);
}

/* ---- all of them ---- */

/* The one that has started it, if that is sampled with its children. */
static struct process *sampled_parent(const struct process_list *list,
                                      const struct process *process, struct profile_state *state)
{
    struct proc_stat stat;

    if (proc_stat_read(process->pid, &stat) < 0 || stat.start_time != process->start_time)
        return NULL;
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i]->pid != stat.ppid)
            continue;
        if (profile_look(list->items[i]->profile, state) == 0 && state->running &&
            state->options.children && strcmp(state->source, "bpf") != 0)
            return list->items[i]; /* the kernel's sampler follows them itself */
        profile_state_deinit(state);
        return NULL;
    }
    return NULL;
}

static void consider(struct profiler *profiler, const struct process_list *list,
                     struct process *process, const struct profile_request *all)
{
    struct profile_state state = {0};
    uint64_t now = monotonic_ns();

    if (profile_any(process->profile) || !profile_try(process->profile, now, TRY_AGAIN_NS))
        return;
    if (all) {
        start_one(profiler, process, NULL, &all->options, 0);
        return;
    }
    struct process *parent = sampled_parent(list, process, &state);
    if (!parent) {
        profile_forgive(process->profile);
        return;
    }
    struct sampler_options options = state.options;
    options.tid = 0;
    if (!state.until || state.until > now)
        start_one(profiler, process, parent, &options, state.until ? state.until - now : 0);
    profile_state_deinit(&state);
}

/* Returns whether anything is sampled. */
static bool look(struct profiler *profiler, const struct profile_request *all)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    bool any = false;

    if (registry_list(profiler->registry, &list) < 0)
        return true;
    for (size_t i = 0; i < list.n; i++)
        consider(profiler, &list, list.items[i], all);
    for (size_t i = 0; i < list.n && !any; i++)
        any = profile_running(list.items[i]->profile);
    return any;
}

static void *looking(void *arg)
{
    struct profiler *profiler = arg;

    pthread_mutex_lock(&profiler->lock);
    while (!profiler->ending) {
        if (!profiler->wanted && !profiler->all) {
            pthread_cond_wait(&profiler->changed, &profiler->lock);
            continue;
        }
        struct profile_request request = profiler->request;
        bool all = profiler->all;
        profiler->wanted = false;
        pthread_mutex_unlock(&profiler->lock);
        bool any = look(profiler, all ? &request : NULL);
        pthread_mutex_lock(&profiler->lock);
        profiler->wanted |= any;
        const struct timespec next = timespec_of(monotonic_ns() + LOOK_NS);
        if (!profiler->ending)
            pthread_cond_clockwait(&profiler->changed, &profiler->lock, CLOCK_MONOTONIC, &next);
    }
    pthread_mutex_unlock(&profiler->lock);
    return NULL;
}

/* The caller holds lock. */
static int run(struct profiler *profiler)
{
    int error = profiler->running
                    ? 0
                    : worker_start(looking, profiler, "probefs-profile", &profiler->thread);

    profiler->running |= error == 0;
    pthread_cond_broadcast(&profiler->changed);
    return error;
}

int profiler_follow(struct profiler *profiler)
{
    _guard_mutex_(&profiler->lock);
    profiler->wanted = true;
    return run(profiler);
}

int profiler_sample_all(struct profiler *profiler, const struct profile_request *request)
{
    _guard_mutex_(&profiler->lock);
    profiler->all = true;
    profiler->request = *request;
    return run(profiler);
}
