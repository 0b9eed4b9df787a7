#include "agent/wire/wire.h"

#include "agent/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Room for a few whole frames; the kernel may grant less than this, and the least it may be set to
 * by an administrator is still longer than most frames. */
#define SEND_BUFFER (4 * PROTO_FRAME_MAX)

/* How long the body of each frame may be. */
static const struct {
    uint16_t op, least, most;
} bodies[] = {
#define ANY (PROTO_FRAME_MAX - sizeof(struct proto_header))
    {PROTO_HELLO, sizeof(struct proto_hello), sizeof(struct proto_hello)},
    {PROTO_EVAL, sizeof(struct proto_eval), ANY},
    {PROTO_TEXT, 0, ANY},
    {PROTO_CANCEL, 0, 0},
    {PROTO_STATUS, 0, 0},
    {PROTO_DETACH, 0, 0},
    {PROTO_RECORD, sizeof(struct proto_record), sizeof(struct proto_record)},
    {PROTO_BREAKPOINTS, sizeof(struct proto_eval), ANY},
    {PROTO_THREAD, sizeof(struct proto_thread), sizeof(struct proto_thread)},
    {PROTO_ON_CRASH, sizeof(struct proto_on_crash), sizeof(struct proto_on_crash)},
    {PROTO_ARMED, sizeof(struct proto_armed), sizeof(struct proto_armed)},
    {PROTO_CRASH_SEEN, 0, 0},
    {PROTO_ALLOCATIONS, sizeof(struct proto_allocations), sizeof(struct proto_allocations)},
    {PROTO_SAMPLES, sizeof(struct proto_samples), sizeof(struct proto_samples)},
    {PROTO_RELEASE, sizeof(struct proto_release), sizeof(struct proto_release)},
    {PROTO_READY, sizeof(struct proto_ready), sizeof(struct proto_ready)},
    {PROTO_STARTED, 0, 0},
    {PROTO_OUTPUT, 0, ANY},
    {PROTO_DONE, sizeof(struct proto_done), sizeof(struct proto_done)},
    {PROTO_RINGS, 0, 0},
    {PROTO_WATCHES, 0, 0},
    {PROTO_CRASHED, sizeof(struct proto_crashed), sizeof(struct proto_crashed)},
    {PROTO_HAPPENED, 0, 0},
#undef ANY
};

int wire_pair(int fds[2])
{
    int room = SEND_BUFFER;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
    return 0;
}

int wire_check(const struct proto_header *header, size_t size)
{
    if (size < sizeof *header || size > PROTO_FRAME_MAX || header->size != size ||
        header->zero != 0 || (header->id == 0) != (header->op >= PROTO_RINGS))
        return -EPROTO;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        size_t body = size - sizeof *header;
        if (bodies[i].op == header->op)
            return body >= bodies[i].least && body <= bodies[i].most ? 0 : -EPROTO;
    }
    return -EPROTO;
}

/* Waits until there may be room. -EAGAIN: the time is over. */
static int wait_for_room(int fd, uint64_t start, uint64_t deadline_ns)
{
    uint64_t gone = monotonic_ns() - start;
    if (gone >= deadline_ns)
        return -EAGAIN;

    uint64_t left = deadline_ns - gone;
    struct timespec t = timespec_of(left);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = ppoll(&p, 1, &t, NULL);
    if (n < 0 && errno != EINTR)
        return -errno;
    return n == 0 ? -EAGAIN : 0;
}

int wire_send(int fd, uint16_t op, uint64_t id, const void *body, size_t size, const void *more,
              size_t more_size, uint64_t deadline_ns)
{
    const size_t room = PROTO_FRAME_MAX - sizeof(struct proto_header);
    if (size > room || more_size > room - size)
        return -EMSGSIZE;

    struct proto_header header = {.size = (uint32_t)(sizeof header + size + more_size),
                                  .op = op,
                                  .id = id};
    struct iovec parts[] = {{&header, sizeof header},
                            {(void *)body, size},
                            {(void *)more, more_size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    uint64_t start = deadline_ns ? monotonic_ns() : 0;

    for (;;) {
        /* the flags are given each time: the other side may share the open file description */
        if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
        int r = deadline_ns ? wait_for_room(fd, start, deadline_ns) : -EAGAIN;
        if (r < 0)
            return r;
    }
}

int wire_receive(int fd, struct wire_frame *out)
{
    ssize_t n;

    for (;;) {
        struct iovec part = {out, sizeof *out};
        /* without room for control messages descriptors that come along are closed by the kernel,
         * which says MSG_CTRUNC */
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
        if (n > 0 && (message.msg_flags & MSG_CTRUNC))
            return -EPROTO;
        if (n >= 0)
            break;
        /* ECONNRESET: the other side went without having read all; said once, before what it
         * sent */
        if (errno != EINTR && errno != ECONNRESET)
            return errno == ENOTCONN ? -EPIPE : -errno;
    }
    if (n == 0)
        return -EPIPE; /* an empty packet looks the same, and is no better */
    return wire_check(&out->header, (size_t)n);
}
