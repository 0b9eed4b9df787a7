/* A pattern, and after a NUL the text that REGEXP searches in it: nobody can make the daemon spin
 * or swell with one. */
#include "agent/base/clock.h"
#include "fs/sql/functions.h"
#include "fs/sql/heap.h"
#include "fs/sql/stop.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS 50000000
#define LATE_NS 2000000000 /* a machine may be busy */

static sqlite3_stmt *prepare(struct stop *stop)
{
    sqlite3 *db;
    sqlite3_stmt *statement;

    if (heap_start() < 0 || sqlite3_open(":memory:", &db) != SQLITE_OK ||
        functions_add(db, stop) < 0 ||
        sqlite3_prepare_v2(db, "SELECT ?2 REGEXP ?1", -1, &statement, NULL) != SQLITE_OK)
        abort();
    return statement;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct stop stop;
    static sqlite3_stmt *statement;
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t pattern = nul ? (size_t)(nul - data) : size;

    if (!statement)
        statement = prepare(&stop);
    stop.deadline_ns = monotonic_ns() + DEADLINE_NS;
    sqlite3_bind_text(statement, 1, (const char *)data, (int)pattern, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, nul ? (const char *)nul + 1 : "",
                      nul ? (int)(size - pattern - 1) : 0, SQLITE_STATIC);
    int r = sqlite3_step(statement);
    if (r != SQLITE_ROW && !*sqlite3_errmsg(sqlite3_db_handle(statement)))
        abort();
    sqlite3_reset(statement);
    if (monotonic_ns() > stop.deadline_ns + LATE_NS)
        abort();
    return 0;
}
