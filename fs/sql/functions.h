/* The functions that statements have besides SQLite's own:
 *
 *   percentile(X, P)   of all X that aren't NULL; P from 0 to 100; between two values it is linear
 *   median(X)          percentile(X, 50)
 *   TEXT REGEXP PATTERN, regexp(PATTERN, TEXT)   see regexp.h
 *
 * and instr() and replace(), which take time that grows with the length of what is searched here,
 * and not with its square. */
#pragma once

#include <sqlite3.h>

struct stop;

/* stop must outlive the connection. -ENOMEM. */
int functions_add(sqlite3 *db, const struct stop *stop);
