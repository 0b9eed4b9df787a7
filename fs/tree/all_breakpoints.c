/* all/breakpoints: what is written is carried out in every process that its opener and its writers
 * may control, all or none of it in each, and each says what came of it. A few threads do that,
 * since one that doesn't let go of its GIL takes its time; and one that hangs, or that isn't done
 * in a minute, is said to have failed. */
#include "fs/tree/breakpoints.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/proc/may_hang.h"
#include "fs/process/control.h"
#include "fs/tree/jobs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define THREADS 8
#define DEADLINE_NS 60000000000ull /* for all of them */
#define LOOK_NS 20000000u          /* how often it is looked whether the writer is interrupted */

/* One process. */
struct item {
    struct process *process; /* a reference */
    struct text said;
    struct text why;
    int error;
    bool told; /* that it has failed */
};

/* Of what is left behind in a process that hangs, too: so all that it uses is its own. */
struct job {
    atomic_uint refs;
    struct registry *registry;
    const struct access *access;
    struct principals principals;
    struct credentials *opener; /* a reference to principals.opener */
    const char *file;
    int flags;
    bool clears;
    struct breakpoint_request request; /* empty where the sets are only read */
    int (*run)(const struct job *job, struct item *item, struct principals *principals);
    struct interrupt interrupt; /* the writer is, or it is late */
    struct item *items;
    size_t n;
    atomic_size_t next;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    size_t working; /* threads */
};

static void item_deinit(struct item *item)
{
    process_unref(item->process);
    text_deinit(&item->said);
    text_deinit(&item->why);
}

static void job_unref(struct job *job)
{
    if (!job || atomic_fetch_sub(&job->refs, 1) > 1)
        return;
    for (size_t i = 0; i < job->n; i++)
        item_deinit(&job->items[i]);
    free(job->items);
    breakpoint_request_deinit(&job->request);
    credentials_unref(job->opener);
    if (job->interrupt.fd >= 0)
        close(job->interrupt.fd);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

static void cleanup_job(struct job **job) { job_unref(*job); }
#define _cleanup_job_ _cleanup_(cleanup_job)

static struct job *job_new(const struct file_context *context,
                           int (*run)(const struct job *, struct item *, struct principals *))
{
    struct job *job = malloc(sizeof *job);

    if (!job)
        return NULL;
    *job = (struct job){
        .refs = 1,
        .registry = context->registry,
        .access = context->access,
        .principals = *context->principals,
        .opener = credentials_ref(context->principals->opener),
        .file = context->file,
        .flags = context->flags,
        .clears = context->clears,
        .run = run,
        .interrupt.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    return job;
}

/* ---- one process ---- */

static int carry_out(const struct job *job, struct item *item, struct principals *principals)
{
    struct file_context context = {
        .registry = job->registry,
        .replies = &item->process->replies,
        .access = job->access,
        .principals = principals,
        .process = item->process,
        .recording = process_recording(item->process),
        .file = job->file,
        .interrupt = &job->interrupt,
        .flags = job->flags,
        .clears = job->clears,
    };
    struct outcome outcome = {0}; /* of this one: all of them have theirs */

    context.target = process_target(item->process);
    int r = context.target ? breakpoints_carry_out(&context, &job->request, &item->said, &outcome)
                           : -ESRCH;
    target_unref(context.target);
    item->why = context.why;
    return r;
}

static int add_set(const struct job *job, struct item *item, struct principals *principals)
{
    char mark[32];

    (void)job, (void)principals;
    snprintf(mark, sizeof mark, "pid %d, ", (int)item->process->pid);
    struct target *target = process_target(item->process);
    int r = breakpoints_lines(process_recording(item->process), target, mark, &item->said);
    target_unref(target);
    return r;
}

/* One item as long as it is worked on: if that hangs, it is none of the job's any more. */
struct asking {
    struct may_hang work;
    struct job *job; /* a reference */
    struct principals principals;
    struct item item; /* so is its process */
};

static void asking_run(struct may_hang *work)
{
    struct asking *asking = (struct asking *)work;
    struct item *item = &asking->item;

    item->error = asking->job->run(asking->job, item, &asking->principals);
    if (item->error == 0)
        item->error = text_finish(&item->said);
}

static void asking_free(struct may_hang *work)
{
    struct asking *asking = (struct asking *)work;

    item_deinit(&asking->item);
    job_unref(asking->job);
    free(asking);
}

static int ask_apart(struct job *job, struct item *item)
{
    struct asking *asking = malloc(sizeof *asking);
    if (!asking)
        return -ENOMEM;
    *asking = (struct asking){
        .work = {.pid = item->process->pid, .run = asking_run, .free = asking_free},
        .job = job,
        .principals = job->principals,
        .item.process = process_ref(item->process),
    };
    atomic_fetch_add(&job->refs, 1);
    may_hang_init(&asking->work);
    int r = may_hang_run(&asking->work, &job->interrupt);
    if (r == 0) {
        r = asking->item.error;
        item->said = asking->item.said;
        item->why = asking->item.why;
        asking->item.said = asking->item.why = TEXT_INIT;
    } else if (r != -EINTR) {
        may_hang_explain(r, &item->why);
    }
    may_hang_unref(&asking->work);
    return r;
}

static void *run_items(void *arg)
{
    struct job *job = arg;
    size_t i;

    while ((i = atomic_fetch_add(&job->next, 1)) < job->n) {
        struct item *item = &job->items[i];
        item->error = interrupted(&job->interrupt) ? -EINTR : ask_apart(job, item);
    }
    _guard_mutex_(&job->lock);
    job->working--;
    pthread_cond_broadcast(&job->changed);
    return NULL;
}

/* ---- all of them ---- */

/* Where there is no thread to be had it is done on this one. */
static size_t start_threads(struct job *job, pthread_t threads[THREADS])
{
    size_t started = 0;

    job->working = THREADS;
    while (started < THREADS && started < job->n &&
           worker_start(run_items, job, "probefs-every", &threads[started]) == 0)
        started++;
    if (!started) {
        run_items(job);
        job->working++;
    }
    pthread_mutex_lock(&job->lock);
    job->working -= THREADS - started;
    pthread_mutex_unlock(&job->lock);
    return started;
}

/* Until all is done. True: it was late, and what was not done by then has been interrupted. */
static bool wait_for_all(struct job *job, const struct interrupt *interrupt)
{
    uint64_t deadline = monotonic_ns() + DEADLINE_NS;
    bool late = false;

    _guard_mutex_(&job->lock);
    while (job->working) {
        const struct timespec t = timespec_of(monotonic_ns() + LOOK_NS);
        pthread_cond_clockwait(&job->changed, &job->lock, CLOCK_MONOTONIC, &t);
        if (interrupted(&job->interrupt))
            continue;
        late = monotonic_ns() > deadline;
        if (!late && !interrupted(interrupt))
            continue;
        atomic_store(&job->interrupt.raised, true);
        eventfd_write(job->interrupt.fd, 1);
    }
    return late;
}

static void explain_late(struct item *item)
{
    item->error = -ETIMEDOUT;
    text_clear(&item->why);
    text_puts(&item->why, "it has not answered in time: all processes together have a minute");
}

static void run_all(struct job *job, const struct interrupt *interrupt)
{
    pthread_t threads[THREADS];
    size_t started = start_threads(job, threads);
    bool late = wait_for_all(job, interrupt);

    while (started > 0)
        pthread_join(threads[--started], NULL);
    for (size_t i = 0; late && i < job->n; i++)
        if (job->items[i].error == -EINTR)
            explain_late(&job->items[i]);
}

/* By rank; those without one come behind the others, by number. */
static int by_rank(const void *a, const void *b)
{
    const struct process *x = ((const struct item *)a)->process,
                         *y = ((const struct item *)b)->process;
    uint64_t rank_x = (uint64_t)x->rank, rank_y = (uint64_t)y->rank; /* of -1 the highest */

    if (rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static bool may_control(struct job *job, struct process *process)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    return control_may_all(job->access, &job->principals, process, &why) == 0;
}

static bool has_set(struct job *job, struct process *process)
{
    (void)job;
    return recording_attached(process_recording(process));
}

static int list(struct job *job, const struct file_context *context,
                bool (*is_wanted)(struct job *job, struct process *process))
{
    _cleanup_(process_list_deinit) struct process_list found = {0};

    int r = context_processes(context, &found);
    if (r < 0)
        return r;
    job->items = calloc(found.n + 1, sizeof *job->items);
    if (!job->items)
        return -ENOMEM;
    for (size_t i = 0; i < found.n; i++)
        if (is_wanted(job, found.items[i]))
            job->items[job->n++].process = steal_pointer(found.items[i]);
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
    return item->error < 0 && (item->error != -ENOENT || job->request.sets);
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
    if (!job->n || (done && !(job->request.strict && failed)))
        return 0;
    if (done)
        text_printf(&context->why, "it was done in %zu of %zu processes", done, done + failed);
    else
        text_puts(&context->why, "it was done in no process");
    return error;
}

static void note(const struct job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        const struct item *item = &job->items[i];
        if (item->error < 0)
            error_ring_add(&item->process->errors, job->opener, job->file, item->error,
                           item->why.data);
    }
}

static int carry_out_all(struct file_context *context, struct breakpoint_request *request,
                         struct text *said, struct outcome *outcome)
{
    _cleanup_job_ struct job *job = job_new(context, carry_out);
    bool sets = request->sets, empty = !request->n;

    if (!job)
        return -ENOMEM;
    job->request = *request;
    *request = (struct breakpoint_request){0};
    int r = list(job, context, may_control);
    if (r < 0)
        return r;
    if (!job->n && !empty) {
        text_puts(&context->why, "there is no Python process that you may control");
        return -ESRCH;
    }
    qsort(job->items, job->n, sizeof *job->items, by_rank);
    run_all(job, context->interrupt);
    note(job);
    r = collect(job, context, said);
    outcome->cleared = r == 0 && (sets || empty);
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
    _cleanup_job_ struct job *job = job_new(context, add_set);
    int r = job ? list(job, context, has_set) : -ENOMEM;

    if (r < 0)
        return r;
    run_all(job, context->interrupt);
    for (size_t i = 0; i < job->n; i++) {
        const struct item *item = &job->items[i];
        if (item->error == 0)
            text_add(out, item->said.data, item->said.size);
        else if (item->error != -ESRCH)
            text_printf(out, "# pid %d: %s\n", (int)item->process->pid,
                        item->why.size ? item->why.data : strerror(-item->error));
    }
    breakpoints_reply(context, out);
    return 0;
}
