/* What the planner asks of a table, and what that tells of the statement. */
#include "fs/sql/vtab.h"

#include <math.h>
#include <string.h>

#define ROWS_GUESS 1000.0       /* of a table, for the planner */
#define RECORDED_GUESS 100000.0 /* of a recorded one */
#define MATCH_GUESS 20.0        /* how many times fewer are left by an equality */
#define REFUSED_COST 1e30       /* of a way that only fails: it is taken where there is no other */

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

static bool is_below(int op)
{
    return op == SQLITE_INDEX_CONSTRAINT_LT || op == SQLITE_INDEX_CONSTRAINT_LE;
}

static bool is_above(int op)
{
    return op == SQLITE_INDEX_CONSTRAINT_GT || op == SQLITE_INDEX_CONSTRAINT_GE;
}

/* Narrows a bound by a REAL; of a fraction, by the integer that is next to it towards 0. */
static void narrow_fraction(struct bound *b, int op, double value)
{
    int64_t integer;

    if (!(value > -9e15 && value < 9e15)) /* beyond that not every integer is a double */
        return;
    integer = (int64_t)value;
    if ((double)integer == value)
        narrow_integer(b, op, integer);
    else if (is_below(op))
        narrow_integer(b, SQLITE_INDEX_CONSTRAINT_LE, integer);
    else if (is_above(op))
        narrow_integer(b, SQLITE_INDEX_CONSTRAINT_GE, integer);
}

/* An integer that is no double was rounded to one that rules out no row. */
static void narrow_real(struct bound *b, int op, double value)
{
    bool equal = op == SQLITE_INDEX_CONSTRAINT_EQ;

    b->bounded |= equal || is_below(op) || is_above(op);
    if ((equal || is_below(op)) && value < b->most)
        b->most = value;
    if ((equal || is_above(op)) && value > b->least)
        b->least = value;
}

static void narrow_text(struct bound *b, sqlite3_value *value, const char *collation)
{
    const char *text = (const char *)sqlite3_value_text(value);
    size_t size = (size_t)sqlite3_value_bytes(value);

    if (text && size < sizeof b->equal && strlen(text) == size && !strcmp(collation, "BINARY"))
        strcpy(b->equal, text);
}

static bool is_number(sqlite3_value *value)
{
    return sqlite3_value_type(value) == SQLITE_INTEGER || sqlite3_value_type(value) == SQLITE_FLOAT;
}

/* The constant that a constraint compares with; NULL: none. */
static sqlite3_value *constant_of(sqlite3_index_info *info, int constraint)
{
    sqlite3_value *value;

    return sqlite3_vtab_rhs_value(info, constraint, &value) == SQLITE_OK ? value : NULL;
}

static void narrow_one(const struct column *column, sqlite3_index_info *info, int i,
                       struct bound *b)
{
    sqlite3_value *value = constant_of(info, i);
    int op = info->aConstraint[i].op;

    /* as a comparison does, it rules NULL out */
    b->bounded |= op == SQLITE_INDEX_CONSTRAINT_ISNOTNULL && column->type != COLUMN_TEXT;
    if (!value)
        return;
    switch (column->type) {
    case COLUMN_INTEGER:
        if (sqlite3_value_type(value) == SQLITE_INTEGER)
            narrow_integer(b, op, sqlite3_value_int64(value));
        else if (is_number(value))
            narrow_fraction(b, op, sqlite3_value_double(value));
        break;
    case COLUMN_REAL:
        if (is_number(value))
            narrow_real(b, op, sqlite3_value_double(value));
        break;
    case COLUMN_TEXT:
        if (op == SQLITE_INDEX_CONSTRAINT_EQ && sqlite3_value_type(value) == SQLITE_TEXT)
            narrow_text(b, value, sqlite3_vtab_collation(info, i));
        break;
    }
}

/* Takes constants into account, of those constraints that hold for every row that is wanted. */
static void narrow(const struct vtab_table *t, sqlite3_index_info *info, struct bound *bounds)
{
    for (int i = 0; i < info->nConstraint; i++) {
        const struct sqlite3_index_constraint *c = &info->aConstraint[i];
        if (c->usable && c->iColumn >= 0)
            narrow_one(vtab_column(t, c->iColumn), info, i, &bounds[c->iColumn]);
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
    if (one->least < all->least)
        all->least = one->least;
    if (one->most > all->most)
        all->most = one->most;
    all->bounded &= one->bounded;
    if (strcmp(all->equal, one->equal))
        *all->equal = 0;
}

static void note_use(struct vtab_table *t, sqlite3_index_info *info, struct bound *bounds)
{
    struct wanted *w = &t->wanted;

    for (unsigned i = 0; i < t->ncolumns; i++)
        bounds[i] = UNBOUNDED;
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

/* ---- functions ---- */

/* The text that the argument equals. Where there is none: *way says why. */
static const char *find_text(const struct vtab_table *t, sqlite3_index_info *info,
                             enum vtab_way *way)
{
    *way = VTAB_UNASKED;
    for (int i = 0; i < info->nConstraint; i++) {
        const struct sqlite3_index_constraint *c = &info->aConstraint[i];
        if (!c->usable || c->iColumn != t->argument || c->op != SQLITE_INDEX_CONSTRAINT_EQ ||
            strcmp(sqlite3_vtab_collation(info, i), "BINARY") != 0)
            continue;
        sqlite3_value *value = constant_of(info, i);
        if (!value || sqlite3_value_type(value) != SQLITE_TEXT)
            continue;
        const char *text = (const char *)sqlite3_value_text(value);
        size_t size = (size_t)sqlite3_value_bytes(value);
        if (text && size < CALL_TEXT_MAX && strlen(text) == size)
            return text;
        *way = VTAB_LONG;
    }
    return NULL;
}

static bool is_integer(sqlite3_value *value)
{
    return value && sqlite3_value_type(value) == SQLITE_INTEGER;
}

/* Whether all rows within a call's ranges have what a constraint asks for. */
static bool is_of_call(const struct vtab_table *t, sqlite3_index_info *info, int i)
{
    const struct sqlite3_index_constraint *c = &info->aConstraint[i];
    sqlite3_value *value = constant_of(info, i);

    if (!c->usable || c->iColumn < 0)
        return false;
    if (c->iColumn == t->argument)
        return c->op == SQLITE_INDEX_CONSTRAINT_EQ && value &&
               sqlite3_value_type(value) == SQLITE_TEXT;
    if ((unsigned)c->iColumn > t->lead && !vtab_column(t, c->iColumn)->hidden)
        return false;
    return (unsigned)c->iColumn >= t->lead && is_integer(value) &&
           (c->op == SQLITE_INDEX_CONSTRAINT_EQ || is_below(c->op) || is_above(c->op));
}

/* Whether rows come in the order of their positions, which is the first column, or in any. */
static bool has_no_other_order(const struct vtab_table *t, const sqlite3_index_info *info)
{
    return !info->nOrderBy || (info->nOrderBy == 1 && !info->aOrderBy[0].desc &&
                               info->aOrderBy[0].iColumn == (int)t->lead);
}

/* How many rows of a call are wanted, by LIMIT and OFFSET. OFFSET itself is SQLite's to take: it
 * tells the number that stands there to each part of a compound SELECT, which share it. */
static uint64_t rows_of_call(const struct vtab_table *t, sqlite3_index_info *info)
{
    int64_t limit = -1, offset = 0;

    if (!has_no_other_order(t, info))
        return CALL_ALL;
    for (int i = 0; i < info->nConstraint; i++) {
        int op = info->aConstraint[i].op;
        bool is_limit = op == SQLITE_INDEX_CONSTRAINT_LIMIT;
        if (!is_limit && op != SQLITE_INDEX_CONSTRAINT_OFFSET) {
            if (!is_of_call(t, info, i))
                return CALL_ALL;
            continue;
        }
        sqlite3_value *value = constant_of(info, i);
        if (!is_integer(value) || sqlite3_value_int64(value) < 0)
            return CALL_ALL;
        *(is_limit ? &limit : &offset) = sqlite3_value_int64(value);
    }
    return limit < 0 ? CALL_ALL : (uint64_t)limit + (uint64_t)offset;
}

static bool is_same_call(const struct call *a, const struct call *b)
{
    return !strcmp(a->text, b->text) && !memcmp(a->ranges, b->ranges, sizeof a->ranges);
}

/* Takes down a use of a function. Each is planned in several ways. */
static enum vtab_way note_call(struct vtab_table *t, sqlite3_index_info *info,
                               const struct bound *bounds)
{
    struct use *use = &t->wanted.use;
    enum vtab_way way;
    const char *text = find_text(t, info, &way);
    struct call call = {0};

    if (!text)
        return way;
    strcpy(call.text, text);
    call.rows = rows_of_call(t, info);
    for (unsigned i = t->lead; i < t->ncolumns; i++)
        if (t->own[i] < CALL_COLUMNS_MAX)
            call.ranges[t->own[i]] = (struct range){bounds[i].low, bounds[i].high};
    for (unsigned i = 0; i < use->ncalls; i++)
        if (is_same_call(&use->calls[i], &call)) {
            if (call.rows > use->calls[i].rows)
                use->calls[i].rows = call.rows;
            return VTAB_LOOKUP;
        }
    if (use->ncalls == CALLS_MAX)
        return VTAB_MANY;
    use->calls[use->ncalls++] = call;
    return VTAB_LOOKUP;
}

/* ---- the whole ---- */

static bool is_lookup(const struct vtab_table *t, sqlite3_index_info *info, int i)
{
    const struct sqlite3_index_constraint *c = &info->aConstraint[i];

    if (!c->usable || c->op != SQLITE_INDEX_CONSTRAINT_EQ || c->iColumn < 0)
        return false;
    switch (vtab_column(t, c->iColumn)->type) {
    case COLUMN_INTEGER: return true;
    case COLUMN_REAL: return false;
    case COLUMN_TEXT: break;
    }
    return !strcmp(sqlite3_vtab_collation(info, i), "BINARY");
}

/* Whether rows can be sorted here as the statement wants them ordered, or grouped. */
static bool can_order(const sqlite3_index_info *info)
{
    for (int i = 0; i < info->nOrderBy; i++)
        if (info->aOrderBy[i].iColumn < 0)
            return false;
    return info->nOrderBy > 0 && info->nOrderBy <= ORDER_KEYS_MAX;
}

/* The columns whose values come as arguments. */
static int plan_lookup(struct vtab_table *t, sqlite3_index_info *info, bool ordered, char *columns)
{
    int n = 0;

    for (int i = 0; i < info->nConstraint && n < LOOKUP_COLUMNS_MAX; i++) {
        char name = (char)(VTAB_COLUMN_NAME + info->aConstraint[i].iColumn);
        if (!is_lookup(t, info, i) || strchr(columns, name))
            continue;
        if (ordered && constant_of(info, i))
            continue; /* the rows' source knows it, too: there are few others */
        columns[n++] = name;
        info->aConstraintUsage[i].argvIndex = n;
        info->estimatedCost /= MATCH_GUESS;
    }
    return n;
}

static void plan_order(struct vtab_table *t, sqlite3_index_info *info, char *columns)
{
    for (int i = 0; i < info->nOrderBy; i++) {
        int column = info->aOrderBy[i].iColumn;
        *columns++ = (char)(VTAB_COLUMN_NAME + column);
        *columns++ = info->aOrderBy[i].desc ? '-' : '+';
        if ((unsigned)column >= t->lead)
            t->wanted.use.columns |= (uint64_t)1 << t->own[column];
    }
    info->orderByConsumed = 1;
    info->idxNum = VTAB_ORDERED;
}

int vtab_best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    struct vtab_table *t = ((struct vtab *)base)->table;
    char columns[LOOKUP_COLUMNS_MAX + 2 * ORDER_KEYS_MAX + 1] = "";
    double rows = t->wanted.table->recorded < 0 ? ROWS_GUESS : RECORDED_GUESS;
    bool ordered = can_order(info);
    struct bound bounds[VTAB_COLUMNS_MAX];

    note_use(t, info, bounds);
    info->estimatedCost = rows;
    info->idxNum = t->argument < 0 ? VTAB_LOOKUP : (int)note_call(t, info, bounds);
    if (info->idxNum != VTAB_LOOKUP) {
        info->estimatedCost = REFUSED_COST;
        return SQLITE_OK;
    }
    int n = plan_lookup(t, info, ordered, columns);
    if (!n && ordered)
        plan_order(t, info, columns);
    info->estimatedRows = info->estimatedCost < 1 ? 1 : (sqlite3_int64)info->estimatedCost;
    info->estimatedCost += n > 0;
    if (!*columns)
        return SQLITE_OK;
    info->idxStr = sqlite3_mprintf("%s", columns);
    info->needToFreeIdxStr = 1;
    return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}
