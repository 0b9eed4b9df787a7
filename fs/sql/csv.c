/* CSV as RFC 4180 has it, but for the line ends, which are those of every other file here. */
#include "fs/sql/format.h"

#include <string.h>

static bool is_plain(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] == '"' || bytes[i] == ',' || bytes[i] == '\n' || bytes[i] == '\r')
            return false;
    /* some readers strip them */
    return size && *bytes != ' ' && *bytes != '\t' && bytes[size - 1] != ' ' &&
           bytes[size - 1] != '\t';
}

static void add_field(struct text *out, const char *bytes, size_t size)
{
    bool plain = is_plain(bytes, size);

    if (!plain)
        text_putc(out, '"');
    for (size_t i = 0, run = 0; i < size; i += run) {
        size_t n;
        for (run = 0; i + run < size && bytes[i + run] != '"'; run += n)
            if (!(n = format_character(bytes + i + run, size - i - run)))
                break;
        text_add(out, bytes + i, run);
        if (run)
            continue;
        if (bytes[i] == '"')
            text_puts(out, "\"\"");
        else
            text_printf(out, "\\x%02x", (unsigned char)bytes[i]);
        run = 1;
    }
    if (!plain)
        text_putc(out, '"');
}

static void begin(struct formatter *f, sqlite3_stmt *stmt)
{
    for (int i = 0; i < f->columns; i++) {
        const char *name = sqlite3_column_name(stmt, i);
        if (i)
            text_putc(f->out, ',');
        if (name)
            add_field(f->out, name, strlen(name));
    }
    text_putc(f->out, '\n');
}

static void row(struct formatter *f, sqlite3_stmt *stmt)
{
    for (int i = 0; i < f->columns; i++) {
        const char *bytes = (const char *)sqlite3_column_text(stmt, i);
        if (i)
            text_putc(f->out, ',');
        if (bytes)
            add_field(f->out, bytes, (size_t)sqlite3_column_bytes(stmt, i));
        else if (f->columns == 1) /* an empty line is no row to most readers */
            text_puts(f->out, "\"\"");
    }
    text_putc(f->out, '\n');
}

static void end(struct formatter *f) {}

const struct format_ops format_csv = {begin, row, end};
