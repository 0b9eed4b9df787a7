/* Reads lines of a file that a target names, as the caller would see it there.
 *
 * The name comes from the target and the daemon may be root, so that neither is trusted with it:
 * a child of the daemon, with the caller's ids and groups and without capabilities, follows the
 * name inside the target's root (openat2(2), so that no symbolic link leads out of it), opens it
 * only if it is a regular file, and not in /proc, where a process that reads sees itself. It can be
 * killed, should a file system not answer. */
#pragma once

#include "fs/access/credentials.h"
#include "fs/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SOURCE_LINES_MAX 4096         /* of one reading */
#define SOURCE_LINE_BYTES 512         /* of one line; the rest of it is cut */
#define SOURCE_TEXT_BYTES (2u << 20)  /* of a file that is read as a whole */
#define SOURCE_FILE_BYTES (16u << 20) /* looked through for the lines */
#define SOURCE_DEADLINE_MS 2000
/* Children at once, of one user and for root alone; those that a file system doesn't let die count
 * until it does. Fewer than the mount has threads: a file may be one of the mount's own, which one
 * of these answers, and which may be itself. */
#define SOURCE_CHILDREN_MAX 16
#define SOURCE_CHILDREN_EACH 4
#define SOURCE_CHILDREN_KEPT 4

struct source_request {
    int root, cwd;                /* O_PATH descriptors of /proc/PID/root and /proc/PID/cwd */
    const char *path;             /* relative to cwd, if it does not begin with / */
    const struct credentials *as; /* whose rights count; NULL: the daemon's own */
    bool whole;                   /* all of it, as it is; else ... */
    int first, last;              /* ... these lines, from 1 */
};

/* Adds lines first to last as they are, each with a newline, as many as there are. *lines: how
 * many that was; of a file as a whole 0. -ENOENT, -EACCES, ...: as openat2(2) and read(2); -EPERM:
 * the daemon can't take on these rights; -EINVAL: not a regular file; -EFBIG: the lines are beyond
 * SOURCE_FILE_BYTES, or the whole of it is larger than SOURCE_TEXT_BYTES; -ETIMEDOUT; -EDQUOT:
 * there are too many children; -ENOMEM, -EAGAIN: no child. */
int source_read(const struct source_request *request, struct text *out, int *lines);
