#include "contrib/listen.h"

#include "agent/base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

int listen_port(unsigned short *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(*port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, LISTEN_BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        return -errno;
    *port = ntohs(address.sin_port);
    return steal_fd(fd);
}

/* Whether it is a socket that one of ours left, which nobody listens on. */
static bool is_left_over(int fd, const struct sockaddr_un *address)
{
    struct stat st;
    return lstat(address->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_uid == geteuid() &&
           connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 &&
           errno == ECONNREFUSED;
}

int listen_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    if (fd < 0)
        return -errno;
    if (is_left_over(fd, &address))
        unlink(path);
    mode_t mask = umask(0177);
    int r = bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
    umask(mask);
    if (r == 0 && listen(fd, LISTEN_BACKLOG) < 0)
        r = -errno;
    return r < 0 ? r : steal_fd(fd);
}

bool listen_is_own(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}
