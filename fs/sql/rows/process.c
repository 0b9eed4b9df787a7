/* The table process: one row. */
#include "fs/sql/scene.h"

#include "fs/access.h"
#include "fs/cleanup.h"
#include "fs/procfs.h"
#include "fs/registry.h"
#include "schema/schema.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define COMMAND_MAX (64u << 10) /* bytes of a command line */

static void add_version(struct target *target, struct rows *rows)
{
    static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
    struct text text = TEXT_INIT;

    _guard_mutex_(&target->lock);
    target_learn_version(target);
    uint32_t v = target->runtime.version;
    text_printf(&text, "%u.%u", v >> 24, v >> 16 & 0xff);
    if (v & 0xff) /* else the patch level is not known from outside */
        text_printf(&text, ".%u", v >> 8 & 0xff);
    if (levels[v >> 4 & 0xf])
        text_printf(&text, "%s%u", levels[v >> 4 & 0xf], v & 0xf);
    rows_text(rows, PROCESS_PYTHON, text.data);
    text_deinit(&text);
    rows_text(rows, PROCESS_IMPLEMENTATION,
              target->runtime.free_threaded ? "CPython, free-threaded" : "CPython");
}

static void add_link(pid_t pid, const char *name, unsigned column, struct rows *rows)
{
    char link[64], path[4096];

    snprintf(link, sizeof link, "/proc/%d/%s", pid, name);
    ssize_t n = readlink(link, path, sizeof path);
    if (n > 0)
        rows_bytes(rows, column, path, (size_t)n);
}

static void add_command(pid_t pid, struct rows *rows)
{
    _cleanup_free_ char *line = malloc(COMMAND_MAX);
    ssize_t n = line ? proc_read(pid, "cmdline", line, COMMAND_MAX) : 0;

    while (n > 0 && !line[n - 1])
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (!line[i])
            line[i] = ' ';
    if (n > 0)
        rows_bytes(rows, PROCESS_COMMAND, line, (size_t)n);
}

/* Start times count from boot, suspended time included. */
static void add_times(const struct proc_stat *stat, struct rows *rows)
{
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    struct timespec now, boot;

    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    double uptime = (double)boot.tv_sec + (double)boot.tv_nsec / 1e9 -
                    (double)stat->start_time * tick;
    rows_real(rows, PROCESS_UPTIME, uptime);
    rows_real(rows, PROCESS_STARTED, (double)now.tv_sec + (double)now.tv_nsec / 1e9 - uptime);
    rows_real(rows, PROCESS_CPU_USER, (double)stat->utime * tick);
    rows_real(rows, PROCESS_CPU_SYSTEM, (double)stat->stime * tick);
}

static void add_ids(const char *status, struct rows *rows)
{
    const char *state = proc_status_field(status, "State");
    unsigned ids[4];

    if (state)
        rows_bytes(rows, PROCESS_STATE, state, strcspn(state, "\n"));
    if (access_parse_ids(status, "Uid", ids))
        rows_integer(rows, PROCESS_UID, ids[1]);
    if (access_parse_ids(status, "Gid", ids))
        rows_integer(rows, PROCESS_GID, ids[1]);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct process *process = scene->process;
    struct proc_stat stat;
    char status[8192];

    int r = proc_stat_read(process->pid, &stat);
    if (r < 0)
        return r;
    ssize_t n = proc_read(process->pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    rows_add(rows);
    rows_integer(rows, PROCESS_PID, process->pid);
    rows_integer(rows, PROCESS_PPID, stat.ppid);
    if (process->rank >= 0)
        rows_integer(rows, PROCESS_RANK, process->rank);
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
