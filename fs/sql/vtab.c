#include "fs/sql/vtab.h"

#include "fs/sql/lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_GUESS 1000.0  /* of a table, for the planner */
#define MATCH_GUESS 20.0   /* how many times fewer are left by an equality */

static const struct column lead_columns[ROWS_LEAD] = {
    {"host", COLUMN_TEXT, NULL, "the machine"},
    {"pid", COLUMN_INTEGER, NULL, "the process"},
    {"rank", COLUMN_INTEGER, NULL, "its rank"},
};

struct vtab {
    sqlite3_vtab base;
    struct vtab_table *table;
};

struct cursor {
    sqlite3_vtab_cursor base;
    size_t row;
    const struct lookup *lookup; /* NULL: all rows */
    int64_t values[LOOKUP_COLUMNS_MAX];
};

/* ---- the shape of a table ---- */

static bool is_lead(const char *name)
{
    for (unsigned i = 0; i < ROWS_LEAD; i++)
        if (!strcmp(lead_columns[i].name, name))
            return true;
    return false;
}

static void shape(struct vtab_table *t, bool many)
{
    const struct table *table = t->wanted.table;

    t->lead = many && !table->rows->catalog ? ROWS_LEAD : 0;
    t->ncolumns = t->lead;
    for (unsigned i = 0; i < table->ncolumns; i++)
        if (!t->lead || !is_lead(table->columns[i].name))
            t->own[t->ncolumns++] = (uint8_t)i;
}

static const struct column *column_of(const struct vtab_table *t, int i)
{
    return (unsigned)i < t->lead ? &lead_columns[i] : &t->wanted.table->columns[t->own[i]];
}

static int declare(sqlite3 *db, const struct vtab_table *t)
{
    struct text sql = TEXT_INIT;

    if (!t->lead)
        return sqlite3_declare_vtab(db, t->wanted.table->sql);
    for (unsigned i = 0; i < t->ncolumns; i++) {
        const struct column *c = column_of(t, (int)i);
        text_printf(&sql, "%s%s %s", i ? ", " : "CREATE TABLE x(", c->name,
                    column_type_name(c->type));
    }
    text_puts(&sql, ")");
    int r = sql.error ? SQLITE_NOMEM : sqlite3_declare_vtab(db, sql.data);
    text_deinit(&sql);
    return r;
}

/* ---- planning ---- */

static struct bound unbounded(void)
{
    return (struct bound){.low = INT64_MIN, .high = INT64_MAX};
}

/* What one constraint says of an integer column. */
static void narrow_integer(struct bound *b, int op, int64_t value)
{
    int64_t low = INT64_MIN, high = INT64_MAX;

    switch (op) {
    case SQLITE_INDEX_CONSTRAINT_EQ: low = high = value; break;
    case SQLITE_INDEX_CONSTRAINT_LT: high = value == INT64_MIN ? value : value - 1; break;
    case SQLITE_INDEX_CONSTRAINT_LE: high = value; break;
    case SQLITE_INDEX_CONSTRAINT_GT: low = value == INT64_MAX ? value : value + 1; break;
    case SQLITE_INDEX_CONSTRAINT_GE: low = value; break;
    default: return;
    }
    b->bounded = true;
    if (low > b->low)
        b->low = low;
    if (high < b->high)
        b->high = high;
}

static void narrow_text(struct bound *b, const char *text, const char *collation)
{
    if (strlen(text) < sizeof b->equal && !strcmp(collation, "BINARY"))
        strcpy(b->equal, text);
}

/* Takes constants into account, of those constraints that hold for every row that is wanted. */
static void narrow(const struct vtab_table *t, sqlite3_index_info *info, struct bound *bounds)
{
    for (int i = 0; i < info->nConstraint; i++) {
        const struct sqlite3_index_constraint *c = &info->aConstraint[i];
        sqlite3_value *value;
        if (!c->usable || c->iColumn < 0 || sqlite3_vtab_rhs_value(info, i, &value) != SQLITE_OK)
            continue;
        const struct column *column = column_of(t, c->iColumn);
        if (column->type == COLUMN_INTEGER && sqlite3_value_type(value) == SQLITE_INTEGER)
            narrow_integer(&bounds[c->iColumn], c->op, sqlite3_value_int64(value));
        else if (column->type == COLUMN_TEXT && c->op == SQLITE_INDEX_CONSTRAINT_EQ &&
                 sqlite3_value_type(value) == SQLITE_TEXT)
            narrow_text(&bounds[c->iColumn], (const char *)sqlite3_value_text(value),
                        sqlite3_vtab_collation(info, i));
    }
}

/* A statement may use the table in several places, and each is planned in several ways: only what
 * holds in all of them may be relied on. */
static void widen(struct bound *all, const struct bound *one, bool first)
{
    if (first) {
        *all = *one;
        return;
    }
    if (one->low < all->low)
        all->low = one->low;
    if (one->high > all->high)
        all->high = one->high;
    all->bounded &= one->bounded;
    if (strcmp(all->equal, one->equal))
        *all->equal = 0;
}

static void note_use(struct vtab_table *t, sqlite3_index_info *info)
{
    struct bound bounds[VTAB_COLUMNS_MAX];
    struct wanted *w = &t->wanted;

    for (unsigned i = 0; i < t->ncolumns; i++)
        bounds[i] = unbounded();
    narrow(t, info, bounds);
    for (unsigned i = t->lead; i < t->ncolumns; i++) {
        widen(&w->use.bounds[t->own[i]], &bounds[i], !t->used);
        if (info->colUsed >> i & 1)
            w->use.columns |= (uint64_t)1 << t->own[i];
    }
    if (t->lead) {
        widen(&w->pid, &bounds[1], !t->used);
        widen(&w->rank, &bounds[2], !t->used);
    }
    t->used = true;
}

static bool is_lookup(const struct vtab_table *t, const struct sqlite3_index_constraint *c)
{
    return c->usable && c->op == SQLITE_INDEX_CONSTRAINT_EQ && c->iColumn >= 0 &&
           column_of(t, c->iColumn)->type == COLUMN_INTEGER;
}

/* idxStr: the columns whose values come as arguments, each as 'A' + its number. */
static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    struct vtab_table *t = ((struct vtab *)base)->table;
    char columns[LOOKUP_COLUMNS_MAX + 1] = "";
    int n = 0;

    note_use(t, info);
    info->estimatedCost = ROWS_GUESS;
    for (int i = 0; i < info->nConstraint && n < LOOKUP_COLUMNS_MAX; i++) {
        char name = (char)('A' + info->aConstraint[i].iColumn);
        if (!is_lookup(t, &info->aConstraint[i]) || strchr(columns, name))
            continue;
        columns[n++] = name;
        info->aConstraintUsage[i].argvIndex = n;
        info->estimatedCost /= MATCH_GUESS;
    }
    info->estimatedRows = info->estimatedCost < 1 ? 1 : (sqlite3_int64)info->estimatedCost;
    if (!n)
        return SQLITE_OK;
    info->estimatedCost += 1;
    info->idxStr = sqlite3_mprintf("%s", columns);
    info->needToFreeIdxStr = 1;
    return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

/* ---- reading ---- */

static const struct lookup *find_lookup(struct vtab_table *t, const uint8_t *slots, unsigned n)
{
    for (struct lookup *l = t->lookups; l; l = l->next)
        if (l->n == n && !memcmp(l->slots, slots, n))
            return l;
    struct lookup *made;
    if (lookup_new(&t->wanted.rows, slots, n, &made) < 0)
        return NULL;
    made->next = t->lookups;
    t->lookups = made;
    return made;
}

static unsigned slot_of(const struct vtab_table *t, unsigned column)
{
    return column < t->lead ? column : t->wanted.rows.slots[t->own[column]];
}

/* An integer that equals the value, for an INTEGER column; 0: none can, or -1: not known. */
static int integer_of(sqlite3_value *value, int64_t *out)
{
    double d;

    switch (sqlite3_value_type(value)) {
    case SQLITE_INTEGER: *out = sqlite3_value_int64(value); return 1;
    case SQLITE_NULL: return 0;
    case SQLITE_FLOAT:
        d = sqlite3_value_double(value);
        if (d < -9e15 || d > 9e15)
            return -1;
        *out = (int64_t)d;
        return (double)*out == d;
    default: return -1;
    }
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *columns, int argc,
                  sqlite3_value **argv)
{
    struct cursor *cursor = (struct cursor *)base;
    struct vtab_table *t = ((struct vtab *)base->pVtab)->table;
    const struct rows *rows = &t->wanted.rows;
    uint8_t slots[LOOKUP_COLUMNS_MAX];
    unsigned n = 0;

    if (!t->set->filled) {
        t->set->filled = true;
        if (t->set->fill(t->set->arg) < 0)
            return SQLITE_ERROR;
    }
    cursor->lookup = NULL;
    cursor->row = 0;
    for (int i = 0; i < argc; i++) {
        unsigned slot = slot_of(t, (unsigned)(columns[i] - 'A'));
        int known = integer_of(argv[i], &cursor->values[n]);
        if (known == 0) {
            cursor->row = rows->n;
            return SQLITE_OK;
        }
        if (known > 0 && slot != ROWS_UNUSED)
            slots[n++] = (uint8_t)slot;
    }
    if (!n)
        return SQLITE_OK;
    cursor->lookup = find_lookup(t, slots, n);
    if (!cursor->lookup)
        return SQLITE_NOMEM;
    cursor->row = lookup_first(cursor->lookup, rows, cursor->values);
    return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *base)
{
    struct cursor *cursor = (struct cursor *)base;
    const struct rows *rows = &((struct vtab *)base->pVtab)->table->wanted.rows;

    cursor->row = cursor->lookup ? lookup_next(cursor->lookup, rows, cursor->values, cursor->row)
                                 : cursor->row + 1;
    return SQLITE_OK;
}

static int at_end(sqlite3_vtab_cursor *base)
{
    return ((struct cursor *)base)->row >= ((struct vtab *)base->pVtab)->table->wanted.rows.n;
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *result, int i)
{
    const struct vtab_table *t = ((struct vtab *)base->pVtab)->table;
    unsigned slot = slot_of(t, (unsigned)i);

    if (slot == ROWS_UNUSED)
        return SQLITE_OK;
    const struct cell *cell = rows_cell(&t->wanted.rows, ((struct cursor *)base)->row, slot);
    switch (cell->type) {
    case CELL_NULL: break;
    case CELL_INTEGER: sqlite3_result_int64(result, cell->integer); break;
    case CELL_REAL: sqlite3_result_double(result, cell->real); break;
    case CELL_TEXT: /* the rows outlive the statement */
        sqlite3_result_text(result, cell->text, (int)cell->size, SQLITE_STATIC);
        break;
    }
    return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((struct cursor *)base)->row;
    return SQLITE_OK;
}

/* ---- the module ---- */

static int do_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                      sqlite3_vtab **out, char **error)
{
    struct vtab_table *t = aux;

    int r = declare(db, t);
    if (r != SQLITE_OK)
        return r;
    struct vtab *vtab = sqlite3_malloc(sizeof *vtab);
    if (!vtab)
        return SQLITE_NOMEM;
    *vtab = (struct vtab){.table = t};
    *out = &vtab->base;
    return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *base)
{
    sqlite3_free(base);
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    struct cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (!cursor)
        return SQLITE_NOMEM;
    *cursor = (struct cursor){0};
    *out = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    sqlite3_free(base);
    return SQLITE_OK;
}

/* Without xCreate a table exists by its name alone. */
static const sqlite3_module module = {
    .xConnect = do_connect,
    .xBestIndex = best_index,
    .xDisconnect = disconnect,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next,
    .xEof = at_end,
    .xColumn = column,
    .xRowid = rowid,
};

int vtab_set_init(struct vtab_set *set, const struct provider *provider, sqlite3 *db)
{
    set->tables = calloc(provider->tables->n, sizeof *set->tables);
    if (!set->tables)
        return -ENOMEM;
    set->n = provider->tables->n;
    for (size_t i = 0; i < set->n; i++) {
        struct vtab_table *t = &set->tables[i];
        t->wanted.table = &provider->tables->items[i];
        t->set = set;
        shape(t, provider->many);
        if (sqlite3_create_module(db, t->wanted.table->name, &module, t) != SQLITE_OK)
            return -ENOMEM;
    }
    return 0;
}

void vtab_set_reset(struct vtab_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        struct vtab_table *t = &set->tables[i];
        while (t->lookups) {
            struct lookup *following = t->lookups->next;
            lookup_free(t->lookups);
            t->lookups = following;
        }
        rows_deinit(&t->wanted.rows);
        t->wanted = (struct wanted){.table = t->wanted.table};
        t->used = false;
    }
    set->filled = false;
}

void vtab_set_deinit(struct vtab_set *set)
{
    vtab_set_reset(set);
    free(set->tables);
    *set = (struct vtab_set){0};
}
