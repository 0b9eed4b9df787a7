/* heap/census: what fills the heap, `COUNT BYTES TYPE`, by bytes, the largest first. Lines that
 * begin with # say what isn't in that. */
#include "fs/tree/heap.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/remote/heap/marks.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <stdlib.h>

#define MB 1e6

int heap_unwanted(const void *interrupt) { return interrupted(interrupt) ? -EINTR : 0; }

int heap_error(struct file_context *context, int error)
{
    return context->why.size ? error : snapshot_error(context, error);
}

void heap_marks_text(struct target *target, struct text *out)
{
    char names[MARKS_MAX][MARK_NAME_MAX];
    size_t n = marks_names(target, names);

    for (size_t i = 0; i < n; i++)
        text_printf(out, "%s%s", i ? " " : "HeapMarks: ", names[i]);
    if (n)
        text_putc(out, '\n');
}

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
        .scan = {.unwanted = heap_unwanted, .unwanted_arg = context->interrupt},
    };

    int r = census_take(context->target, &census, &context->why);
    if (r < 0)
        return heap_error(context, r);
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
