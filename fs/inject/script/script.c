#include "fs/inject/script/script.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/inject/refusal.h"
#include "fs/inject/script/files.h"
#include "fs/inject/script/order.h"
#include "fs/inject/script/wake.h"
#include "fs/proc/lwp.h"
#include "fs/trace/restart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How long one thread may take to come to a safe point before another is tried: a thread that
 * waits for the GIL gets it within its switch interval (5 ms) times the number of those who want
 * it. */
#define SLICE_NS 50000000ull
#define SLICES_MAX 8                 /* that it gets at once, on a busy machine */
#define SLICE_ASLEEP_NS 500000000ull /* where no thread can be expected to */
#define BUSY_NS 60000000ull          /* a tracer that stays longer isn't there for a moment only */
#define BEGIN_NS 1000000000ull       /* that an interpreter may take to begin */
#define CHOICES_MAX 64               /* threads that are asked in turn */
/* How much longer than the deadline a script that has begun is waited for, before its files go. */
#define GRACE_NS 200000000ull
#define NAP_FIRST_NS 100000u
#define NAP_LAST_NS 2000000u

struct attempt {
    struct target *target;
    const struct interrupt *interrupt;
    uint64_t end; /* CLOCK_MONOTONIC */
    struct script_offsets runtime;
    struct script_files files;
    char old[SCRIPT_FILES_PATH_MAX]; /* "": not loaded yet */
    uint64_t old_base;
    struct inject_result result;
    uint64_t busy_since;
    unsigned placed;                   /* orders */
    bool all_asleep;                   /* no thread ran, and none could be woken */
    char said[SCRIPT_FILES_REPLY_MAX]; /* by the script */
};

/* ---- which thread ---- */

/* How well a thread is suited, 0 being the best; -1: it sleeps, and can't be woken. The main thread
 * runs the program's signal handlers: one that raises during the script would be in vain. */
static int order_of(struct target *target, const struct thread *thread, struct sleep_call *place)
{
    sleep_call_find(target, thread, place);
    if (thread->holds_gil || thread->state == THREAD_RUNNING || thread->state == THREAD_GIL_WAIT ||
        place->caller)
        return 2 * thread->is_main + !thread->holds_gil;
    return -1;
}

/* The nth choice, or the main thread if none comes by. Only threads of the main interpreter: the
 * agent belongs there. */
static const struct thread *choose(struct attempt *attempt, const struct snapshot *snapshot,
                                   unsigned nth, struct sleep_call *place)
{
    const struct thread *by_order[CHOICES_MAX], *main_thread = NULL;
    size_t n = 0;

    for (int order = 0; order <= 3; order++)
        for (size_t i = 0; i < snapshot->nthreads && n < CHOICES_MAX; i++) {
            const struct thread *t = &snapshot->threads[i];
            if (!t->tstate || t->interp_id || t->state == THREAD_DEAD)
                continue;
            if (t->is_main)
                main_thread = t;
            if (order_of(attempt->target, t, place) == order)
                by_order[n++] = t;
        }
    attempt->all_asleep = !n;
    const struct thread *chosen = n ? by_order[nth % n] : main_thread;
    if (chosen)
        sleep_call_find(attempt->target, chosen, place);
    return chosen;
}

/* ---- waiting ---- */

static bool over(const struct attempt *attempt)
{
    return interrupted(attempt->interrupt) || monotonic_ns() >= attempt->end;
}

static void nap(unsigned *ns)
{
    nap_ns(*ns);
    *ns = *ns * 2 > NAP_LAST_NS ? NAP_LAST_NS : *ns * 2;
}

/* Waits for the script's answer until `end`, or as long as it is not even taken, until `slice`. */
static bool wait_answer(struct attempt *attempt, const struct script_order *order, uint64_t slice,
                        uint64_t end)
{
    unsigned ns = NAP_FIRST_NS;
    bool taken = false;

    while (!script_files_reply(&attempt->files, attempt->said, sizeof attempt->said)) {
        uint64_t now = monotonic_ns();
        taken = taken || script_order_taken(order);
        if (now >= end || (!taken && now >= slice) || interrupted(attempt->interrupt) ||
            !target_same_program(attempt->target))
            return false;
        nap(&ns);
    }
    return true;
}

/* A script that was taken and hasn't answered in time: it may be just about to. */
static bool wait_grace(struct attempt *attempt)
{
    uint64_t end = monotonic_ns() + GRACE_NS;
    unsigned ns = NAP_FIRST_NS;

    script_files_unlock(&attempt->files);
    while (!script_files_reply(&attempt->files, attempt->said, sizeof attempt->said)) {
        if (monotonic_ns() >= end || !target_same_program(attempt->target))
            return false;
        nap(&ns);
    }
    return true;
}

/* ---- one thread after the other ---- */

/* Whether an error isn't that of one thread or of one moment. */
static bool is_final(const struct attempt *attempt, int error)
{
    switch (error) {
    case -EAGAIN:
    case -ETIMEDOUT:
    case -EDEADLK: return false;
    case -EBUSY: return attempt->busy_since && monotonic_ns() - attempt->busy_since > BUSY_NS;
    }
    return true;
}

/* Until when a thread may take to come by: longer at first each time, for it may get no processor.
 * Each stop makes some waits begin anew: of a thread in one of those there is to be one only. */
static uint64_t slice_end(const struct attempt *attempt, const struct thread *thread)
{
    if (!attempt->all_asleep)
        return monotonic_ns() +
               SLICE_NS * (attempt->placed < SLICES_MAX ? attempt->placed : SLICES_MAX);
    return restart_sleeps(thread->tid) ? attempt->end : monotonic_ns() + SLICE_ASLEEP_NS;
}

/* Places the order with one thread and takes it back if nothing comes of it. 1: the script has
 * answered; 0: not this thread; else as script_load(). */
static int try_thread(struct attempt *attempt, const struct thread *thread,
                      const struct sleep_call *place)
{
    struct script_order order = {
        .target = attempt->target,
        .runtime = &attempt->runtime,
        .tid = thread->tid,
        .tstate = thread->tstate,
        .place = place,
    };

    snprintf(order.path, sizeof order.path, "%s/script.py", attempt->files.path);
    int r = script_order_place(&order);
    attempt->result.pause_ns += order.pause_ns;
    attempt->result.attempts++;
    if (r != -EBUSY)
        attempt->busy_since = 0;
    else if (!attempt->busy_since)
        attempt->busy_since = monotonic_ns();
    if (r < 0)
        return is_final(attempt, r) ? r : 0;
    attempt->result.borrowed = thread->tid;
    attempt->placed++;
    if (wait_answer(attempt, &order, slice_end(attempt, thread), attempt->end))
        return 1;
    order.pause_ns = 0;
    r = script_order_withdraw(&order);
    attempt->result.pause_ns += order.pause_ns;
    if (r < 0)
        return is_final(attempt, r) ? r : 0;
    return r ? 0 : wait_grace(attempt);
}

static int try_threads(struct attempt *attempt, struct text *why)
{
    const struct snapshot_options options = {.native = true};
    unsigned ns = NAP_FIRST_NS;

    for (unsigned nth = 0; nth == 0 || !over(attempt); nth++) {
        _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;
        struct sleep_call place;
        int r = snapshot_take(attempt->target, &options, &snapshot);
        if (r == 0) {
            const struct thread *thread = choose(attempt, snapshot, nth, &place);
            if (thread && thread->state == THREAD_STOPPED)
                return refusal_stopped(why);
            r = thread ? try_thread(attempt, thread, &place) : 0;
        }
        if (r && r != -ETIMEDOUT)
            return r;
        nap(&ns);
    }
    if (interrupted(attempt->interrupt))
        return -EINTR;
    text_puts(why, attempt->all_asleep
                       ? "no thread came back to the interpreter in time: all sleep in system "
                         "calls that can't be interrupted safely"
                       : "no thread came to a safe point of the interpreter in time: the GIL may "
                         "be held by code that runs in C");
    return -ETIMEDOUT;
}

/* ---- all of it ---- */

static bool is_loaded_image(const struct memory *memory, uint64_t base,
                            const struct inject_image *image)
{
    uint8_t head[4096]; /* the headers, among them the build-id, never change in memory */
    size_t n = image->size < sizeof head ? image->size : sizeof head;

    return memory_read(memory, base, head, n) == 0 && !memcmp(head, image->data, n);
}

/* Looks for a library that an earlier call has loaded, `name` in its path if that isn't NULL. */
static bool find_loaded(struct attempt *attempt, const char *name, const struct inject_image *image,
                        char *path, size_t cap, uint64_t *base)
{
    struct maps maps;
    bool found = false;

    if (maps_read(attempt->target->pid, &maps) < 0)
        return false;
    for (size_t i = 0; i < maps.n && !found; i++) {
        const struct mapping *map = &maps.items[i];
        found = !map->offset && script_files_path(map->path, path, cap) &&
                (!name || strstr(path, name)) &&
                is_loaded_image(&attempt->target->memory, map->start, image);
        if (found)
            *base = map->start;
    }
    maps_deinit(&maps);
    return found;
}

/* Waits until the thread that has answered is gone, for its last microseconds. */
static void wait_ended(const struct attempt *attempt, pid_t inner_tid)
{
    uint64_t end = monotonic_ns() + GRACE_NS;
    unsigned ns = NAP_FIRST_NS;
    bool there = true;

    while (there && monotonic_ns() < end) {
        struct lwp_list lwps;
        if (lwp_list_read(attempt->target->pid, LWP_STATES, &lwps) < 0)
            return;
        there = lwp_find_inner(&lwps, inner_tid);
        lwp_list_deinit(&lwps);
        if (there)
            nap(&ns);
    }
}

/* What the script said: the number of its thread, then words. */
static int conclude(struct attempt *attempt, const struct inject_image *image, struct text *why)
{
    char path[SCRIPT_FILES_PATH_MAX], *said;
    struct inject_result *result = &attempt->result;

    wait_ended(attempt, (pid_t)strtol(attempt->said, &said, 10));
    said += *said == ' ';
    if (!strcmp(said, "loaded old") && *attempt->old) {
        result->base = attempt->old_base;
        return 0;
    }
    if (!strcmp(said, "loaded fresh") &&
        find_loaded(attempt, attempt->files.name, image, path, sizeof path, &result->base))
        return 0;
    text_puts(why, "the interpreter could not load the library: ");
    text_add_escaped(why, said, strlen(said));
    return -ENOEXEC;
}

/* A process that has just begun, or executes another program, is waited for. */
static int wait_begun(struct attempt *attempt, struct text *why)
{
    uint64_t end = monotonic_ns() + BEGIN_NS;
    unsigned ns = NAP_FIRST_NS;
    int r;

    while ((r = script_offsets_read(attempt->target, &attempt->runtime, why)) == -EAGAIN) {
        if (over(attempt) || monotonic_ns() >= end)
            return interrupted(attempt->interrupt) ? -EINTR : -EOPNOTSUPP;
        text_clear(why);
        nap(&ns);
    }
    return r;
}

static int run(struct attempt *attempt, const struct inject_image *image, struct text *why)
{
    int r = refusal_shared(attempt->target->pid, why);
    if (r == 0) /* its answer is a file */
        r = refusal_file_size(attempt->target->pid, SCRIPT_FILES_REPLY_MAX, why);
    if (r == 0)
        r = wait_begun(attempt, why);
    if (r < 0)
        return r;
    if (!find_loaded(attempt, NULL, image, attempt->old, sizeof attempt->old, &attempt->old_base))
        *attempt->old = 0;
    r = script_files_put(attempt->target, image, *attempt->old ? attempt->old : NULL,
                         &attempt->files, why);
    if (r < 0)
        return r;
    r = try_threads(attempt, why);
    if (r == 1) {
        text_clear(why);
        r = conclude(attempt, image, why);
    }
    script_files_remove(&attempt->files);
    return r;
}

static const char *words_of(int error)
{
    switch (error) {
    case -EBUSY: return "another debugger has a script pending there (sys.remote_exec)";
    case -EINTR: return "interrupted";
    case -ESRCH: return "the process has ended, or executes another program now";
    }
    return strerror(-error);
}

static void explain(const struct target *target, int error, struct text *why)
{
    if (error == -EPERM || error == -EACCES)
        refusal_permission(why);
    else if (error != -EBUSY || !refusal_traced(target->pid, target->pid, why))
        text_puts(why, words_of(error));
}

int script_load(struct target *target, const struct inject_image *image, uint64_t deadline_ns,
                const struct interrupt *interrupt, struct inject_result *out, struct text *why)
{
    uint64_t start = monotonic_ns();
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt)
        return -ENOMEM;

    attempt->target = target;
    attempt->interrupt = interrupt;
    attempt->end = start + deadline_ns;
    int r = run(attempt, image, why);
    attempt->result.total_ns = monotonic_ns() - start;
    if (r == 0)
        *out = attempt->result;
    else if (!why->size)
        explain(target, r, why);
    free(attempt);
    return r;
}
