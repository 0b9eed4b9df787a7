/* What /proc says of threads that wait for other processes: system calls, descriptors, sockets,
 * locks of files. */
#include "fs/proc/blocking.h"

#include "fs/proc/descriptors.h"
#include "fs/proc/file_locks.h"
#include "fs/proc/sockets.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct blocking parsed(const char *line)
{
    struct blocking blocking;

    CHECK(blocking_parse(line, &blocking));
    return blocking;
}

static void test_calls(void)
{
    struct blocking b = parsed("0 0x5 0x7ffc 0x1000 0x0 0x0 0x0 0x7ffc0 0x7f00\n");
    CHECK_INT(b.kind, BLOCKING_READ);
    CHECK_INT(b.fd, 5);
    CHECK(!b.timed);

    b = parsed("7 0x7ffe0 0x2 0xffffffff 0x0 0x0 0x0 0x1 0x2"); /* poll, for ever */
    CHECK_INT(b.kind, BLOCKING_POLL);
    CHECK_INT(b.address, 0x7ffe0);
    CHECK_INT(b.count, 2);
    CHECK(!b.timed);
    CHECK(parsed("7 0x7ffe0 0x2 0x64 0x0 0x0 0x0 0x1 0x2").timed);
    CHECK(parsed("271 0x7ffe0 0x2 0x7fff 0x0 0x0 0x0 0x1 0x2").timed); /* ppoll */
    b = parsed("7 0x0 0x0 0x64 0x0 0x0 0x0 0x1 0x2");                  /* of nothing */
    CHECK(b.kind == BLOCKING_SLEEP && b.timed);

    b = parsed("23 0x8 0x7ffe0 0x0 0x0 0x0 0x0 0x1 0x2"); /* select */
    CHECK_INT(b.kind, BLOCKING_SELECT);
    CHECK(b.count == 8 && b.address == 0x7ffe0 && !b.timed);
    CHECK_INT(parsed("270 0x8 0x0 0x0 0x7ffe0 0x0 0x0 0x1 0x2").kind,
              BLOCKING_SELECT);                           /* pselect6 */
    b = parsed("270 0x0 0x0 0x0 0x0 0x7ffd 0x0 0x1 0x2"); /* of nothing */
    CHECK(b.kind == BLOCKING_SLEEP && b.timed);

    b = parsed("232 0x4 0x0 0x0 0xffffffffffffffff 0x0 0x0 0x1 0x2"); /* epoll_wait */
    CHECK_INT(b.kind, BLOCKING_EPOLL);
    CHECK_INT(b.fd, 4);
    CHECK(!b.timed);

    b = parsed("202 0x7f10 0x189 0x0 0x0 0x0 0xffffffff 0x1 0x2"); /* futex, private */
    CHECK_INT(b.kind, BLOCKING_FUTEX);
    CHECK(!b.shared && !b.timed);
    b = parsed("202 0x7f10 0x109 0x0 0x7ffd 0x0 0xffffffff 0x1 0x2");
    CHECK(b.shared && b.timed);

    b = parsed("61 0x2d 0x7ffd 0x0 0x0 0x0 0x0 0x1 0x2"); /* wait4 */
    CHECK_INT(b.kind, BLOCKING_CHILD);
    CHECK_INT(b.child, 45);
    CHECK_INT(parsed("61 0xffffffff 0x7ffd 0x0 0x0 0x0 0x0 0x1 0x2").child, 0);
    b = parsed("247 0x3 0x9 0x7ffd 0x4 0x0 0x0 0x1 0x2"); /* waitid of a pidfd */
    CHECK(b.pidfd);
    CHECK_INT(b.fd, 9);

    CHECK_INT(parsed("73 0x3 0x2 0x0 0x0 0x0 0x0 0x1 0x2").kind, BLOCKING_FLOCK);
    CHECK_INT(parsed("72 0x3 0x7 0x7ff 0x0 0x0 0x0 0x1 0x2").kind, BLOCKING_FCNTL);
    CHECK_INT(parsed("72 0x3 0x1 0x7ff 0x0 0x0 0x0 0x1 0x2").kind, BLOCKING_UNKNOWN);
    CHECK_INT(parsed("230 0x1 0x1 0x7ff 0x0 0x0 0x0 0x1 0x2").kind, BLOCKING_SLEEP);
    CHECK(parsed("219 0x1 0x1 0x7ff 0x0 0x0 0x0 0x1 0x2").timed);

    CHECK(!blocking_parse("running\n", &b));
    CHECK_INT(b.kind, BLOCKING_UNKNOWN);
    CHECK(!blocking_parse("-1 0x7ffc0 0x7f00\n", &b));
    CHECK(!blocking_parse("0 0x5", &b));
    CHECK(!blocking_parse("", &b));
}

static void test_lock_lines(void)
{
    static const char text[] = "1: POSIX  ADVISORY  WRITE 5552 fe:00:77 0 EOF\n"
                               "1: -> POSIX  ADVISORY  WRITE 5690 fe:00:77 0 EOF\n"
                               "2: FLOCK  ADVISORY  WRITE 5553 fe:00:78 0 EOF\n"
                               "2: -> FLOCK  ADVISORY  WRITE 5687 fe:00:78 0 EOF\n"
                               "2:  -> FLOCK  ADVISORY  READ 5689 fe:00:78 0 EOF\n"
                               "3: OFDLCK ADVISORY  READ -1 fe:00:79 0 EOF\n"
                               "4: LEASE  ACTIVE    READ  1 fe:00:79 0 EOF\n";
    struct file_lock lock;

    CHECK_INT(file_lock_find(text, 5690, false, 77, &lock), 0);
    CHECK_INT(lock.pid, 5552);
    CHECK_INT(file_lock_find(text, 5689, true, 78, &lock), 0); /* behind another one that waits */
    CHECK_INT(lock.pid, 5553);
    CHECK(lock.write);
    CHECK_INT(file_lock_find(text, 5690, true, 77, &lock), -ENOENT);
    CHECK_INT(file_lock_find(text, 5552, false, 77, &lock), -ENOENT); /* has it */
    CHECK_INT(file_lock_find("", 5552, false, 77, &lock), -ENOENT);
    CHECK(file_lock_parse("3: OFDLCK ADVISORY  READ -1 fe:00:79 0 EOF", &lock));
    CHECK_INT(lock.pid, -1);
    CHECK(!file_lock_parse("4: LEASE  ACTIVE    READ  1 fe:00:79 0 EOF", &lock));
    CHECK(!file_lock_parse("nonsense", &lock));
}

static void test_tcp_lines(void)
{
    struct tcp_socket socket;
    char text[TCP_END_TEXT];

    CHECK(tcp_socket_parse("   0: 0100007F:07E8 0200007F:1F90 01 00000000:00000000 00:00000000 "
                           "00000000     0        0 1213 1 000000000d1618ab 100 0 0 10 0",
                           &socket));
    tcp_end_print(&socket.local, text);
    CHECK_STR(text, "127.0.0.1:2024");
    tcp_end_print(&socket.remote, text);
    CHECK_STR(text, "127.0.0.2:8080");
    CHECK_INT(socket.state, TCP_STATE_ESTABLISHED);
    CHECK_INT(socket.inode, 1213);

    CHECK(tcp_socket_parse("  12: 00000000000000000000000001000000:0050 "
                           "0000000000000000FFFF00000100007F:D431 0A 00000000:00000000 00:00000000 "
                           "00000000  1000        0 99 1 0 100 0 0 10 0",
                           &socket));
    tcp_end_print(&socket.local, text);
    CHECK_STR(text, "[::1]:80");
    tcp_end_print(&socket.remote, text);
    CHECK_STR(text, "127.0.0.1:54321"); /* as the other end's own table, tcp, has it */
    CHECK_INT(socket.state, TCP_STATE_LISTENS);

    CHECK(!tcp_socket_parse("  sl  local_address rem_address   st tx_queue rx_queue", &socket));
    CHECK(!tcp_socket_parse("  1: 0100007F:07E8", &socket));
    CHECK(!tcp_socket_parse("", &socket));
}

static uint64_t inode_of(int fd)
{
    struct stat st;

    CHECK(fstat(fd, &st) == 0);
    return st.st_ino;
}

static void test_sockets(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un named = {.sun_family = AF_UNIX};
    socklen_t length = sizeof address;
    struct socket_peer peer;
    struct sockets sockets = {0};
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(pair[0]), &peer), 0);
    CHECK_INT(peer.family, SOCKET_UNIX);
    CHECK(peer.found && !peer.listens);
    CHECK_INT(peer.inode, inode_of(pair[1]));
    CHECK_STR(peer.name, "");

    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(named.sun_path + 1, sizeof named.sun_path - 1, "probefs-test-%d", getpid());
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(named.sun_path + 1));
    CHECK(bind(listener, (void *)&named, length) == 0 && listen(listener, 1) == 0);
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(listener), &peer), 0);
    CHECK(peer.listens && peer.name[0] == '@' && !strcmp(peer.name + 1, named.sun_path + 1));
    CHECK(connect(client, (void *)&named, length) == 0);
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(client), &peer), 0);
    CHECK(peer.found);
    CHECK_INT(peer.inode, 0); /* nobody has accepted it */

    listener = socket(AF_INET, SOCK_STREAM, 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    length = sizeof address;
    CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    CHECK(connect(client, (void *)&address, length) == 0);
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(client), &peer), 0);
    CHECK(peer.found && !peer.inode);
    int accepted = accept(listener, NULL, NULL);
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(client), &peer), 0);
    CHECK_INT(peer.family, SOCKET_TCP);
    CHECK(peer.found);
    CHECK_INT(peer.inode, inode_of(accepted));
    CHECK(!strncmp(peer.name, "127.0.0.1:", 10));
    CHECK(sockets.diag && sockets.tcp_ns);
    close(sockets.diag - 1); /* as where the kernel has no inet_diag: from /proc */
    sockets.diag = 0;
    sockets.tcp_ns = 0;
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(client), &peer), 0);
    CHECK_INT(peer.inode, inode_of(accepted));
    CHECK_INT(socket_peer_read(&sockets, getpid(), inode_of(listener), &peer), 0);
    CHECK(peer.listens);

    CHECK_INT(socket_peer_read(&sockets, getpid(), 0xfffffff0, &peer), -ENOENT);
    sockets_deinit(&sockets);
}

static void test_descriptors(void)
{
    struct descriptors all;
    struct descriptor d;
    int fds[2];
    bool reads, writes;
    char path[64];
    size_t n;

    descriptor_parse("pipe:[77]", &d);
    CHECK_INT(d.kind, DESCRIPTOR_PIPE);
    CHECK_INT(d.inode, 77);
    descriptor_parse("socket:[78]", &d);
    CHECK_INT(d.kind, DESCRIPTOR_SOCKET);
    descriptor_parse("/tmp/pipe:[77]", &d);
    CHECK_INT(d.kind, DESCRIPTOR_OTHER);

    CHECK(pipe(fds) == 0);
    CHECK_INT(descriptors_read(0, &all), 0);
    const struct descriptor *found = descriptors_find(&all, DESCRIPTOR_PIPE, inode_of(fds[0]), &n);
    CHECK_INT(n, 2);
    CHECK_INT(found[0].pid, getpid());
    CHECK_INT(found[0].fd, fds[0]);
    CHECK_INT(found[1].fd, fds[1]);
    CHECK(!descriptors_find(&all, DESCRIPTOR_SOCKET, inode_of(fds[0]), &n));
    CHECK_INT(n, 0);
    descriptors_deinit(&all);

    CHECK_INT(descriptor_mode(getpid(), fds[0], &reads, &writes), 0);
    CHECK(reads && !writes);
    CHECK_INT(descriptor_mode(getpid(), fds[1], &reads, &writes), 0);
    CHECK(!reads && writes);
    CHECK_INT(descriptor_mode(getpid(), 999, &reads, &writes), -ESRCH);
    CHECK(descriptor_link(getpid(), fds[0], path, sizeof path) > 0);
    CHECK(!strncmp(path, "pipe:[", 6));
    CHECK_INT(descriptor_number(getpid(), fds[0], "ino"), inode_of(fds[0]));
    CHECK_INT(descriptor_number(getpid(), fds[0], "Pid"), -1);
    close(fds[0]);
    close(fds[1]);
}

static void test_real_locks(void)
{
    char path[] = "/tmp/probefs-test-XXXXXX";
    struct file_lock lock;
    int fd = mkstemp(path), r = -ENOENT;

    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        flock(open(path, O_RDWR), LOCK_EX);
        _exit(0);
    }
    for (int i = 0; i < 10000 && r < 0; i++, usleep(1000))
        r = file_lock_waited_for(pid, true, inode_of(fd), &lock);
    CHECK_INT(r, 0);
    CHECK_INT(lock.pid, getpid());
    struct blocking blocking;
    CHECK_INT(blocking_read(pid, pid, &blocking), 0);
    CHECK_INT(blocking.kind, BLOCKING_FLOCK);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(path);
}

int main(void)
{
    test_calls();
    test_lock_lines();
    test_tcp_lines();
    test_sockets();
    test_descriptors();
    test_real_locks();
    return 0;
}
