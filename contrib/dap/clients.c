#include "contrib/dap/clients.h"

#include "agent/base/cleanup.h"
#include "contrib/dap/session.h"
#include "contrib/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define ESTABLISHED 1 /* of the column `st` of /proc/net/tcp */

/* An address of a table of sockets, IPv6's with one of IPv4 in it too; false: it has none. */
static bool is_address(const char *text, const struct sockaddr_in *address)
{
    static const char mapped[] = "0000000000000000FFFF0000"; /* of ::ffff:0:0/96 */
    unsigned long host;
    unsigned port;
    char *end;

    if (!strncmp(text, mapped, sizeof mapped - 1))
        text += sizeof mapped - 1;
    host = strtoul(text, &end, 16);
    return end == text + 8 && sscanf(end, ":%x", &port) == 1 && host == address->sin_addr.s_addr &&
           port == ntohs(address->sin_port);
}

/* Whether a table of the kernel's has this connection as one of this user's. Its other end is
 * looked at only while it is open: of one that was closed the kernel no longer knows whose it was,
 * and says 0. */
static bool is_in(const char *table, const struct sockaddr_in *from, const struct sockaddr_in *to)
{
    char line[512], local[64], remote[64];
    unsigned state, uid;
    bool found = false;
    FILE *list = fopen(table, "re");

    while (list && !found && fgets(line, sizeof line, list))
        found = sscanf(line, " %*u: %63s %63s %x %*s %*s %*s %u", local, remote, &state, &uid) ==
                    4 &&
                state == ESTABLISHED && uid == geteuid() && is_address(local, from) &&
                is_address(remote, to);
    if (list)
        fclose(list);
    return found;
}

static bool is_own(int client)
{
    struct sockaddr_in from = {0}, to = {0};
    socklen_t from_size = sizeof from, to_size = sizeof to;

    if (getpeername(client, (struct sockaddr *)&from, &from_size) < 0 ||
        getsockname(client, (struct sockaddr *)&to, &to_size) < 0)
        return false;
    return is_in("/proc/self/net/tcp", &from, &to) || is_in("/proc/self/net/tcp6", &from, &to);
}

static void serve(int client, const char *mount)
{
    FILE *in = fdopen(client, "r");

    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (in)
        session_run(mount, in, client);
    _exit(0); /* what waits for a file is broken off by that */
}

/* A descriptor; negative: it has said why not. */
static int begin(const char *where)
{
    bool is_path = strchr(where, '/') != NULL;
    char *end;
    unsigned long number = strtoul(where, &end, 10);
    unsigned short port = (unsigned short)number;

    if (!is_path && (!*where || *end || number > 65535)) {
        fprintf(stderr, "probefs-dap: --listen wants a port, or the path of a socket: %s\n", where);
        return -EINVAL;
    }
    int fd = is_path ? listen_path(where) : listen_port(&port);
    if (fd < 0)
        fprintf(stderr, "probefs-dap: can't listen on %s: %s. Choose another with --listen\n",
                where, strerror(-fd));
    else if (is_path)
        printf("%s\n", where);
    else
        printf("127.0.0.1:%u\n", port);
    fflush(stdout);
    return fd;
}

int clients_serve(const char *where, const char *mount)
{
    bool is_path = strchr(where, '/') != NULL;
    _cleanup_close_ int listener = begin(where);

    if (listener < 0)
        return listener == -EINVAL ? 2 : 1;
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        _cleanup_close_ int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0 && errno != EINTR && errno != ECONNABORTED) {
            perror("probefs-dap: no further client can be served");
            return 1;
        }
        if (client >= 0 && !(is_path ? listen_is_own(client) : is_own(client)))
            fputs("probefs-dap: refused a client of another user's\n", stderr);
        else if (client >= 0 && fork() == 0)
            serve(client, mount);
    }
}
