#include "fs/proc/sockets.h"

#include "agent/base/cleanup.h"
#include "fs/base/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define TCP_LINES_MAX 65536 /* of one file of /proc/PID/net, that are looked at */
#define REPLY_MAX 4096      /* bytes of one sock_diag(7) message: it holds one socket */
#define REPLY_S 1           /* for which it is waited for */

/* ---- TCP ---- */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* 8 or 32 hexadecimal digits: each 8 of them a number that lies in memory as the bytes of the
 * address (get_tcp4_sock(), net/ipv4/tcp_ipv4.c). Returns what follows, or NULL. */
static const char *parse_end(const char *at, struct tcp_end *out)
{
    const char *colon = strchr(at, ':');
    size_t digits = colon ? (size_t)(colon - at) : 0;
    uint32_t word;
    int n = 0;

    if (digits != 8 && digits != 32)
        return NULL;
    memcpy(out->address, mapped, sizeof mapped);
    for (size_t i = 0; i < digits / 8; i++) {
        if (sscanf(at + i * 8, "%8x", &word) != 1)
            return NULL;
        memcpy(out->address + (digits == 8 ? 12 : i * 4), &word, sizeof word);
    }
    if (sscanf(colon, ":%hx%n", &out->port, &n) != 1)
        return NULL;
    return colon + n;
}

bool tcp_socket_parse(const char *line, struct tcp_socket *out)
{
    struct tcp_socket parsed;
    int n = 0;

    if (sscanf(line, " %*d: %n", &n) < 0 || !n)
        return false;
    line = parse_end(line + n, &parsed.local);
    if (line)
        line = parse_end(line + strspn(line, " "), &parsed.remote);
    if (!line ||
        sscanf(line, " %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &parsed.state, &parsed.inode) != 2)
        return false;
    *out = parsed;
    return true;
}

void tcp_end_print(const struct tcp_end *end, char text[TCP_END_TEXT])
{
    char address[INET6_ADDRSTRLEN] = "?";
    bool v4 = !memcmp(end->address, mapped, sizeof mapped);

    inet_ntop(v4 ? AF_INET : AF_INET6, end->address + (v4 ? sizeof mapped : 0), address,
              sizeof address);
    snprintf(text, TCP_END_TEXT, v4 ? "%s:%u" : "[%s]:%u", address, end->port);
}

static bool same_end(const struct tcp_end *a, const struct tcp_end *b)
{
    return a->port == b->port && !memcmp(a->address, b->address, sizeof a->address);
}

/* Looks for the socket with an inode, or (inode 0) for the one that stands at the other end of
 * *out. 0; -ENOENT; -EAGAIN: there are too many. */
static int find_tcp_in(pid_t pid, const char *name, uint64_t inode, struct tcp_socket *out)
{
    struct tcp_socket socket, found = {0};
    char path[64], line[512];
    int r = -ENOENT;

    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    for (unsigned n = 0; file && r == -ENOENT && fgets(line, sizeof line, file); n++) {
        if (n == TCP_LINES_MAX) {
            r = -EAGAIN;
        } else if (tcp_socket_parse(line, &socket) &&
                   (inode ? socket.inode == inode
                          : same_end(&socket.local, &out->remote) &&
                                same_end(&socket.remote, &out->local))) {
            found = socket;
            r = 0;
        }
    }
    if (file)
        fclose(file);
    if (r == 0)
        *out = found;
    return r;
}

static int find_tcp(pid_t pid, uint64_t inode, struct tcp_socket *out)
{
    int r = find_tcp_in(pid, "tcp", inode, out);
    return r == -ENOENT ? find_tcp_in(pid, "tcp6", inode, out) : r;
}

static int read_tcp(pid_t pid, uint64_t inode, struct socket_peer *out)
{
    struct tcp_socket socket;

    int r = find_tcp(pid, inode, &socket);
    if (r < 0)
        return r;
    out->family = SOCKET_TCP;
    out->listens = socket.state == TCP_STATE_LISTENS;
    tcp_end_print(out->listens ? &socket.local : &socket.remote, out->name);
    if (out->listens)
        return 0;
    r = find_tcp(pid, 0, &socket);
    out->found = r == 0;
    out->inode = out->found ? socket.inode : 0;
    return r == -EAGAIN ? r : 0;
}

/* ---- Unix ---- */

struct opening {
    int ns; /* the network namespace; -1: our own */
    int fd; /* the socket, or -errno */
};

static void *open_diag(void *arg)
{
    struct opening *opening = arg;

    opening->fd = opening->ns >= 0 && setns(opening->ns, CLONE_NEWNET) < 0
                      ? -1
                      : socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (opening->fd < 0)
        opening->fd = -errno;
    return NULL;
}

/* A socket keeps the namespace that it was made in: a thread goes there, makes it, and ends. */
static int open_diag_of(pid_t pid)
{
    struct opening opening = {.ns = -1};
    struct stat own, other;
    char path[64];
    pthread_t id;

    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    _cleanup_close_ int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || fstat(ns, &other) < 0 || stat("/proc/thread-self/ns/net", &own) < 0)
        return -errno;
    if (own.st_ino == other.st_ino && own.st_dev == other.st_dev) {
        open_diag(&opening);
        return opening.fd;
    }
    opening.ns = ns;
    if (worker_start(open_diag, &opening, "probefs-netns", &id) < 0)
        return -EAGAIN;
    pthread_join(id, NULL);
    return opening.fd;
}

static int ask_unix(int fd, uint64_t inode, char *reply, size_t cap, size_t *size)
{
    const struct {
        struct nlmsghdr head;
        struct unix_diag_req request;
    } ask = {
        .head = {.nlmsg_len = sizeof ask,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = AF_UNIX,
                    .udiag_ino = (uint32_t)inode,
                    .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER,
                    .udiag_cookie = {~0u, ~0u}},
    };
    const struct timeval limit = {.tv_sec = REPLY_S};

    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
        send(fd, &ask, sizeof ask, 0) < 0)
        return -errno;
    ssize_t n = recv(fd, reply, cap, 0);
    if (n < 0)
        return -errno;
    *size = (size_t)n;
    return 0;
}

static void set_unix_name(struct socket_peer *out, const char *name, size_t size)
{
    snprintf(out->name, sizeof out->name, "%s%.*s", *name ? "" : "@", (int)(size - !*name),
             name + !*name);
}

static int read_unix(pid_t pid, uint64_t inode, struct socket_peer *out)
{
    char reply[REPLY_MAX] __attribute__((aligned(8)));
    size_t size = 0;

    _cleanup_close_ int fd = open_diag_of(pid);
    int r = fd < 0 ? fd : ask_unix(fd, inode, reply, sizeof reply, &size);
    const struct nlmsghdr *head = (const void *)reply;
    if (r < 0 || !NLMSG_OK(head, size) || head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        head->nlmsg_len < NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
        return -ENOENT;
    const struct unix_diag_msg *message = NLMSG_DATA(head);
    size_t left = head->nlmsg_len - NLMSG_LENGTH(sizeof *message);
    const struct nlattr *at = (const void *)(message + 1);

    out->family = SOCKET_UNIX;
    out->listens = message->udiag_state == TCP_STATE_LISTENS;
    while (left >= sizeof *at && at->nla_len >= sizeof *at && at->nla_len <= left) {
        const char *value = (const char *)(at + 1);
        size_t length = at->nla_len - sizeof *at, step = NLA_ALIGN(at->nla_len);
        if (at->nla_type == UNIX_DIAG_NAME && length)
            set_unix_name(out, value, length);
        if (at->nla_type == UNIX_DIAG_PEER && length == sizeof(uint32_t)) {
            uint32_t peer;
            memcpy(&peer, value, sizeof peer);
            out->inode = peer;
            out->found = true;
        }
        if (step > left)
            break;
        left -= step;
        at = (const void *)((const char *)at + step);
    }
    return 0;
}

int socket_peer_read(pid_t pid, uint64_t inode, struct socket_peer *out)
{
    struct socket_peer peer = {0}, other = {0};

    int r = read_unix(pid, inode, &peer);
    if (r == 0 && !*peer.name && peer.inode && read_unix(pid, peer.inode, &other) == 0)
        memcpy(peer.name, other.name, sizeof peer.name); /* where it is connected to */
    if (r < 0)
        r = read_tcp(pid, inode, &peer);
    if (r == 0)
        *out = peer;
    return r;
}
