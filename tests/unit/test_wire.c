/* Frames over real sockets: what goes in comes out, and what is no frame is told apart. */
#include "agent/wire/wire.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_MAX (PROTO_FRAME_MAX - sizeof(struct proto_header))

static struct wire_frame frame;
static char bytes[PROTO_FRAME_MAX + 1];

static void close_pair(int fds[2])
{
    close(fds[0]);
    close(fds[1]);
}

static void test_pair(void)
{
    int fds[2];

    CHECK_INT(wire_pair(fds), 0);
    for (int i = 0; i < 2; i++)
        CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    CHECK_INT(wire_receive(fds[0], &frame), -EAGAIN);
    close_pair(fds);
}

static void test_there_and_back(void)
{
    int fds[2];

    CHECK_INT(wire_pair(fds), 0);
    CHECK_INT(wire_send(fds[0], PROTO_CANCEL, 7, NULL, 0, NULL, 0, 0), 0);
    CHECK_INT(wire_send(fds[0], PROTO_OUTPUT, 8, "abc", 3, "de", 2, 0), 0);
    CHECK_INT(wire_receive(fds[1], &frame), 0);
    CHECK(frame.header.op == PROTO_CANCEL && frame.header.id == 7 && wire_body_size(&frame) == 0);
    CHECK_INT(wire_receive(fds[1], &frame), 0);
    CHECK(frame.header.op == PROTO_OUTPUT && frame.header.id == 8);
    CHECK(wire_body_size(&frame) == 5 && !memcmp(frame.body, "abcde", 5));

    /* the longest, and one byte more */
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31);
    CHECK_INT(wire_send(fds[1], PROTO_TEXT, 1, bytes, 100, bytes + 100, BODY_MAX - 100, 0), 0);
    CHECK_INT(wire_receive(fds[0], &frame), 0);
    CHECK(wire_body_size(&frame) == BODY_MAX && !memcmp(frame.body, bytes, BODY_MAX));
    CHECK_INT(wire_send(fds[1], PROTO_TEXT, 1, bytes, BODY_MAX + 1, NULL, 0, 0), -EMSGSIZE);
    CHECK_INT(wire_send(fds[1], PROTO_TEXT, 1, bytes, 1, bytes, BODY_MAX, 0), -EMSGSIZE);
    CHECK_INT(wire_send(fds[1], PROTO_TEXT, 1, bytes, 1, bytes, SIZE_MAX, 0), -EMSGSIZE);
    CHECK_INT(wire_receive(fds[0], &frame), -EAGAIN);
    close_pair(fds);
}

/* Packets that are no frame, sent raw. */
static void check_refused(const void *packet, size_t size)
{
    int fds[2];

    CHECK_INT(wire_pair(fds), 0);
    CHECK_INT(send(fds[0], packet, size, 0), size);
    CHECK_INT(wire_receive(fds[1], &frame), -EPROTO);
    close_pair(fds);
}

static void test_malformed(void)
{
    struct {
        struct proto_header header;
        char body[300];
    } packet;

#define PACKET(...) \
 (memset(&packet, 0, sizeof packet), packet.header = (struct proto_header){__VA_ARGS__})
    PACKET(.size = 16, .op = PROTO_CANCEL, .id = 1);
    CHECK_INT(wire_check(&packet.header, 16), 0);
    check_refused(&packet, 1);
    check_refused(&packet, 15);
    check_refused(&packet, 17); /* not as long as it says, and a body where none belongs */
    PACKET(.size = 17, .op = PROTO_CANCEL, .id = 1);
    check_refused(&packet, 17);
    PACKET(.size = 16, .op = PROTO_CANCEL, .id = 0);
    check_refused(&packet, 16);
    PACKET(.size = 16, .op = PROTO_RINGS, .id = 0); /* nobody asked for it */
    CHECK_INT(wire_check(&packet.header, 16), 0);
    PACKET(.size = 16, .op = PROTO_RINGS, .id = 1);
    check_refused(&packet, 16);
    PACKET(.size = 16, .op = PROTO_CANCEL, .zero = 1, .id = 1);
    check_refused(&packet, 16);
    PACKET(.size = 16, .op = 0, .id = 1);
    check_refused(&packet, 16);
    PACKET(.size = 16, .op = 4242, .id = 1);
    check_refused(&packet, 16);

    static const struct {
        uint16_t op;
        size_t least;
    } bodies[] = {{PROTO_HELLO, sizeof(struct proto_hello)},
                  {PROTO_EVAL, sizeof(struct proto_eval)},
                  {PROTO_READY, sizeof(struct proto_ready)},
                  {PROTO_DONE, sizeof(struct proto_done)},
                  {PROTO_RECORD, sizeof(struct proto_record)}};
    for (size_t i = 0; i < 5; i++) {
        uint32_t size = (uint32_t)(16 + bodies[i].least);
        PACKET(.size = size, .op = bodies[i].op, .id = 1);
        CHECK_INT(wire_check(&packet.header, size), 0);
        packet.header.size--;
        check_refused(&packet, size - 1);
    }

    /* longer than any frame: the kernel cuts it, the header says what was received */
    struct proto_header *header = (struct proto_header *)bytes;
    *header = (struct proto_header){.size = PROTO_FRAME_MAX, .op = PROTO_OUTPUT, .id = 1};
    check_refused(bytes, PROTO_FRAME_MAX + 1);
}

/* Descriptors that come along are closed, and end the channel. */
static void test_descriptors(void)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct proto_header header = {.size = 16, .op = PROTO_CANCEL, .id = 1};
    struct iovec part = {&header, sizeof header};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    int fds[2], pipes[2];
    char byte;

    CHECK_INT(wire_pair(fds), 0);
    CHECK_INT(pipe(pipes), 0);
    memcpy(CMSG_DATA(&control.header), &pipes[1], sizeof(int));
    CHECK_INT(sendmsg(fds[0], &message, 0), 16);
    close(pipes[1]);
    CHECK_INT(wire_receive(fds[1], &frame), -EPROTO);
    CHECK_INT(read(pipes[0], &byte, 1), 0); /* nobody holds its other end any more */
    close(pipes[0]);
    close_pair(fds);
}

/* Fills the way from fd to its other end. Returns how many frames fitted. */
static size_t fill(int fd)
{
    size_t n = 0;
    int r;

    while ((r = wire_send(fd, PROTO_OUTPUT, 1, bytes, BODY_MAX, NULL, 0, 0)) == 0)
        n++;
    CHECK_INT(r, -EAGAIN);
    return n;
}

static void *drain(void *arg)
{
    int fd = *(int *)arg;

    usleep(20000);
    while (wire_receive(fd, &frame) == 0) {}
    return NULL;
}

static void test_no_room(void)
{
    pthread_t thread;
    int fds[2];

    CHECK_INT(wire_pair(fds), 0);
    CHECK(fill(fds[0]) >= 2);
    CHECK_INT(wire_send(fds[0], PROTO_CANCEL, 2, NULL, 0, NULL, 0, 1000000), -EAGAIN);
    /* the other way is not affected, and room that appears is used */
    CHECK_INT(wire_send(fds[1], PROTO_CANCEL, 3, NULL, 0, NULL, 0, 0), 0);
    CHECK_INT(pthread_create(&thread, NULL, drain, &fds[1]), 0);
    CHECK_INT(wire_send(fds[0], PROTO_CANCEL, 4, NULL, 0, NULL, 0, 10000000000), 0);
    pthread_join(thread, NULL);
    close_pair(fds);
}

static void test_other_side_gone(void)
{
    struct proto_done done = {.error = 5};
    int fds[2];

    CHECK_INT(wire_pair(fds), 0);
    close(fds[1]);
    CHECK_INT(wire_send(fds[0], PROTO_CANCEL, 1, NULL, 0, NULL, 0, 1000), -EPIPE);
    CHECK_INT(wire_receive(fds[0], &frame), -EPIPE);
    CHECK_INT(wire_receive(fds[0], &frame), -EPIPE);
    close(fds[0]);

    /* it went with frames unread: what it had said before still arrives */
    CHECK_INT(wire_pair(fds), 0);
    CHECK_INT(wire_send(fds[0], PROTO_STATUS, 1, NULL, 0, NULL, 0, 0), 0);
    CHECK_INT(wire_send(fds[1], PROTO_DONE, 2, &done, sizeof done, NULL, 0, 0), 0);
    close(fds[1]);
    CHECK_INT(wire_receive(fds[0], &frame), 0);
    CHECK(frame.header.op == PROTO_DONE && !memcmp(frame.body, &done, sizeof done));
    CHECK_INT(wire_receive(fds[0], &frame), -EPIPE);
    close(fds[0]);

    CHECK_INT(wire_receive(-1, &frame), -EBADF);
    CHECK_INT(wire_send(-1, PROTO_CANCEL, 1, NULL, 0, NULL, 0, 0), -EBADF);
}

int main(void)
{
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR); /* it would end the test */
    test_pair();
    test_there_and_back();
    test_malformed();
    test_descriptors();
    test_no_room();
    test_other_side_gone();
    return 0;
}
