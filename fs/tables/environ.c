/* The table environ: /proc/PID/environ, which the kernel took down at execve(2). */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/remote/memory/core.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

#define ENVIRON_MAX (8u << 20) /* bytes; ARG_MAX is 2 MiB, 6 MiB at most */

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    size_t cap = 64 << 10;
    _cleanup_free_ char *block = NULL;
    ssize_t n;

    do {
        char *more = realloc(block, cap *= 2);
        if (!more)
            return -ENOMEM;
        block = more;
        n = scene->target->core ? core_environment(scene->target->core, block, cap)
                                : proc_read(scene->target->pid, "environ", block, cap);
        if (n < 0)
            return (int)n;
    } while ((size_t)n + 1 == cap && cap < ENVIRON_MAX);
    for (const char *p = block; p < block + n; p += strlen(p) + 1) {
        const char *equals = strchr(p, '=');
        if (!*p)
            continue;
        rows_add(rows);
        rows_bytes(rows, ENVIRON_NAME, p, equals ? (size_t)(equals - p) : strlen(p));
        rows_text(rows, ENVIRON_VALUE, equals ? equals + 1 : NULL);
    }
    return 0;
}

const struct row_source environ_rows = {.fill = fill};
