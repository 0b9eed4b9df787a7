/* The tables that agents record, all of them: a table's columns are its ring's. Of `breakpoints`
 * only the set is shown, not how it came about; `collectives` has also what is read from outside
 * (collectives.c), `torch_trace` what follows from its rows and its process (torch_trace.c). */
#include "fs/tables/recorded.h"

#include "agent/base/cleanup.h"
#include "fs/breakpoint/rows.h"
#include "fs/process/process.h"
#include "fs/tables/collectives.h"
#include "fs/tables/scene.h"
#include "fs/tables/torch_trace.h"

#include <string.h>

#define ROWS_BETWEEN_LOOKS 4096

/* A ring that is read for a statement. */
struct reading {
    const struct use *use;
    const struct membership *of;
    const struct stop *stop;
    struct rows *rows;
    unsigned looks;
    unsigned nbounds, nkept;
    bool adds; /* columns of torch_trace that aren't in the ring are used */
    struct torch_trace_adding adding;
    struct kept {
        uint8_t column, type;    /* enum column_type */
    } bounds[TABLE_COLUMNS_MAX], /* of which the statement rules out some values */
        kept[TABLE_COLUMNS_MAX]; /* which it uses */
};

/* ---- which rows ---- */

static bool is_text(const struct ring_row *row, unsigned column, const char *wanted)
{
    size_t n = strlen(wanted);
    uint32_t size;
    bool cut;

    const char *bytes = ring_text(row, column, &size, &cut);
    return bytes && size == n && !memcmp(bytes, wanted, n);
}

static bool is_within(const struct bound *bound, const struct kept *k, const struct ring_row *row)
{
    int64_t integer;
    double real;

    switch ((enum column_type)k->type) {
    case COLUMN_INTEGER:
        return ring_integer(row, k->column, &integer) && integer >= bound->low &&
               integer <= bound->high;
    case COLUMN_REAL:
        real = ring_real(row, k->column);
        return real >= bound->least && real <= bound->most; /* NaN isn't */
    case COLUMN_TEXT: break;
    }
    return is_text(row, k->column, bound->equal);
}

static bool is_wanted(const struct reading *r, const struct ring_row *row)
{
    for (unsigned i = 0; i < r->nbounds; i++)
        if (!is_within(&r->use->bounds[r->bounds[i].column], &r->bounds[i], row))
            return false;
    return true;
}

/* ---- what is in them ---- */

/* Adds a text; one that didn't fit into its row ends in three dots. */
static void add_cut(struct rows *rows, unsigned column, const char *bytes, uint32_t size)
{
    char text[RING_TEXT_MAX + 3];

    memcpy(text, bytes, size);
    memcpy(text + size, "...", 3);
    rows_bytes(rows, column, text, size + 3);
}

static void add_text(struct rows *rows, unsigned column, const struct ring_row *row)
{
    uint32_t size;
    bool cut;

    const char *bytes = ring_text(row, column, &size, &cut);
    if (bytes && cut)
        add_cut(rows, column, bytes, size);
    else if (bytes)
        rows_bytes(rows, column, bytes, size);
}

static int add_row(void *arg, const struct ring_row *row)
{
    struct reading *r = arg;
    struct rows *rows = r->rows;

    if (!row) {
        rows_clear(rows);
        r->adding = (struct torch_trace_adding){0};
        return 0;
    }
    if (++r->looks % ROWS_BETWEEN_LOOKS == 0) {
        int stopped = stop_reason(r->stop);
        if (stopped < 0)
            return stopped;
    }
    if (r->adds)
        torch_trace_follow(&r->adding, row);
    if (!is_wanted(r, row))
        return 0;
    rows_add(rows);
    if (r->adds)
        torch_trace_add(&r->adding, r->of, rows);
    for (unsigned i = 0; i < r->nkept; i++) {
        unsigned column = r->kept[i].column;
        switch ((enum column_type)r->kept[i].type) {
        case COLUMN_INTEGER: rows_integer(rows, column, (int64_t)row->words[column]); break;
        case COLUMN_REAL: rows_real(rows, column, ring_real(row, column)); break;
        case COLUMN_TEXT: add_text(rows, column, row); break;
        }
    }
    return rows->error;
}

_Static_assert(ROWS_NULL == RING_NULL_INTEGER, "NULL is the same number");

static struct reading begin(const struct table *table, const struct use *use,
                            const struct membership *of, const struct stop *stop, struct rows *rows)
{
    struct reading r = {.use = use, .of = of, .stop = stop, .rows = rows};

    for (unsigned i = 0; i < table->ncolumns; i++) {
        const struct kept k = {(uint8_t)i, (uint8_t)table->columns[i].type};
        if (table->columns[i].added) {
            r.adds = r.adds || use_wants(use, i);
            continue;
        }
        if (use_wants(use, i))
            r.kept[r.nkept++] = k;
        if (use->bounds[i].bounded || *use->bounds[i].equal)
            r.bounds[r.nbounds++] = k;
    }
    return r;
}

int recorded_add(struct ring_reader *ring, const struct table *table, const struct use *use,
                 const struct membership *of, const struct stop *stop, struct rows *rows)
{
    struct reading r = begin(table, use, of, stop, rows);
    return ring_reader_scan(ring, add_row, &r, NULL);
}

/* Adds the set of breakpoints; that of a process that lives is gone with its agent. */
static int fill_breakpoints(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(breakpoint_rows_deinit) struct breakpoint_rows set = {0};
    struct reading reading = begin(scene->table, use, NULL, scene->stop, rows);

    if (!scene->recording || (scene->target && !recording_attached(scene->recording)))
        return 0;
    int r = breakpoint_rows_read(scene->recording, &set);
    for (size_t i = 0; r == 0 && i < set.n; i++)
        r = add_row(&reading, set.rows[i]);
    return r;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct table *table = scene->table;

    if (table->recorded == (int)RECORDED_BREAKPOINTS)
        return fill_breakpoints(scene, use, rows);
    struct ring_reader *ring =
        scene->recording ? recording_ring(scene->recording, (enum recorded)table->recorded) : NULL;
    const struct membership of = scene->process ? process_membership(scene->process)
                                 : scene->left  ? *scene->left
                                                : (struct membership){.world = -1};
    int r = ring ? recorded_add(ring, table, use, &of, scene->stop, rows) : 0;
    ring_reader_unref(ring);
    if (r == 0 && table->recorded == (int)RECORDED_COLLECTIVES && scene->target)
        r = collectives_add(scene, use, rows);
    return r;
}

const struct row_source recorded_rows = {.fill = fill, .recorded = true};
