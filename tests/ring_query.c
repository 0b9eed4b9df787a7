/* SQL over rings that are written here: tests/rings.py.
 *
 *   ring_query SIZE STATEMENT...  < ROWS
 *
 * SIZE is that of each ring, bytes. A line of ROWS is a table's name and one word for each of its
 * columns: N for NULL, I and an integer, R and a number, T and the hexadecimal digits of a text.
 * Each STATEMENT's CSV is followed by a line with nothing but a form feed. */
#include "agent/base/cleanup.h"
#include "agent/record/ring.h"
#include "fs/sql/engine.h"
#include "fs/tables/recorded.h"
#include "schema/rows.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct tables python_tables;

struct world {
    uint64_t size;
    struct ring *rings[RECORDED_TABLES];
    struct ring_reader *readers[RECORDED_TABLES];
};

static int fill(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                struct text *why)
{
    struct world *world = arg;

    for (size_t i = 0; i < n; i++) {
        struct wanted *w = wanted[i];
        if (w->table->recorded < 0)
            errx(2, "%s is not recorded", w->table->name);
        rows_init(&w->rows, w->table, w->use.columns, NULL);
        struct ring_reader *ring = world->readers[w->table->recorded];
        int r = ring ? recorded_add(ring, w->table, &w->use, NULL, stop, &w->rows) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static unsigned digit(char c) { return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10); }

static size_t decode(char *hex)
{
    size_t n = 0;

    for (; hex[2 * n]; n++)
        hex[n] = (char)(digit(hex[2 * n]) << 4 | digit(hex[2 * n + 1]));
    return n;
}

static void put(struct ring_row *row, unsigned column, char type, const char *word)
{
    if (type == 'I')
        row->words[column] = *word == 'N' ? (uint64_t)RING_NULL_INTEGER
                                          : (uint64_t)strtoll(word + 1, NULL, 10);
    else
        ring_put_real(row, column, *word == 'N' ? NAN : strtod(word + 1, NULL));
}

static void append(struct world *world, enum recorded table, char *words)
{
    const struct ring_layout *layout = &recorded_layouts[table];
    struct ring_text texts[64] = {0};
    char *all[64];
    uint32_t size = 0;

    if (!world->rings[table] && ring_new(layout, world->size, 0, &world->rings[table]) < 0)
        errx(2, "no ring");
    for (unsigned i = 0; i < layout->columns; i++) {
        all[i] = strsep(&words, " ");
        if (!all[i])
            errx(2, "%s: too few words", layout->name);
        if (layout->types[i] == 'T' && *all[i] == 'T')
            texts[i] = (struct ring_text){all[i] + 1, decode(all[i] + 1)};
        size += ring_text_size(&texts[i]);
    }
    uint32_t offset = ring_row_size(layout->columns, 0);
    struct ring_row *row = ring_begin(world->rings[table], ring_row_size(layout->columns, size));
    if (!row)
        errx(2, "the row was dropped");
    for (unsigned i = 0; i < layout->columns; i++)
        if (layout->types[i] == 'T')
            offset = ring_put_text(row, i, &texts[i], offset);
        else
            put(row, i, layout->types[i], all[i]);
    ring_end(world->rings[table], NULL);
}

static void read_rows(struct world *world)
{
    _cleanup_free_ char *line = NULL;
    size_t alloc = 0;
    ssize_t n;

    while ((n = getline(&line, &alloc, stdin)) > 0) {
        char *words = line;
        line[n - 1] = 0;
        const char *name = strsep(&words, " ");
        const struct table *table = tables_find(&python_tables, name);
        if (!table || table->recorded < 0)
            errx(2, "%s is not recorded", name);
        append(world, (enum recorded)table->recorded, words);
    }
}

static void answer(const struct provider *from, const char *sql)
{
    struct text out = TEXT_INIT;
    struct engine *engine;
    size_t end;

    if (engine_open(from, NULL, &engine) < 0)
        errx(2, "out of memory");
    if (engine_prepare(engine, sql, strlen(sql), &end) != SQL_READY ||
        engine_run(engine, FORMAT_CSV, &out) < 0) {
        text_puts(&out, "error: ");
        engine_explain(engine, &out);
        text_putc(&out, '\n');
    }
    engine_close(engine);
    fwrite(out.data, 1, out.size, stdout);
    fputs("\f\n", stdout);
    text_deinit(&out);
}

int main(int argc, char **argv)
{
    struct world world = {.size = argc > 1 ? strtoull(argv[1], NULL, 10) : 0};
    const struct provider from = {.tables = &python_tables, .fill = fill, .arg = &world};

    read_rows(&world);
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (world.rings[i] &&
            ring_reader_open(world.rings[i]->fd, &recorded_layouts[i], &world.readers[i]) < 0)
            errx(2, "%s can't be read", recorded_layouts[i].name);
    for (int i = 2; i < argc; i++)
        answer(&from, argv[i]);
    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        ring_reader_unref(world.readers[i]);
        ring_free(world.rings[i]);
    }
    return 0;
}
