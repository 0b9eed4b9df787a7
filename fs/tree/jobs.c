/* jobs/<job>/: the distributed jobs of this host, as those see them who ask: a process that they
 * may not look at is of none. */
#include "fs/tree/jobs.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/base/ranges.h"
#include "fs/process/exited.h"

#include <errno.h>
#include <string.h>

#define JOB_ABSENT_MAX 65536 /* ranks that are looked for */

/* ---- who asks ---- */

struct viewer {
    const struct file_context *context;
    struct access_caller caller; /* where a name is looked up */
};

static struct viewer viewer_of(const struct file_context *context)
{
    struct viewer viewer = {.context = context};

    if (!context->principals)
        access_read_caller(context->caller, &viewer.caller);
    return viewer;
}

static bool sees(void *arg, struct process *process)
{
    struct viewer *viewer = arg;
    const struct file_context *context = viewer->context;

    return (context->principals
                ? principals_look(context->access, context->principals, process->pid)
                : access_look(context->access, &viewer->caller, process->pid)) == 0;
}

static uid_t context_uid(const struct file_context *context)
{
    return context->principals ? context->principals->opener->who.fsuid : context->caller->uid;
}

const char *context_job(const struct file_context *context)
{
    return strncmp(context->file, "jobs/", 5) ? NULL : context->word;
}

int context_processes(const struct file_context *context, struct process_list *out)
{
    struct viewer viewer = viewer_of(context);
    size_t kept = 0;

    int r = job_processes(context->registry, context_job(context), context_uid(context), sees,
                          &viewer, out);
    for (size_t i = 0; r == 0 && i < out->n; i++) {
        if (context_job(context) || sees(&viewer, out->items[i]))
            out->items[kept++] = out->items[i];
        else
            process_unref(out->items[i]);
    }
    if (r == 0)
        out->n = kept;
    return r;
}

static int list_members(const struct file_context *context, struct job_members *out)
{
    struct viewer viewer = viewer_of(context);

    return job_members_list(context->registry, sees, &viewer, out);
}

/* The job that the context is in: how many members, from *first on. */
static int list_job(const struct file_context *context, struct job_members *out, size_t *first,
                    size_t *n)
{
    int r = list_members(context, out);

    *n = r == 0 ? job_find(out, context->word, context_uid(context), first) : 0;
    return r;
}

int context_job_identity(const struct file_context *context, char job[JOB_NAME_MAX], uid_t *uid)
{
    struct viewer viewer = viewer_of(context);

    int r = job_identity(context->registry, context->word, context_uid(context), sees, &viewer, job,
                         uid);
    return r == -ENOENT ? -ESRCH : r;
}

/* ---- names ---- */

static int jobs_names(struct file_context *context, struct numbers *out)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    char word[JOB_WORD_MAX];

    int r = list_members(context, &members);
    for (size_t i = 0; r == 0 && i < members.n; i = job_end(&members, i)) {
        job_word(&members, i, context_uid(context), word);
        r = numbers_add_word(out, word, NULL);
    }
    if (r == 0)
        numbers_sort_words(out);
    return r;
}

static int jobs_have(struct file_context *context, unsigned value)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    size_t first, n;

    int r = list_job(context, &members, &first, &n);
    return r < 0 ? r : n ? 0 : -ENOENT;
}

/* The ranks themselves of a job, or their workers. */
static int add_members(struct file_context *context, bool workers, struct numbers *out)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    size_t first, n;
    unsigned value;

    int r = list_job(context, &members, &first, &n);
    for (size_t i = first; r == 0 && n-- > 0; i++) {
        struct job_member *member = &members.items[i];
        value = (unsigned)member->of.rank;
        if (member->worker != workers ||
            (workers && !names_worker(member->of.rank, member->number, &value)))
            continue;
        r = numbers_add(out, value, steal_pointer(member->process));
    }
    return r;
}

static int find_member(struct file_context *context,
                       int (*list)(struct file_context *context, struct numbers *out),
                       unsigned value)
{
    _cleanup_(numbers_deinit) struct numbers all = {0};

    int r = list(context, &all);
    for (size_t i = 0; i < all.n && !context->process; i++)
        if (all.items[i].value == value)
            context->process = process_ref(all.items[i].process);
    return r < 0 ? r : context->process ? 0 : -ENOENT;
}

static int job_ranks_list(struct file_context *context, struct numbers *out)
{
    return add_members(context, false, out);
}

static int job_ranks_find(struct file_context *context, unsigned value)
{
    return find_member(context, job_ranks_list, value);
}

static int job_workers_list(struct file_context *context, struct numbers *out)
{
    return add_members(context, true, out);
}

static int job_workers_find(struct file_context *context, unsigned value)
{
    return find_member(context, job_workers_list, value);
}

const struct naming job_names = {WORD_JOB, jobs_names, jobs_have};
const struct naming job_rank_names = {NUMBER_RANK, job_ranks_list, job_ranks_find};
const struct naming worker_names = {NUMBER_WORKER, job_workers_list, job_workers_find};

/* ---- by-rank/ ---- */

struct claim {
    const struct job_member *member;
    bool own; /* of who asks */
};

static int by_rank(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    const struct process *p = x->member->process, *q = y->member->process;
    int64_t rank_x = x->member->of.rank, rank_y = y->member->of.rank;

    if (rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    if (x->own != y->own)
        return y->own - x->own;
    if (p->start_time != q->start_time)
        return p->start_time > q->start_time ? -1 : 1;
    return (p->pid < q->pid) - (p->pid > q->pid);
}

static int ranks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    size_t n = 0;

    int r = list_members(context, &members);
    _cleanup_free_ struct claim *claims = calloc(members.n + 1, sizeof *claims);
    if (r < 0 || !claims)
        return r < 0 ? r : -ENOMEM;
    for (size_t i = 0; i < members.n; i++)
        if (!members.items[i].worker)
            claims[n++] =
                (struct claim){&members.items[i], members.items[i].uid == context_uid(context)};
    array_sort(claims, n, sizeof *claims, by_rank);
    for (size_t i = 0; r == 0 && i < n; i++) {
        int64_t rank = claims[i].member->of.rank;
        if (i == 0 || claims[i - 1].member->of.rank != rank)
            r = numbers_add(out, (unsigned)rank, process_ref(claims[i].member->process));
    }
    return r;
}

static int ranks_find(struct file_context *context, unsigned value)
{
    return find_member(context, ranks_list, value);
}

const struct naming rank_names = {NUMBER_RANK, ranks_list, ranks_find};

static int by_rank_then_end(const void *a, const void *b)
{
    const struct process *x = *(struct process *const *)a, *y = *(struct process *const *)b;
    const struct timespec *p = &x->ending.when, *q = &y->ending.when;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (p->tv_sec != q->tv_sec)
        return p->tv_sec > q->tv_sec ? -1 : 1;
    return (p->tv_nsec < q->tv_nsec) - (p->tv_nsec > q->tv_nsec);
}

static int exited_ranks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = exited_list(registry_exited(context->registry), monotonic_ns(), &list);
    if (r < 0 || !list.n)
        return r;
    array_sort(list.items, list.n, sizeof *list.items, by_rank_then_end);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        struct process *process = list.items[i];
        if (process->rank < 0 || process_is_worker(process) ||
            (out->n && out->items[out->n - 1].value == (unsigned)process->rank))
            continue;
        r = numbers_add(out, (unsigned)process->rank, process_ref(process));
    }
    return r;
}

static int exited_ranks_find(struct file_context *context, unsigned value)
{
    return find_member(context, exited_ranks_list, value);
}

const struct naming exited_rank_names = {NUMBER_RANK, exited_ranks_list, exited_ranks_find};

/* ---- content ---- */

int exited_link_render(struct file_context *context, struct text *out)
{
    text_printf(out, "../%d", (int)context->process->pid);
    return 0;
}

int job_link_render(struct file_context *context, struct text *out)
{
    if (!process_alive(context->process))
        return -ENOENT;
    for (const char *p = context->file; *p; p++)
        if (*p == '/')
            text_puts(out, "../");
    text_printf(out, "%d", (int)context->process->pid);
    return 0;
}

/* What the members of a job say together. */
struct summary {
    const struct job_member *members;
    size_t n;
    int64_t *here; /* ranks */
    size_t nhere, nworkers;
    int64_t world, local_world, first; /* -1: not said; rank of the host's first */
    const struct job_member *oldest;   /* of the ranks themselves */
};

static int summarize(const struct job_member *members, size_t n, struct summary *out)
{
    *out =
        (struct summary){.members = members, .n = n, .world = -1, .local_world = -1, .first = -1};
    out->here = calloc(n + 1, sizeof *out->here);
    if (!out->here)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct job_member *member = &members[i];
        out->nworkers += member->worker;
        if (member->worker)
            continue;
        out->here[out->nhere++] = member->of.rank;
        if (member->of.world > out->world)
            out->world = member->of.world;
        if (member->of.local_world > out->local_world)
            out->local_world = member->of.local_world;
        if (member->of.local_rank >= 0 && member->of.local_rank <= member->of.rank)
            out->first = member->of.rank - member->of.local_rank;
        if (!out->oldest || member->process->start_time < out->oldest->process->start_time)
            out->oldest = member;
    }
    return 0;
}

/* The ranks of [from, to) that aren't here. */
static int add_absent(const struct summary *of, int64_t from, int64_t to, struct text *out)
{
    _cleanup_free_ int64_t *absent = calloc(JOB_ABSENT_MAX, sizeof *absent);
    size_t n = 0, at = 0;

    if (!absent)
        return -ENOMEM;
    for (int64_t rank = from; rank < to && n < JOB_ABSENT_MAX; rank++) {
        while (at < of->nhere && of->here[at] < rank)
            at++;
        if (at == of->nhere || of->here[at] != rank)
            absent[n++] = rank;
    }
    if (n)
        ranges_add_text(absent, n, out);
    else
        text_puts(out, "none");
    return 0;
}

/* Adds which ranks are missing: of those that this host is to have, where that is said; else of
 * all. */
static int add_missing(const struct summary *of, struct text *out)
{
    bool local = of->local_world >= 0 && of->first >= 0;
    int r = 0;

    if (of->world < 0 && !local)
        return 0;
    text_puts(out,
              local || of->nhere == (size_t)of->world ? "Missing: " : "Elsewhere or missing: ");
    if (local)
        r = add_absent(of, of->first, of->first + of->local_world, out);
    else
        r = add_absent(of, 0, of->world, out);
    text_putc(out, '\n');
    return r;
}

static void add_field(const char *name, const char *value, struct text *out)
{
    if (*value)
        text_printf(out, "%s: %s\n", name, value);
}

static int add_summary(const char *word, const struct summary *of, struct text *out)
{
    const struct job_member *one = of->oldest ? of->oldest : of->members;

    text_printf(out, "Job: %s\n", word);
    if (of->world >= 0)
        text_printf(out, "World: %lld\n", (long long)of->world);
    text_puts(out, "Here: ");
    if (of->nhere)
        ranges_add_text(of->here, of->nhere, out);
    else
        text_puts(out, "none");
    text_putc(out, '\n');
    int r = add_missing(of, out);
    text_printf(out, "Workers: %zu\nStarted: ", of->nworkers);
    text_add_time(out, one->process->started.tv_sec);
    text_putc(out, '\n');
    add_field("Backend", one->of.backend, out);
    add_field("Launcher", one->of.launcher, out);
    if (one->of.restarts >= 0)
        text_printf(out, "Restarts: %lld\n", (long long)one->of.restarts);
    text_printf(out, "Uid: %u\n", one->uid);
    return r;
}

int job_render(struct file_context *context, struct text *out)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    struct summary summary;
    size_t first, n;

    int r = list_job(context, &members, &first, &n);
    if (r < 0)
        return r;
    if (!n) {
        text_puts(&context->why, "the job has ended");
        return -ESRCH;
    }
    r = summarize(&members.items[first], n, &summary);
    if (r == 0)
        r = add_summary(context->word, &summary, out);
    free(summary.here);
    return r;
}
