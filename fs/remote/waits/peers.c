#include "fs/remote/waits/peers.h"

#include "agent/base/cleanup.h"
#include "fs/base/worker.h"
#include "fs/proc/descriptors.h"
#include "fs/proc/lwp.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/proc/runs.h"
#include "fs/remote/memory/memory.h"
#include "fs/remote/waits/asked.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define AGENT_THREADS "probe-" /* how the names of the agent's own begin */
#define SELECTED_MAX 65536u    /* bits of a set of select(2) that are looked at */

struct reading {
    struct may_hang work;
    bool with_threads;
    struct peer peer;
    int error;
};

/* ---- one thread ---- */

/* How often it was given a processor; 0: not known. */
static uint64_t thread_switches(pid_t pid, pid_t tid)
{
    struct runs runs;

    return runs_read(pid, tid, &runs) == 0 ? runs.n : 0;
}

static void add_fd(struct peer_thread *thread, int fd, bool writes)
{
    if (thread->nfds < PEER_POLLED_MAX)
        thread->fds[thread->nfds++] = (struct peer_fd){.fd = fd, .writes = writes};
    else
        thread->more++;
}

static void read_poll(const struct memory *memory, struct peer_thread *thread)
{
    struct pollfd polled[PEER_POLLED_MAX];
    const struct blocking *blocking = &thread->blocking;
    size_t n = blocking->count < PEER_POLLED_MAX ? blocking->count : PEER_POLLED_MAX;

    thread->more = blocking->count - n;
    if (!n || memory_read(memory, blocking->address, polled, n * sizeof *polled) < 0) {
        thread->more = blocking->count;
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (polled[i].fd >= 0)
            add_fd(thread, polled[i].fd, !(polled[i].events & (POLLIN | POLLRDHUP | POLLPRI)));
}

static void read_set(const struct memory *memory, struct peer_thread *thread, uint64_t address,
                     bool writes)
{
    size_t n = thread->blocking.count;
    uint64_t bits;

    if (!address)
        return;
    for (size_t fd = 0; fd < n; fd++) {
        if (fd == SELECTED_MAX ||
            (fd % 64 == 0 && memory_read(memory, address + fd / 8, &bits, sizeof bits) < 0)) {
            thread->more++;
            return;
        }
        if (bits >> fd % 64 & 1)
            add_fd(thread, (int)fd, writes);
    }
}

static void read_epoll(pid_t pid, struct peer_thread *thread)
{
    int fds[PEER_POLLED_MAX + 1];

    ssize_t n = descriptor_epoll(pid, thread->blocking.fd, fds, PEER_POLLED_MAX + 1);
    for (ssize_t i = 0; i < n; i++)
        add_fd(thread, fds[i], false);
    thread->more += n < 0;
}

static void read_word(pid_t pid, struct maps *maps, struct peer_thread *thread)
{
    if (!thread->blocking.shared || (!maps->n && maps_read(pid, maps) < 0))
        return;
    thread->shares = shared_word_in(maps, thread->blocking.address, &thread->word);
}

void peer_thread_read(pid_t pid, struct maps *maps, struct peer_thread *thread)
{
    const struct memory memory = {.pid = pid};
    const struct blocking *blocking = &thread->blocking;

    thread->file = -1;
    switch (blocking->kind) {
    case BLOCKING_READ:
    case BLOCKING_ACCEPT: add_fd(thread, blocking->fd, false); break;
    case BLOCKING_WRITE:
    case BLOCKING_CONNECT: add_fd(thread, blocking->fd, true); break;
    case BLOCKING_POLL: read_poll(&memory, thread); break;
    case BLOCKING_SELECT:
        read_set(&memory, thread, blocking->address, false);
        read_set(&memory, thread, blocking->writers, true);
        break;
    case BLOCKING_EPOLL: read_epoll(pid, thread); break;
    case BLOCKING_FLOCK:
    case BLOCKING_FCNTL: thread->file = descriptor_number(pid, blocking->fd, "ino"); break;
    case BLOCKING_CHILD:
        if (blocking->pidfd)
            thread->file = descriptor_number(pid, blocking->fd, "Pid");
        break;
    case BLOCKING_FUTEX: read_word(pid, maps, thread); break;
    default: break;
    }
}

/* ---- a process ---- */

static int read_threads(struct peer *peer)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
    _cleanup_(maps_deinit) struct maps maps = {0};

    int r = lwp_list_read(peer->pid, LWP_STATES, &lwps);
    if (r < 0)
        return r;
    peer->threads = calloc(lwps.n, sizeof *peer->threads);
    if (!peer->threads)
        return -ENOMEM;
    peer->all = lwps.n <= PEER_THREADS_MAX;
    for (size_t i = 0; i < lwps.n && peer->nthreads < PEER_THREADS_MAX; i++) {
        struct peer_thread *thread = &peer->threads[peer->nthreads];
        if (!strncmp(lwps.items[i].comm, AGENT_THREADS, strlen(AGENT_THREADS)))
            continue;
        thread->tid = lwps.items[i].tid;
        thread->switches = thread_switches(peer->pid, thread->tid); /* before its call is read */
        (void)blocking_read(peer->pid, thread->tid, &thread->blocking);
        peer_thread_read(peer->pid, &maps, thread);
        peer->nthreads++;
    }
    return 0;
}

/* Reads the name of a process, of which nothing can hang. */
static void read_name(struct peer *peer)
{
    ssize_t n = proc_read(peer->pid, "comm", peer->command, sizeof peer->command);

    peer->command[n > 0 ? n - 1 : 0] = 0; /* without its newline */
}

static void run(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;
    struct peer *peer = &reading->peer;
    struct proc_stat stat;

    reading->error = proc_stat_read(peer->pid, &stat);
    if (reading->error < 0)
        return;
    peer->state = stat.state;
    if (proc_command(peer->pid, peer->command, sizeof peer->command) <= 0)
        read_name(peer);
    if (reading->with_threads)
        reading->error = read_threads(peer);
}

static void free_reading(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;

    peer_deinit(&reading->peer);
    free(reading);
}

static void start(struct peer *peer, bool with_threads, struct may_hang **out)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return;
    reading->work = (struct may_hang){.pid = peer->pid, .run = run, .free = free_reading};
    reading->with_threads = with_threads;
    reading->peer.pid = peer->pid;
    may_hang_init(&reading->work);
    int r = may_hang_start(&reading->work);
    if (r == 0) {
        *out = &reading->work;
        return;
    }
    peer->hangs = r == -ETIMEDOUT;
    may_hang_unref(&reading->work);
}

static void take(struct may_hang *work, struct peer *peer)
{
    struct reading *reading = (struct reading *)work;

    peer->hangs = work->state != MAY_HANG_DONE;
    if (peer->hangs || reading->error < 0)
        return;
    peer_deinit(peer);
    *peer = reading->peer;
    reading->peer = (struct peer){0};
}

static void read_here(struct peer *const *peers, size_t n, bool with_threads)
{
    _cleanup_free_ struct may_hang **works = calloc(n + 1, sizeof *works);

    for (size_t i = 0; works && i < n; i++)
        start(peers[i], with_threads, &works[i]);
    if (works)
        may_hang_wait_all(works, n);
    for (size_t i = 0; works && i < n; i++) {
        if (works[i])
            take(works[i], peers[i]);
        may_hang_unref(works[i]);
        if (peers[i]->hangs)
            read_name(peers[i]);
    }
}

/* One that is asked for. */
struct asking {
    const struct waits_reader *reader;
    struct peer *peer;
    bool with_threads;
    pthread_t thread;
};

static void *ask_main(void *arg)
{
    struct asking *asking = arg;

    int r = asked_peer(asking->reader, asking->peer, asking->with_threads);
    asking->peer->hangs = r == -ETIMEDOUT;
    if (r < 0)
        read_name(asking->peer);
    return NULL;
}

static void ask_for(const struct waits_reader *reader, struct peer *const *peers, size_t n,
                    bool with_threads)
{
    _cleanup_free_ struct asking *askings = calloc(n + 1, sizeof *askings);
    size_t started = 0;

    for (; askings && started < n; started++) {
        askings[started] = (struct asking){reader, peers[started], with_threads, 0};
        if (worker_start(ask_main, &askings[started], "probefs-peer", &askings[started].thread) < 0)
            break; /* of the others nothing is known */
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(askings[i].thread, NULL);
}

void peers_read(const struct waits_reader *reader, struct peer *const *peers, size_t n,
                bool with_threads)
{
    if (!reader->ask)
        read_here(peers, n, with_threads);
    else if (n == 1)
        ask_main(&(struct asking){reader, peers[0], with_threads, 0});
    else
        ask_for(reader, peers, n, with_threads);
}

void peer_deinit(struct peer *peer)
{
    free(peer->threads);
    *peer = (struct peer){0};
}

bool peer_slept(const struct peer *peer)
{
    for (size_t i = 0; i < peer->nthreads; i++)
        if (!peer->threads[i].switches ||
            thread_switches(peer->pid, peer->threads[i].tid) != peer->threads[i].switches)
            return false;
    return peer->nthreads > 0;
}
