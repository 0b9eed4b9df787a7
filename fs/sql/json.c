/* JSON as RFC 8259 has it: [{"tid": 1, "func": "f"}, ...], one object a line; and without the
 * array, so that texts of it can be put together line by line. */
#include "fs/sql/format.h"

#include <string.h>

static void begin(struct formatter *f, sqlite3_stmt *stmt) { text_putc(f->out, '['); }

static void add_value(struct formatter *f, sqlite3_stmt *stmt, int i)
{
    int type = sqlite3_column_type(stmt, i); /* asked before it is converted */
    const char *bytes = (const char *)sqlite3_column_text(stmt, i);
    size_t size = (size_t)sqlite3_column_bytes(stmt, i);

    /* infinities are no JSON */
    if (type == SQLITE_INTEGER || (type == SQLITE_FLOAT && bytes && !strpbrk(bytes, "In")))
        text_add(f->out, bytes, size);
    else if (type == SQLITE_NULL || !bytes)
        text_puts(f->out, "null");
    else
        text_add_json(f->out, bytes, size);
}

static void add_object(struct formatter *f, sqlite3_stmt *stmt)
{
    text_putc(f->out, '{');
    for (int i = 0; i < f->columns; i++) {
        const char *name = sqlite3_column_name(stmt, i);
        if (i)
            text_puts(f->out, ", ");
        text_add_json(f->out, name ? name : "", name ? strlen(name) : 0);
        text_puts(f->out, ": ");
        add_value(f, stmt, i);
    }
    text_putc(f->out, '}');
}

static void row(struct formatter *f, sqlite3_stmt *stmt)
{
    if (f->rows)
        text_puts(f->out, ",\n ");
    add_object(f, stmt);
}

static void end(struct formatter *f) { text_puts(f->out, "]\n"); }

static void begin_lines(struct formatter *f, sqlite3_stmt *stmt) {}

static void line(struct formatter *f, sqlite3_stmt *stmt)
{
    add_object(f, stmt);
    text_putc(f->out, '\n');
}

static void end_lines(struct formatter *f) {}

const struct format_ops format_json = {begin, row, end};
const struct format_ops format_jsonl = {begin_lines, line, end_lines};
