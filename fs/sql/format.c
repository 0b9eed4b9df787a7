#include "fs/sql/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const struct format_ops *ops;
} formats[] = {
    [FORMAT_CSV] = {"csv", &format_csv},       [FORMAT_JSON] = {"json", &format_json},
    [FORMAT_JSONL] = {"jsonl", &format_jsonl}, [FORMAT_METRICS] = {"metrics", &format_metrics},
    [FORMAT_TABLE] = {"table", &format_table},
};

bool format_find(const char *name, size_t size, enum format *out)
{
    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strlen(formats[i].name) == size && !strncmp(formats[i].name, name, size)) {
            *out = (enum format)i;
            return true;
        }
    return false;
}

int formatter_init(struct formatter *f, enum format format, struct text *out, sqlite3_stmt *stmt)
{
    size_t columns = (size_t)sqlite3_column_count(stmt);

    *f = (struct formatter){.ops = formats[format].ops, .out = out, .columns = (int)columns};
    f->widths = calloc(columns + 1, sizeof *f->widths);
    f->right = calloc(columns + 1, sizeof *f->right);
    if (!f->widths || !f->right) {
        formatter_deinit(f);
        return -ENOMEM;
    }
    f->ops->begin(f, stmt);
    return 0;
}

void formatter_row(struct formatter *f, sqlite3_stmt *stmt)
{
    f->ops->row(f, stmt);
    f->rows++;
}

int formatter_finish(struct formatter *f)
{
    f->ops->end(f);
    return f->out->error ? f->out->error : f->cells.error;
}

void formatter_deinit(struct formatter *f)
{
    text_deinit(&f->cells);
    free(f->widths);
    free(f->right);
    f->widths = NULL;
    f->right = NULL;
}

size_t format_character(const char *bytes, size_t size)
{
    unsigned char c = (unsigned char)*bytes;

    if (c < 0x20)
        return c == '\n' || c == '\r' || c == '\t';
    if (c < 0x80)
        return c != 0x7f;
    size_t n = utf8_length((const unsigned char *)bytes, size);
    return n == 2 && c == 0xc2 && (unsigned char)bytes[1] < 0xa0 ? 0 : n; /* C1 controls */
}
