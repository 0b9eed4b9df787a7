#include "fs/remote/waits/semaphores.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/waits/asked.h"
#include "fs/remote/waits/lock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHARED_MEMORY "/dev/shm/sem." /* where sem_open(3) makes them, in whatever root */

/* ---- memory that is shared ---- */

bool shared_word_in(const struct maps *maps, uint64_t address, struct shared_word *out)
{
    const struct mapping *mapping = maps_find(maps, address);

    if (!mapping || !mapping->inode || !mapping->shared)
        return false;
    *out = (struct shared_word){mapping->dev_major, mapping->dev_minor, mapping->inode,
                                mapping->offset + (address - mapping->start)};
    return true;
}

bool shared_word_same(const struct shared_word *a, const struct shared_word *b)
{
    return a->dev_major == b->dev_major && a->dev_minor == b->dev_minor && a->inode == b->inode &&
           a->offset == b->offset;
}

/* ---- one process ---- */

/* A hold as long as the target's lock is kept. */
struct raw_hold {
    struct semaphore_hold hold;
    struct code *code;
    int32_t at;
};

struct reading {
    struct may_hang work;
    struct target *target;
    struct raw_hold *items;
    size_t n, alloc;
    int error;
};

static int add(void *arg, const struct semlock *lock, pid_t tid, struct code *code, int32_t at)
{
    struct reading *reading = arg;
    struct raw_hold raw = {.code = code, .at = at};

    raw.hold.pid = reading->target->pid;
    raw.hold.tid = tid;
    raw.hold.one = lock->recursive || lock->max == 1;
    raw.hold.kind = lock->recursive  ? "multiprocessing.RLock"
                    : lock->max == 1 ? "multiprocessing.Lock"
                                     : "multiprocessing.Semaphore";
    if (!shared_word_in(&reading->target->maps, lock->semaphore, &raw.hold.word))
        return 0;
    if (ARRAY_GROW(reading->items, reading->alloc, reading->n + 1) < 0)
        return -ENOMEM;
    reading->items[reading->n++] = raw;
    return 0;
}

static int read_holds(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct reading *reading = arg;
    const struct waits_origin origin = {.target = reading->target,
                                        .walk = moment->walk,
                                        .lwps = lwps};

    reading->n = 0;
    int r = waits_each_semlock(&origin, add, reading);
    if (r == 0 && !moment->verified)
        r = view_verify(reading->target->view);
    return r;
}

static int find_lines(void *arg)
{
    struct reading *reading = arg;

    for (size_t i = 0; i < reading->n; i++) {
        struct raw_hold *raw = &reading->items[i];
        if (!raw->code || raw->code->state != CODE_LOADED || raw->at < 0)
            continue;
        int line = linetable_line(&raw->code->lines, raw->at);
        raw->hold.line = line > 0 ? line : 0;
        snprintf(raw->hold.func, sizeof raw->hold.func, "%s", raw->code->name);
        snprintf(raw->hold.file, sizeof raw->hold.file, "%s", raw->code->file);
    }
    return 0;
}

static bool has_semaphores(pid_t pid)
{
    _cleanup_(maps_deinit) struct maps maps = {0};

    if (maps_read(pid, &maps) < 0)
        return false;
    for (size_t i = 0; i < maps.n; i++)
        if (maps.items[i].shared && strstr(maps.items[i].path, SHARED_MEMORY))
            return true;
    return false;
}

static void run(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;
    const struct snapshot_options options = {.work = read_holds,
                                             .finish = find_lines,
                                             .arg = reading};
    struct snapshot *snapshot;

    reading->error = -ENOENT;
    if (!has_semaphores(work->pid))
        return;
    reading->error = target_open(work->pid, &reading->target);
    if (reading->error < 0 || !reading->target->runtime.supported)
        return;
    reading->error = snapshot_take(reading->target, &options, &snapshot);
    if (reading->error == 0)
        snapshot_free(snapshot);
}

static void free_reading(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;

    target_unref(reading->target);
    free(reading->items);
    free(reading);
}

int semaphores_read_one(pid_t pid, struct semaphores *out)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return -ENOMEM;
    reading->work = (struct may_hang){.pid = pid, .run = run, .free = free_reading};
    may_hang_init(&reading->work);
    int r = may_hang_run(&reading->work, NULL);
    for (size_t i = 0; r == 0 && reading->error == 0 && i < reading->n; i++) {
        if (ARRAY_GROW(out->items, out->alloc, out->n + 1) < 0)
            r = -ENOMEM;
        else
            out->items[out->n++] = reading->items[i].hold;
    }
    may_hang_unref(&reading->work);
    return r == -ENOMEM ? r : 0;
}

/* ---- all of a session ---- */

static int read_process(const struct waits_reader *reader, pid_t pid, struct semaphores *out)
{
    if (!reader->ask)
        return semaphores_read_one(pid, out);
    return asked_holds(reader, pid, out) == -ENOMEM ? -ENOMEM : 0;
}

int semaphores_read(pid_t pid, const struct waits_reader *reader, uint64_t until_ns,
                    struct semaphores *out)
{
    struct proc_stat own, stat;
    struct dirent *entry;
    unsigned other, looked_at = 0;
    int r = 0;

    out->read = true;
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    if (!dir || proc_stat_read(pid, &own) < 0)
        return 0;
    while (r == 0 && !out->cut && (entry = readdir(dir))) {
        if (!number_parse(entry->d_name, &other) || proc_stat_read((pid_t)other, &stat) < 0 ||
            stat.session != own.session || !reader->may_look(reader->arg, (pid_t)other))
            continue;
        out->cut = looked_at++ == SEMAPHORE_PROCESSES_MAX || monotonic_ns() > until_ns;
        r = out->cut ? 0 : read_process(reader, (pid_t)other, out);
    }
    return r;
}

void semaphores_deinit(struct semaphores *semaphores)
{
    free(semaphores->items);
    *semaphores = (struct semaphores){0};
}
