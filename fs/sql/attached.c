#include "fs/sql/attached.h"

#include "agent/base/cleanup.h"
#include "fs/sql/attached_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_GUESS 1e6 /* of a table, for the planner */
#define EQUAL_GUESS 20 /* how many times fewer an equality leaves ... */
#define RANGE_GUESS 4  /* ... and a bound */

struct attached {
    const struct attached_ops *ops;
    void *of; /* what they opened; NULL: it couldn't be */
    struct text names;
    struct attached_tables tables;
    struct attached_plan *plans; /* of the statements so far: idxNum is the number of one */
    size_t nplans, alloc;
    uint64_t cursors; /* those that are in use */
};

struct vtab {
    sqlite3_vtab base;
    struct attached *attached;
    const struct attached_table *table;
};

struct cursor {
    sqlite3_vtab_cursor base;
    unsigned number;
    bool ended;
};

/* ---- the tables ---- */

static int disconnect(sqlite3_vtab *base)
{
    sqlite3_free(base);
    return SQLITE_OK;
}

static char *declaration(const struct attached_table *table, sqlite3 *db)
{
    sqlite3_str *sql = sqlite3_str_new(db);

    for (unsigned i = 0; i < table->ncolumns; i++)
        sqlite3_str_appendf(sql, "%s\"%w\" %s", i ? ", " : "CREATE TABLE x(", table->columns[i],
                            table->types[i]);
    sqlite3_str_appendall(sql, ")");
    return sqlite3_str_finish(sql);
}

static int do_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out,
                      char **error)
{
    struct attached *attached = aux;
    const struct attached_table *table = attached_tables_find(&attached->tables, argv[2]);
    struct vtab *vtab = table ? sqlite3_malloc(sizeof *vtab) : NULL;

    if (!vtab)
        return table ? SQLITE_NOMEM : SQLITE_ERROR;
    *vtab = (struct vtab){.attached = attached, .table = table};
    char *sql = declaration(table, db);
    int result = sql ? sqlite3_declare_vtab(db, sql) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (result != SQLITE_OK)
        return disconnect(&vtab->base), result;
    *out = &vtab->base;
    return SQLITE_OK;
}

/* ---- planning: the statement for the file is what is planned ---- */

static int operator_of(int op)
{
    switch (op) {
    case SQLITE_INDEX_CONSTRAINT_EQ: return ATTACHED_EQUAL;
    case SQLITE_INDEX_CONSTRAINT_GT: return ATTACHED_ABOVE;
    case SQLITE_INDEX_CONSTRAINT_GE: return ATTACHED_FROM;
    case SQLITE_INDEX_CONSTRAINT_LT: return ATTACHED_BELOW;
    case SQLITE_INDEX_CONSTRAINT_LE: return ATTACHED_TO;
    }
    return -1;
}

/* Adds what bounds columns; how many rows there may be then. */
static double plan_bounds(sqlite3_index_info *info, struct attached_plan *plan)
{
    double rows = ROWS_GUESS;

    for (int i = 0; i < info->nConstraint && plan->nbounds < ATTACHED_BOUNDS; i++) {
        const struct sqlite3_index_constraint *c = &info->aConstraint[i];
        int op = operator_of(c->op);
        if (!c->usable || op < 0 || c->iColumn < 0 ||
            sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") != 0)
            continue;
        plan->bounds[plan->nbounds].column = (uint8_t)c->iColumn;
        plan->bounds[plan->nbounds++].op = (uint8_t)op;
        info->aConstraintUsage[i].argvIndex = (int)plan->nbounds;
        rows /= op == ATTACHED_EQUAL ? EQUAL_GUESS : RANGE_GUESS;
    }
    return rows > 1 ? rows : 1;
}

/* Whether rows are wanted in an order of columns, which the file then gives them in. */
static bool plan_order(const sqlite3_index_info *info, struct attached_plan *plan)
{
    if (info->nOrderBy > ATTACHED_ORDER)
        return false;
    for (int i = 0; i < info->nOrderBy; i++)
        if (info->aOrderBy[i].iColumn < 0)
            return false;
    for (int i = 0; i < info->nOrderBy; i++) {
        plan->order[i].column = (uint8_t)info->aOrderBy[i].iColumn;
        plan->order[i].descending = info->aOrderBy[i].desc != 0;
    }
    plan->norder = (uint32_t)info->nOrderBy;
    return info->nOrderBy > 0;
}

static int keep_plan(struct attached *attached, const struct attached_plan *plan, int *number)
{
    if (attached->nplans == attached->alloc) {
        size_t alloc = attached->alloc ? attached->alloc * 2 : 16;
        void *more = sqlite3_realloc64(attached->plans, alloc * sizeof *attached->plans);
        if (!more)
            return SQLITE_NOMEM;
        attached->plans = more;
        attached->alloc = alloc;
    }
    *number = (int)attached->nplans;
    attached->plans[attached->nplans++] = *plan;
    return SQLITE_OK;
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    const struct vtab *vtab = (struct vtab *)base;
    const struct attached_tables *tables = &vtab->attached->tables;
    struct attached_plan plan;

    memset(&plan, 0, sizeof plan);
    plan.columns = info->colUsed & ((1ull << vtab->table->ncolumns) - 1);
    plan.table = (uint32_t)(vtab->table - tables->items);
    double rows = plan_bounds(info, &plan);
    info->orderByConsumed = plan_order(info, &plan);
    info->estimatedRows = (sqlite3_int64)rows;
    info->estimatedCost = rows * 2;
    info->needToFreeIdxStr = 1;
    info->idxStr = attached_sql(vtab->table, &plan); /* for EXPLAIN */
    return info->idxStr ? keep_plan(vtab->attached, &plan, &info->idxNum) : SQLITE_NOMEM;
}

/* ---- reading ---- */

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    struct attached *attached = ((struct vtab *)base)->attached;
    struct cursor *cursor = ~attached->cursors ? sqlite3_malloc(sizeof *cursor) : NULL;

    if (!cursor)
        return SQLITE_NOMEM;
    *cursor = (struct cursor){.ended = true};
    while (attached->cursors >> cursor->number & 1)
        cursor->number++;
    attached->cursors |= 1ull << cursor->number;
    *out = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    struct cursor *cursor = (struct cursor *)base;
    struct attached *attached = ((struct vtab *)base->pVtab)->attached;

    attached->ops->end(attached->of, cursor->number);
    attached->cursors &= ~(1ull << cursor->number);
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int fail(struct cursor *cursor, int error, struct text *why)
{
    sqlite3_vtab *base = cursor->base.pVtab;

    cursor->ended = true;
    sqlite3_free(base->zErrMsg);
    base->zErrMsg = sqlite3_mprintf("%s", why->data ? why->data : strerror(-error));
    text_deinit(why);
    return error == -ENOMEM                         ? SQLITE_NOMEM
           : error == -EINTR || error == -ETIMEDOUT ? SQLITE_INTERRUPT
                                                    : SQLITE_ERROR;
}

static int next(sqlite3_vtab_cursor *base)
{
    struct cursor *cursor = (struct cursor *)base;
    struct attached *attached = ((struct vtab *)base->pVtab)->attached;
    struct text why = TEXT_INIT;

    int r = attached->ops->next(attached->of, cursor->number, &why);
    cursor->ended = r <= 0;
    return r < 0 ? fail(cursor, r, &why) : SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *sql, int argc,
                  sqlite3_value **argv)
{
    struct cursor *cursor = (struct cursor *)base;
    struct attached *attached = ((struct vtab *)base->pVtab)->attached;
    struct text why = TEXT_INIT;

    int r = attached->ops->begin(attached->of, cursor->number, &attached->plans[number], argc, argv,
                                 &why);
    return r < 0 ? fail(cursor, r, &why) : next(base);
}

static int at_end(sqlite3_vtab_cursor *base) { return ((struct cursor *)base)->ended; }

static int column(sqlite3_vtab_cursor *base, sqlite3_context *result, int i)
{
    struct attached *attached = ((struct vtab *)base->pVtab)->attached;

    attached->ops->column(attached->of, ((struct cursor *)base)->number, i, result);
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

static int add(sqlite3 *db, struct attached *attached, const char *schema)
{
    char *name = sqlite3_mprintf("attached_%s", schema);
    int result = name ? sqlite3_create_module(db, name, &module, attached) : SQLITE_NOMEM;

    sqlite3_free(name);
    if (result == SQLITE_OK)
        result = execute(db, sqlite3_mprintf("ATTACH ':memory:' AS \"%w\"", schema));
    for (size_t i = 0; result == SQLITE_OK && i < attached->tables.n; i++)
        result = execute(db, sqlite3_mprintf("CREATE VIRTUAL TABLE \"%w\".\"%w\" USING attached_%w",
                                             schema, attached->tables.items[i].name, schema));
    return result;
}

int attached_open(sqlite3 *db, const struct attached_schema *schema, const struct stop *stop,
                  struct text *why, struct attached **out)
{
    struct attached *attached = calloc(1, sizeof *attached);

    *out = NULL;
    if (!attached)
        return -ENOMEM;
    attached->ops = schema->ops;
    *out = attached;
    int r = schema->ops->open(schema->arg, stop, &attached->names, why, &attached->of);
    if (r == 0)
        r = attached_tables_read(&attached->names, &attached->tables);
    if (r < 0)
        return r;
    int result = add(db, attached, schema->name);
    if (result == SQLITE_OK)
        return 0;
    text_printf(why, "%s can't be read: %s", schema->name, sqlite3_errmsg(db));
    return result == SQLITE_NOMEM ? -ENOMEM : -EIO;
}

void attached_close(struct attached *attached)
{
    if (!attached)
        return;
    if (attached->of)
        attached->ops->close(attached->of);
    attached_tables_deinit(&attached->tables);
    text_deinit(&attached->names);
    sqlite3_free(attached->plans);
    free(attached);
}
