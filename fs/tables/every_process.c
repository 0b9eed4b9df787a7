/* Each process is read for one of a few threads (proc/may_hang.h). The statement goes on without
 * one that hangs, or that takes longer than the deadline: what is still worked with is freed by
 * whoever lets go of it last. */
#include "fs/tables/every_process.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/access/credentials.h"
#include "fs/base/array.h"
#include "fs/proc/may_hang.h"
#include "fs/process/control.h"
#include "fs/process/exited.h"
#include "fs/process/jobs.h"
#include "fs/sql/heap.h"
#include "fs/tables/scene.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>

#define LOOK_NS 20000000u /* how often the waiting statement looks whether it was interrupted */

/* Threads that read now, or hang: of the process, as the set of requests is (trace/callers.h). */
static atomic_int readers;

/* One process. */
struct item {
    struct process *process; /* a reference */
    bool ended;
    struct rows *rows; /* of each table; NULL until it is read */
    struct text why;
    int error;
    bool done;
};

struct job {
    atomic_uint refs;
    struct heap *heap; /* a reference */
    const struct tables *tables;
    const struct table **table;
    struct use *uses; /* of each table */
    size_t ntables;
    char host[HOST_NAME_MAX + 1];
    struct looker looker;
    struct stop stop; /* the statement may be gone before a reader is */
    struct item *items;
    size_t n, alloc;
    pthread_mutex_t lock; /* guards what follows, and each item's results */
    pthread_cond_t changed;
    size_t next, done;
    bool abandoned;
};

static void item_deinit(struct item *item, size_t ntables)
{
    for (size_t i = 0; item->rows && i < ntables; i++)
        rows_deinit(&item->rows[i]);
    free(item->rows);
    text_deinit(&item->why);
    process_unref(item->process);
}

static void job_unref(struct job *job)
{
    if (!job || atomic_fetch_sub(&job->refs, 1) > 1)
        return;
    struct heap *before = heap_enter(job->heap);
    for (size_t i = 0; i < job->n; i++)
        item_deinit(&job->items[i], job->ntables);
    heap_enter(before);
    heap_unref(job->heap);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job->items);
    free(job->uses);
    free(job->table);
    free(job);
}

static void cleanup_job(struct job **job) { job_unref(*job); }

static int job_new(struct wanted *const *wanted, size_t n, struct job **out)
{
    pthread_condattr_t attr;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return -ENOMEM;
    atomic_init(&job->refs, 1);
    job->heap = heap_ref(heap_current());
    pthread_mutex_init(&job->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&job->changed, &attr);
    pthread_condattr_destroy(&attr);
    job->tables = &python_tables;
    job->ntables = n;
    job->table = calloc(n, sizeof *job->table);
    job->uses = calloc(n, sizeof *job->uses);
    if (!job->table || !job->uses) {
        job_unref(job);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        job->table[i] = wanted[i]->table;
        job->uses[i] = wanted[i]->use;
    }
    job->stop.deadline_ns = monotonic_ns() + EVERY_PROCESS_DEADLINE_NS;
    gethostname(job->host, sizeof job->host - 1);
    *out = job;
    return 0;
}

/* ---- which processes ---- */

static bool is_within(const struct bound *bound, int64_t value)
{
    return !bound->bounded || (value >= bound->low && value <= bound->high);
}

/* Whether some table may want its rows. */
static bool is_wanted(const struct process *process, struct wanted *const *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_within(&wanted[i]->pid, process_number(process)) &&
            (process->rank < 0 ? !wanted[i]->rank.bounded
                               : is_within(&wanted[i]->rank, process->rank)))
            return true;
    return false;
}

static bool sees(void *arg, struct process *process)
{
    const struct every_process *every = arg;

    return look_may_all(every->access, every->principals, process) == 0;
}

static int list(struct job *job, const struct every_process *every, struct wanted *const *wanted)
{
    _cleanup_(process_list_deinit) struct process_list found = {0};

    job->looker = (struct looker){every->access, *every->principals};
    int r = job_processes(every->registry, every->job, every->principals->opener->who.fsuid, sees,
                          (void *)every, &found);
    if (r == 0 && !every->job)
        r = registry_add_cores(every->registry, &found);
    for (size_t i = 0; r == 0 && i < found.n; i++) {
        if (!is_wanted(found.items[i], wanted, job->ntables) ||
            !sees((void *)every, found.items[i]))
            continue;
        r = ARRAY_GROW(job->items, job->alloc, job->n + 1);
        if (r == 0)
            job->items[job->n++] = (struct item){.process = steal_pointer(found.items[i])};
    }
    return r;
}

static bool is_any_recorded(const struct job *job)
{
    for (size_t i = 0; i < job->ntables; i++)
        if (job->table[i]->rows->recorded)
            return true;
    return false;
}

/* job: of whose, or NULL: of any. */
static bool sees_ended(const struct every_process *every, struct process *process, const char *job,
                       uid_t owner)
{
    const struct membership of = process_membership(process);
    struct access_target left;

    return process_left(process, &left) &&
           look_may_all(every->access, every->principals, process) == 0 &&
           (!job || (of.rank >= 0 && !strcmp(of.job, job) && left.uid[1] == owner));
}

/* Adds the processes that have ended: they have what they recorded, and nothing else. */
static int list_ended(struct job *job, const struct every_process *every,
                      struct wanted *const *wanted)
{
    _cleanup_(process_list_deinit) struct process_list found = {0};
    char name[JOB_NAME_MAX];
    uid_t owner = 0;
    int r = 0;

    if (!is_any_recorded(job))
        return 0;
    if (every->job)
        r = job_identity(every->registry, every->job, every->principals->opener->who.fsuid, sees,
                         (void *)every, name, &owner);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = exited_list(registry_exited(every->registry), monotonic_ns(), &found);
    for (size_t i = 0; r == 0 && i < found.n; i++) {
        if (!is_wanted(found.items[i], wanted, job->ntables) ||
            !sees_ended(every, found.items[i], every->job ? name : NULL, owner))
            continue;
        r = ARRAY_GROW(job->items, job->alloc, job->n + 1);
        if (r == 0)
            job->items[job->n++] =
                (struct item){.process = steal_pointer(found.items[i]), .ended = true};
    }
    return r;
}

/* ---- reading ---- */

static double ended_at(const struct process *process)
{
    const struct timespec *when = &process->ending.when;

    return (double)when->tv_sec + (double)when->tv_nsec / 1e9;
}

static int read_process(const struct job *job, const struct item *item, struct wanted *wanted,
                        struct text *why)
{
    struct process *process = item->process;
    const struct rows_front front = {
        .host = job->host,
        .pid = process_number(process),
        .rank = process->rank < 0 ? ROWS_NULL : process->rank,
        .ended = item->ended ? ended_at(process) : NAN,
    };
    _cleanup_free_ struct wanted **list = calloc(job->ntables, sizeof *list);
    size_t n = 0;

    for (size_t i = 0; list && i < job->ntables; i++) {
        wanted[i] = (struct wanted){.table = job->table[i], .use = job->uses[i]};
        rows_init(&wanted[i].rows, wanted[i].table, wanted[i].use.columns, &front);
        if (!item->ended || job->table[i]->rows->recorded)
            list[n++] = &wanted[i];
    }
    struct target *target = item->ended ? NULL : scene_target(process);
    const struct subject of = {process, target, process_recording(process), &job->looker};
    int r = !list                     ? -ENOMEM
            : !target && !item->ended ? -ESRCH
                                      : scene_fill(job->tables, &of, list, n, &job->stop, why);
    target_unref(target);
    return r;
}

/* One item as long as it is read: if that hangs, it is none of the job's any more. */
struct reading {
    struct may_hang work;
    struct job *job;  /* a reference */
    struct item item; /* so is its process */
};

static void read_run(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;
    struct job *job = reading->job;
    struct item *item = &reading->item;
    struct heap *before = heap_enter(job->heap);

    _cleanup_free_ struct wanted *wanted = calloc(job->ntables, sizeof *wanted);
    item->rows = calloc(job->ntables, sizeof *item->rows);
    item->error = wanted && item->rows ? read_process(job, item, wanted, &item->why) : -ENOMEM;
    for (size_t i = 0; wanted && item->rows && i < job->ntables; i++)
        item->rows[i] = wanted[i].rows;
    heap_enter(before);
}

static void reading_free(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;
    struct heap *before = heap_enter(reading->job->heap);

    item_deinit(&reading->item, reading->job->ntables);
    heap_enter(before);
    job_unref(reading->job);
    free(reading);
}

/* Whether reading it can hang: who asks others for all of it waits no longer than is good. */
static bool may_hang(const struct job *job, const struct item *item)
{
    bool examined = true;

    for (size_t i = 0; i < job->ntables; i++)
        examined = examined && scene_is_examined(item->process, job->table[i]);
    return !item->ended && !examined;
}

static int read_apart(struct job *job, const struct item *item, struct item *out)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return -ENOMEM;
    reading->work = (struct may_hang){.pid = may_hang(job, item) ? item->process->pid : 0,
                                      .run = read_run,
                                      .free = reading_free};
    reading->job = job;
    atomic_fetch_add(&job->refs, 1);
    reading->item.process = process_ref(item->process);
    reading->item.ended = item->ended;
    may_hang_init(&reading->work);
    int r = may_hang_run(&reading->work, NULL);
    if (r == 0) {
        *out = reading->item;
        reading->item = (struct item){.process = steal_pointer(out->process)};
        r = out->error;
    } else {
        may_hang_explain(r, &out->why);
    }
    may_hang_unref(&reading->work);
    return r;
}

static void read_item(struct job *job, struct item *item)
{
    struct item outcome = {0};

    int r = read_apart(job, item, &outcome);
    _guard_mutex_(&job->lock);
    item->rows = outcome.rows;
    item->error = r;
    item->why = outcome.why;
    item->done = true;
    job->done++;
    pthread_cond_broadcast(&job->changed);
}

static struct item *next_item(struct job *job)
{
    _guard_mutex_(&job->lock);
    return job->next < job->n && !job->abandoned ? &job->items[job->next++] : NULL;
}

static void *read_items(void *arg)
{
    struct job *job = arg;
    struct item *item;

    heap_enter(job->heap);
    while ((item = next_item(job)))
        read_item(job, item);
    heap_enter(NULL);
    job_unref(job);
    atomic_fetch_sub(&readers, 1);
    return NULL;
}

static bool start_reader(struct job *job)
{
    pthread_attr_t attr;
    pthread_t thread;

    if (atomic_fetch_add(&readers, 1) >= EVERY_PROCESS_THREADS_TOTAL) {
        atomic_fetch_sub(&readers, 1);
        return false;
    }
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    atomic_fetch_add(&job->refs, 1);
    int r = pthread_create(&thread, &attr, read_items, job);
    pthread_attr_destroy(&attr);
    if (r) {
        atomic_fetch_sub(&job->refs, 1);
        atomic_fetch_sub(&readers, 1);
    }
    return r == 0;
}

static int start_readers(struct job *job, struct text *why)
{
    size_t started = 0;

    while (started < EVERY_PROCESS_THREADS && started < job->n && start_reader(job))
        started++;
    if (started || !job->n)
        return 0;
    text_puts(why, "too many processes are being read, or hang: try again");
    return -EAGAIN;
}

/* Until all are read, or it is time to go on without the others. */
static int wait_for_all(struct job *job, const struct stop *stop)
{
    uint64_t deadline = monotonic_ns() + EVERY_PROCESS_DEADLINE_NS;
    int r = 0;

    _guard_mutex_(&job->lock);
    while (job->done < job->n && r == 0 && monotonic_ns() < deadline) {
        struct timespec t = timespec_of(monotonic_ns() + LOOK_NS);
        pthread_cond_timedwait(&job->changed, &job->lock, &t);
        r = stop_reason(stop);
    }
    job->abandoned = true;
    return r;
}

/* ---- the outcome ---- */

static void note(const struct every_process *every, const struct item *item)
{
    static const char slow[] = "it was not read in time, and its rows are missing";

    if (!item->done)
        error_ring_add(&item->process->errors, every->principals->opener, every->file, -ETIMEDOUT,
                       slow);
    else
        error_ring_add(&item->process->errors, every->principals->opener, every->file, item->error,
                       item->why.data);
}

/* Merges the rows in the order of the pids. What is read of a process that the caller may no longer
 * look at, since it has executed another program, is dropped. */
static int merge(struct job *job, const struct every_process *every, struct wanted *const *wanted)
{
    _guard_mutex_(&job->lock);
    for (size_t i = 0; i < job->n; i++) {
        struct item *item = &job->items[i];
        if (item->done && (item->error == -ENOMEM || item->error == -EFBIG))
            return item->error;
        if (!item->done || item->error < 0) {
            note(every, item);
            continue;
        }
        if (look_may_all(every->access, every->principals, item->process) < 0)
            continue;
        for (size_t k = 0; k < job->ntables; k++)
            rows_append(&wanted[k]->rows, &item->rows[k]);
    }
    return 0;
}

static int provide_rows(const struct every_process *every, struct wanted *const *wanted, size_t n,
                        const struct stop *stop, struct text *why)
{
    _cleanup_(cleanup_job) struct job *job = NULL;

    int r = job_new(wanted, n, &job);
    if (r == 0)
        r = list(job, every, wanted);
    if (r == 0)
        r = list_ended(job, every, wanted);
    if (r == 0)
        r = start_readers(job, why);
    if (r == 0)
        r = wait_for_all(job, stop);
    return r == 0 ? merge(job, every, wanted) : r;
}

int every_process_provide(void *arg, struct wanted *const *wanted, size_t n,
                          const struct stop *stop, struct text *why)
{
    static const struct rows_front nothing; /* what is appended has its own */
    _cleanup_free_ struct wanted **catalog = calloc(n, sizeof *catalog);
    _cleanup_free_ struct wanted **others = calloc(n, sizeof *others);
    size_t ncatalog = 0, nothers = 0;

    if (!catalog || !others)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct wanted *w = wanted[i];
        bool is_catalog = w->table->rows->catalog;
        rows_init(&w->rows, w->table, w->use.columns, is_catalog ? NULL : &nothing);
        if (is_catalog)
            catalog[ncatalog++] = w;
        else
            others[nothers++] = w;
    }
    int r = scene_fill(&python_tables, &(struct subject){0}, catalog, ncatalog, stop, why);
    return r == 0 && nothers ? provide_rows(arg, others, nothers, stop, why) : r;
}
