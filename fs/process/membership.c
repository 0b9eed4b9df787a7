#include "fs/process/membership.h"

#include "agent/base/cleanup.h"
#include "fs/base/text.h"
#include "fs/proc/procfs.h"
#include "fs/process/environment.h"
#include "fs/process/torch_group.h"
#include "fs/remote/moment/target.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define START_MAX (256u << 10) /* bytes looked at of the environment of the start */
#define FORKED 0x40u           /* PF_FORKNOEXEC, include/linux/sched.h */

/* ---- one environment ---- */

/* The words of the environment that say what the rank is. The first that is there counts: who
 * starts ranks within an allocation of Slurm tells them apart by RANK, and mpirun within one by its
 * own. */
static const struct words {
    const char *launcher, *rank, *world, *local_rank, *local_world;
} sources[] = {
    {"", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

struct block {
    const char *text;
    size_t size;
};

/* NULL: it isn't there, or empty. */
static const char *value_of(const struct block *block, const char *name)
{
    const char *end = block->text + block->size;
    size_t length = strlen(name);

    for (const char *p = block->text; p < end; p += strlen(p) + 1)
        if (!strncmp(p, name, length) && p[length] == '=')
            return p[length + 1] ? p + length + 1 : NULL;
    return NULL;
}

static int64_t number_of(const struct block *block, const char *name)
{
    const char *value = value_of(block, name);
    unsigned number;

    return value && number_parse(value, &number) ? (int64_t)number : -1;
}

static const struct words *read_numbers(const struct block *block, struct membership *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
        const struct words *source = &sources[i];
        out->rank = number_of(block, source->rank);
        if (out->rank < 0)
            continue;
        out->world = number_of(block, source->world);
        out->local_rank = number_of(block, source->local_rank);
        out->local_world = number_of(block, source->local_world);
        out->by_launcher = i > 0;
        return source;
    }
    return NULL;
}

/* What can't stand in the name of a file becomes "_". */
static void clean(char *name)
{
    if (*name == '.')
        *name = '_';
    for (char *p = name; *p; p++)
        if (*p == '/' || *p == '~' || (unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            *p = '_';
}

static void name_by_master(const struct block *block, const char *before, char name[JOB_NAME_MAX])
{
    const char *address = value_of(block, "MASTER_ADDR"), *port = value_of(block, "MASTER_PORT");
    const char *run = value_of(block, "TORCHELASTIC_RUN_ID");

    if (!address || !port)
        return;
    bool has_run = run && strcmp(run, "none");
    snprintf(name, JOB_NAME_MAX, "%s%s:%s%s%s", before, address, port, has_run ? "@" : "",
             has_run ? run : "");
}

static void read_name(const struct block *block, char name[JOB_NAME_MAX])
{
    const char *slurm = value_of(block, "SLURM_JOB_ID"), *step = value_of(block, "SLURM_STEP_ID");
    const char *mpi = value_of(block, "PMIX_NAMESPACE");
    char before[JOB_NAME_MAX] = "";

    if (!step)
        step = value_of(block, "SLURM_STEPID");
    if (!mpi)
        mpi = value_of(block, "PMI_JOBID");
    if (slurm && step)
        snprintf(name, JOB_NAME_MAX, "%s.%s", slurm, step);
    else if (slurm) /* within an allocation several jobs may run, one beside the other */
        snprintf(before, sizeof before, "%s+", slurm);
    if (!*name)
        name_by_master(block, before, name);
    if (!*name && slurm)
        snprintf(name, JOB_NAME_MAX, "%s", slurm);
    if (!*name && mpi)
        snprintf(name, JOB_NAME_MAX, "%s", mpi);
    clean(name);
}

/* PROBING_TP_RANK=0 is "tp=0". */
static void add_role(const char *variable, char role[JOB_NAME_MAX])
{
    static const char before[] = "PROBING_", after[] = "_RANK=";
    const char *mark = strstr(variable, after);
    size_t n = strlen(role), length;

    if (strncmp(variable, before, sizeof before - 1) || !mark ||
        mark <= variable + sizeof before - 1)
        return;
    variable += sizeof before - 1;
    length = (size_t)(mark - variable);
    mark += sizeof after - 1;
    if (n + length + strlen(mark) + 3 > JOB_NAME_MAX)
        return;
    if (n)
        role[n++] = ',';
    for (size_t i = 0; i < length; i++)
        role[n++] = (char)tolower((unsigned char)variable[i]);
    snprintf(role + n, JOB_NAME_MAX - n, "=%s", mark);
}

static void read_role(const struct block *block, char role[JOB_NAME_MAX])
{
    const char *end = block->text + block->size, *name = value_of(block, "ROLE_NAME");

    for (const char *p = block->text; p < end; p += strlen(p) + 1)
        add_role(p, role);
    if (!*role && name && strcmp(name, "default"))
        snprintf(role, JOB_NAME_MAX, "%s", name);
    clean(role);
}

/* What Ray starts are workers, which a program makes ranks of: by variables, or by
 * torch.distributed alone. source: NULL: the variables name no rank. */
static const char *find_launcher(const struct block *block, const struct words *source)
{
    if (source && value_of(block, "TORCHELASTIC_RUN_ID"))
        return "torchrun";
    if (value_of(block, "RAY_JOB_ID"))
        return "ray";
    if (source && !*source->launcher && value_of(block, "SLURM_STEP_ID"))
        return "slurm";
    return source ? source->launcher : "";
}

void membership_parse(const char *text, size_t size, struct membership *out)
{
    const struct block block = {text, size};

    *out = (struct membership){-1, -1, -1, -1, -1};
    const struct words *source = read_numbers(&block, out);
    snprintf(out->launcher, sizeof out->launcher, "%s", find_launcher(&block, source));
    if (!source)
        return;
    out->restarts = number_of(&block, "TORCHELASTIC_RESTART_COUNT");
    read_name(&block, out->job);
    read_role(&block, out->role);
}

/* ---- a process ---- */

/* What the process group says counts more, and where its ranks met names a job that else has no
 * name. */
static void add_group(const struct torch_group *group, struct membership *out)
{
    const char *address = strstr(group->origin, "://");

    if (group->rank != out->rank) {
        out->inherited = false;
        out->by_launcher = false;
    }
    out->rank = group->rank;
    out->world = group->world;
    memcpy(out->backend, group->backend, sizeof out->backend);
    if (!*out->job && address && strncmp(group->origin, "env:", 4)) {
        snprintf(out->job, JOB_NAME_MAX, "%.*s", (int)strcspn(address + 3, "?"), address + 3);
        clean(out->job);
    }
}

/* Ranks of which nothing says which job they are of: those that were started together. */
static void name_by_session(pid_t pid, struct membership *membership)
{
    struct proc_stat stat;

    if (membership->rank >= 0 && !*membership->job && proc_stat_read(pid, &stat) == 0)
        snprintf(membership->job, JOB_NAME_MAX, "session-%d", (int)stat.session);
}

/* Whether what it was started with is that of another process: it is a fork of that, or a helper
 * that multiprocessing started (its spawn, forkserver and resource tracker). */
static bool is_another(pid_t pid)
{
    struct proc_stat stat;
    char line[4096];

    if (proc_stat_read(pid, &stat) == 0 && stat.flags & FORKED)
        return true;
    return proc_command(pid, line, sizeof line) > 0 &&
           (strstr(line, " -c from multiprocessing.") ||
            strstr(line, " -c import sys; from multiprocessing.")); /* from 3.14 on */
}

void membership_of_start(pid_t pid, struct membership *out)
{
    _cleanup_free_ char *block = malloc(START_MAX);
    ssize_t n = block ? proc_read(pid, "environ", block, START_MAX) : -1;

    membership_parse(block, n < 0 ? 0 : (size_t)n, out);
    out->inherited = out->rank >= 0 && is_another(pid);
    name_by_session(pid, out);
}

void membership_now(struct target *target, struct membership *out)
{
    _cleanup_(text_deinit) struct text block = TEXT_INIT;
    struct membership start;
    struct torch_group group;

    membership_of_start(target->pid, &start);
    if (environment_read(target, &block) < 0 || block.error) {
        *out = start;
        return;
    }
    membership_parse(block.data, block.size, out);
    out->inherited = out->rank >= 0 && out->rank == start.rank && start.inherited;
    if (torch_group_read(target, &group) == 0)
        add_group(&group, out);
    name_by_session(target->pid, out);
}
