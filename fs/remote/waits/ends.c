#include "fs/remote/waits/ends.h"

#include "agent/base/cleanup.h"
#include "fs/proc/file_locks.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define CHILDREN_SIZE 16384 /* bytes of the list of one thread's children that are looked at */
#define NOBODY "whose other end no process has that you may look at"

/* Adds a process, if the reader may be told of it. */
static void add_holder(const struct ends *ends, pid_t pid, const char *state, struct end *out)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->holders[i].pid == pid)
            return;
    bool told = ends->reader->may_look(ends->reader->arg, pid);
    if (!told || out->n == END_HOLDERS_MAX) {
        out->certain = out->likely = false;
        out->cut |= told;
        return;
    }
    out->holders[out->n++] = (struct end_holder){.pid = pid, .state = state};
}

/* ---- pipes and sockets ---- */

/* What was found may be old: a holder has it still. */
static bool has_still(const struct descriptor *descriptor)
{
    struct descriptor now;
    char link[64];

    if (descriptor_link(descriptor->pid, descriptor->fd, link, sizeof link) < 0)
        return false;
    descriptor_parse(link, &now);
    return now.kind == descriptor->kind && now.inode == descriptor->inode;
}

/* Whoever has it open so that it can end the wait; writes: one for room in a pipe. -errno. */
static int look_for_holders(const struct ends *ends, const struct descriptor *wanted, bool writes,
                            struct end *out)
{
    struct descriptors *all = ends->descriptors;
    size_t n;

    int r = all->items ? 0 : descriptors_read(ends->age_ns, all);
    if (r < 0)
        return r;
    const struct descriptor *found = descriptors_find(all, wanted->kind, wanted->inode, &n);
    out->likely = true;
    for (size_t i = 0; i < n; i++) {
        bool can_read, can_write;
        if (wanted->kind == DESCRIPTOR_PIPE &&
            (descriptor_mode(found[i].pid, found[i].fd, &can_read, &can_write) < 0 ||
             !(writes ? can_read : can_write)))
            continue;
        if (has_still(&found[i]))
            add_holder(ends, found[i].pid,
                       found[i].pid == ends->pid ? "which is the same process" : NULL, out);
    }
    return 0;
}

static void add_holders(const struct ends *ends, const struct descriptor *wanted, bool writes,
                        struct end *out)
{
    int r = look_for_holders(ends, wanted, writes, out);
    if (r == 0 && !out->n && ends->descriptors->old) { /* it may be younger than these */
        descriptors_deinit(ends->descriptors);
        r = descriptors_read(0, ends->descriptors);
        r = r < 0 ? r : look_for_holders(ends, wanted, writes, out);
    }
    out->held = "whose other end is";
    out->likely = out->likely && out->n;
    out->certain = out->likely && !ends->descriptors->cut;
    if (r == 0 && !out->n)
        out->note = NOBODY;
}

/* What is waited for at an end that can only be read from, or only be written to, is up to the
 * other end, whatever events it is polled for. */
static void find_pipe(const struct ends *ends, int fd, const struct descriptor *descriptor,
                      bool writes, struct end *out)
{
    bool can_read, can_write;

    if (descriptor_mode(ends->pid, fd, &can_read, &can_write) == 0 && can_read != can_write)
        writes = can_write;
    out->kind = "pipe";
    add_holders(ends, descriptor, writes, out);
}

static void find_socket(const struct ends *ends, uint64_t inode, struct end *out)
{
    struct socket_peer peer;

    out->kind = "socket";
    if (socket_peer_read(ends->sockets, ends->pid, inode, &peer) < 0)
        return;
    snprintf(out->name, sizeof out->name, "%s", peer.name);
    if (peer.listens || !peer.found)
        return;
    if (!peer.inode) {
        out->note = "which no process has accepted";
        return;
    }
    const struct descriptor other = {.kind = DESCRIPTOR_SOCKET, .inode = peer.inode};
    add_holders(ends, &other, false, out);
}

/* ---- other files ---- */

static const char *kind_of(const char *link)
{
    static const struct {
        const char *begin, *kind;
    } kinds[] = {
        {"/dev/pts/", "terminal"},
        {"/dev/tty", "terminal"},
        {"/dev/console", "terminal"},
        {"anon_inode:[eventfd]", "eventfd"},
        {"anon_inode:[timerfd]", "timer"},
        {"anon_inode:inotify", "inotify"},
        {"anon_inode:[signalfd]", "signalfd"},
        {"anon_inode:[eventpoll]", "epoll"},
        {"anon_inode:[pidfd]", "pidfd"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (!strncmp(link, kinds[i].begin, strlen(kinds[i].begin)))
            return kinds[i].kind;
    return "file";
}

void end_of_fd(const struct ends *ends, int fd, bool writes, struct end *out)
{
    struct descriptor descriptor;
    char link[END_NAME_MAX];

    *out = (struct end){.kind = "file", .held = "whose other end is"};
    if (descriptor_link(ends->pid, fd, link, sizeof link) < 0)
        return;
    descriptor_parse(link, &descriptor);
    switch (descriptor.kind) {
    case DESCRIPTOR_PIPE: find_pipe(ends, fd, &descriptor, writes, out); break;
    case DESCRIPTOR_SOCKET: find_socket(ends, descriptor.inode, out); break;
    case DESCRIPTOR_OTHER:
        out->kind = kind_of(link);
        if (*link == '/')
            memcpy(out->name, link, sizeof link);
        break;
    }
}

/* ---- locks of files ---- */

void end_of_lock(const struct ends *ends, const struct peer_thread *thread, struct end *out)
{
    const struct blocking *blocking = &thread->blocking;
    struct proc_stat stat;
    struct file_lock lock;

    *out = (struct end){.kind = "file lock", .held = "held by"};
    if (descriptor_link(ends->pid, blocking->fd, out->name, sizeof out->name) < 0)
        *out->name = 0;
    if (thread->file < 0 || file_lock_waited_for(ends->pid, blocking->kind == BLOCKING_FLOCK,
                                                 (uint64_t)thread->file, &lock) < 0)
        return;
    if (lock.pid <= 0) {
        out->note = "held through an open file that several may share";
        return;
    }
    out->certain = out->likely = true;
    if (proc_stat_read(lock.pid, &stat) < 0) {
        out->note = "taken by a process that has ended: another one has inherited the open file";
        out->certain = out->likely = false;
        return;
    }
    add_holder(ends, lock.pid, lock.pid == ends->pid ? "which is the same process" : NULL, out);
    if (!out->n)
        out->note = "held by a process that you may not look at";
}

/* ---- children ---- */

static const char *state_of(char state)
{
    switch (state) {
    case 'Z': return "which is dead (zombie)";
    case 'X': return "which is dead";
    case 'T': return "which is stopped by a signal";
    case 't': return "which a debugger has stopped";
    default: return "which lives";
    }
}

struct children {
    const struct ends *ends;
    pid_t only; /* as the process numbers it; 0: any */
    bool dead;  /* only those that are */
    bool foreign;
    struct end *out;
};

/* The number of a process in its innermost pid namespace. */
static pid_t inner_pid(pid_t pid)
{
    char status[4096];

    const char *numbers = proc_read(pid, "status", status, sizeof status) > 0
                              ? proc_status_field(status, "NSpid")
                              : NULL;
    if (!numbers)
        return pid;
    size_t size = strcspn(numbers, "\n");
    while (size && numbers[size - 1] != '\t')
        size--;
    return (pid_t)strtol(numbers + size, NULL, 10);
}

static void add_child(const struct children *children, pid_t pid)
{
    struct proc_stat stat;

    if (children->only && (children->foreign ? inner_pid(pid) : pid) != children->only)
        return;
    if (proc_stat_read(pid, &stat) < 0 || stat.ppid != children->ends->pid ||
        (children->dead && stat.state != 'Z'))
        return;
    add_holder(children->ends, pid, state_of(stat.state), children->out);
}

/* "45 46 ": the children that a thread has started. */
static int add_children(void *arg, int tasks, pid_t tid)
{
    struct children *children = arg;
    char file[32], text[CHILDREN_SIZE];
    char *at = text, *end;
    size_t size = 0;
    ssize_t n;

    snprintf(file, sizeof file, "%d/children", (int)tid);
    _cleanup_close_ int fd = openat(tasks, file, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)n;
    if (size == sizeof text - 1) {
        children->out->cut = true;
        while (size && text[size - 1] != ' ') /* a number that is cut */
            size--;
    }
    text[size] = 0;
    for (long pid; (pid = strtol(at, &end, 10)) > 0 && end != at; at = end)
        add_child(children, (pid_t)pid);
    return 0;
}

static void find_children(struct children *children)
{
    struct end *out = children->out;

    if (proc_each_task(children->ends->pid, add_children, children) < 0)
        out->cut = true;
    out->certain = out->likely = out->likely && out->n && !out->cut;
}

void end_of_child(const struct ends *ends, const struct peer_thread *thread, struct end *out)
{
    const struct blocking *blocking = &thread->blocking;
    struct children children = {.ends = ends, .only = blocking->child, .out = out};

    *out = (struct end){.kind = "child", .held = "of which there is", .likely = true};
    if (blocking->pidfd)
        children.only = (pid_t)thread->file;
    if (children.only > 0) {
        snprintf(out->name, sizeof out->name, "%d", (int)children.only);
        children.foreign = !blocking->pidfd && lwp_foreign(ends->pid);
        out->held = "namely";
    }
    find_children(&children);
    if (!out->n && !out->cut)
        out->note = "which isn't to be seen";
}

void end_of_dead_children(const struct ends *ends, struct end *out)
{
    struct children children = {.ends = ends, .dead = true, .out = out};

    *out = (struct end){.kind = "child"};
    find_children(&children);
}

/* ---- semaphores ---- */

int end_of_semaphore(const struct ends *ends, const struct peer_thread *thread, struct end *out)
{
    struct semaphores *semaphores = ends->semaphores;

    *out = (struct end){.kind = "semaphore", .held = "held by"};
    if (!thread->shares)
        return 0;
    int r = semaphores->read ? 0
                             : semaphores_read(ends->pid, ends->reader, ends->until_ns, semaphores);
    if (r < 0)
        return r;
    for (size_t i = 0; i < semaphores->n; i++) {
        const struct semaphore_hold *hold = &semaphores->items[i];
        size_t n = out->n;
        if (!shared_word_same(&hold->word, &thread->word))
            continue;
        out->kind = hold->kind;
        out->certain = out->likely = hold->one;
        add_holder(ends, hold->pid, NULL, out);
        if (out->n > n)
            out->holders[n].hold = hold;
    }
    return 0;
}
