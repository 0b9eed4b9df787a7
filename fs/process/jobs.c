#include "fs/process/jobs.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/process/examiner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define GENERATIONS_MAX 64 /* of parents that are looked at */
#define LOOKS 16           /* side by side */
/* A look is worth it again after a hundred times what it took, or an eighth of the time that the
 * process has been there: ranks say what they are when they begin. */
#define AGAIN_LEAST_NS 250000000u
#define AGAIN_MOST_NS 5000000000u
#define AGAIN_COST 100
#define AGAIN_AGE 8

/* ---- what each says ---- */

struct look {
    struct may_hang work;
    struct process *process; /* a reference */
    size_t index;            /* in the list */
    bool executed;           /* it runs another program now */
};

static uint64_t wait_of(const struct process *process, uint64_t took_ns)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (now.tv_sec - process->started.tv_sec) / AGAIN_AGE;
    uint64_t wait = age <= 0 ? 0 : age > 10 ? AGAIN_MOST_NS : (uint64_t)age * 1000000000u;
    if (wait < took_ns * AGAIN_COST)
        wait = took_ns * AGAIN_COST;
    return wait < AGAIN_LEAST_NS ? AGAIN_LEAST_NS : wait > AGAIN_MOST_NS ? AGAIN_MOST_NS : wait;
}

/* As it is now. */
static bool read_membership(struct process *process, struct membership *out)
{
    const struct examiner *examiner = process->examiner;
    struct examined now;

    if (examiner) {
        int r = examiner->examine(examiner->arg, process->pid, process->start_time, true, &now);
        *out = now.membership;
        return r == 0;
    }
    struct target *target = process_target(process);
    if (target)
        membership_now(target, out);
    target_unref(target);
    return target;
}

static void look_run(struct may_hang *work)
{
    struct look *look = (struct look *)work;
    struct process *process = look->process;
    struct target *target = process_held(process);
    uint64_t begun = monotonic_ns();
    struct membership now;

    if (!target)
        return;
    bool known = read_membership(process, &now);
    bool lives = target_alive(target); /* else it may be a successor's */
    look->executed = lives && !target_same_program(target);
    target_unref(target);
    if (!known || !lives || look->executed)
        return;
    uint64_t ended = monotonic_ns();
    _guard_mutex_(&process->lock);
    process->membership = now;
    process->membership_again = ended + wait_of(process, ended - begun);
    atomic_store(&process->rank, now.rank);
}

static void look_free(struct may_hang *work)
{
    process_unref(((struct look *)work)->process);
    free(work);
}

static bool is_due(struct process *process)
{
    _guard_mutex_(&process->lock);
    return monotonic_ns() >= process->membership_again;
}

/* A listing doesn't notice that a process has executed the program that it ran before, as a child
 * of multiprocessing does when it begins. */
static void find_again(struct registry *registry, struct process_list *list, struct look *look)
{
    struct process *now;

    if (registry_lookup(registry, look->work.pid, &now) < 0)
        return;
    process_unref(list->items[look->index]);
    list->items[look->index] = now;
}

static void end_looks(struct registry *registry, struct process_list *list, struct look **looks,
                      size_t *n)
{
    struct may_hang *works[LOOKS];

    for (size_t i = 0; i < *n; i++)
        works[i] = &looks[i]->work;
    may_hang_wait_all(works, *n);
    while (*n) {
        struct look *look = looks[--*n];
        if (look->work.state == MAY_HANG_DONE && look->executed)
            find_again(registry, list, look);
        may_hang_unref(&look->work);
    }
}

/* Learns what processes say of themselves. One that hangs, or for which there is no memory, is as
 * it was known. */
static void learn(struct registry *registry, struct process_list *list)
{
    struct look *looks[LOOKS] = {0};
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        struct look *look = is_due(list->items[i]) ? calloc(1, sizeof *look) : NULL;
        if (!look)
            continue;
        look->work =
            (struct may_hang){.pid = list->items[i]->pid, .run = look_run, .free = look_free};
        look->process = process_ref(list->items[i]);
        look->index = i;
        may_hang_init(&look->work);
        if (may_hang_start(&look->work) == 0)
            looks[n++] = look;
        else
            may_hang_unref(&look->work);
        if (n == LOOKS)
            end_looks(registry, list, looks, &n);
    }
    end_looks(registry, list, looks, &n);
}

/* ---- who is what ---- */

static int by_job(const struct job_member *a, const struct job_member *b)
{
    int r = strcmp(a->of.job, b->of.job);

    return r ? r : (a->uid > b->uid) - (a->uid < b->uid);
}

static int compare(const void *x, const void *y)
{
    const struct job_member *a = x, *b = y;
    int r = by_job(a, b);

    if (r == 0)
        r = (a->of.rank > b->of.rank) - (a->of.rank < b->of.rank);
    if (r == 0)
        r = a->worker - b->worker;
    if (r == 0)
        r = (a->process->start_time > b->process->start_time) -
            (a->process->start_time < b->process->start_time);
    return r ? r : (a->process->pid > b->process->pid) - (a->process->pid < b->process->pid);
}

static size_t rank_end(const struct job_members *members, size_t at)
{
    size_t end = at + 1;

    while (end < members->n && by_job(&members->items[at], &members->items[end]) == 0 &&
           members->items[end].of.rank == members->items[at].of.rank)
        end++;
    return end;
}

size_t job_end(const struct job_members *members, size_t member)
{
    size_t end = member + 1;

    while (end < members->n && by_job(&members->items[member], &members->items[end]) == 0)
        end++;
    return end;
}

/* Whether one of those of the same rank has started it. */
static bool descends(const struct job_member *of, size_t n, pid_t pid)
{
    struct proc_stat stat;

    for (int i = 0; i < GENERATIONS_MAX && proc_stat_read(pid, &stat) == 0; i++) {
        pid = stat.ppid;
        if (pid <= 1)
            break;
        for (size_t k = 0; k < n; k++)
            if (of[k].process->pid == pid)
                return true;
    }
    return false;
}

static bool is_better(const struct job_member *a, const struct job_member *b)
{
    if (a->of.restarts != b->of.restarts)
        return a->of.restarts > b->of.restarts;
    if (a->process->start_time != b->process->start_time)
        return a->process->start_time > b->process->start_time;
    return a->process->pid > b->process->pid;
}

/* Finds the rank itself among n that say they are of one rank. */
static void find_rank(struct job_member *of, size_t n)
{
    struct job_member *best = NULL;

    for (size_t i = 0; i < n; i++) {
        of[i].worker = true;
        if (of[i].of.inherited || (n > 1 && descends(of, n, of[i].process->pid)))
            continue;
        if (!best || is_better(&of[i], best))
            best = &of[i];
    }
    if (best)
        best->worker = false;
}

static void set_worker(struct process *process, bool worker)
{
    _guard_mutex_(&process->lock);
    process->worker = worker;
    process->told = true;
}

/* Drops what started the ranks: where these are told apart by RANK, a process that has a rank of
 * what started it has started them, and is not one. */
static void drop_launchers(struct job_members *members)
{
    size_t kept = 0;

    for (size_t i = 0, end; i < members->n; i = end) {
        bool any = false;
        end = job_end(members, i);
        for (size_t k = i; k < end; k++)
            any |= !members->items[k].of.by_launcher;
        for (size_t k = i; k < end; k++) {
            struct job_member *member = &members->items[k];
            if (any && member->of.by_launcher) {
                set_worker(member->process, true);
                process_unref(member->process);
            } else {
                members->items[kept++] = *member;
            }
        }
    }
    members->n = kept;
}

static void tell_apart(struct job_members *members)
{
    drop_launchers(members);
    for (size_t i = 0, end; i < members->n; i = end) {
        end = rank_end(members, i);
        find_rank(&members->items[i], end - i);
        array_sort(&members->items[i], end - i, sizeof *members->items, compare);
        for (size_t k = i, number = 0; k < end; k++) {
            struct job_member *member = &members->items[k];
            if (member->worker)
                member->number = (unsigned)number++;
            set_worker(member->process, member->worker);
        }
    }
}

/* ---- all of them ---- */

bool job_owner(const struct process *process, uid_t *uid)
{
    struct stat owner;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", (int)process->pid);
    if (stat(path, &owner) < 0)
        return false;
    *uid = owner.st_uid;
    return true;
}

bool job_has(const char *job, uid_t uid, struct process *process)
{
    const struct membership of = process_membership(process);
    uid_t its;

    return of.rank >= 0 && !strcmp(of.job, job) && job_owner(process, &its) && its == uid;
}

/* Adds a process, if it is a member. */
static int add(struct job_members *members, struct process *process)
{
    struct job_member member = {.of = process_membership(process)};

    if (member.of.rank < 0 || !*member.of.job || !job_owner(process, &member.uid))
        return 0;
    int r = ARRAY_GROW(members->items, members->alloc, members->n + 1);
    if (r == 0) {
        member.process = process_ref(process);
        members->items[members->n++] = member;
    }
    return r;
}

static void keep_seen(struct job_members *members, job_sees *sees, void *arg)
{
    size_t kept = 0;

    for (size_t i = 0; i < members->n; i++) {
        if (sees(arg, members->items[i].process))
            members->items[kept++] = members->items[i];
        else
            process_unref(members->items[i].process);
    }
    members->n = kept;
}

/* All processes, and the members of jobs among them. Nobody asks for the ones without having told
 * the others apart: what works for a rank must not pass for it. */
static int list_all(struct registry *registry, struct process_list *list,
                    struct job_members *members)
{
    int r = registry_list(registry, list);

    if (r < 0)
        return r;
    learn(registry, list);
    for (size_t i = 0; r == 0 && i < list->n; i++)
        r = add(members, list->items[i]);
    if (r < 0 || !members->n)
        return r;
    array_sort(members->items, members->n, sizeof *members->items, compare);
    tell_apart(members);
    return 0;
}

int job_members_list(struct registry *registry, job_sees *sees, void *arg, struct job_members *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = list_all(registry, &list, out);
    if (r == 0 && sees)
        keep_seen(out, sees, arg);
    return r;
}

int jobs_learn(struct registry *registry)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};

    return job_members_list(registry, NULL, NULL, &members);
}

int job_own_rank(struct registry *registry, struct process *process, int64_t *rank)
{
    int r = jobs_learn(registry);

    if (r == 0)
        *rank = process_is_worker(process) ? -1 : atomic_load(&process->rank);
    return r;
}

void job_members_deinit(struct job_members *members)
{
    while (members->n)
        process_unref(members->items[--members->n].process);
    free(members->items);
    *members = (struct job_members){0};
}

/* ---- names ---- */

/* The first job of the same name: uid's own, or that of the lowest user. */
static size_t first_of_name(const struct job_members *members, const char *name, uid_t uid)
{
    size_t first = members->n;

    for (size_t i = 0; i < members->n; i = job_end(members, i)) {
        if (strcmp(members->items[i].of.job, name))
            continue;
        if (first == members->n || members->items[i].uid == uid)
            first = i;
    }
    return first;
}

void job_word(const struct job_members *members, size_t member, uid_t uid, char word[JOB_WORD_MAX])
{
    const struct job_member *of = &members->items[member];
    size_t first = first_of_name(members, of->of.job, uid);

    if (members->items[first].uid == of->uid)
        snprintf(word, JOB_WORD_MAX, "%s", of->of.job);
    else
        snprintf(word, JOB_WORD_MAX, "%s~%u", of->of.job, of->uid);
}

size_t job_find(const struct job_members *members, const char *word, uid_t uid, size_t *first)
{
    char its[JOB_WORD_MAX];

    for (size_t i = 0; i < members->n; i = job_end(members, i)) {
        job_word(members, i, uid, its);
        if (!strcmp(its, word)) {
            *first = i;
            return job_end(members, i) - i;
        }
    }
    return 0;
}

int job_processes(struct registry *registry, const char *word, uid_t uid, job_sees *sees, void *arg,
                  struct process_list *out)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    size_t first = 0;

    if (!word || !*word)
        return list_all(registry, out, &members);
    int r = job_members_list(registry, sees, arg, &members);
    size_t n = r == 0 ? job_find(&members, word, uid, &first) : 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = ARRAY_GROW(out->items, out->alloc, out->n + 1);
        if (r == 0)
            out->items[out->n++] = process_ref(members.items[first + i].process);
    }
    process_list_sort(out);
    return r;
}

int job_identity(struct registry *registry, const char *word, uid_t uid, job_sees *sees, void *arg,
                 char job[JOB_NAME_MAX], uid_t *owner)
{
    _cleanup_(job_members_deinit) struct job_members members = {0};
    size_t first;

    int r = job_members_list(registry, sees, arg, &members);
    if (r == 0 && !job_find(&members, word, uid, &first))
        r = -ENOENT;
    if (r < 0)
        return r;
    memcpy(job, members.items[first].of.job, JOB_NAME_MAX);
    *owner = members.items[first].uid;
    return 0;
}
