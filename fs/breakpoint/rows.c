#include "fs/breakpoint/rows.h"

#include "agent/base/cleanup.h"
#include "agent/wire/proto.h"
#include "fs/base/array.h"
#include "schema/schema.h"

#include <errno.h>

/* An agent that doesn't keep to the limit may have more: the rest isn't shown. */
#define SET_MAX (2 * PROTO_BREAKPOINTS_MAX)

void breakpoint_rows_deinit(struct breakpoint_rows *set)
{
    for (size_t i = 0; i < set->n; i++)
        free(set->rows[i]);
    free(set->rows);
    *set = (struct breakpoint_rows){0};
}

/* The index at which the row of an id is, or belongs. */
static size_t find(const struct breakpoint_rows *set, int64_t id)
{
    return LOWER_BOUND(set->n, i, (int64_t)set->rows[i]->words[BREAKPOINTS_ID] < id);
}

static bool is_removed(const struct ring_row *row)
{
    static const char removed[] = "removed";
    uint32_t size;
    bool cut;

    const char *state = ring_text(row, BREAKPOINTS_STATE, &size, &cut);
    return !state || (size == sizeof removed - 1 && !memcmp(state, removed, size));
}

static void take_out(struct breakpoint_rows *set, size_t at)
{
    free(set->rows[at]);
    set->n--;
    memmove(&set->rows[at], &set->rows[at + 1], (set->n - at) * sizeof *set->rows);
}

static int put_in(struct breakpoint_rows *set, size_t at, struct ring_row *row)
{
    int r = ARRAY_GROW(set->rows, set->alloc, set->n + 1);
    if (r < 0)
        return r;
    memmove(&set->rows[at + 1], &set->rows[at], (set->n - at) * sizeof *set->rows);
    set->rows[at] = row;
    set->n++;
    return 0;
}

static int take_row(void *arg, const struct ring_row *row)
{
    struct breakpoint_rows *set = arg;
    int64_t id;

    if (!row) { /* what came so far doesn't count */
        while (set->n)
            free(set->rows[--set->n]);
        return 0;
    }
    if (!ring_integer(row, BREAKPOINTS_ID, &id))
        return 0;
    size_t at = find(set, id);
    if (at < set->n && (int64_t)set->rows[at]->words[BREAKPOINTS_ID] == id)
        take_out(set, at);
    if (is_removed(row) || set->n == SET_MAX)
        return 0;
    struct ring_row *copy = malloc(row->size);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, row, row->size);
    int r = put_in(set, at, copy);
    if (r < 0)
        free(copy);
    return r;
}

int breakpoint_rows_read(struct recording *recording, struct breakpoint_rows *out)
{
    struct ring_counts counts;

    *out = (struct breakpoint_rows){0};
    return recording_scan(recording, RECORDED_BREAKPOINTS, take_row, out, &counts);
}
