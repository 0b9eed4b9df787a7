/* <pid>/status: what a person asks first, one `Key: value` a line as in /proc/PID/status. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/format/agent.h"
#include "fs/format/held.h"
#include "fs/format/identity.h"
#include "fs/format/locks.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"
#include "fs/recording/held_threads.h"
#include "fs/tree/file.h"
#include "fs/remote/moment/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STUCK_NS 1000000000u /* for which it is told again: what is stuck stays so */

/* Why it can't go on, as it was found last. To find it takes more than all the rest, and as much as
 * reading the tasks. */
struct stuck {
    struct target_kept kept;
    pthread_mutex_t lock;
    uint64_t ns;      /* CLOCK_MONOTONIC, when it was looked for; 0: never */
    struct text line; /* of the file, or empty */
};

static void free_stuck(struct target_kept *kept)
{
    struct stuck *stuck = (struct stuck *)kept;

    pthread_mutex_destroy(&stuck->lock);
    text_deinit(&stuck->line);
    free(stuck);
}

/* NULL without memory. */
static struct stuck *stuck_of(struct target *target)
{
    struct stuck *stuck = (struct stuck *)atomic_load(&target->kept[KEPT_BY_STATUS]);
    if (stuck)
        return stuck;
    stuck = calloc(1, sizeof *stuck);
    if (!stuck)
        return NULL;
    stuck->kept.free = free_stuck;
    pthread_mutex_init(&stuck->lock, NULL);
    struct target_kept *kept = target_keep(target, KEPT_BY_STATUS, &stuck->kept);
    if (kept != &stuck->kept)
        free_stuck(&stuck->kept); /* another thread was faster */
    return (struct stuck *)kept;
}

/* The line as it is known, or false: it has to be looked for. */
static bool add_known(struct stuck *stuck, struct text *out)
{
    _guard_mutex_(&stuck->lock);
    if (!stuck->ns || monotonic_ns() - stuck->ns > STUCK_NS)
        return false;
    text_add(out, stuck->line.data, stuck->line.size);
    return true;
}

static void keep(struct stuck *stuck, const struct text *line)
{
    _guard_mutex_(&stuck->lock);
    text_clear(&stuck->line);
    text_add(&stuck->line, line->data, line->size);
    stuck->ns = stuck->line.error ? 0 : monotonic_ns();
}

/* What the last reading of stacks cost, and the process itself in stopped threads. */
static void add_cost(struct target *target, struct text *out)
{
    _guard_mutex_(&target->lock);

    if (target->cost.total_ns)
        text_printf(out, "ReadPython: %.6f\nReadPause: %.6f\nReadTotal: %.6f\n",
                    (double)target->cost.python_ns / 1e9, (double)target->cost.pause_ns / 1e9,
                    (double)target->cost.total_ns / 1e9);
}

/* If it can't go on. */
static void add_stuck(const struct waits *waits, struct text *out)
{
    size_t before = out->size;

    text_puts(out, "Stuck: ");
    size_t key = out->size;
    locks_add_stuck(waits, out);
    if (out->size == key)
        text_truncate(out, before);
    else
        text_puts(out, ", see locks\n");
}

static void add_line(const char *status, const char *key, const char *as, struct text *out)
{
    const char *p = proc_status_field(status, key);
    if (!p)
        return;
    text_printf(out, "%s: ", as);
    text_add_escaped(out, p, strcspn(p, "\n"));
    text_putc(out, '\n');
}

int status_render(struct file_context *context, struct text *out)
{
    const struct process *process = context->process;
    _cleanup_(held_list_deinit) struct held_list agent = {0};
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = context->target};
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;
    _cleanup_(text_deinit) struct text cost = TEXT_INIT, line = TEXT_INIT;
    struct snapshot_options options = {0};
    struct proc_stat stat;
    char status[8192];
    unsigned ids[4];

    int r = proc_stat_read(process->pid, &stat);
    if (r < 0)
        return r;
    ssize_t n = proc_read(process->pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    if (stat.start_time != process->start_time)
        return -ESRCH;

    (void)held_list_read(context->target, context->recording, &agent);
    add_cost(context->target, &cost); /* of what was read before */
    struct stuck *stuck = stuck_of(context->target);
    if (!stuck)
        return -ENOMEM;
    bool known = add_known(stuck, &line);
    if (!known) {
        waits_read_along(&reading, &options);
        (void)waits_read_tasks(&reading);
    }
    if (context->target->runtime.supported &&
        snapshot_take(context->target, &options, &snapshot) == 0)
        held_mark(&agent, 0, snapshot);
    if (snapshot && !known) {
        add_stuck(&reading.waits, &line);
        keep(stuck, &line);
    }
    text_printf(out, "Pid: %d\nPPid: %d\n", process->pid, stat.ppid);
    if (snapshot)
        text_add(out, line.data, line.size);
    identity_program(context->target, out);
    add_line(status, "State", "State", out);
    if (proc_status_ids(status, "Uid", ids))
        text_printf(out, "Uid: %u\n", ids[1]);
    if (proc_status_ids(status, "Gid", ids))
        text_printf(out, "Gid: %u\n", ids[1]);
    double uptime = identity_started(process->start_time, out);
    text_printf(out, "Uptime: %.2f\n", uptime);
    text_printf(out, "Threads: %zu\n", stat.threads - (agent.nown < stat.threads ? agent.nown : 0));
    text_printf(out, "Rss: %lu\n", stat.rss * (uint64_t)sysconf(_SC_PAGESIZE));
    if (process->rank >= 0)
        text_printf(out, "Rank: %ld\n", (long)process->rank);
    if (*context->agent)
        text_puts(out, context->agent);
    else
        agent_text_passive(context->target, out);
    held_text_all(context->target, out);
    text_puts(out, context->sampled);
    text_add(out, cost.data, cost.size);
    if (snapshot)
        identity_interpreter(snapshot, out);
    return 0;
}
