#include "fs/events/seen.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/format/event.h"
#include "fs/proc/procfs.h"
#include "fs/process/examiner.h"
#include "fs/process/registry.h"
#include "fs/recording/held_threads.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_SIZE 16 /* of a thread, as the kernel has it, with its end */

struct seen_thread {
    pid_t tid;
    enum {
        SEEN_ONCE,   /* since the last look */
        SEEN_TOLD,   /* its begin was told, or it was there before */
        SEEN_HIDDEN, /* it is the agent's, or there were too many */
    } state;
    bool decided; /* it isn't the agent's */
    char name[NAME_SIZE];
};

struct seen_child {
    pid_t pid;
    bool told; /* or it was there before */
};

struct seen {
    struct process *process;
    struct seen_thread *threads; /* ascending by tid */
    size_t n;
    struct seen_child *children; /* ascending by pid */
    size_t nchildren;
    uint64_t children_ns; /* CLOCK_MONOTONIC, when they were looked for last */
    unsigned lines;       /* of this look */
};

struct pids {
    pid_t *items;
    size_t n, alloc, most;
};

static void pids_deinit(struct pids *pids) { free(pids->items); }

/* Whether there was room for it. */
static bool pids_add(struct pids *pids, pid_t pid)
{
    if (pids->n == pids->most || ARRAY_GROW(pids->items, pids->alloc, pids->n + 1) < 0)
        return false;
    pids->items[pids->n++] = pid;
    return true;
}

static int by_pid(const void *a, const void *b)
{
    return (*(const pid_t *)a > *(const pid_t *)b) - (*(const pid_t *)a < *(const pid_t *)b);
}

static int add_task(void *arg, int tasks, pid_t tid) { return pids_add(arg, tid) ? 0 : 1; }

/* Its threads. False: it has ended, or they can't be read now. */
static bool list_threads(pid_t pid, struct pids *out)
{
    out->most = SEEN_THREADS_MAX;
    if (proc_each_task(pid, add_task, out) < 0 || !out->n)
        return false;
    qsort(out->items, out->n, sizeof *out->items, by_pid);
    return true;
}

/* Adds the children that a thread has started, and whose parent the process is; proc(5),
 * task/TID/children. */
static void add_children(pid_t pid, pid_t tid, struct pids *out)
{
    char path[64], buffer[32768], *rest;

    snprintf(path, sizeof path, "task/%d/children", (int)tid);
    if (proc_read(pid, path, buffer, sizeof buffer) <= 0)
        return;
    for (char *word = strtok_r(buffer, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        unsigned child;
        if (number_parse(word, &child) && !pids_add(out, (pid_t)child))
            return;
    }
}

static void list_children(const struct seen *seen, struct pids *out)
{
    out->most = SEEN_CHILDREN_MAX;
    for (size_t i = 0; i < seen->n; i++)
        add_children(seen->process->pid, seen->threads[i].tid, out);
    if (out->n)
        qsort(out->items, out->n, sizeof *out->items, by_pid);
}

/* ---- threads ---- */

static bool has_room(struct seen *seen) { return seen->lines++ < SEEN_LINES_MAX; }

static void read_name(const struct seen *seen, struct seen_thread *thread)
{
    char path[64];

    snprintf(path, sizeof path, "task/%d/comm", (int)thread->tid);
    if (proc_read(seen->process->pid, path, thread->name, sizeof thread->name) < 0)
        thread->name[0] = 0;
    thread->name[strcspn(thread->name, "\n")] = 0;
}

/* Asks who reads the process whether a thread is the agent's own. What has ended meanwhile counts
 * as such: there is nothing to tell of it. */
static bool is_own_asked(const struct seen *seen, pid_t tid)
{
    const struct examiner *examiner = seen->process->examiner;
    const struct asked_for asked = {.what = ASKED_OWN, .tid = tid};
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    uint64_t told[2];

    if (!recording_attached(process_recording(seen->process)))
        return false;
    int r = examiner->tell(examiner->arg, seen->process, &asked, told, &why);
    return r == -ESRCH || (r == 0 && told[0]);
}

/* The agent, as it is read here. False: the process has ended. */
static bool read_agent(const struct seen *seen, struct held_list *out)
{
    struct target *target = process_target(seen->process);

    if (!target)
        return false;
    (void)held_list_read(target, process_recording(seen->process), out);
    target_unref(target);
    return true;
}

/* Which of those that were seen before are the agent's own. */
static void decide(struct seen *seen)
{
    _cleanup_(held_list_deinit) struct held_list agent = {0};
    bool is_asked = seen->process->examiner, known = is_asked;

    for (size_t i = 0; i < seen->n; i++) {
        struct seen_thread *thread = &seen->threads[i];
        if (thread->decided)
            continue;
        if (!known && !read_agent(seen, &agent))
            return;
        known = true;
        thread->decided = true;
        if (is_asked ? is_own_asked(seen, thread->tid) : held_is_own(&agent, thread->tid))
            thread->state = SEEN_HIDDEN;
    }
}

static void tell_begin(struct seen *seen, struct seen_thread *thread, struct text *out)
{
    thread->state = has_room(seen) ? SEEN_TOLD : SEEN_HIDDEN;
    if (thread->state == SEEN_HIDDEN)
        return;
    read_name(seen, thread);
    event_text_thread(seen->process->pid, thread->tid, true, thread->name, out);
}

static void tell_end(struct seen *seen, const struct seen_thread *thread, struct text *out)
{
    if (thread->state == SEEN_TOLD && has_room(seen))
        event_text_thread(seen->process->pid, thread->tid, false, thread->name, out);
}

/* Puts the threads that are there now in the place of those of the last look. */
static void take_threads(struct seen *seen, const struct pids *now, struct text *out)
{
    struct seen_thread *threads = calloc(now->n, sizeof *threads);
    size_t before = 0;

    if (!threads)
        return;
    for (size_t i = 0; i < now->n; i++) {
        while (before < seen->n && seen->threads[before].tid < now->items[i])
            tell_end(seen, &seen->threads[before++], out);
        if (before < seen->n && seen->threads[before].tid == now->items[i])
            threads[i] = seen->threads[before++];
        else
            threads[i] = (struct seen_thread){.tid = now->items[i]};
    }
    while (before < seen->n)
        tell_end(seen, &seen->threads[before++], out);
    free(seen->threads);
    seen->threads = threads;
    seen->n = now->n;
}

static void look_at_threads(struct seen *seen, struct text *out)
{
    _cleanup_(pids_deinit) struct pids now = {0};

    if (!list_threads(seen->process->pid, &now))
        return;
    decide(seen); /* while those that have ended since are still in its list */
    for (size_t i = 0; i < seen->n; i++)
        if (seen->threads[i].state == SEEN_ONCE &&
            bsearch(&seen->threads[i].tid, now.items, now.n, sizeof *now.items, by_pid))
            tell_begin(seen, &seen->threads[i], out);
    take_threads(seen, &now, out);
}

/* ---- children ---- */

static uid_t owner_of(pid_t pid)
{
    struct stat of_process;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &of_process) == 0 ? of_process.st_uid : (uid_t)-1;
}

/* Tells of a child once it runs CPython, which may be later. A child of another user isn't for
 * everybody to know. */
static void look_at_child(struct seen *seen, struct registry *registry, struct seen_child *child,
                          struct text *out)
{
    struct process *process;

    if (child->told || owner_of(child->pid) != owner_of(seen->process->pid) ||
        registry_lookup(registry, child->pid, &process) < 0)
        return;
    process_unref(process);
    child->told = true;
    if (has_room(seen))
        event_text_child(seen->process->pid, child->pid, out);
}

/* Puts the children that are there now in the place of those of the last look. */
static int take_children(struct seen *seen, const struct pids *now)
{
    struct seen_child *children = calloc(now->n + 1, sizeof *children);
    size_t before = 0;

    if (!children)
        return -1;
    for (size_t i = 0; i < now->n; i++) {
        while (before < seen->nchildren && seen->children[before].pid < now->items[i])
            before++;
        children[i] = (struct seen_child){.pid = now->items[i]};
        if (before < seen->nchildren && seen->children[before].pid == now->items[i])
            children[i] = seen->children[before];
    }
    free(seen->children);
    seen->children = children;
    seen->nchildren = now->n;
    return 0;
}

static void look_at_children(struct seen *seen, struct registry *registry, struct text *out)
{
    _cleanup_(pids_deinit) struct pids now = {0};
    uint64_t time = monotonic_ns();

    if (time - seen->children_ns < SEEN_CHILDREN_NS)
        return;
    seen->children_ns = time;
    list_children(seen, &now);
    if (take_children(seen, &now) < 0)
        return;
    for (size_t i = 0; i < seen->nchildren; i++)
        look_at_child(seen, registry, &seen->children[i], out);
}

/* ---- */

void seen_look(struct seen *seen, struct registry *registry, struct text *out)
{
    seen->lines = 0;
    look_at_threads(seen, out);
    look_at_children(seen, registry, out);
}

struct seen *seen_new(struct process *process)
{
    _cleanup_(pids_deinit) struct pids threads = {0}, children = {0};
    _cleanup_(text_deinit) struct text nobody = TEXT_INIT;
    struct seen *seen = calloc(1, sizeof *seen);

    if (!seen)
        return NULL;
    seen->process = process_ref(process);
    if (list_threads(process->pid, &threads))
        take_threads(seen, &threads, &nobody);
    for (size_t i = 0; i < seen->n; i++)
        seen->threads[i].state = SEEN_TOLD;
    list_children(seen, &children);
    if (take_children(seen, &children) == 0)
        for (size_t i = 0; i < seen->nchildren; i++)
            seen->children[i].told = true;
    return seen;
}

void seen_free(struct seen *seen)
{
    if (!seen)
        return;
    free(seen->threads);
    free(seen->children);
    process_unref(seen->process);
    free(seen);
}
