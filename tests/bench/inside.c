/* inside PID ROUNDS [native]: takes so many snapshots as the daemon does for one reader, without
 * FUSE and without rendering. Prints a line for each: nanoseconds that all of it took, the Python
 * stacks alone, and for which threads of the target were stopped. */
#include "fs/remote/moment/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
    struct target *target;

    if (argc < 3) {
        fprintf(stderr, "usage: inside PID ROUNDS [native]\n");
        return 2;
    }
    struct snapshot_options options = {.native = argc > 3 && !strcmp(argv[3], "native")};
    int r = target_open(atoi(argv[1]), &target);
    if (r < 0) {
        fprintf(stderr, "inside: %s: %s\n", argv[1], strerror(-r));
        return 1;
    }
    for (long left = atol(argv[2]); left > 0; left--) {
        struct snapshot *snapshot;
        r = snapshot_take(target, &options, &snapshot);
        if (r < 0) {
            fprintf(stderr, "inside: %s\n", strerror(-r));
            break;
        }
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", snapshot->cost.total_ns,
               snapshot->cost.python_ns, snapshot->cost.pause_ns);
        snapshot_free(snapshot);
        /* as one who reads 100 times a second: a pause is put off if the last was just now */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    target_unref(target);
    return r < 0;
}
