/* What vtab.c and vtab_plan.c share. */
#pragma once

#include "fs/sql/lookup.h"
#include "fs/sql/order.h"
#include "fs/sql/vtab.h"

struct vtab {
    sqlite3_vtab base;
    struct vtab_table *table;
};

/* idxNum: what idxStr says. Columns stand in it as letters and the like, from VTAB_COLUMN_NAME on. */
enum vtab_way {
    VTAB_LOOKUP,  /* the columns whose values come as arguments; "": all rows, as they lie */
    VTAB_ORDERED, /* all rows, sorted by these columns, each followed by '+' or '-' */
};
#define VTAB_COLUMN_NAME 'A'

const struct column *vtab_column(const struct vtab_table *t, int i);

/* xBestIndex */
int vtab_best_index(sqlite3_vtab *base, sqlite3_index_info *info);
