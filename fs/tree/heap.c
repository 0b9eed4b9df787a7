/* heap/census: what fills the heap, `COUNT BYTES TYPE`, by bytes, the largest first. Lines that
 * begin with # say what isn't in that. */
#include "fs/remote/heap/census.h"

#include "agent/base/cleanup.h"
#include "fs/base/interrupt.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <stdlib.h>

#define MB 1e6

static int unwanted(const void *arg) { return interrupted(arg) ? -EINTR : 0; }

/* A field of /proc/PID/status, in bytes. */
static uint64_t status_bytes(const char *status, const char *name)
{
    const char *text = proc_status_field(status, name);

    return text ? strtoull(text, NULL, 10) * 1024 : 0;
}

static void add_rest(const struct file_context *context, const struct census *census,
                     struct text *out)
{
    char status[4096];

    if (proc_read(context->target->pid, "status", status, sizeof status) <= 0)
        return;
    uint64_t anonymous = status_bytes(status, "RssAnon");
    uint64_t rest = anonymous > census->pool_bytes ? anonymous - census->pool_bytes : 0;
    text_printf(out,
                "# not in it: %.1f MB of malloc and mmap: objects of more than 512 bytes, tables "
                "of large dicts, numpy and other libraries, stacks\n",
                (double)rest / MB);
    if (census->scan.swapped)
        text_printf(out, "# not read: %.1f MB that are swapped out\n",
                    (double)census->scan.swapped / MB);
}

int heap_census_render(struct file_context *context, struct text *out)
{
    _cleanup_(census_deinit) struct census census = {
        .scan = {.unwanted = unwanted, .unwanted_arg = context->interrupt},
    };

    int r = census_take(context->target, &census, &context->why);
    if (r < 0)
        return r == -EOPNOTSUPP ? r : snapshot_error(context, r);
    const struct scan *scan = &census.scan;
    text_printf(out, "# %lu objects in %.1f MB of pools, read in %.2f s\n", census.objects,
                (double)census.pool_bytes / MB, (double)scan->ns * 1e-9);
    if (scan->cut)
        text_printf(out, "# cut: after %.0f s and %.1f MB, %.1f of %.1f MB of mappings are read\n",
                    (double)scan->ns * 1e-9, (double)scan->copied / MB, (double)scan->passed / MB,
                    (double)scan->total / MB);
    if (census.torn)
        text_printf(out, "# %lu of %lu pools changed while they were read\n", census.torn,
                    census.pools);
    add_rest(context, &census, out);
    for (size_t i = 0; i < census.n; i++)
        text_printf(out, "%lu %lu %s\n", census.types[i].count, census.types[i].bytes,
                    census.types[i].name);
    text_printf(out, "# %lu %lu no objects: tables of dicts, items of lists, strings of C\n",
                census.blocks, census.block_bytes);
    return 0;
}
