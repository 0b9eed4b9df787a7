#include "fs/format/stacks.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/format/backtrace.h"
#include "fs/format/frames.h"
#include "fs/format/locks.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/moment/snapshot.h"

#include <errno.h>
#include <string.h>

#define TIDS_MAX 1000 /* that are listed of one stack's threads */

/* waits: what is read along, NULL: nothing. */
static int take(struct target *target, struct recording *recording, bool native,
                struct waits_reading *waits, struct text *why, struct snapshot **out)
{
    struct snapshot_options options = {.native = native};

    if (!native && !target->runtime.supported)
        return snapshot_explain(target, 0, -EOPNOTSUPP, why);
    if (waits)
        waits_read_along(waits, &options);
    int r = held_snapshot(target, recording, &options, out);
    return r < 0 ? snapshot_explain(target, 0, r, why) : 0;
}

/* ---- one line a thread ---- */

static void add_folded(const struct thread *thread, struct text *out)
{
    bool any = false;

    for (size_t i = thread->nframes; i-- > 0;) {
        _cleanup_(text_deinit) struct text element = TEXT_INIT;
        if (!frame_add_folded(&thread->frames[i], &element))
            continue;
        if (any)
            text_putc(out, ';');
        text_add(out, element.data, element.size);
        any = true;
    }
    if (any)
        text_puts(out, " 1\n");
}

static int folded(struct target *target, struct recording *recording, bool native, struct text *why,
                  struct text *out)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int r = take(target, recording, native, NULL, why, &snapshot);
    for (size_t i = 0; r == 0 && i < snapshot->nthreads; i++)
        add_folded(&snapshot->threads[i], out);
    return r;
}

int stacks_folded_text(struct target *target, struct recording *recording, struct text *why,
                       struct text *out)
{
    return folded(target, recording, true, why, out);
}

int stacks_python_folded_text(struct target *target, struct recording *recording, struct text *why,
                              struct text *out)
{
    return folded(target, recording, false, why, out);
}

/* ---- for people ---- */

/* Whom to look at first. */
enum concern {
    FAULTED, /* of a core file: it got the signal */
    IN_DEADLOCK,
    HOLDS_UP, /* others, or is held up: by a lock, the GIL, the agent, a debugger, a signal */
    RUNS,
    WAITS,
    ENDED,
};

struct shown {
    const struct thread *thread;
    enum concern concern;
};

static enum concern concern_of(const struct thread *thread)
{
    if (*thread->held || (thread->holds_gil && thread->state != THREAD_RUNNING))
        return HOLDS_UP;
    switch (thread->state) {
    case THREAD_FAULTED: return FAULTED;
    case THREAD_GIL_WAIT:
    case THREAD_STOPPED:
    case THREAD_TRACED: return HOLDS_UP;
    case THREAD_RUNNING: return RUNS;
    case THREAD_IDLE: return WAITS;
    case THREAD_DEAD: break;
    }
    return ENDED;
}

static int by_tid(const void *x, const void *y)
{
    const struct thread *a = ((const struct shown *)x)->thread,
                        *b = ((const struct shown *)y)->thread;

    return (a->tid > b->tid) - (a->tid < b->tid);
}

static void raise_concern(struct shown *all, size_t n, const struct actor *who,
                          enum concern concern)
{
    const struct thread thread = {.tid = who->id};
    const struct shown key = {.thread = &thread};
    struct shown *shown = who->kind == ACTOR_THREAD && n ? bsearch(&key, all, n, sizeof key, by_tid)
                                                         : NULL;

    if (shown && shown->concern > concern)
        shown->concern = concern;
}

/* Adds who waits for what another one holds, and who that is: but of the GIL, which runs round. */
static void add_concerns(const struct waits *waits, struct shown *all, size_t n)
{
    array_sort(all, n, sizeof *all, by_tid);
    for (size_t i = 0; i < waits->n; i++) {
        const struct wait *wait = &waits->items[i];
        enum concern concern = wait->cycle == WAITS_NONE ? HOLDS_UP : IN_DEADLOCK;
        if (concern == HOLDS_UP && !strcmp(wait->kind, "GIL"))
            continue;
        if (wait->nholders)
            raise_concern(all, n, &wait->who, concern);
        for (uint32_t k = 0; k < wait->nholders; k++)
            raise_concern(all, n, &waits->holders[wait->holders + k].who, HOLDS_UP);
    }
}

static int compare_places(const struct frame *a, const struct frame *b)
{
    int r = (a->kind > b->kind) - (a->kind < b->kind);

    if (r == 0 && a->kind == FRAME_PYTHON)
        r = strcmp(a->func, b->func);
    if (r == 0 && a->kind == FRAME_PYTHON)
        r = strcmp(a->file, b->file);
    return r ? r : (a->line > b->line) - (a->line < b->line);
}

/* 0: the stacks read the same. */
static int compare_stacks(const struct thread *a, const struct thread *b)
{
    int r = strcmp(a->waits ? a->waits : a->wait, b->waits ? b->waits : b->wait);

    for (size_t i = 0; i < a->nframes && i < b->nframes && r == 0; i++)
        r = compare_places(&a->frames[i], &b->frames[i]);
    return r ? r : (a->nframes > b->nframes) - (a->nframes < b->nframes);
}

/* Orders threads by concern, and those that wait by their stacks, so that equal ones come side by
 * side. */
static int compare(const void *x, const void *y)
{
    const struct shown *a = x, *b = y;
    int r = (int)a->concern - (int)b->concern;

    if (r == 0 && a->concern == WAITS)
        r = compare_stacks(a->thread, b->thread);
    return r ? r : (a->thread > b->thread) - (a->thread < b->thread); /* as in backtrace */
}

/* Threads with one stack. */
struct group {
    const struct shown *threads;
    size_t n;
};

/* Whom to look at first stays so; then the rare ones, then as in backtrace. */
static int compare_groups(const void *x, const void *y)
{
    const struct group *a = x, *b = y;
    int r = (int)a->threads->concern - (int)b->threads->concern;

    if (r)
        return r;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return (a->threads->thread > b->threads->thread) - (a->threads->thread < b->threads->thread);
}

/* What surrounds every program: how threads begin, how modules are imported and run. */
static bool is_noise(const struct frame *frame)
{
    static const char threading[] = "/threading.py";
    size_t size = strlen(frame->file), end = sizeof threading - 1;

    if (!strncmp(frame->file, "<frozen importlib", 17) || !strcmp(frame->file, "<frozen runpy>"))
        return true;
    return size >= end && !strcmp(frame->file + size - end, threading) &&
           (strstr(frame->func, "_bootstrap") || !strcmp(frame->func, "Thread.run"));
}

static void add_frames(const struct thread *thread, struct text *out)
{
    size_t number = 0;

    for (size_t i = 0; i < thread->nframes; i++) {
        const struct frame *frame = &thread->frames[i];
        if (i == 0 || frame->kind != FRAME_PYTHON || !is_noise(frame)) {
            text_printf(out, "  #%zu  ", number);
            frame_add_line(frame, out);
            text_putc(out, '\n');
        }
        number += frame->kind == FRAME_CUT ? (size_t)frame->line : 1;
    }
}

static void add_group(const struct group *group, struct text *out)
{
    text_putc(out, '\n');
    thread_add_head(group->threads[0].thread, out);
    add_frames(group->threads[0].thread, out);
    if (group->n == 1)
        return;
    text_printf(out, "  %zu thread%s as this one:", group->n - 1, group->n == 2 ? "" : "s");
    for (size_t i = 1; i < group->n && i <= TIDS_MAX; i++)
        text_printf(out, " %d", (int)group->threads[i].thread->tid);
    text_puts(out, group->n - 1 > TIDS_MAX ? " ...\n" : "\n");
}

/* Returns how many groups there are. */
static size_t find_groups(const struct shown *threads, size_t n, struct group *out)
{
    size_t ngroups = 0;

    for (size_t i = 0; i < n; i++) {
        struct group *last = ngroups ? &out[ngroups - 1] : NULL;
        if (last && threads[i].concern == WAITS && last->threads->concern == WAITS &&
            compare_stacks(threads[i].thread, last->threads->thread) == 0)
            last->n++;
        else
            out[ngroups++] = (struct group){threads + i, 1};
    }
    array_sort(out, ngroups, sizeof *out, compare_groups);
    return ngroups;
}

int stacks_python_text(struct target *target, struct recording *recording, struct text *why,
                       struct text *out)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = target};
    size_t n = 0;

    int r = take(target, recording, false, &reading, why, &snapshot);
    if (r < 0)
        return r;
    _cleanup_free_ struct shown *threads = calloc(snapshot->nthreads + 1, sizeof *threads);
    _cleanup_free_ struct group *groups = calloc(snapshot->nthreads + 1, sizeof *groups);
    if (!threads || !groups)
        return -ENOMEM;
    locks_mark(&reading.waits, snapshot);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        if (snapshot->threads[i].tstate)
            threads[n++] = (struct shown){&snapshot->threads[i], concern_of(&snapshot->threads[i])};
    add_concerns(&reading.waits, threads, n);
    array_sort(threads, n, sizeof *threads, compare);
    snapshot_add_head(snapshot, out);
    n = find_groups(threads, n, groups);
    for (size_t i = 0; i < n; i++)
        add_group(&groups[i], out);
    if (snapshot->cut)
        text_puts(out, "\n[cut: there are more threads or interpreters than are read]\n");
    return 0;
}

/* ---- for many processes ---- */

/* "ThreadPoolExecutor-0_3" is the same in one that counts otherwise: "ThreadPoolExecutor-*_*". */
static void add_name(const char *name, struct text *out)
{
    for (const char *p = name; *p; p++)
        if (*p < '0' || *p > '9')
            text_putc(out, *p);
        else if (p == name || p[-1] < '0' || p[-1] > '9')
            text_putc(out, '*');
}

static void add_block(const struct thread *thread, struct text *out)
{
    if (!thread->nframes && !*thread->held) {
        text_putc(out, STACKS_NO_PYTHON);
        if (thread->state == THREAD_IDLE && *thread->wait)
            text_puts(out, thread->wait);
        else
            text_puts(out, thread_state_name(thread->state));
    } else {
        add_name(thread->is_main ? "MainThread" : thread->name, out);
        text_puts(out, " [");
        thread_describe(thread, out);
        text_puts(out, "]\n");
        add_frames(thread, out);
        if (!thread->nframes)
            text_puts(out, "  (no Python frames)\n");
    }
    text_add(out, "", 1);
}

int stacks_blocks_text(struct target *target, struct recording *recording, struct text *why,
                       struct text *out)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int r = take(target, recording, false, NULL, why, &snapshot);
    for (size_t i = 0; r == 0 && i < snapshot->nthreads; i++)
        add_block(&snapshot->threads[i], out);
    return r;
}

stacks_text *const stacks_texts[STACKS_FORMS] = {
    [STACKS_PYTHON] = stacks_python_text, [STACKS_BLOCKS] = stacks_blocks_text,
    [STACKS_FOLDED] = stacks_folded_text, [STACKS_PYTHON_FOLDED] = stacks_python_folded_text,
    [STACKS_BACKTRACE] = backtrace_text,
};
