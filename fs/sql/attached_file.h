/* Reads an SQLite file for those who may see some of its rows (attached.h). */
#pragma once

#include "fs/sql/attached.h"

/* Which file, and for whom. */
struct attached_file {
    const char *schema; /* its name in statements, and in words */
    const char *path;   /* NULL: there is none */
    bool all;           /* all rows; else those of this user and group, who aren't root */
    uid_t uid;
    gid_t gid;
};

/* arg is a struct attached_file, which must outlive it. */
extern const struct attached_ops attached_file_ops;

struct attached_table {
    const char *name;
    unsigned ncolumns;
    const char *columns[ATTACHED_COLUMNS], *types[ATTACHED_COLUMNS];
};

struct attached_tables {
    struct attached_table *items;
    size_t n;
};

/* Finds them in the text that attached_ops.open() gave, which must outlive them. -ENOMEM, -EIO. */
int attached_tables_read(const struct text *names, struct attached_tables *out);
void attached_tables_deinit(struct attached_tables *tables);
/* NULL: there is none of that name. */
const struct attached_table *attached_tables_find(const struct attached_tables *tables,
                                                  const char *name);

/* The statement for a file, for sqlite3_free(); NULL: out of memory. */
char *attached_sql(const struct attached_table *table, const struct attached_plan *plan);

/* ---- for who asks in the place of somebody else ---- */

/* Whether it asks for what there is. */
bool attached_file_has(const void *of, const struct attached_plan *plan);
/* How many columns a table has. */
unsigned attached_file_columns(const void *of, unsigned table);
/* Prepares what attached_ops.begin() does: the parameters of *out are the caller's to bind, one
 * for each bound, and it to be stepped; it lasts until the cursor is begun again, or ended. */
int attached_file_prepare(void *of, unsigned cursor, const struct attached_plan *plan,
                          sqlite3_stmt **out, struct text *why);
/* The number of the parameter of a bound in such a statement, and in attached_sql()'s. */
int attached_file_parameter(unsigned bound);
