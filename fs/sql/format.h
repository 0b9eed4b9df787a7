/* How a result is written. */
#pragma once

#include "fs/base/text.h"

#include <sqlite3.h>
#include <stdint.h>

enum format {
    FORMAT_CSV,   /* RFC 4180 with a header, lines end in \n: NULL is empty, an empty text is "" */
    FORMAT_JSON,  /* an array of objects, one a line */
    FORMAT_JSONL, /* an object a line, and nothing else */
    FORMAT_METRICS, /* one family of OpenMetrics: the last column is the value and names it, the
                       others are labels; rows without a value are left out */
    FORMAT_TABLE,   /* aligned columns, for people */
};

/* "csv", "json", "jsonl", "metrics", "table". False: none of them. */
bool format_find(const char *name, size_t size, enum format *out);

struct formatter;

struct format_ops {
    void (*begin)(struct formatter *f, sqlite3_stmt *stmt);
    void (*row)(struct formatter *f, sqlite3_stmt *stmt);
    void (*end)(struct formatter *f);
};

extern const struct format_ops format_csv, format_json, format_jsonl, format_metrics, format_table;

struct formatter {
    const struct format_ops *ops;
    struct text *out;
    int columns;
    uint64_t rows;
    /* of format_table */
    struct text cells; /* each ends in a NUL */
    uint64_t whole;    /* rows that are there in full */
    unsigned *widths;  /* characters */
    bool *right;       /* columns of numbers */
};

/* -ENOMEM. */
int formatter_init(struct formatter *f, enum format format, struct text *out, sqlite3_stmt *stmt);
void formatter_row(struct formatter *f, sqlite3_stmt *stmt);
/* The rest; 0 or -ENOMEM. */
int formatter_finish(struct formatter *f);
void formatter_deinit(struct formatter *f);

/* One character of a value. Bytes that are no UTF-8, and control characters that could drive a
 * terminal, are none of these. Returns how many bytes it is, 0: such a byte. */
size_t format_character(const char *bytes, size_t size);
