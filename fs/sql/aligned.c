/* Aligned columns for people: two spaces between them, numbers at the right, a line below the
 * header. What would break a line is escaped. The last column is not padded. */
#include "fs/sql/format.h"

#include <string.h>

#define WIDTH_MAX 120 /* characters up to which a column is padded */

static unsigned characters(const char *s)
{
    unsigned n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void add_cell(struct formatter *f, int column, const char *bytes, size_t size)
{
    size_t at = f->cells.size;

    text_add_escaped(&f->cells, bytes, size);
    text_add(&f->cells, "", 1);
    if (f->cells.error || f->cells.cut)
        return;
    unsigned width = characters(f->cells.data + at);
    if (width > f->widths[column])
        f->widths[column] = width < WIDTH_MAX ? width : WIDTH_MAX;
}

static void begin(struct formatter *f, sqlite3_stmt *stmt)
{
    for (int i = 0; i < f->columns; i++) {
        const char *name = sqlite3_column_name(stmt, i);
        add_cell(f, i, name ? name : "", name ? strlen(name) : 0);
        f->right[i] = true;
    }
}

static void row(struct formatter *f, sqlite3_stmt *stmt)
{
    for (int i = 0; i < f->columns; i++) {
        int type = sqlite3_column_type(stmt, i); /* asked before it is converted */
        const char *bytes = (const char *)sqlite3_column_text(stmt, i);
        f->right[i] &= type == SQLITE_INTEGER || type == SQLITE_FLOAT || type == SQLITE_NULL;
        add_cell(f, i, bytes ? bytes : "", bytes ? (size_t)sqlite3_column_bytes(stmt, i) : 0);
    }
    f->whole += !f->cells.error && !f->cells.cut;
}

static void add_line(struct formatter *f, const char **cell)
{
    for (int i = 0; i < f->columns; i++, *cell += strlen(*cell) + 1) {
        unsigned width = characters(*cell);
        int pad = width < f->widths[i] ? (int)(f->widths[i] - width) : 0;
        if (f->right[i])
            text_printf(f->out, "%*s", pad, "");
        text_puts(f->out, *cell);
        if (!f->right[i] && i + 1 < f->columns)
            text_printf(f->out, "%*s", pad, "");
        text_puts(f->out, i + 1 < f->columns ? "  " : "\n");
    }
}

static void end(struct formatter *f)
{
    const char *cell = f->cells.data;

    if (f->cells.error || !cell)
        return;
    add_line(f, &cell);
    for (int i = 0; i < f->columns; i++) {
        for (unsigned k = 0; k < f->widths[i]; k++)
            text_putc(f->out, '-');
        text_puts(f->out, i + 1 < f->columns ? "  " : "\n");
    }
    for (uint64_t n = 0; n < f->whole && !f->out->cut; n++)
        add_line(f, &cell);
    if (f->cells.cut)
        text_puts(f->out, "[cut: the columns of more rows can't be aligned; -- format: csv]\n");
}

const struct format_ops format_table = {begin, row, end};
