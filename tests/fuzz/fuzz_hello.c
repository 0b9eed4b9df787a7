/* What a hostile agent says to the daemon's hello, and right behind it: frames, packets that are
 * none, descriptors. It is no agent, or what it says of itself can be used unchecked; and nothing
 * of it stays. */
#include "agent/base/cleanup.h"
#include "agent/wire/wire.h"
#include "fs/link/session.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define NONCE 0x0123456789abcdefull
#define HELLO_ID 1

/* In the place of the kernel's (-Wl,--wrap): the input may know the nonce. */
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);

ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
    const uint64_t nonce = NONCE;

    if (size != sizeof nonce)
        abort();
    memcpy(bytes, &nonce, size);
    return (ssize_t)size;
}

/* The answer of an agent, but for what the input changes of it. */
static size_t make_ready(const uint8_t *data, size_t size, char *packet)
{
    struct proto_header header = {.op = PROTO_READY, .id = HELLO_ID};
    struct proto_ready ready = {.version = PROTO_VERSION,
                                .origin = ORIGIN_INJECTED,
                                .nonce = NONCE,
                                .channel_tid = 1,
                                .agent_version = "0.1"};

    header.size = sizeof header + sizeof ready;
    memcpy(packet, &header, sizeof header);
    memcpy(packet + sizeof header, &ready, sizeof ready);
    for (size_t i = 0; i + 1 < size; i += 2)
        packet[data[i] % header.size] ^= (char)data[i + 1];
    return header.size;
}

/* Sends one packet; how: 1: an agent's answer, changed; 2: with a descriptor. */
static void send_packet(int fd, uint8_t how, const uint8_t *data, size_t size)
{
    char packet[sizeof(struct proto_header) + sizeof(struct proto_ready) + 256] = {0};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } passing = {.head = {.cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(sizeof(int))}};

    if (how & 1)
        size = make_ready(data, size, packet);
    else
        memcpy(packet, data, size);
    memcpy(CMSG_DATA(&passing.head), &fd, sizeof fd);
    struct iovec io = {packet, size};
    struct msghdr head = {.msg_iov = &io, .msg_iovlen = 1};
    if (how & 2) {
        head.msg_control = &passing;
        head.msg_controllen = sizeof passing;
    }
    (void)sendmsg(fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void check(const struct proto_ready *ready)
{
    if (ready->version != PROTO_VERSION || ready->nonce != NONCE || ready->channel_tid <= 0 ||
        ready->python_tid < 0 || ready->origin < ORIGIN_INJECTED ||
        ready->origin > ORIGIN_REMOTE_EXEC ||
        !memchr(ready->agent_version, 0, sizeof ready->agent_version) ||
        strpbrk(ready->agent_version, "\n\r\x1b\x7f"))
        abort();
}

static int lowest_free(void)
{
    int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);

    close(fd);
    return fd;
}

/* Packets, each after a byte that says how it is sent and one with its size. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session *session = NULL;
    struct proto_ready ready;
    int before = lowest_free(), ends[2];

    if (wire_pair(ends) < 0)
        abort();
    for (size_t at = 0; size - at >= 2;) {
        size_t n = data[at + 1] < size - at - 2 ? data[at + 1] : size - at - 2;
        send_packet(ends[1], data[at], data + at + 2, n);
        at += 2 + n;
    }
    shutdown(ends[1], SHUT_WR); /* it ends: nobody waits for more */
    int r = session_open(ends[0], -1, NULL, &session);
    if (r == 0) {
        session_last_ready(session, &ready);
        check(&ready);
        session_unref(session);
    } else if (r != -EPROTO && r != -EPIPE && r != -EBUSY && r != -ETIMEDOUT) {
        abort();
    }
    close(ends[1]);
    if (lowest_free() != before)
        abort();
    return 0;
}
