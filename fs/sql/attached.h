/* The tables of an SQLite file, in a schema of their own beside the provider's: history.samples.
 *
 * Each is a virtual table over whoever reads the file, which statements can't name: they get those
 * rows alone whose columns uid and gid are theirs. What bounds a column, and the order that is
 * wanted, is handed on, so that the file's indexes serve. */
#pragma once

#include "fs/base/text.h"
#include "fs/sql/stop.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <sys/types.h>

#define ATTACHED_CURSORS 64 /* tables of one statement that are read at once */
#define ATTACHED_BOUNDS 32
#define ATTACHED_ORDER 16
#define ATTACHED_COLUMNS 63

/* The operators of bounds. */
enum attached_op {
    ATTACHED_EQUAL,
    ATTACHED_ABOVE,
    ATTACHED_FROM,
    ATTACHED_BELOW,
    ATTACHED_TO,
    ATTACHED_OPS,
};

/* What is asked of a table, as plain data: of columns their numbers. */
struct attached_plan {
    uint64_t columns; /* a bit for each that is wanted; others are NULL */
    uint32_t table;   /* number of the table */
    uint32_t nbounds, norder;
    struct {
        uint8_t column, op; /* enum attached_op; with what is told when it begins */
    } bounds[ATTACHED_BOUNDS];
    struct {
        uint8_t column, descending;
    } order[ATTACHED_ORDER];
};

/* Who reads the file. Errors are -errno, and why says more: -EIO: it can't be read; -ENOMEM. */
struct attached_ops {
    /* tables: of each its name, of each column name and type, and an empty one; all end in a NUL */
    int (*open)(void *arg, const struct stop *stop, struct text *tables, struct text *why,
                void **out);
    /* Begins a cursor, by a number less than ATTACHED_CURSORS that isn't in use, or once more. */
    int (*begin)(void *of, unsigned cursor, const struct attached_plan *plan, int argc,
                 sqlite3_value **argv, struct text *why);
    /* Goes to the next row. 1, or 0: there is none. */
    int (*next)(void *of, unsigned cursor, struct text *why);
    void (*column)(void *of, unsigned cursor, int i, sqlite3_context *result);
    void (*end)(void *of, unsigned cursor);
    void (*close)(void *of);
};

/* A schema to add. */
struct attached_schema {
    const char *name; /* in statements */
    const struct attached_ops *ops;
    void *arg;
};

struct attached;

/* Adds the schema to a connection, which may attach one and create tables now. stop must outlive
 * it. -EIO: the file can't be read, and why says more; -ENOMEM. *out is to be closed after db,
 * whether or not this failed: what has been added refers to it. */
int attached_open(sqlite3 *db, const struct attached_schema *schema, const struct stop *stop,
                  struct text *why, struct attached **out);
void attached_close(struct attached *attached); /* NULL is fine */
