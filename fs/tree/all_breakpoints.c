/* all/breakpoints: what is written is carried out in every process that its opener and its writers
 * may control, all or none of it in each, and each says what came of it. A few threads do that,
 * since one that doesn't let go of its GIL takes its time. */
#include "fs/tree/breakpoints.h"

#include "agent/base/cleanup.h"
#include "fs/base/worker.h"
#include "fs/process/control.h"
#include "fs/process/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define THREADS 8

/* One process. */
struct item {
    struct process *process; /* a reference */
    struct text said;
    struct text why;
    int error;
    bool told; /* that it has failed */
};

struct job {
    const struct file_context *context;
    const struct breakpoint_request *request;
    struct item *items;
    size_t n;
    atomic_size_t next;
};

static void job_deinit(struct job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        process_unref(job->items[i].process);
        text_deinit(&job->items[i].said);
        text_deinit(&job->items[i].why);
    }
    free(job->items);
}

static int run_item(const struct job *job, struct item *item)
{
    struct file_context context = {
        .registry = job->context->registry,
        .replies = &item->process->replies,
        .access = job->context->access,
        .principals = job->context->principals,
        .process = item->process,
        .recording = process_recording(item->process),
        .file = job->context->file,
        .interrupt = job->context->interrupt,
        .flags = job->context->flags,
        .clears = job->context->clears,
    };
    struct outcome outcome = {0}; /* of this one: all of them have theirs */

    context.target = process_target(item->process);
    int r = context.target ? breakpoints_carry_out(&context, job->request, &item->said, &outcome)
                           : -ESRCH;
    if (r == 0)
        r = text_finish(&item->said);
    target_unref(context.target);
    item->why = context.why;
    if (r < 0)
        error_ring_add(&item->process->errors, context.principals->opener, context.file, r,
                       context.why.data);
    return r;
}

static void *run_items(void *arg)
{
    struct job *job = arg;
    size_t i;

    while ((i = atomic_fetch_add(&job->next, 1)) < job->n) {
        struct item *item = &job->items[i];
        item->error = interrupted(job->context->interrupt) ? -EINTR : run_item(job, item);
    }
    return NULL;
}

/* Also on this thread: so it is done where there are no others to be had. */
static void run_all(struct job *job)
{
    pthread_t threads[THREADS];
    size_t started = 0;

    while (started < THREADS && started + 1 < job->n &&
           worker_start(run_items, job, "probefs-every", &threads[started]) == 0)
        started++;
    run_items(job);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

/* By rank; those without one come behind the others, by number. */
static int compare(const void *a, const void *b)
{
    const struct process *x = ((const struct item *)a)->process,
                         *y = ((const struct item *)b)->process;
    uint64_t rank_x = (uint64_t)x->rank, rank_y = (uint64_t)y->rank; /* of -1 the highest */

    if (rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Those that all in whose name it is done may control. */
static int list(struct job *job)
{
    _cleanup_(process_list_deinit) struct process_list found = {0};
    const struct file_context *context = job->context;

    int r = registry_list(context->registry, &found);
    if (r < 0)
        return r;
    job->items = calloc(found.n + 1, sizeof *job->items);
    if (!job->items)
        return -ENOMEM;
    for (size_t i = 0; i < found.n; i++) {
        _cleanup_(text_deinit) struct text why = TEXT_INIT;
        if (control_may_all(context->access, context->principals, found.items[i], &why) == 0)
            job->items[job->n++].process = steal_pointer(found.items[i]);
    }
    qsort(job->items, job->n, sizeof *job->items, compare);
    return 0;
}

/* Each line after the number of its process. */
static void add_lines(const struct item *item, struct text *out)
{
    for (size_t i = 0; i < item->said.size;) {
        const char *line = item->said.data + i, *newline = memchr(line, '\n', item->said.size - i);
        size_t size = newline ? (size_t)(newline - line) : item->said.size - i;
        text_printf(out, "%d: ", (int)item->process->pid);
        text_add(out, line, size);
        text_putc(out, '\n');
        i += size + 1;
    }
}

/* What is to be taken out is only in some, mostly. */
static bool has_failed(const struct job *job, const struct item *item)
{
    return item->error < 0 && (item->error != -ENOENT || job->request->sets);
}

static bool is_same(const struct item *a, const struct item *b)
{
    return a->why.size == b->why.size && memcmp(a->why.data, b->why.data, a->why.size) == 0;
}

static void add_who(const struct process *process, struct text *out)
{
    if (process->rank >= 0)
        text_printf(out, "rank %ld (pid %d)", (long)process->rank, (int)process->pid);
    else
        text_printf(out, "pid %d", (int)process->pid);
}

/* What has failed, each once, after those in which it did. */
static void add_failure(const struct job *job, size_t first, struct text *out)
{
    struct item *one = &job->items[first];
    const char *before = "error: ";

    for (size_t i = first; i < job->n; i++) {
        struct item *item = &job->items[i];
        if (!has_failed(job, item) || item->told || !is_same(one, item))
            continue;
        text_puts(out, before);
        add_who(item->process, out);
        item->told = true;
        before = ", ";
    }
    text_puts(out, ": ");
    text_add(out, one->why.data, one->why.size);
    text_putc(out, '\n');
}

/* 0 if it was done somewhere, or, where that is asked for, everywhere. */
static int collect(const struct job *job, struct file_context *context, struct text *said)
{
    int error = 0;
    size_t done = 0, failed = 0;

    for (size_t i = 0; i < job->n; i++) {
        struct item *item = &job->items[i];
        add_lines(item, said);
        done += item->error == 0;
        failed += has_failed(job, item);
        if (has_failed(job, item) && !item->why.size)
            text_puts(&item->why, strerror(-item->error));
        if (item->error < 0 && (!error || has_failed(job, item)))
            error = item->error;
    }
    for (size_t i = 0; i < job->n; i++)
        if (has_failed(job, &job->items[i]) && !job->items[i].told)
            add_failure(job, i, said);
    if (!job->n || (done && !(job->request->strict && failed)))
        return 0;
    if (done)
        text_printf(&context->why, "it was done in %zu of %zu processes", done, done + failed);
    else
        text_puts(&context->why, "it was done in no process");
    return error;
}

static int carry_out_all(struct file_context *context, const struct breakpoint_request *request,
                         struct text *said, struct outcome *outcome)
{
    _cleanup_(job_deinit) struct job job = {.context = context, .request = request};

    int r = list(&job);
    if (r < 0)
        return r;
    if (!job.n && request->n) {
        text_puts(&context->why, "there is no Python process that you may control");
        return -ESRCH;
    }
    run_all(&job);
    r = collect(&job, context, said);
    outcome->cleared = r == 0 && (request->sets || !request->n);
    outcome->keeps = r == 0;
    return r;
}

int all_breakpoints_run(struct file_context *context, const struct input *input, struct text *said,
                        struct outcome *outcome)
{
    return breakpoints_feed(context, input, carry_out_all, said, outcome);
}

int all_breakpoints_render(struct file_context *context, struct text *out)
{
    _cleanup_(process_list_deinit) struct process_list found = {0};
    char mark[32];

    int r = registry_list(context->registry, &found);
    for (size_t i = 0; r == 0 && i < found.n; i++) {
        struct process *process = found.items[i];
        if (principals_look(context->access, context->principals, process->pid) < 0)
            continue;
        snprintf(mark, sizeof mark, "pid %d, ", (int)process->pid);
        struct target *target = process_target(process);
        r = breakpoints_lines(process_recording(process), target, mark, out);
        target_unref(target);
    }
    if (r == 0)
        breakpoints_reply(context, out);
    return r;
}
