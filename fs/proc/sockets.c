#include "fs/proc/sockets.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/base/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define TCP_SOCKETS_MAX 131072 /* of one namespace, that are looked at */
#define REPLY_MAX 4096         /* bytes of one sock_diag(7) message: it holds one socket */
#define ANSWER_MAX 32768       /* bytes of one datagram of its: no less than the kernel sends */
#define REPLY_S 1              /* for which it is waited for */

/* ---- sock_diag(7) ---- */

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
static int open_diag_in(int ns)
{
    struct opening opening = {.ns = ns};
    pthread_t id;

    if (worker_start(open_diag, &opening, "probefs-netns", &id) < 0)
        return -EAGAIN;
    pthread_join(id, NULL);
    return opening.fd;
}

/* Gives inet_diag up. Once it fails it isn't asked again: what comes late isn't taken for the next
 * answer. */
static int close_diag(struct sockets *sockets, int error)
{
    if (sockets->diag)
        close(sockets->diag - 1);
    sockets->diag = 0;
    return error;
}

/* Has it be about the namespace of process pid. */
static int enter(struct sockets *sockets, pid_t pid)
{
    const struct timeval limit = {.tv_sec = REPLY_S};
    struct opening opening = {.ns = -1};
    struct stat own, other;
    char path[64];

    if (pid == sockets->pid)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    _cleanup_close_ int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || fstat(ns, &other) < 0 || stat("/proc/thread-self/ns/net", &own) < 0)
        return -errno;
    if (!sockets->pid || other.st_dev != sockets->ns_dev || other.st_ino != sockets->ns_ino) {
        sockets_deinit(sockets);
        if (own.st_ino == other.st_ino && own.st_dev == other.st_dev)
            open_diag(&opening);
        else
            opening.fd = open_diag_in(ns);
        sockets->diag = opening.fd >= 0 ? opening.fd + 1 : 0;
        if (sockets->diag && setsockopt(opening.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit))
            (void)close_diag(sockets, -errno);
    }
    sockets->pid = pid;
    sockets->ns_dev = other.st_dev;
    sockets->ns_ino = other.st_ino;
    return 0;
}

static int ask(const struct sockets *sockets, const void *message, size_t size)
{
    if (!sockets->diag)
        return -ENOENT;
    return send(sockets->diag - 1, message, size, 0) < 0 ? -errno : 0;
}

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

static int add_tcp(struct sockets *sockets, const struct tcp_socket *socket)
{
    if (sockets->ntcp == TCP_SOCKETS_MAX) {
        sockets->tcp_cut = true;
        return 0;
    }
    if (ARRAY_GROW(sockets->tcp, sockets->tcp_alloc, sockets->ntcp + 1) < 0)
        return -ENOMEM;
    sockets->tcp[sockets->ntcp++] = *socket;
    return 0;
}

static void set_end(struct tcp_end *end, unsigned family, const void *address, uint16_t port)
{
    memcpy(end->address, mapped, sizeof mapped);
    if (family == AF_INET)
        memcpy(end->address + sizeof mapped, address, 4);
    else
        memcpy(end->address, address, sizeof end->address);
    end->port = ntohs(port);
}

/* Takes one datagram of the answer. 1: it was the last one; -ENOENT: it was, and says that the
 * kernel has no inet_diag. */
static int add_answers(struct sockets *sockets, const char *reply, size_t size)
{
    const struct nlmsghdr *head = (const void *)reply;
    struct tcp_socket socket;
    int r = 0;

    for (; NLMSG_OK(head, size) && r == 0; head = NLMSG_NEXT(head, size)) {
        if (head->nlmsg_type == NLMSG_DONE)
            return 1;
        if (head->nlmsg_type == NLMSG_ERROR)
            return -ENOENT;
        if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
            head->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
            return -EPROTO;
        const struct inet_diag_msg *message = NLMSG_DATA(head);
        const struct inet_diag_sockid *id = &message->id;
        set_end(&socket.local, message->idiag_family, id->idiag_src, id->idiag_sport);
        set_end(&socket.remote, message->idiag_family, id->idiag_dst, id->idiag_dport);
        socket.state = message->idiag_state;
        socket.inode = message->idiag_inode;
        r = add_tcp(sockets, &socket);
    }
    return r;
}

static int ask_table(struct sockets *sockets, uint8_t family)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } message = {
        .head = {.nlmsg_len = sizeof message,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .request = {.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u},
    };
    _cleanup_free_ char *reply = malloc(ANSWER_MAX);

    int r = reply ? ask(sockets, &message, sizeof message) : -ENOMEM;
    while (r == 0) {
        ssize_t n = recv(sockets->diag - 1, reply, ANSWER_MAX, 0);
        r = n < 0 ? -errno : add_answers(sockets, reply, (size_t)n);
    }
    return r < 0 ? r : 0;
}

static int read_table(struct sockets *sockets, const char *name)
{
    struct tcp_socket socket;
    char path[64], line[512];
    int r = 0;

    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)sockets->pid, name);
    FILE *file = fopen(path, "re");
    while (file && r == 0 && !sockets->tcp_cut && fgets(line, sizeof line, file))
        if (tcp_socket_parse(line, &socket))
            r = add_tcp(sockets, &socket);
    if (file)
        fclose(file);
    return r;
}

/* Reads the tables of /proc where the kernel has no inet_diag: they say the same, in ten times the
 * time. */
static int read_tables(struct sockets *sockets)
{
    sockets->ntcp = 0;
    sockets->tcp_cut = false;
    int r = ask_table(sockets, AF_INET);
    if (r == 0)
        r = ask_table(sockets, AF_INET6);
    if (r < 0) {
        if (r != -ENOENT) /* else it still knows of Unix sockets */
            (void)close_diag(sockets, r);
        sockets->ntcp = 0;
        r = read_table(sockets, "tcp");
        r = r < 0 ? r : read_table(sockets, "tcp6");
    }
    sockets->tcp_ns = r == 0 ? monotonic_ns() : 0;
    return r;
}

static const struct tcp_socket *find_inode(const struct sockets *sockets, uint64_t inode)
{
    for (size_t i = 0; i < sockets->ntcp; i++)
        if (sockets->tcp[i].inode == inode)
            return &sockets->tcp[i];
    return NULL;
}

static const struct tcp_socket *find_other_end(const struct sockets *sockets,
                                               const struct tcp_socket *of)
{
    for (size_t i = 0; i < sockets->ntcp; i++)
        if (same_end(&sockets->tcp[i].local, &of->remote) &&
            same_end(&sockets->tcp[i].remote, &of->local))
            return &sockets->tcp[i];
    return NULL;
}

static int find_tcp(struct sockets *sockets, uint64_t inode, struct socket_peer *out)
{
    const struct tcp_socket *socket = find_inode(sockets, inode), *other;
    struct socket_peer peer = {.family = SOCKET_TCP};

    if (!socket)
        return sockets->tcp_cut ? -EAGAIN : -ENOENT;
    peer.listens = socket->state == TCP_STATE_LISTENS;
    tcp_end_print(peer.listens ? &socket->local : &socket->remote, peer.name);
    other = peer.listens ? NULL : find_other_end(sockets, socket);
    peer.found = other;
    peer.inode = other ? other->inode : 0;
    *out = peer;
    return other || !sockets->tcp_cut ? 0 : -EAGAIN;
}

static int read_tcp(struct sockets *sockets, uint64_t inode, struct socket_peer *out)
{
    bool old = sockets->tcp_ns && monotonic_ns() - sockets->tcp_ns < SOCKETS_AGE_NS;

    int r = old ? 0 : read_tables(sockets);
    if (r == 0)
        r = find_tcp(sockets, inode, out);
    if (r == 0 && old && out->found && !out->inode) { /* it may have been accepted meanwhile */
        r = read_tables(sockets);
        r = r < 0 ? r : find_tcp(sockets, inode, out);
    }
    return r;
}

/* ---- Unix ---- */

static int ask_unix(struct sockets *sockets, uint64_t inode, char *reply, size_t cap, size_t *size)
{
    const struct {
        struct nlmsghdr head;
        struct unix_diag_req request;
    } message = {
        .head = {.nlmsg_len = sizeof message,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = AF_UNIX,
                    .udiag_ino = (uint32_t)inode,
                    .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER,
                    .udiag_cookie = {~0u, ~0u}},
    };

    int r = ask(sockets, &message, sizeof message);
    ssize_t n = r < 0 ? -1 : recv(sockets->diag - 1, reply, cap, 0);
    if (n < 0)
        return close_diag(sockets, r < 0 ? r : -errno);
    *size = (size_t)n;
    return 0;
}

static void set_unix_name(struct socket_peer *out, const char *name, size_t size)
{
    snprintf(out->name, sizeof out->name, "%s%.*s", *name ? "" : "@", (int)(size - !*name),
             name + !*name);
}

static int read_unix(struct sockets *sockets, uint64_t inode, struct socket_peer *out)
{
    char reply[REPLY_MAX] __attribute__((aligned(8)));
    size_t size = 0;

    int r = ask_unix(sockets, inode, reply, sizeof reply, &size);
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

int socket_peer_read(struct sockets *sockets, pid_t pid, uint64_t inode, struct socket_peer *out)
{
    struct socket_peer peer = {0}, other = {0};

    int r = enter(sockets, pid);
    if (r < 0)
        return r;
    r = read_unix(sockets, inode, &peer);
    if (r == 0 && !*peer.name && peer.inode && read_unix(sockets, peer.inode, &other) == 0)
        memcpy(peer.name, other.name, sizeof peer.name); /* where it is connected to */
    if (r < 0)
        r = read_tcp(sockets, inode, &peer);
    if (r == 0)
        *out = peer;
    return r;
}

void sockets_deinit(struct sockets *sockets)
{
    if (sockets->diag)
        close(sockets->diag - 1);
    free(sockets->tcp);
    *sockets = (struct sockets){0};
}
