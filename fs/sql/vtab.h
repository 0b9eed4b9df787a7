/* The tables of a provider as SQLite's virtual tables: one module for every schema.
 *
 * Each is eponymous: it exists by its name, without CREATE. What the planner asks
 * (xBestIndex) tells which columns are used, and how constants bound them: that is pushed
 * down to the rows' sources. Equalities of INTEGER and TEXT columns, as joins have them, are
 * looked up (lookup.h). SQLite checks every row again. What it wants rows ordered or grouped
 * by is sorted here (sort.h). */
#pragma once

#include "fs/sql/engine.h"
#include "fs/sql/lookup.h"
#include "fs/sql/sort.h"

#include <sqlite3.h>

#define VTAB_COLUMNS_MAX (TABLE_COLUMNS_MAX + ROWS_LEAD)

struct vtab_set;

/* One table of a connection. */
struct vtab_table {
    struct wanted wanted;
    struct vtab_set *set;
    unsigned lead; /* columns in front; the table's own that bear one of their names are
                      not shown twice */
    unsigned ncolumns;
    uint8_t own[VTAB_COLUMNS_MAX]; /* of a column of the virtual table: the table's */
    int argument;                  /* number of such a column; -1: it is no function */
    bool used;
    struct lookup *lookups;
    struct sort *orders;
};

struct vtab_set {
    struct vtab_table *tables;
    size_t n;
    bool filled;
    const struct stop *stop;
    /* Fills all that is used; called once, when the first row is asked for. -errno. */
    int (*fill)(void *arg);
    void *arg;
};

/* Makes the provider's tables known to a connection. The set must outlive it. -ENOMEM. */
int vtab_set_init(struct vtab_set *set, const struct provider *provider, sqlite3 *db);
/* Has them exist by CREATE, too: what merely exists by its name comes behind tables of that name in
 * schemas that are attached. -ENOMEM. */
int vtab_set_create(struct vtab_set *set, sqlite3 *db);
/* Forgets what the last statement used, and its rows. */
void vtab_set_reset(struct vtab_set *set);
void vtab_set_deinit(struct vtab_set *set);

/* ---- what vtab.c and vtab_plan.c share ---- */

struct vtab {
    sqlite3_vtab base;
    struct vtab_table *table;
};

/* idxNum: what idxStr says. Columns stand in it as letters and the like, from
 * VTAB_COLUMN_NAME on. */
enum vtab_way {
    VTAB_LOOKUP,  /* the columns whose values come as arguments; "": all rows, as they lie */
    VTAB_ORDERED, /* all rows, sorted by these columns, each followed by '+' or '-' */
    /* a function: */
    VTAB_UNASKED, /* its argument is missing, or no constant text */
    VTAB_LONG,    /* ... or too long */
    VTAB_MANY,    /* it is used with more different constants than CALLS_MAX */
};
#define VTAB_COLUMN_NAME 'A'

const struct column *vtab_column(const struct vtab_table *t, int i);

/* xBestIndex */
int vtab_best_index(sqlite3_vtab *base, sqlite3_index_info *info);
