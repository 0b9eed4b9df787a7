#include "fs/process/registry.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/link/session.h"
#include "fs/proc/last_look.h"
#include "fs/proc/may_hang.h"
#include "fs/process/crashes.h"
#include "fs/process/examiner.h"
#include "fs/process/ends.h"
#include "fs/process/profiler.h"
#include "fs/remote/memory/core.h"
#include "fs/sampler/profile.h"
#include "fs/watch/follow.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define BUCKETS 1024
#define SWEEP_INTERVAL 10000000000u /* ns */
#define LOOK_TRIES 3                /* execs in a row during one look */
#define LOOKS 16                    /* side by side, of a listing */

/* What is known of one pid. */
struct record {
    pid_t pid;
    int statm; /* its /proc/PID/statm, kept open; -1: not */
    struct last_look last_look;
    uint64_t pages;          /* of its address space, when it was last seen */
    struct process *process; /* NULL: no CPython, `error` says why not */
    /* what it was before it executed a program that isn't CPython, or not yet; a reference, NULL:
     * nothing that matters now */
    struct process *before;
    int error;
    struct record *next;
};

struct registry {
    pthread_mutex_t lock;
    struct record *buckets[BUCKETS];
    uint64_t serial;
    uint64_t swept;
    const struct examiner *examiner; /* NULL: this process reads */
    struct exited *exited;
    struct ends *ends;
    struct crashes *crashes;
    struct profiler *profiler;
    pthread_mutex_t telling; /* held while the next is called */
    void (*happened)(void *arg);
    void *happened_arg;
    struct process_list cores; /* stays as it is once the mount serves */
};

int registry_new(struct registry **out)
{
    struct registry *registry = calloc(1, sizeof *registry);
    if (!registry)
        return -ENOMEM;
    pthread_mutex_init(&registry->lock, NULL);
    pthread_mutex_init(&registry->telling, NULL);
    int r = exited_new(&exited_limits, &registry->exited);
    if (r == 0)
        r = ends_new(registry->exited, &registry->ends);
    if (r == 0)
        r = crashes_new(&registry->crashes);
    if (r == 0)
        r = profiler_new(registry, &registry->profiler);
    if (r < 0) {
        registry_free(registry);
        return r;
    }
    *out = registry;
    return 0;
}

void registry_set_examiner(struct registry *registry, const struct examiner *examiner)
{
    registry->examiner = examiner;
}

/* Two files may have one name. */
static int name_core(const struct registry *registry, struct core *core)
{
    char *name = core->name;

    for (unsigned n = 2; n <= REGISTRY_CORES_MAX; n++) {
        bool taken = false;
        for (size_t i = 0; i < registry->cores.n && !taken; i++)
            taken = !strcmp(registry->cores.items[i]->target->core->name, name);
        if (!taken)
            break;
        if (name != core->name)
            free(name);
        if (asprintf(&name, "%s.%u", core->name, n) < 0)
            return -ENOMEM;
    }
    if (name != core->name)
        free(core->name);
    core->name = name;
    return 0;
}

static void explain_core(const struct core *core, struct text *why)
{
    _cleanup_(text_deinit) struct text missing = TEXT_INIT;

    text_printf(why, "core file %s: no CPython is found in it", core->path);
    if (core->wanted > (uint64_t)core->stat.st_size)
        text_printf(why, "; it was cut: %ld of %lu bytes are there", (long)core->stat.st_size,
                    core->wanted);
    if (core_missing(core, &missing))
        text_printf(why,
                    "; files that it had mapped can't be read: %s. Name the program with "
                    "core=FILE:EXECUTABLE, or the directory below which its files are with "
                    "sysroot=DIRECTORY",
                    missing.data);
}

int registry_open_core(struct registry *registry, struct core *core, const struct user_ns *ns,
                       struct process **out, struct text *why)
{
    struct process_list *cores = &registry->cores;
    _cleanup_(text_deinit) struct text words = TEXT_INIT;
    struct process *process;

    int r = name_core(registry, core);
    if (r == 0)
        r = ARRAY_GROW(cores->items, cores->alloc, cores->n + 1);
    if (r < 0) {
        core_free(core);
        return r;
    }
    explain_core(core, &words);
    r = process_new_core(core, (unsigned)cores->n, ns, registry->examiner, &process);
    if (r < 0) {
        text_puts(why, r == -ENOENT && words.data ? words.data : strerror(-r));
        return r;
    }
    process->serial = ++registry->serial;
    *out = cores->items[cores->n++] = process;
    return 0;
}

int registry_add_cores(struct registry *registry, struct process_list *list)
{
    for (size_t i = 0; i < registry->cores.n; i++) {
        if (ARRAY_GROW(list->items, list->alloc, list->n + 1) < 0)
            return -ENOMEM;
        list->items[list->n++] = process_ref(registry->cores.items[i]);
    }
    return 0;
}

struct exited *registry_exited(struct registry *registry) { return registry->exited; }

void registry_follow(struct registry *registry) { (void)profiler_follow(registry->profiler); }

int registry_sample_all(struct registry *registry, const struct profile_request *request)
{
    return profiler_sample_all(registry->profiler, request);
}

void registry_watch(struct registry *registry, struct process *process)
{
    if (process_watch(process))
        ends_watch(registry->ends, process);
}

void registry_on_happened(struct registry *registry, void (*happened)(void *arg), void *arg)
{
    _guard_mutex_(&registry->telling);
    registry->happened = happened;
    registry->happened_arg = arg;
}

/* Whatever it is that the agent of the process of that serial says, there may be
 * something to hold on to. */
static void listen_to(void *arg, uint64_t serial, uint16_t op, const struct proto_crashed *crashed)
{
    struct registry *registry = arg;

    if (op == PROTO_HAPPENED) {
        _guard_mutex_(&registry->telling);
        if (registry->happened)
            registry->happened(registry->happened_arg);
        return;
    }
    struct process *process = op == PROTO_CRASHED ? ends_find(registry->ends, serial) : NULL;

    ends_stir(registry->ends);
    if (process)
        crashes_look(registry->crashes, process);
}

void registry_listen(struct registry *registry, struct process *process, struct session *session)
{
    recording_expect(process->recording, true);
    process_watch(process);
    ends_watch(registry->ends, process);
    session_on_notice(session, listen_to, registry, process->serial);
}

/* Retires a process: others may hold on to it, but not to what is large. Takes over a reference;
 * NULL is fine. */
static void retire(struct registry *registry, struct process *process)
{
    if (process)
        ends_note(registry->ends, process);
    process_unref(process);
}

static void record_free(struct registry *registry, struct record *record)
{
    retire(registry, record->process);
    process_unref(record->before);
    if (record->statm >= 0)
        close(record->statm);
    free(record);
}

void registry_free(struct registry *registry)
{
    if (!registry)
        return;
    profiler_free(registry->profiler);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (registry->buckets[i]) {
            struct record *record = registry->buckets[i];
            registry->buckets[i] = record->next;
            if (record->process)
                watches_end(record->process->watches);
            record_free(registry, record);
        }
    }
    process_list_deinit(&registry->cores);
    crashes_free(registry->crashes);
    ends_free(registry->ends);
    exited_free(registry->exited);
    pthread_mutex_destroy(&registry->telling);
    pthread_mutex_destroy(&registry->lock);
    free(registry);
}

static struct record **record_find(struct registry *registry, pid_t pid)
{
    struct record **at = &registry->buckets[(unsigned)pid % BUCKETS];
    while (*at && (*at)->pid != pid)
        at = &(*at)->next;
    return at;
}

/* The record of a pid, made if needed; NULL without memory. Caller holds lock. */
static struct record *record_for(struct registry *registry, pid_t pid)
{
    struct record **at = record_find(registry, pid);

    if (!*at && (*at = calloc(1, sizeof **at))) {
        (*at)->pid = pid;
        (*at)->statm = -1;
        (*at)->error = -EAGAIN; /* not looked at yet */
    }
    return *at;
}

void registry_notice(struct registry *registry, pid_t pid)
{
    _guard_mutex_(&registry->lock);
    struct record **at = record_find(registry, pid), *record = *at;

    if (record && record->process && !process_alive(record->process)) {
        *at = record->next;
        record_free(registry, record);
    }
}

/* Forgets the processes that have ended, now and then. Returns how many. Caller holds lock. */
static size_t sweep(struct registry *registry)
{
    size_t n = 0;

    registry->swept = monotonic_ns();
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct record **at = &registry->buckets[i]; *at;) {
            struct record *record = *at;
            bool gone = record->process ? !process_alive(record->process)
                                        : kill(record->pid, 0) < 0 && errno == ESRCH;
            if (gone) {
                *at = record->next;
                record_free(registry, record);
                n++;
            } else {
                at = &record->next;
            }
        }
    }
    return n;
}

/* What was cached of a process lies scattered over the heaps of all threads: without the trim a
 * daemon that sees many short-lived ones only ever grows. */
void registry_tidy(struct registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    size_t n = sweep(registry);
    pthread_mutex_unlock(&registry->lock);
    if (n)
        malloc_trim(0);
}

static void tidy_now_and_then(struct registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    bool is_due = monotonic_ns() - registry->swept >= SWEEP_INTERVAL;
    pthread_mutex_unlock(&registry->lock);
    if (is_due)
        registry_tidy(registry);
}

/* A process whose address space has changed may have loaded an agent. at_once: somebody asks for
 * this one. Caller holds lock. */
static void note_pages(struct record *record, uint64_t pages, bool at_once)
{
    if (record->pages == pages)
        return;
    record->pages = pages;
    if (record->process)
        recording_expect(record->process->recording, at_once);
}

/* What the record says: 0 and a reference, or its error; 1: it has to be looked at. Caller holds
 * lock. */
static int answer(struct record *record, struct process **out)
{
    if (!record->process)
        return record->error;
    if (!process_alive(record->process))
        return 1;
    *out = process_ref(record->process);
    return 0;
}

/* Takes down the outcome of a look: process, or the error that it ended in. Consumes process. */
static int registry_note(struct registry *registry, pid_t pid, const struct proc_stat *stat,
                         struct process *process, int error, struct process **out)
{
    _guard_mutex_(&registry->lock);
    struct record *record = record_for(registry, pid);

    if (record && record->process && process && last_look_same(&record->last_look, stat) &&
        process_alive(record->process)) {
        retire(registry, process); /* another thread was faster: one identity, one struct process */
        *out = process_ref(record->process);
        return 0;
    }
    if (!record) {
        retire(registry, process);
        return -ENOMEM;
    }
    struct process *before = record->process ? record->process : record->before;
    if (process && before && before->start_time == process->start_time)
        profile_hand_over(before->profile, process->profile);
    if (process || record->process) {
        process_unref(record->before);
        record->before =
            !process && profile_any(record->process->profile) ? process_ref(record->process) : NULL;
    }
    retire(registry, record->process);
    record->process = process;
    record->error = error;
    record->pages = stat->vsize / (uint64_t)sysconf(_SC_PAGESIZE);
    last_look_update(&record->last_look, stat, process != NULL, monotonic_ns());
    if (!process)
        return error;
    process->serial = ++registry->serial;
    *out = process_ref(process);
    return 0;
}

/* Goes on sampling what has executed another program. */
static void resume_profile(struct process *process)
{
    struct target *target = process_to_sample(process);

    if (target)
        profile_resume(process->profile, target);
    target_unref(target);
}

static int open_process(struct registry *registry, pid_t pid, const struct proc_stat *stat,
                        struct process **out)
{
    const struct examiner *examiner = registry->examiner;
    struct examined examined;

    if (!examiner)
        return process_new(pid, out);
    int r = examiner->examine(examiner->arg, pid, stat->start_time, false, &examined);
    return r == 0 ? process_new_examined(pid, examiner, &examined, out) : r;
}

/* Of an examiner: nothing is known of the process. */
static bool is_no_answer(int error)
{
    return error == -EAGAIN || error == -EIO || error == -ETIMEDOUT;
}

/* Looks at a process itself: on a thread that may hang (struct look). */
static int look_at(struct registry *registry, pid_t pid, struct proc_stat stat,
                   struct process **out)
{
    for (int i = 0; i < LOOK_TRIES; i++) {
        struct process *process = NULL;
        struct proc_stat after;

        int found = open_process(registry, pid, &stat, &process);
        int r = proc_stat_read(pid, &after);
        if (r == 0 && (after.state == 'Z' || after.state == 'X'))
            r = -ESRCH;
        if (r < 0 || found == -ESRCH) {
            process_unref(process);
            return proc_lacks_means(r) ? r : -ENOENT;
        }
        if (after.start_time != stat.start_time || after.start_code != stat.start_code ||
            after.start_stack != stat.start_stack) {
            process_unref(process); /* an exec in between */
            stat = after;
            continue;
        }
        if (proc_lacks_means(found) || (registry->examiner && is_no_answer(found)))
            return found;
        r = registry_note(registry, pid, &stat, process, found, out);
        if (r == 0 && profile_any((*out)->profile))
            resume_profile(*out);
        return r;
    }
    return -ENOENT;
}

/* A look at a process, or all of what a listing does with one that it doesn't know. */
struct look {
    struct may_hang work;
    struct registry *registry;
    struct proc_stat stat;
    struct process *process; /* what was found: a reference */
    int error;
};

static void look_run(struct may_hang *work)
{
    struct look *look = (struct look *)work;

    look->error = look_at(look->registry, work->pid, look->stat, &look->process);
}

static void look_free(struct may_hang *work)
{
    process_unref(((struct look *)work)->process);
    free(work);
}

static struct look *look_new(struct registry *registry, pid_t pid,
                             void (*run)(struct may_hang *work))
{
    struct look *look = calloc(1, sizeof *look);
    if (!look)
        return NULL;
    look->work = (struct may_hang){.pid = pid, .run = run, .free = look_free};
    look->registry = registry;
    may_hang_init(&look->work);
    return look;
}

static int look(struct registry *registry, pid_t pid, const struct proc_stat *stat,
                struct process **out)
{
    struct look *look = look_new(registry, pid, look_run);
    if (!look)
        return -ENOMEM;
    look->stat = *stat;
    int r = may_hang_run(&look->work, NULL);
    if (r == 0)
        r = look->error;
    if (r == 0)
        *out = steal_pointer(look->process);
    may_hang_unref(&look->work);
    return r;
}

/* The answer for one pid: from its record if that still holds, else by a look. patient: a process
 * that was seen without an interpreter is left alone for a while. */
static int examine(struct registry *registry, pid_t pid, bool patient, struct process **out)
{
    struct proc_stat stat;

    int r = proc_stat_read(pid, &stat);
    if (r < 0 || stat.state == 'Z' || stat.state == 'X' || stat.vsize == 0)
        return proc_lacks_means(r) ? r : -ENOENT;

    pthread_mutex_lock(&registry->lock);
    struct record *record = *record_find(registry, pid);
    r = 1;
    if (record && last_look_same(&record->last_look, &stat)) {
        uint64_t now = monotonic_ns();
        note_pages(record, stat.vsize / (uint64_t)sysconf(_SC_PAGESIZE), !patient);
        /* what may not be looked at today may be allowed tomorrow, without an exec */
        bool denied = !record->process && record->error != -ENOENT;
        bool again = denied ? !patient || now >= record->last_look.until
                            : last_look_grown(&record->last_look, stat.vsize, now, patient);
        if (!again)
            r = answer(record, out);
    }
    pthread_mutex_unlock(&registry->lock);
    return r <= 0 ? r : look(registry, pid, &stat, out);
}

int registry_lookup(struct registry *registry, pid_t pid, struct process **out)
{
    tidy_now_and_then(registry);
    int r = pid > 0 ? examine(registry, pid, false, out) : -ENOENT;
    if (r == 0)
        registry_watch(registry, *out);
    return r;
}

/* What a listing's record says without reading more than statm; 1: look closer.
 * Caller holds lock. */
static int recall(struct record *record, struct process **out)
{
    struct proc_statm statm;

    if (!record || record->statm < 0 || proc_statm_read(record->statm, &statm) < 0)
        return 1;
    if (statm.size == 0)
        return -ENOENT; /* a zombie or a kernel thread */
    if ((!record->process && record->error != -ENOENT) ||
        !last_look_holds(&record->last_look, &statm, (uint64_t)sysconf(_SC_PAGESIZE)))
        return 1;
    note_pages(record, statm.size, false);
    return answer(record, out);
}

/* Gets to know a pid of a listing that isn't known, or no longer. */
static int get_to_know(struct registry *registry, pid_t pid, struct process **out)
{
    struct proc_statm statm = {0};

    int fd = proc_statm_open(pid);
    if (fd < 0)
        return fd;
    /* before the look: an exec in between shows as another size of the code next time */
    if (proc_statm_read(fd, &statm) < 0) {
        close(fd);
        return -ENOENT;
    }
    int r = examine(registry, pid, true, out);

    _guard_mutex_(&registry->lock);
    struct record *record = record_for(registry, pid);
    if (!record || !descriptor_spare(fd)) {
        close(fd);
        return r;
    }
    if (record->statm >= 0)
        close(record->statm);
    record->statm = fd;
    record->last_look.text = statm.text;
    return r;
}

static void get_to_know_run(struct may_hang *work)
{
    struct look *look = (struct look *)work;

    look->error = get_to_know(look->registry, work->pid, &look->process);
    if (look->error == 0)
        registry_watch(look->registry, look->process);
}

/* Takes over the reference. */
static int add(struct process_list *list, struct process *process)
{
    int r = ARRAY_GROW(list->items, list->alloc, list->n + 1);
    if (r < 0)
        process_unref(process);
    else
        list->items[list->n++] = process;
    return r;
}

/* The looks of a listing that go on side by side. */
struct looks {
    struct may_hang *works[LOOKS];
    size_t n, max; /* one where descriptors are scarce */
};

/* Adds one that hangs, if it was known before: nothing of it is read now. */
static int add_hanging(struct registry *registry, pid_t pid, struct process_list *list)
{
    struct process *process;

    return get_to_know(registry, pid, &process) == 0 ? add(list, process) : 0;
}

/* Waits for them, and adds what they have found. */
static int looks_end(struct looks *looks, struct process_list *list)
{
    int r = 0;

    may_hang_wait_all(looks->works, looks->n);
    for (size_t i = 0; i < looks->n; i++) {
        struct look *look = (struct look *)looks->works[i];
        if (r == 0 && look->work.state != MAY_HANG_DONE)
            r = add_hanging(look->registry, look->work.pid, list);
        else if (r == 0 && look->error == 0)
            r = add(list, steal_pointer(look->process));
        may_hang_unref(&look->work);
    }
    looks->n = 0;
    return r;
}

static int looks_add(struct looks *looks, struct registry *registry, pid_t pid,
                     struct process_list *list)
{
    struct look *look = look_new(registry, pid, get_to_know_run);
    if (!look)
        return -ENOMEM;
    if (may_hang_start(&look->work) < 0) {
        may_hang_unref(&look->work);
        return add_hanging(registry, pid, list);
    }
    looks->works[looks->n++] = &look->work;
    return looks->n == looks->max ? looks_end(looks, list) : 0;
}

/* Cheap for one that is known and where nothing happened: one pread. */
static int list_one(struct registry *registry, pid_t pid, struct looks *looks,
                    struct process_list *list)
{
    struct process *process = NULL;

    pthread_mutex_lock(&registry->lock);
    int r = recall(*record_find(registry, pid), &process);
    pthread_mutex_unlock(&registry->lock);
    if (r > 0)
        return looks_add(looks, registry, pid, list);
    if (r < 0)
        return 0;
    registry_watch(registry, process);
    return add(list, process);
}

int registry_list(struct registry *registry, struct process_list *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    struct looks looks = {0};
    struct dirent *entry;
    unsigned pid;
    int r = 0, ended;

    tidy_now_and_then(registry);

    _cleanup_closedir_ DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    looks.max = descriptor_spare(dirfd(proc)) ? LOOKS : 1;
    while (r == 0 && (entry = readdir(proc)))
        if (number_parse(entry->d_name, &pid))
            r = list_one(registry, (pid_t)pid, &looks, &list);
    ended = looks_end(&looks, &list);
    if (r < 0 || ended < 0)
        return r < 0 ? r : ended;
    process_list_sort(&list);
    *out = list;
    list = (struct process_list){0};
    return 0;
}
