/* The tables that agents record, all of them: a table's columns are its ring's. */
#include "fs/sql/recorded.h"

#include "fs/link/recording.h"
#include "fs/sql/scene.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

/* The copy of a ring counts against what the statement may take, as the rows do. */
static void *resize(void *memory, uint64_t size) { return sqlite3_realloc64(memory, size); }

static const struct ring_memory counted = {resize, sqlite3_free};

/* One that didn't fit into its row ends in three dots, and not within a character. */
static void add_cut(struct rows *rows, unsigned column, const char *bytes, uint32_t size)
{
    char text[RING_TEXT_MAX + 3];
    uint32_t last = size;

    while (last && size - last < 3 && ((unsigned char)bytes[last - 1] & 0xc0) == 0x80)
        last--;
    unsigned char lead = last ? (unsigned char)bytes[last - 1] : 0;
    if (lead >= 0xc2 && lead <= 0xf4 && /* else these are no characters anyway */
        !utf8_length((const unsigned char *)bytes + last - 1, size - last + 1))
        size = last - 1;
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

static void add_row(struct rows *rows, const struct table *table, const struct ring_row *row)
{
    int64_t integer;

    rows_add(rows);
    for (unsigned i = 0; i < table->ncolumns; i++)
        switch (table->columns[i].type) {
        case COLUMN_INTEGER:
            if (ring_integer(row, i, &integer))
                rows_integer(rows, i, integer);
            break;
        case COLUMN_REAL: rows_real(rows, i, ring_real(row, i)); break;
        case COLUMN_TEXT: add_text(rows, i, row); break;
        }
}

int recorded_add(struct ring_reader *ring, const struct table *table, const struct use *use,
                 struct rows *rows)
{
    struct ring_rows copy;

    int r = ring_reader_copy(ring, NULL, &counted, &copy);
    if (r < 0)
        return r;
    for (size_t i = 0; i < copy.n && !rows->error; i++)
        add_row(rows, table, copy.items[i]);
    ring_rows_deinit(&copy);
    return 0;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct table *table = scene->table;

    struct ring_reader *ring = scene->recording
        ? recording_ring(scene->recording, (enum recorded)table->recorded) : NULL;
    if (!ring)
        return 0;
    int r = recorded_add(ring, table, use, rows);
    ring_reader_unref(ring);
    return r;
}

const struct row_source recorded_rows = {.fill = fill, .recorded = true};
