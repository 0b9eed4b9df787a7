/* Tables of a program's own, as `@probing.table` makes them: their rows are rows of `events` with
 * the table's name, and their columns the attrs that these have. A statement that names one gets a
 * view of them. */
#pragma once

#include <stdbool.h>

#include <sqlite3.h>

/* The name that a message of SQLite's says is missing, without the schema of our tables in front;
 * NULL: it says something else. */
const char *own_table_missing(const char *said);
/* Makes the view where there are such rows; reads them. many: host, pid, rank and when its process
 * ended stand in front of each row. SQLITE_OK; SQLITE_NOTFOUND: there are none; another of SQLite's
 * results. */
int own_table_view(sqlite3 *db, const char *name, bool many);
