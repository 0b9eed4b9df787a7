/* probefs-web: a mount of probefs in a browser of this machine.
 *
 * It is a program of the user's and may what the user may: the daemon asks who the gateway is, as
 * it asks of a shell. So whoever is to be kept out must be kept out here: it listens on this
 * machine only, and whoever has the link that it prints, and nobody else, is the user. */
#include "agent/base/cleanup.h"
#include "contrib/listen.h"
#include "contrib/web/files.h"
#include "contrib/web/server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PORT 8123

static const char usage[] =
    "Usage: probefs-web [OPTION]... [MOUNT]\n"
    "Shows a mount of probefs, /probe unless you say, to a browser of this machine. Prints the "
    "link to open.\n"
    "\n"
    "  -l, --listen PORT|PATH  on this port of 127.0.0.1 (8123; 0: any free one), or on a Unix "
    "socket\n"
    "      --as-root           as root, too: whoever has the link may then what root may\n"
    "  -h, --help              this\n"
    "  -V, --version\n"
    "\n"
    "From another machine: ssh -L 8123:127.0.0.1:8123 HOST, then open the link there.\n";

static int make_token(struct server *server)
{
    unsigned char raw[TOKEN_BYTES];

    if (getrandom(raw, sizeof raw, 0) != sizeof raw)
        return -errno;
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(server->token + 2 * i, 3, "%02x", raw[i]);
    return 0;
}

static void interrupt(int number) {}

/* Listens where it is told and says how to get there. Returns a descriptor; negative: it has said
 * why not. */
static int open_door(struct server *server, const char *where)
{
    char *end;
    unsigned long number = strtoul(where, &end, 10);
    unsigned short port = (unsigned short)number;
    int fd;

    server->is_local = strchr(where, '/') != NULL;
    if (!server->is_local && (!*where || *end || number > 65535)) {
        fprintf(stderr, "probefs-web: --listen wants a port, or the path of a socket: %s\n", where);
        return -EINVAL;
    }
    fd = server->is_local ? listen_path(where) : listen_port(&port);
    if (fd < 0) {
        fprintf(stderr, "probefs-web: can't listen on %s: %s. Choose another with --listen\n",
                where, strerror(-fd));
        return fd;
    }
    if (server->is_local)
        printf("ssh -L %u:%s HOST, there: http://127.0.0.1:%u/#token=%s\n", PORT, where, PORT,
               server->token);
    else
        printf("http://127.0.0.1:%u/#token=%s\n", port, server->token);
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"as-root", no_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {0}};
    struct server server = {.mount = "/probe", .visits = VISITS_INIT};
    const char *where = "8123";
    bool as_root = false;
    sigset_t ends;
    int option, number;

    while ((option = getopt_long(argc, argv, "l:hV", options, NULL)) != -1)
        switch (option) {
        case 'l': where = optarg; break;
        case 'r': as_root = true; break;
        case 'h': fputs(usage, stdout); return 0;
        case 'V': puts("probefs-web " PROBEFS_VERSION); return 0;
        default: fputs("See probefs-web --help\n", stderr); return 2;
        }
    if (argc - optind > 1) {
        fputs("probefs-web: more than one mount was named; see probefs-web --help\n", stderr);
        return 2;
    }
    if (optind < argc)
        server.mount = argv[optind];
    if (geteuid() == 0 && !as_root) {
        fputs("probefs-web: as root, whoever has the link may do to every process what root may. "
              "Run it as the user whose processes you want to see, or say --as-root\n",
              stderr);
        return 1;
    }
    _cleanup_close_ int mounted = files_open(server.mount, "", O_PATH);
    if (mounted < 0) {
        fprintf(stderr, "probefs-web: no probefs is mounted on %s. Start it: probefs %s\n",
                server.mount, server.mount);
        return 1;
    }

    /* before there are threads: only sigwait() gets the one kind, and the other only breaks off
     * what waits */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = interrupt}, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (make_token(&server) < 0) {
        perror("probefs-web: no random numbers");
        return 1;
    }
    int fd = open_door(&server, where);
    if (fd < 0)
        return 1;
    if (!server_start(&server, fd)) {
        fputs("probefs-web: the server could not be started\n", stderr);
        return 1;
    }
    sigwait(&ends, &number);
    if (server.is_local)
        unlink(where);
    _exit(0); /* what waits for a file is broken off by that */
}
