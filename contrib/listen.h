/* The sockets on which doors listen: on this machine only. */
#pragma once

#include <stdbool.h>

#define LISTEN_BACKLOG 16

/* On a port of 127.0.0.1; 0: any that is free, *port is it then. A descriptor, or -errno. */
int listen_port(unsigned short *port);
/* On a Unix socket of mode 0600; one that somebody has left there is replaced. A descriptor, or
 * -errno. */
int listen_path(const char *path);
/* Whether the other end of a Unix socket is this user's. */
bool listen_is_own(int fd);
