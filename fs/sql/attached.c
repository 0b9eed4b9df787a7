#include "fs/sql/attached.h"

#include "agent/base/cleanup.h"
#include "fs/base/text.h"

#include <errno.h>
#include <string.h>

#define STEPS_BETWEEN_LOOKS 2000 /* of SQLite's machine, as engine.c has it */
#define BUSY_MS 500
#define ROWS_GUESS 1e6 /* of a table, for the planner */
#define EQUAL_GUESS 20 /* how many times fewer an equality leaves ... */
#define RANGE_GUESS 4  /* ... and a bound */
#define OWN 3          /* parameters that say whose rows */

struct attached {
    sqlite3 *file; /* reads it */
    bool all;
    uid_t uid;
    gid_t gid;
    const struct stop *stop;
};

struct vtab {
    sqlite3_vtab base;
    struct attached *attached;
    char *name;
    char **columns;
    int ncolumns;
};

struct cursor {
    sqlite3_vtab_cursor base;
    sqlite3_stmt *stmt;
    bool ended;
};

static int look_around(void *arg)
{
    const struct attached *attached = arg;
    return stop_reason(attached->stop) < 0;
}

/* ---- the tables ---- */

static int prepare(struct attached *attached, const char *sql, sqlite3_stmt **out)
{
    return sqlite3_prepare_v2(attached->file, sql, -1, out, NULL);
}

static int disconnect(sqlite3_vtab *base)
{
    struct vtab *vtab = (struct vtab *)base;

    for (int i = 0; i < vtab->ncolumns; i++)
        sqlite3_free(vtab->columns[i]);
    sqlite3_free(vtab->columns);
    sqlite3_free(vtab->name);
    sqlite3_free(vtab);
    return SQLITE_OK;
}

/* Reads the columns of a table as the file has them; sql gets a declaration of them. */
static int read_columns(struct vtab *vtab, sqlite3_str *sql)
{
    sqlite3_stmt *stmt;
    int result = prepare(vtab->attached, "SELECT name, type FROM pragma_table_info(?)", &stmt);

    if (result != SQLITE_OK)
        return result;
    sqlite3_bind_text(stmt, 1, vtab->name, -1, SQLITE_STATIC);
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        char **more =
            sqlite3_realloc64(vtab->columns, (sqlite3_uint64)(vtab->ncolumns + 1) * sizeof *more);
        if (!more)
            break;
        vtab->columns = more;
        more[vtab->ncolumns] = sqlite3_mprintf("%s", sqlite3_column_text(stmt, 0));
        if (!more[vtab->ncolumns])
            break;
        sqlite3_str_appendf(sql, "%s\"%w\" %s", vtab->ncolumns ? ", " : "CREATE TABLE x(",
                            more[vtab->ncolumns], sqlite3_column_text(stmt, 1));
        vtab->ncolumns++;
    }
    sqlite3_finalize(stmt);
    sqlite3_str_appendall(sql, ")");
    return result == SQLITE_DONE ? SQLITE_OK : result == SQLITE_ROW ? SQLITE_NOMEM : result;
}

static int do_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out,
                      char **error)
{
    struct vtab *vtab = sqlite3_malloc(sizeof *vtab);

    if (!vtab)
        return SQLITE_NOMEM;
    *vtab = (struct vtab){.attached = aux, .name = sqlite3_mprintf("%s", argv[2])};
    sqlite3_str *sql = sqlite3_str_new(db);
    int result = vtab->name ? read_columns(vtab, sql) : SQLITE_NOMEM;
    char *text = sqlite3_str_finish(sql);
    if (result == SQLITE_OK)
        result = text ? sqlite3_declare_vtab(db, text) : SQLITE_NOMEM;
    sqlite3_free(text);
    if (result != SQLITE_OK) {
        disconnect(&vtab->base);
        return result;
    }
    *out = &vtab->base;
    return SQLITE_OK;
}

/* ---- planning: the statement for the file is what is planned ---- */

static const char *operator_of(int op)
{
    switch (op) {
    case SQLITE_INDEX_CONSTRAINT_EQ: return "=";
    case SQLITE_INDEX_CONSTRAINT_GT: return ">";
    case SQLITE_INDEX_CONSTRAINT_GE: return ">=";
    case SQLITE_INDEX_CONSTRAINT_LT: return "<";
    case SQLITE_INDEX_CONSTRAINT_LE: return "<=";
    }
    return NULL;
}

static void add_columns(const struct vtab *vtab, sqlite3_uint64 used, sqlite3_str *sql)
{
    for (int i = 0; i < vtab->ncolumns; i++) {
        bool wanted = used >> (i < 63 ? i : 63) & 1;
        sqlite3_str_appendf(sql, wanted ? "%s\"%w\"" : "%sNULL", i ? ", " : "SELECT ",
                            vtab->columns[i]);
    }
}

/* Whether rows are wanted in an order of columns, which the file then gives them in. */
static bool add_order(const struct vtab *vtab, const sqlite3_index_info *info, sqlite3_str *sql)
{
    for (int i = 0; i < info->nOrderBy; i++)
        if (info->aOrderBy[i].iColumn < 0)
            return false;
    for (int i = 0; i < info->nOrderBy; i++)
        sqlite3_str_appendf(sql, "%s\"%w\"%s", i ? ", " : " ORDER BY ",
                            vtab->columns[info->aOrderBy[i].iColumn],
                            info->aOrderBy[i].desc ? " DESC" : "");
    return info->nOrderBy > 0;
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    const struct vtab *vtab = (struct vtab *)base;
    double rows = ROWS_GUESS;
    int n = OWN;

    sqlite3_str *sql = sqlite3_str_new(NULL);
    add_columns(vtab, info->colUsed, sql);
    sqlite3_str_appendf(sql, " FROM \"%w\" WHERE (?1 OR (uid = ?2 AND gid = ?3))", vtab->name);
    for (int i = 0; i < info->nConstraint; i++) {
        const struct sqlite3_index_constraint *c = &info->aConstraint[i];
        const char *op = operator_of(c->op);
        if (!c->usable || !op || c->iColumn < 0 ||
            sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") != 0)
            continue;
        sqlite3_str_appendf(sql, " AND \"%w\" %s ?%d", vtab->columns[c->iColumn], op, ++n);
        info->aConstraintUsage[i].argvIndex = n - OWN;
        rows /= *op == '=' ? EQUAL_GUESS : RANGE_GUESS;
    }
    info->orderByConsumed = add_order(vtab, info, sql);
    info->estimatedRows = rows > 1 ? (sqlite3_int64)rows : 1;
    info->estimatedCost = rows * 2;
    info->needToFreeIdxStr = 1;
    info->idxStr = sqlite3_str_finish(sql);
    return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

/* ---- reading ---- */

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    struct cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (!cursor)
        return SQLITE_NOMEM;
    *cursor = (struct cursor){.ended = true};
    *out = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    struct cursor *cursor = (struct cursor *)base;

    sqlite3_finalize(cursor->stmt);
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int fail(struct cursor *cursor, int result)
{
    struct vtab *vtab = (struct vtab *)cursor->base.pVtab;

    sqlite3_free(vtab->base.zErrMsg);
    vtab->base.zErrMsg = sqlite3_mprintf("%s", sqlite3_errmsg(vtab->attached->file));
    return result;
}

static int next(sqlite3_vtab_cursor *base)
{
    struct cursor *cursor = (struct cursor *)base;

    int result = sqlite3_step(cursor->stmt);
    cursor->ended = result != SQLITE_ROW;
    return result == SQLITE_ROW || result == SQLITE_DONE ? SQLITE_OK : fail(cursor, result);
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *sql, int argc,
                  sqlite3_value **argv)
{
    struct cursor *cursor = (struct cursor *)base;
    struct attached *attached = ((struct vtab *)base->pVtab)->attached;

    sqlite3_finalize(steal_pointer(cursor->stmt));
    int result = prepare(attached, sql, &cursor->stmt);
    if (result != SQLITE_OK)
        return fail(cursor, result);
    sqlite3_bind_int(cursor->stmt, 1, attached->all);
    /* what is root's is seen by who may see all */
    if (attached->uid) {
        sqlite3_bind_int64(cursor->stmt, 2, attached->uid);
        sqlite3_bind_int64(cursor->stmt, 3, attached->gid);
    }
    for (int i = 0; i < argc; i++)
        sqlite3_bind_value(cursor->stmt, OWN + 1 + i, argv[i]);
    return next(base);
}

static int at_end(sqlite3_vtab_cursor *base) { return ((struct cursor *)base)->ended; }

static int column(sqlite3_vtab_cursor *base, sqlite3_context *result, int i)
{
    sqlite3_result_value(result, sqlite3_column_value(((struct cursor *)base)->stmt, i));
    return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = 0; /* none are asked for: tables aren't written to */
    return SQLITE_OK;
}

static const sqlite3_module module = {
    .xCreate = do_connect,
    .xConnect = do_connect,
    .xBestIndex = best_index,
    .xDisconnect = disconnect,
    .xDestroy = disconnect,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next,
    .xEof = at_end,
    .xColumn = column,
    .xRowid = rowid,
};

/* ---- the schema ---- */

static int execute(sqlite3 *db, char *sql)
{
    int result = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return result;
}

/* Adds the tables of a file that say whose their rows are. */
static int add_tables(sqlite3 *db, struct attached *attached, const char *schema)
{
    static const char whose[] =
        "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c "
        "WHERE m.type = 'table' AND c.name IN ('uid', 'gid') GROUP BY m.name HAVING count(*) = 2";
    sqlite3_stmt *stmt;
    int step = SQLITE_DONE, result = prepare(attached, whose, &stmt);

    if (result != SQLITE_OK)
        return result;
    while (result == SQLITE_OK && (step = sqlite3_step(stmt)) == SQLITE_ROW)
        result = execute(db, sqlite3_mprintf("CREATE VIRTUAL TABLE \"%w\".\"%w\" USING attached_%w",
                                             schema, sqlite3_column_text(stmt, 0), schema));
    sqlite3_finalize(stmt);
    return result != SQLITE_OK ? result : step == SQLITE_DONE ? SQLITE_OK : step;
}

int attached_open(sqlite3 *db, const struct attached_file *file, const struct stop *stop,
                  struct text *why, struct attached **out)
{
    struct attached *attached = calloc(1, sizeof *attached);

    *out = NULL;
    if (!attached)
        return -ENOMEM;
    *attached = (struct attached){NULL, file->all, file->uid, file->gid, stop};
    *out = attached;
    int result = sqlite3_open_v2(file->path, &attached->file,
                                 SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
                                     SQLITE_OPEN_PRIVATECACHE,
                                 NULL);
    if (result == SQLITE_OK) {
        sqlite3_busy_timeout(attached->file, BUSY_MS);
        sqlite3_progress_handler(attached->file, STEPS_BETWEEN_LOOKS, look_around, attached);
        char *name = sqlite3_mprintf("attached_%s", file->schema);
        result = name ? sqlite3_create_module(db, name, &module, attached) : SQLITE_NOMEM;
        sqlite3_free(name);
    }
    if (result == SQLITE_OK)
        result = execute(db, sqlite3_mprintf("ATTACH ':memory:' AS \"%w\"", file->schema));
    if (result == SQLITE_OK)
        result = add_tables(db, attached, file->schema);
    if (result != SQLITE_OK) {
        text_printf(why, "%s can't be read: %s", file->schema, sqlite3_errmsg(attached->file));
        return result == SQLITE_NOMEM ? -ENOMEM : -EIO;
    }
    return 0;
}

void attached_close(struct attached *attached)
{
    if (!attached)
        return;
    sqlite3_close(attached->file);
    free(attached);
}
