/* The program around us may close descriptors that it doesn't know, and reuse their numbers: so ours
 * are known by their inode, and looked at before each use. */
#include "agent/channel.h"

#include "agent/agent.h"
#include "agent/dispatch.h"
#include "agent/fatal.h"
#include "agent/park.h"
#include "agent/spawn.h"
#include "agent/watch.h"
#include "agent/wire.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define RETRY_MS 1000 /* between tries to make a new pair where no descriptor is free */

static struct wire_frame frame; /* the channel's thread's; too big for its stack */

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
    agent.channel = (struct channel){
        .fd = fds[0], .spare = fds[1], .fd_inode = ours.st_ino, .spare_inode = spare.st_ino};
    probe_agent_record.generation++;
    __atomic_store_n(&probe_agent_record.channel, fds[1], __ATOMIC_RELEASE);
    return 0;
}

void channel_taken(void)
{
    __atomic_store_n(&probe_agent_record.channel, -1, __ATOMIC_RELEASE);
    close_ours(&agent.channel.spare, agent.channel.spare_inode);
}

void channel_close(void)
{
    channel_taken();
    close_ours(&agent.channel.fd, agent.channel.fd_inode);
}

/* The descriptor to send by, which stays open until unhold(); -1: that channel is no more. */
static int hold(uint64_t generation)
{
    _guard_agent_;
    if (generation != probe_agent_record.generation ||
        !is_ours(agent.channel.fd, agent.channel.fd_inode))
        return -1;
    agent.channel.senders++;
    return agent.channel.fd;
}

static void unhold(void)
{
    _guard_agent_;
    agent.channel.senders--;
    pthread_cond_broadcast(&agent.changed);
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
        if (!agent.channel.greeted)
            return;
        generation = probe_agent_record.generation;
    }
    (void)channel_send(generation, op, 0, NULL, 0, NULL, 0, 0);
}

void channel_tell_rings(void) { tell(PROTO_RINGS); }

void channel_tell_watches(void) { tell(PROTO_WATCHES); }

bool channel_tell_crashed(const struct proto_crashed *crashed)
{
    int fd = agent.channel.fd; /* without the lock, which this thread may hold */

    return agent.channel.greeted && is_ours(fd, agent.channel.fd_inode) &&
           wire_send(fd, PROTO_CRASHED, 0, crashed, sizeof *crashed, NULL, 0, 0) == 0;
}

void channel_wake(void)
{
    _guard_agent_;
    if (is_ours(agent.channel.fd, agent.channel.fd_inode))
        shutdown(agent.channel.fd, SHUT_RD); /* sending goes on working */
}

/* Ends this channel: nobody sends by it any more. */
static void end_channel(void)
{
    {
        _guard_agent_;
        agent.channel.greeted = false; /* no thread is held from now on */
    }
    park_release();
    fatal_seen();
    watch_daemon_gone();
    requests_abandon();
    dispatch_interrupt(requests_running());

    _guard_agent_;
    channel_taken(); /* first: who sees the end may look for the next channel at once */
    if (is_ours(agent.channel.fd, agent.channel.fd_inode))
        shutdown(agent.channel.fd, SHUT_RDWR);
    while (agent.channel.senders)
        pthread_cond_wait(&agent.changed, &agent.lock);
    channel_close();
}

static void renew_channel(void)
{
    end_channel();
    for (;;) {
        {
            _guard_agent_;
            if (channel_open() == 0)
                return;
        }
        poll(NULL, 0, RETRY_MS);
    }
}

/* Waits for a frame. -EPIPE: the channel is over. recv() and not poll(): that would go on with whatever gets
 * the number when the program closes the descriptor meanwhile. */
static int receive(void)
{
    char byte;

    if (recv(agent.channel.fd, &byte, 1, MSG_PEEK) < 0 && errno != EINTR && errno != ECONNRESET)
        return -EPIPE;
    if (!is_ours(agent.channel.fd, agent.channel.fd_inode))
        return -EPIPE;
    return wire_receive(agent.channel.fd, &frame);
}

void *channel_main(void *arg)
{
    thread_name("probe-agent");
    __atomic_store_n(&probe_agent_record.channel_tid, gettid(), __ATOMIC_RELEASE);
    for (;;) {
        int r = receive();
        if (r == 0)
            r = dispatch(&frame);
        if (r == 0 || r == -EAGAIN)
            continue;
        if (dispatch_detached())
            break;
        renew_channel();
    }
    agent_ended();
    return NULL;
}
