/* A family of metrics as OpenMetrics 1.0 has it, which Prometheus reads: its type is told by its
 * name, as the standard wants names to be. What it calls an info is written as a gauge, since
 * readers of the older format know none. */
#include "fs/sql/format.h"

#include <string.h>

static bool ends_in(const char *name, size_t size, const char *end)
{
    size_t n = strlen(end);

    return size > n && !memcmp(name + size - n, end, n);
}

/* [a-zA-Z_:][a-zA-Z0-9_:]*; labels have no colon. What is none becomes one. */
static void add_name(struct text *out, const char *name, size_t size, bool label)
{
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                    (c == ':' && !label) || (i && c >= '0' && c <= '9');
        text_putc(out, fits ? c : '_');
    }
}

static const char *name_of(const struct formatter *f, sqlite3_stmt *stmt)
{
    const char *name = sqlite3_column_name(stmt, f->columns - 1);

    return name ? name : "";
}

static void begin(struct formatter *f, sqlite3_stmt *stmt)
{
    static const char *const units[] = {"seconds", "bytes", "ratio"};
    const char *name = name_of(f, stmt);
    size_t size = strlen(name);
    bool counter = ends_in(name, size, "_total");

    if (counter)
        size -= strlen("_total");
    text_puts(f->out, "# TYPE ");
    add_name(f->out, name, size, false);
    text_puts(f->out, counter ? " counter\n" : " gauge\n");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (ends_in(name, size, units[i]) && name[size - strlen(units[i]) - 1] == '_') {
            text_puts(f->out, "# UNIT ");
            add_name(f->out, name, size, false);
            text_printf(f->out, " %s\n", units[i]);
        }
}

static void add_label(struct text *out, const char *bytes, size_t size)
{
    for (size_t i = 0, n; i < size; i += n) {
        n = format_character(bytes + i, size - i);
        if (!n)
            text_printf(out, "\\\\x%02x", (unsigned char)bytes[i]);
        else if (bytes[i] == '\n')
            text_puts(out, "\\n");
        else if (bytes[i] == '"' || bytes[i] == '\\')
            text_printf(out, "\\%c", bytes[i]);
        else
            text_add(out, bytes + i, n);
        n = n ? n : 1;
    }
}

static void row(struct formatter *f, sqlite3_stmt *stmt)
{
    int last = f->columns - 1, type = sqlite3_column_type(stmt, last);
    const char *value = (const char *)sqlite3_column_text(stmt, last);
    bool labels = false;

    if (!value || (type != SQLITE_INTEGER && type != SQLITE_FLOAT))
        return;
    add_name(f->out, name_of(f, stmt), strlen(name_of(f, stmt)), false);
    for (int i = 0; i < last; i++) {
        const char *bytes = (const char *)sqlite3_column_text(stmt, i);
        const char *name = sqlite3_column_name(stmt, i);
        if (!bytes || !name) /* NULL: it has no such label */
            continue;
        text_putc(f->out, labels ? ',' : '{');
        labels = true;
        add_name(f->out, name, strlen(name), true);
        text_puts(f->out, "=\"");
        add_label(f->out, bytes, (size_t)sqlite3_column_bytes(stmt, i));
        text_putc(f->out, '"');
    }
    text_printf(f->out, "%s %s\n", labels ? "}" : "", value);
}

static void end(struct formatter *f) {}

const struct format_ops format_metrics = {begin, row, end};
