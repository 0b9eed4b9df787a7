/* What a row of torch_trace says that isn't recorded: how the memory has changed since the stage
 * that ended before, in the order of the ring, and what its process is in its job. */
#include "fs/tables/torch_trace.h"

#include "fs/process/membership.h"
#include "schema/schema.h"

_Static_assert(TORCH_TRACE_MAX_CACHED - TORCH_TRACE_ALLOCATED + 1 == TORCH_TRACE_MEMORY &&
                   TORCH_TRACE_MAX_CACHED_DELTA - TORCH_TRACE_ALLOCATED_DELTA + 1 ==
                       TORCH_TRACE_MEMORY,
               "they stand side by side");

void torch_trace_follow(struct torch_trace_adding *adding, const struct ring_row *row)
{
    bool has = true, known = adding->known;
    int64_t memory[TORCH_TRACE_MEMORY];

    for (unsigned i = 0; i < TORCH_TRACE_MEMORY; i++)
        has = ring_integer(row, TORCH_TRACE_ALLOCATED + i, &memory[i]) && has;
    for (unsigned i = 0; i < TORCH_TRACE_MEMORY; i++) {
        if (!has || !known ||
            __builtin_sub_overflow(memory[i], adding->memory[i], &adding->delta[i]))
            adding->delta[i] = ROWS_NULL;
        if (has)
            adding->memory[i] = memory[i];
    }
    adding->known = has || known;
}

void torch_trace_add(const struct torch_trace_adding *adding, const struct membership *of,
                     struct rows *rows)
{
    for (unsigned i = 0; i < TORCH_TRACE_MEMORY; i++)
        rows_integer(rows, TORCH_TRACE_ALLOCATED_DELTA + i, adding->delta[i]);
    if (of && *of->role)
        rows_text(rows, TORCH_TRACE_ROLE, of->role);
    if (of && of->world >= 0)
        rows_integer(rows, TORCH_TRACE_WORLD, of->world);
}
