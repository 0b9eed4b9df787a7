/* Sockets, and their other ends on this host: sock_diag(7) of a network namespace, or
 * /proc/PID/net/tcp (proc_pid_net(5)). Whoever asks need not be in that namespace. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An end of a TCP connection. IPv4 is mapped into IPv6 (RFC 4291, 2.5.5.2). */
struct tcp_end {
    uint8_t address[16];
    uint16_t port;
};

struct tcp_socket {
    struct tcp_end local, remote;
    unsigned state; /* include/net/tcp_states.h */
    uint64_t inode; /* 0: no process has it (yet, or any more) */
};
#define TCP_STATE_ESTABLISHED 1
#define TCP_STATE_LISTENS 10

/* A line of /proc/PID/net/tcp or tcp6. False: it is none. */
bool tcp_socket_parse(const char *line, struct tcp_socket *out);
/* "127.0.0.1:80", "[::1]:80". */
#define TCP_END_TEXT 64
void tcp_end_print(const struct tcp_end *end, char text[TCP_END_TEXT]);

enum socket_family { SOCKET_UNKNOWN, SOCKET_UNIX, SOCKET_TCP };
#define SOCKET_NAME_MAX 128

/* One socket of a process, and the other end of what it is connected with. */
struct socket_peer {
    enum socket_family family;
    bool listens;
    bool found;     /* `inode` is known */
    uint64_t inode; /* of the other end; 0: no process has accepted it */
    /* where it is bound, or connected to: an address, or a path, unescaped ("@..." is abstract) */
    char name[SOCKET_NAME_MAX];
};

#define SOCKETS_AGE_NS 100000000u /* for which connections are good enough to be told of */

/* What is kept from one question to the next, of the network namespace that was asked about last.
 * Start with {0}. */
struct sockets {
    pid_t pid; /* in that namespace; 0: none yet */
    dev_t ns_dev;
    ino_t ns_ino;
    int diag; /* a socket of sock_diag(7) there, + 1; 0: none */
    struct tcp_socket *tcp;
    size_t ntcp, tcp_alloc;
    bool tcp_cut;
    uint64_t tcp_ns; /* CLOCK_MONOTONIC, when they were read; 0: never */
};

/* What is known of the socket with this inode, one of process pid's. -ENOENT: nothing; -EAGAIN, a
 * limit was reached; -ENOMEM. */
int socket_peer_read(struct sockets *sockets, pid_t pid, uint64_t inode, struct socket_peer *out);
void sockets_deinit(struct sockets *sockets);
