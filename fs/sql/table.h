/* Tables, as everything about SQL sees them.
 *
 * A table is one schema/NAME.sql, from which schema/generate makes its struct table, and one row
 * source, fs/tables/NAME.c. A row source never sees SQL: it is told which columns a statement uses
 * and how their values are bounded, and adds rows. It may add rows that the statement doesn't want,
 * for SQLite looks at each again, but none may be missing. */
#pragma once

#include "fs/sql/rows.h"

#include <math.h>

struct column {
    const char *name;
    enum column_type type;
    const char *unit; /* NULL: none */
    const char *comment;
    bool hidden;   /* only in what names it, not in SELECT * */
    bool argument; /* hidden, and each use of the table has to say what it equals, by a constant: a
                      table with such a column is a function (struct call) */
    bool added;    /* of a table that is recorded: it isn't, but added when a row is read */
};

struct row_source;

struct table {
    const char *name;
    const char *sql; /* CREATE TABLE, as SQLite gets it */
    const char *comment;
    const char *source; /* "passive", "recorded", "sampled", "schema" */
    const struct column *columns;
    unsigned ncolumns; /* at most TABLE_COLUMNS_MAX */
    const struct row_source *rows;
    int recorded; /* enum recorded, of what agents record; else -1 */
};

/* How many columns stand in front of it where there are rows of many processes. */
static inline unsigned table_lead(const struct table *table)
{
    return table->recorded >= 0 ? ROWS_LEAD : ROWS_LEAD - 1;
}

struct tables {
    const struct table *items;
    size_t n;
};

/* The tables of schema/. */
extern const struct tables python_tables;

/* NULL: there is none of that name. */
const struct table *tables_find(const struct tables *tables, const char *name);
const char *column_type_name(enum column_type type);

#define BOUND_TEXT_MAX 256 /* a name of a module fits, as that of a file */

/* What the statement says of the values of a column, in all places where it uses the table. */
struct bound {
    bool bounded;               /* rows where it is NULL are not wanted, nor ... */
    int64_t low, high;          /* ... INTEGER: those outside of [low, high] */
    double least, most;         /* ... REAL: those outside of [least, most] */
    char equal[BOUND_TEXT_MAX]; /* TEXT: only rows with this value are wanted; "": any */
};

#define UNBOUNDED \
 ((struct bound){.low = INT64_MIN, .high = INT64_MAX, .least = -INFINITY, .most = INFINITY})

#define CALLS_MAX 8         /* of one table in a statement */
#define CALL_TEXT_MAX 1024  /* with its end */
#define CALL_COLUMNS_MAX 16 /* of a table that is a function */
#define CALL_ALL UINT64_MAX

/* One use of a table that is a function: FROM name(1, 0, 'text'), where hidden columns are said to
 * equal constants. Its first column is the position of a row among those of the call. What the row
 * source adds is within the ranges of that column and of the hidden ones, and no row twice. */
struct call {
    char text[CALL_TEXT_MAX]; /* what the column that is the argument equals */
    struct range {
        int64_t low, high;
    } ranges[CALL_COLUMNS_MAX]; /* of each INTEGER column; all of them: nothing bounds it */
    uint64_t rows;              /* no more are wanted, of each frame or the like; or CALL_ALL */
};

/* What a statement uses of a table. */
struct use {
    uint64_t columns; /* a bit for each */
    struct bound bounds[TABLE_COLUMNS_MAX];
    struct call calls[CALLS_MAX]; /* ncalls of them, of a function */
    unsigned ncalls;
};

static inline bool use_wants(const struct use *use, unsigned column)
{
    return use->columns >> column & 1;
}

struct plan;
struct scene;
struct moment;
struct lwp_list;

/* The source of the rows of one table. The functions return 0 or -errno, which ends the statement;
 * scene->why may say more. */
struct row_source {
    /* What of the process has to be read (tables/scene.h) for what is used. NULL: nothing. */
    void (*plan)(const struct use *use, struct plan *plan);
    /* Adds the rows within the moment that is read, and only through the target's view. May run
     * several times; each begins without rows. The GIL's holder may stand still meanwhile. */
    int (*within)(struct scene *scene, const struct moment *moment, const struct lwp_list *lwps,
                  const struct use *use, struct rows *rows);
    /* Adds the rows of what was read within the moment, where that has to be finished while the
     * target's lock is held. */
    int (*gather)(struct scene *scene, const struct use *use, struct rows *rows);
    /* Adds the rows after all that. */
    int (*fill)(struct scene *scene, const struct use *use, struct rows *rows);
    bool catalog;  /* they are of no process */
    bool between;  /* other processes are read for them, too */
    bool lasting;  /* they are kept by the daemon, of a process that has ended, too: scene->target
                      may  be NULL */
    bool recorded; /* they are of scene->recording, which may be NULL, and of a process that has
                      ended, too: scene->process and scene->target may be NULL */
};
