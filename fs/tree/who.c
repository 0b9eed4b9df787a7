#include "fs/tree/who.h"

#include "agent/base/cleanup.h"
#include "fs/base/ranges.h"
#include "fs/process/jobs.h"

#include <errno.h>
#include <string.h>

void who_init(struct who *who, struct process *process)
{
    *who = (struct who){
        .process = process_ref(process),
        .of = process_membership(process),
        .uid = (uid_t)-1,
        .worker = process_is_worker(process),
    };
    (void)job_owner(process, &who->uid);
}

void who_deinit(struct who *who) { process_unref(who->process); }

static int compare_jobs(const struct who *a, const struct who *b)
{
    if ((a->of.rank < 0) != (b->of.rank < 0))
        return a->of.rank < 0 ? 1 : -1;
    if (a->of.rank < 0)
        return 0;
    int r = strcmp(a->of.job, b->of.job);
    return r ? r : (a->uid > b->uid) - (a->uid < b->uid);
}

int who_compare(const struct who *a, const struct who *b)
{
    int r = compare_jobs(a, b);

    if (r == 0)
        r = (a->of.rank > b->of.rank) - (a->of.rank < b->of.rank);
    if (r == 0)
        r = a->worker - b->worker;
    return r ? r : (a->process->pid > b->process->pid) - (a->process->pid < b->process->pid);
}

bool who_same_job(const struct who *a, const struct who *b) { return compare_jobs(a, b) == 0; }

size_t who_jobs(const struct who *const *some, size_t n)
{
    size_t jobs = 0;

    for (size_t i = 0; i < n && some[i]->of.rank >= 0; i++)
        jobs += i == 0 || !who_same_job(some[i - 1], some[i]);
    return jobs;
}

/* Adds the ranks of one job: these ranks themselves, or those whose workers are among them. */
static void add_ranks(const struct who *const *some, size_t n, bool workers, int64_t *ranks,
                      const char *before, struct text *out)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        if (some[i]->worker == workers)
            ranks[found++] = some[i]->of.rank;
    if (!found)
        return;
    text_puts(out, before);
    text_puts(out, workers ? "workers of rank" : "rank");
    text_puts(out, ranks[found - 1] == ranks[0] ? " " : "s ");
    ranges_add_text(ranks, found, out);
}

int who_add(const struct who *const *some, size_t n, bool with_jobs, struct text *out)
{
    _cleanup_free_ int64_t *ranks = calloc(n + 1, sizeof *ranks);

    if (!ranks)
        return -ENOMEM;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && who_same_job(some[i], some[end]); end++)
            ;
        text_puts(out, i ? "; " : "");
        if (some[i]->of.rank < 0) {
            for (size_t k = i; k < end; k++)
                text_printf(out, k > i ? ", %d" : "pid %d", (int)some[k]->process->pid);
            continue;
        }
        if (with_jobs)
            text_printf(out, "%s ", some[i]->of.job);
        add_ranks(some + i, end - i, false, ranks, "", out);
        add_ranks(some + i, end - i, true, ranks, some[i]->worker ? "" : ", ", out);
    }
    return 0;
}

int who_add_job(const struct who *const *some, size_t n, struct text *out)
{
    _cleanup_free_ int64_t *ranks = calloc(n + 1, sizeof *ranks);
    int64_t world = -1, next = 0, missing = 0;
    size_t found = 0;

    if (!ranks)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (some[i]->of.world > world)
            world = some[i]->of.world;
        if (!some[i]->worker)
            ranks[found++] = some[i]->of.rank;
    }
    text_printf(out, "Job %s: ranks ", some[0]->of.job);
    if (found)
        ranges_add_text(ranks, found, out);
    else
        text_puts(out, "none");
    if (world >= 0)
        text_printf(out, " of %lld", (long long)world);
    for (size_t i = 0; world >= 0 && i <= found; i++) {
        int64_t rank = i < found ? ranks[i] : world;
        if (rank > next) {
            text_printf(out, missing++ ? "," : ", not here: ");
            text_printf(out, rank - 1 > next ? "%lld-%lld" : "%lld", (long long)next,
                        (long long)rank - 1);
        }
        next = rank + 1;
    }
    text_putc(out, '\n');
    return 0;
}
