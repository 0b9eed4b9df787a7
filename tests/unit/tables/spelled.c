/* A function, which gives no row more than a call asks for. */
#include "fs/sql/table.h"

#include "colours.h"

#include <string.h>

static bool is_in(const struct range *range, int64_t value)
{
    return value >= range->low && value <= range->high;
}

static int64_t first(const struct call *call)
{
    const int64_t low = call->ranges[SPELLED_POSITION].low;

    return low < 0 ? 0 : low;
}

/* The same call in another place of the statement may have had it. */
static bool has(const struct use *use, unsigned n, const char *text, int64_t turn, int64_t at)
{
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(use->calls[i].text, text) && is_in(&use->calls[i].ranges[SPELLED_TURN], turn) &&
            is_in(&use->calls[i].ranges[SPELLED_POSITION], at) &&
            (uint64_t)(at - first(&use->calls[i])) < use->calls[i].rows)
            return true;
    return false;
}

static void spell(const struct use *use, unsigned number, int64_t turn, struct rows *rows)
{
    const struct call *call = &use->calls[number];
    uint64_t n = 0;

    for (int64_t at = 0; call->text[at] && n < call->rows; at++) {
        if (!is_in(&call->ranges[SPELLED_POSITION], at))
            continue;
        n++;
        if (has(use, number, call->text, turn, at))
            continue;
        rows_add(rows);
        rows_integer(rows, SPELLED_POSITION, at);
        rows_bytes(rows, SPELLED_LETTER, &call->text[at], 1);
        rows_integer(rows, SPELLED_TURN, turn);
        rows_text(rows, SPELLED_TEXT, call->text);
    }
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    for (int64_t turn = 0; turn < 2; turn++)
        for (unsigned i = 0; i < use->ncalls; i++)
            if (is_in(&use->calls[i].ranges[SPELLED_TURN], turn))
                spell(use, i, turn, rows);
    return 0;
}

const struct row_source spelled_rows = {.fill = fill};
