#include "fs/sql/own_table.h"

#include "agent/base/cleanup.h"

#include <string.h>
#include <strings.h>

#define COLUMNS                                                          \
 "SELECT key FROM (SELECT key, min(json_each.id) AS first FROM events, " \
 "json_each(attrs) WHERE name = %Q AND attrs NOT NULL GROUP BY key) ORDER BY first"

const char *own_table_missing(const char *said)
{
    static const char front[] = "no such table: ", schema[] = "python.";

    if (strncmp(said, front, sizeof front - 1) != 0)
        return NULL;
    said += sizeof front - 1;
    return strncasecmp(said, schema, sizeof schema - 1) ? said : said + sizeof schema - 1;
}

static void finalize(sqlite3_stmt **stmt) { sqlite3_finalize(*stmt); }

static int prepare(sqlite3 *db, char *sql, sqlite3_stmt **out)
{
    int r = sql ? sqlite3_prepare_v2(db, sql, -1, out, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return r;
}

static int run(sqlite3 *db, char *sql)
{
    int r = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return r;
}

static bool is_plain(const char *name)
{
    return name && !strpbrk(name, "\"'\\") && strcasecmp(name, "ts") != 0 &&
           strcasecmp(name, "tid") != 0;
}

/* Adds a column for each of the attrs, but for what can't be written as one. */
static int add_columns(sqlite3_stmt *names, sqlite3_str *columns)
{
    int r;

    while ((r = sqlite3_step(names)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(names, 0);
        if (is_plain(name))
            sqlite3_str_appendf(columns, ", attrs->>'$.\"%s\"' AS \"%s\"", name, name);
    }
    return r;
}

int own_table_view(sqlite3 *db, const char *name, bool many)
{
    _cleanup_(finalize) sqlite3_stmt *names = NULL;

    int r = prepare(db, sqlite3_mprintf(COLUMNS, name), &names);
    if (r != SQLITE_OK)
        return r;
    sqlite3_str *columns = sqlite3_str_new(db);
    r = add_columns(names, columns);
    int n = sqlite3_str_length(columns);
    char *text = sqlite3_str_finish(columns);
    if (r == SQLITE_DONE)
        r = !n ? SQLITE_NOTFOUND
            : text
                ? run(db, sqlite3_mprintf("CREATE VIEW python.\"%w\" AS SELECT %sts, tid%s FROM "
                                          "events WHERE name = %Q",
                                          name, many ? "host, pid, rank, ended, " : "", text, name))
                : SQLITE_NOMEM;
    sqlite3_free(text);
    return r;
}
