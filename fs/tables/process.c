/* The table process: one row. */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/objects/version.h"
#include "schema/schema.h"

#include <string.h>

#define COMMAND_MAX (64u << 10) /* bytes of a command line */

static void add_version(struct target *target, struct rows *rows)
{
    struct text text = TEXT_INIT;

    _guard_mutex_(&target->lock);
    target_learn_version(target);
    version_add(target->runtime.version, &text);
    rows_text(rows, PROCESS_PYTHON, text.data);
    text_deinit(&text);
    rows_text(rows, PROCESS_IMPLEMENTATION, version_implementation(&target->runtime));
}

static void add_link(pid_t pid, const char *name, unsigned column, struct rows *rows)
{
    char path[4096];

    ssize_t n = proc_link(pid, name, path, sizeof path);
    if (n > 0)
        rows_bytes(rows, column, path, (size_t)n);
}

static void add_command(pid_t pid, struct rows *rows)
{
    _cleanup_free_ char *line = malloc(COMMAND_MAX);

    ssize_t n = line ? proc_command(pid, line, COMMAND_MAX) : 0;
    if (n > 0)
        rows_bytes(rows, PROCESS_COMMAND, line, (size_t)n);
}

static void add_times(const struct proc_stat *stat, struct rows *rows)
{
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    double started, uptime;

    proc_started(stat->start_time, &started, &uptime);
    rows_real(rows, PROCESS_UPTIME, uptime);
    rows_real(rows, PROCESS_STARTED, started);
    rows_real(rows, PROCESS_CPU_USER, (double)stat->utime * tick);
    rows_real(rows, PROCESS_CPU_SYSTEM, (double)stat->stime * tick);
}

static void add_ids(const char *status, struct rows *rows)
{
    const char *state = proc_status_field(status, "State");
    unsigned ids[4];

    if (state)
        rows_bytes(rows, PROCESS_STATE, state, strcspn(state, "\n"));
    if (proc_status_ids(status, "Uid", ids))
        rows_integer(rows, PROCESS_UID, ids[1]);
    if (proc_status_ids(status, "Gid", ids))
        rows_integer(rows, PROCESS_GID, ids[1]);
}

/* What a core file tells of it. */
static int fill_core(struct scene *scene, const struct core *core, struct rows *rows)
{
    _cleanup_free_ char *line = malloc(COMMAND_MAX);

    rows_add(rows);
    rows_integer(rows, PROCESS_PID, core->pid);
    rows_integer(rows, PROCESS_PPID, core->ppid);
    add_version(scene->target, rows);
    if (core->executable >= 0)
        rows_text(rows, PROCESS_EXECUTABLE, core->objects[core->executable].path);
    ssize_t n = line ? core_command(core, line, COMMAND_MAX) : 0;
    if (n > 0)
        rows_bytes(rows, PROCESS_COMMAND, line, (size_t)n);
    rows_integer(rows, PROCESS_UID, core->uid);
    rows_integer(rows, PROCESS_GID, core->gid);
    rows_integer(rows, PROCESS_THREADS, (int64_t)core->lwps.n);
    return 0;
}

static void add_membership(struct process *process, struct rows *rows)
{
    const struct membership of = process_membership(process);

    if (of.rank < 0)
        return;
    rows_integer(rows, PROCESS_RANK, of.rank);
    if (*of.job)
        rows_text(rows, PROCESS_JOB, of.job);
    if (of.world >= 0)
        rows_integer(rows, PROCESS_WORLD, of.world);
    rows_integer(rows, PROCESS_WORKER, process_is_worker(process));
    if (*of.role)
        rows_text(rows, PROCESS_ROLE, of.role);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    struct process *process = scene->process;
    struct proc_stat stat;
    char status[8192];

    if (scene->target->core)
        return fill_core(scene, scene->target->core, rows);
    int r = proc_stat_read(process->pid, &stat);
    if (r < 0)
        return r;
    ssize_t n = proc_read(process->pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    rows_add(rows);
    rows_integer(rows, PROCESS_PID, process->pid);
    rows_integer(rows, PROCESS_PPID, stat.ppid);
    add_membership(process, rows);
    add_version(scene->target, rows);
    add_link(process->pid, "exe", PROCESS_EXECUTABLE, rows);
    add_link(process->pid, "cwd", PROCESS_CWD, rows);
    add_command(process->pid, rows);
    add_ids(status, rows);
    add_times(&stat, rows);
    rows_integer(rows, PROCESS_THREADS, stat.threads);
    rows_integer(rows, PROCESS_RSS, (int64_t)stat.rss * sysconf(_SC_PAGESIZE));
    rows_integer(rows, PROCESS_VSIZE, (int64_t)stat.vsize);
    return 0;
}

const struct row_source process_rows = {.fill = fill};
