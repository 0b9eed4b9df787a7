/* heap/sites: which lines allocated what lives, as the agent has sampled it since `heap sites on`:
 * `LIVING ALLOCATED STACK`, bytes, who has most of what lives first. Reading it looks at the
 * agent's memory from outside. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/wire/allocations.h"
#include "fs/base/array.h"
#include "fs/link/found.h"
#include "fs/process/process.h"
#include "fs/tree/heap.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static int by_living(const void *a, const void *b)
{
    const struct allocation_site *const *x = a, *const *y = b;

    if ((*x)->living != (*y)->living)
        return (*x)->living < (*y)->living ? 1 : -1;
    if ((*x)->allocated != (*y)->allocated)
        return (*x)->allocated < (*y)->allocated ? 1 : -1;
    return (*x)->start < (*y)->start ? -1 : (*x)->start > (*y)->start;
}

/* -ENOENT: nothing was ever sampled. The caller frees *out. */
static int read_sites(struct file_context *context, struct allocations **out)
{
    const size_t head = offsetof(struct allocations, site);
    _cleanup_free_ struct allocations *read = calloc(1, sizeof *read);
    struct found_agent found;

    if (!read)
        return -ENOMEM;
    if (!recording_agent(context->recording, &found) || !found.record.allocations)
        return -ENOENT;
    uint64_t at = found.record.allocations;
    int r = memory_read(&context->target->memory, at, read, head);
    if (r == 0 && (read->magic != ALLOCATIONS_MAGIC || read->sites > ALLOCATION_SITES_MAX))
        r = -ENOENT;
    if (r == 0)
        r = memory_read(&context->target->memory, at + head, read->site,
                        read->sites * sizeof *read->site);
    if (r == 0)
        *out = steal_pointer(read);
    return r == -EFAULT ? -ENOENT : r;
}

static void add_head(const struct allocations *read, struct text *out)
{
    double until = read->on ? realtime_s() : read->until;

    text_printf(out, "# %s, for %.1f s, one in %lu bytes sampled: %lu samples",
                read->on ? "on" : "off", until - read->since, read->mean, read->samples);
    if (read->lost)
        text_printf(out, ", %lu lost", read->lost);
    if (read->unfollowed)
        text_printf(out, ", %lu not among the living: too many", read->unfollowed);
    text_putc(out, '\n');
}

static int add_sites(const struct allocations *read, struct text *out)
{
    _cleanup_free_ const struct allocation_site **sites = calloc(read->sites + 1, sizeof *sites);

    if (!sites)
        return -ENOMEM;
    for (uint32_t i = 0; i < read->sites; i++)
        sites[i] = &read->site[i];
    array_sort(sites, read->sites, sizeof *sites, by_living);
    for (uint32_t i = 0; i < read->sites; i++) {
        const struct allocation_site *site = sites[i];
        text_printf(out, "%lu %lu ", site->living, site->allocated);
        if (site->start < sizeof site->stack)
            text_add_escaped(out, site->stack + site->start, sizeof site->stack - site->start);
        else
            text_puts(out, site->hash ? "(no Python)" : "(others)");
        text_putc(out, '\n');
    }
    return 0;
}

int heap_sites_render(struct file_context *context, struct text *out)
{
    _cleanup_free_ struct allocations *read = NULL;

    int r = read_sites(context, &read);
    if (r == -ENOENT) {
        text_puts(out, "# nothing is sampled: write `heap sites on` to ctl\n");
        return 0;
    }
    if (r < 0)
        return heap_error(context, r);
    add_head(read, out);
    return add_sites(read, out);
}
