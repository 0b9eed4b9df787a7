/* probefs-dap: the Debug Adapter Protocol over a probefs mount, for editors. */
#include "contrib/dap/clients.h"
#include "contrib/dap/session.h"

#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: probefs-dap [--listen PORT|PATH] [MOUNT]\n"
    "Debugs a running Python process for an editor, over a mount of probefs, /probe unless you "
    "say:\n"
    "the Debug Adapter Protocol on standard input and output.\n"
    "\n"
    "  -l, --listen PORT|PATH  on this port of 127.0.0.1 (0: any free one, which is printed), or "
    "on "
    "a\n"
    "                          Unix socket; for programs of this user only\n"
    "  -h, --help              this\n"
    "  -V, --version\n";

static void interrupt(int number) {}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {0}};
    const char *where = NULL;

    for (int option; (option = getopt_long(argc, argv, "l:hV", options, NULL)) != -1;)
        switch (option) {
        case 'l': where = optarg; break;
        case 'h': fputs(usage, stdout); return 0;
        case 'V': puts("probefs-dap " PROBEFS_VERSION); return 0;
        default: fputs("See probefs-dap --help\n", stderr); return 2;
        }
    if (argc - optind > 1) {
        fputs("probefs-dap: more than one mount was named; see probefs-dap --help\n", stderr);
        return 2;
    }
    const char *mount = optind < argc ? argv[optind] : "/probe";
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = interrupt}, NULL);
    if (where)
        return clients_serve(where, mount);
    session_run(mount, stdin, STDOUT_FILENO);
    _exit(0); /* what waits for a file is broken off by that */
}
