/* The program around us may close descriptors that it doesn't know, and reuse their numbers: so
 * ours are known by their inode, and looked at before each use. */
#include "agent/wire/channel.h"

#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/wire/record.h"
#include "agent/wire/wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* With the lock, where nothing else is said. */
static struct {
    int fd;                      /* our end; -1: there is none */
    int spare;                   /* the end for a daemon; -1: one has it */
    ino_t fd_inode, spare_inode; /* a program may close descriptors that it does not know */
    unsigned senders;            /* threads that send now: it is not closed under them */
    bool greeted;                /* HELLO came */
    uint64_t nonce;              /* of that HELLO */
} channel = {.fd = -1, .spare = -1};

static bool is_ours(int fd, ino_t inode)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == inode;
}

static void close_ours(int *fd, ino_t inode)
{
    if (is_ours(*fd, inode))
        close(*fd);
    *fd = -1;
}

int channel_open(void)
{
    struct stat ours, spare;
    int fds[2];
    int r = wire_pair(fds);

    if (r < 0)
        return r;
    if (fstat(fds[0], &ours) < 0 || fstat(fds[1], &spare) < 0) {
        r = -errno;
        close(fds[0]);
        close(fds[1]);
        return r;
    }
    channel.fd = fds[0];
    channel.spare = fds[1];
    channel.fd_inode = ours.st_ino;
    channel.spare_inode = spare.st_ino;
    channel.senders = 0;
    channel.greeted = false;
    channel.nonce = 0;
    probe_agent_record.generation++;
    __atomic_store_n(&probe_agent_record.channel, fds[1], __ATOMIC_RELEASE);
    return 0;
}

void channel_taken(void)
{
    __atomic_store_n(&probe_agent_record.channel, -1, __ATOMIC_RELEASE);
    close_ours(&channel.spare, channel.spare_inode);
}

void channel_close(void)
{
    channel_taken();
    close_ours(&channel.fd, channel.fd_inode);
}

void channel_forget(void)
{
    channel_close();
    channel.senders = 0;
}

bool channel_is_greeted(void) { return channel.greeted; }

void channel_greet(uint64_t nonce)
{
    channel.greeted = true;
    channel.nonce = nonce;
    channel_taken();
}

uint64_t channel_nonce(void) { return channel.nonce; }

/* The descriptor to send by, which stays open until unhold(); -1: that channel is no more. */
static int hold(uint64_t generation)
{
    _guard_agent_;
    if (generation != probe_agent_record.generation || !is_ours(channel.fd, channel.fd_inode))
        return -1;
    channel.senders++;
    return channel.fd;
}

static void unhold(void)
{
    _guard_agent_;
    channel.senders--;
    pthread_cond_broadcast(&agent_changed);
}

int channel_send(uint64_t generation, uint16_t op, uint64_t id, const void *body, size_t size,
                 const void *more, size_t more_size, uint64_t deadline_ns)
{
    int fd = hold(generation);
    if (fd < 0)
        return -EPIPE;
    int r = wire_send(fd, op, id, body, size, more, more_size, deadline_ns);
    if (r < 0 && r != -EMSGSIZE && deadline_ns) {
        shutdown(fd, SHUT_RDWR); /* the channel's thread sees its end */
        r = -EPIPE;
    }
    unhold();
    return r;
}

/* A hint, for whoever is there. */
static void tell(uint16_t op)
{
    uint64_t generation;

    {
        _guard_agent_;
        if (!channel.greeted)
            return;
        generation = probe_agent_record.generation;
    }
    (void)channel_send(generation, op, 0, NULL, 0, NULL, 0, 0);
}

void channel_tell_rings(void) { tell(PROTO_RINGS); }

void channel_tell_watches(void) { tell(PROTO_WATCHES); }

void channel_tell_happened(void)
{
    static uint64_t said_ns;
    uint64_t now = monotonic_ns(), before = __atomic_load_n(&said_ns, __ATOMIC_RELAXED);

    if (now - before >= PROTO_HAPPENED_NS &&
        __atomic_compare_exchange_n(&said_ns, &before, now, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        tell(PROTO_HAPPENED);
}

bool channel_tell_crashed(const struct proto_crashed *crashed)
{
    int fd = channel.fd; /* without the lock, which this thread may hold */

    return channel.greeted && is_ours(fd, channel.fd_inode) &&
           wire_send(fd, PROTO_CRASHED, 0, crashed, sizeof *crashed, NULL, 0, 0) == 0;
}

void channel_wake(void)
{
    _guard_agent_;
    if (is_ours(channel.fd, channel.fd_inode))
        shutdown(channel.fd, SHUT_RD); /* sending goes on working */
}

void channel_daemon_gone(void) { channel.greeted = false; }

void channel_end(void)
{
    _guard_agent_;
    channel_taken(); /* first: who sees the end may look for the next channel at once */
    if (is_ours(channel.fd, channel.fd_inode))
        shutdown(channel.fd, SHUT_RDWR);
    while (channel.senders)
        pthread_cond_wait(&agent_changed, &agent_lock);
    channel_close();
}

/* recv() and not poll(): that would go on with whatever gets the number when the program closes the
 * descriptor meanwhile. */
int channel_receive(struct wire_frame *out)
{
    char byte;

    if (recv(channel.fd, &byte, 1, MSG_PEEK) < 0 && errno != EINTR && errno != ECONNRESET)
        return -EPIPE;
    if (!is_ours(channel.fd, channel.fd_inode))
        return -EPIPE;
    return wire_receive(channel.fd, out);
}
