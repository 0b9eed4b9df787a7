#include "fs/sql/vtab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFETCH 16 /* rows ahead */

static const struct column lead_columns[ROWS_LEAD] = {
    {"host", COLUMN_TEXT, NULL, "the machine"},
    {"pid", COLUMN_INTEGER, NULL, "the process"},
    {"rank", COLUMN_INTEGER, NULL, "its rank"},
    {"ended", COLUMN_REAL, "s", "when it ended, since 1970; NULL: it lives"},
};

struct cursor {
    sqlite3_vtab_cursor base;
    size_t at;                   /* a row, or with `order` a place in it */
    const uint32_t *order;       /* NULL: as they lie */
    const struct lookup *lookup; /* NULL: all rows */
    int64_t values[LOOKUP_COLUMNS_MAX];
};

/* ---- the shape of a table ---- */

static bool is_lead(const struct vtab_table *t, const char *name)
{
    for (unsigned i = 0; i < t->lead; i++)
        if (!strcmp(lead_columns[i].name, name))
            return true;
    return false;
}

static void shape(struct vtab_table *t, bool many)
{
    const struct table *table = t->wanted.table;

    t->lead = many && !table->rows->catalog ? table_lead(table) : 0;
    t->ncolumns = t->lead;
    t->argument = -1;
    for (unsigned i = 0; i < table->ncolumns; i++) {
        if (t->lead && is_lead(t, table->columns[i].name))
            continue;
        if (table->columns[i].argument)
            t->argument = (int)t->ncolumns;
        t->own[t->ncolumns++] = (uint8_t)i;
    }
}

const struct column *vtab_column(const struct vtab_table *t, int i)
{
    return (unsigned)i < t->lead ? &lead_columns[i] : &t->wanted.table->columns[t->own[i]];
}

static int declare(sqlite3 *db, const struct vtab_table *t)
{
    struct text sql = TEXT_INIT;

    if (!t->lead)
        return sqlite3_declare_vtab(db, t->wanted.table->sql);
    for (unsigned i = 0; i < t->ncolumns; i++) {
        const struct column *c = vtab_column(t, (int)i);
        text_printf(&sql, "%s%s %s%s", i ? ", " : "CREATE TABLE x(", c->name,
                    column_type_name(c->type), c->hidden ? " HIDDEN" : "");
    }
    text_puts(&sql, ")");
    int r = sql.error ? SQLITE_NOMEM : sqlite3_declare_vtab(db, sql.data);
    text_deinit(&sql);
    return r;
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

static int find_order(struct vtab_table *t, const struct sort_key *keys, unsigned n,
                      struct sort **out)
{
    for (struct sort *o = t->orders; o; o = o->next) {
        bool same = o->n == n;
        for (unsigned i = 0; same && i < n; i++)
            same = o->keys[i].slot == keys[i].slot && o->keys[i].descending == keys[i].descending;
        if (same) {
            *out = o;
            return 0;
        }
    }
    int r = sort_new(&t->wanted.rows, keys, n, t->set->stop, out);
    if (r < 0)
        return r;
    (*out)->next = t->orders;
    t->orders = *out;
    return 0;
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

/* The key of a value, for any column that rows are looked up by. */
static int key_of(const struct rows *rows, unsigned slot, sqlite3_value *value, int64_t *out)
{
    const char *text;

    if (rows->types[slot] == COLUMN_INTEGER)
        return integer_of(value, out);
    switch (sqlite3_value_type(value)) {
    case SQLITE_TEXT:
        text = (const char *)sqlite3_value_text(value);
        *out = rows->n && text
                   ? texts_find(&rows->texts[slot], text, (size_t)sqlite3_value_bytes(value))
                   : 0;
        return *out != 0;
    case SQLITE_NULL: return 0;
    default: return -1;
    }
}

/* The rows in which columns have the values that are given. */
static int look_up(struct cursor *cursor, struct vtab_table *t, const char *columns, int argc,
                   sqlite3_value **argv)
{
    const struct rows *rows = &t->wanted.rows;
    uint8_t slots[LOOKUP_COLUMNS_MAX];
    unsigned n = 0;

    for (int i = 0; i < argc; i++) {
        unsigned slot = slot_of(t, (unsigned)(columns[i] - VTAB_COLUMN_NAME));
        int known = slot == ROWS_UNUSED ? -1 : key_of(rows, slot, argv[i], &cursor->values[n]);
        if (known == 0) {
            cursor->at = rows->n;
            return SQLITE_OK;
        }
        if (known > 0)
            slots[n++] = (uint8_t)slot;
    }
    if (!n)
        return SQLITE_OK;
    cursor->lookup = find_lookup(t, slots, n);
    if (!cursor->lookup)
        return SQLITE_NOMEM;
    cursor->at = lookup_first(cursor->lookup, rows, cursor->values);
    return SQLITE_OK;
}

static int put_in_order(struct cursor *cursor, struct vtab_table *t, const char *columns)
{
    struct sort_key keys[ORDER_KEYS_MAX];
    struct sort *order = NULL;
    unsigned n = 0;

    for (; *columns; columns += 2)
        keys[n++] = (struct sort_key){
            .slot = (uint8_t)slot_of(t, (unsigned)(columns[0] - VTAB_COLUMN_NAME)),
            .descending = columns[1] == '-',
        };
    int r = find_order(t, keys, n, &order);
    if (r < 0)
        return r == -ENOMEM ? SQLITE_NOMEM : SQLITE_INTERRUPT;
    cursor->order = order->rows;
    return SQLITE_OK;
}

/* Why a function can't be asked so. */
static int refuse(sqlite3_vtab *vtab, const struct vtab_table *t, enum vtab_way way)
{
    const char *function = t->wanted.table->name, *argument = vtab_column(t, t->argument)->name;

    switch (way) {
    case VTAB_LONG:
        vtab->zErrMsg = sqlite3_mprintf("%s: %s may have at most %d bytes, and no zero", function,
                                        argument, CALL_TEXT_MAX - 1);
        break;
    case VTAB_MANY:
        vtab->zErrMsg =
            sqlite3_mprintf("%s: one statement may ask at most %d of them", function, CALLS_MAX);
        break;
    default:
        vtab->zErrMsg = sqlite3_mprintf("%s: %s has to be a text that stands there, as in '...'; "
                                        "it can't come from a column or an expression",
                                        function, argument);
    }
    return vtab->zErrMsg ? SQLITE_ERROR : SQLITE_NOMEM;
}

static int filter(sqlite3_vtab_cursor *base, int way, const char *columns, int argc,
                  sqlite3_value **argv)
{
    struct cursor *cursor = (struct cursor *)base;
    struct vtab_table *t = ((struct vtab *)base->pVtab)->table;

    if (way >= VTAB_UNASKED)
        return refuse(base->pVtab, t, way);
    if (!t->set->filled) {
        t->set->filled = true;
        if (t->set->fill(t->set->arg) < 0)
            return SQLITE_ERROR;
    }
    cursor->lookup = NULL;
    cursor->order = NULL;
    cursor->at = 0;
    return way == VTAB_ORDERED ? put_in_order(cursor, t, columns)
                               : look_up(cursor, t, columns, argc, argv);
}

static int next(sqlite3_vtab_cursor *base)
{
    struct cursor *cursor = (struct cursor *)base;
    const struct rows *rows = &((struct vtab *)base->pVtab)->table->wanted.rows;

    cursor->at = cursor->lookup ? lookup_next(cursor->lookup, rows, cursor->values, cursor->at)
                                : cursor->at + 1;
    if (cursor->order && cursor->at + PREFETCH < rows->n) /* they lie anywhere */
        __builtin_prefetch(
            &rows->words[cursor->order[cursor->at + PREFETCH] * (size_t)rows->width]);
    return SQLITE_OK;
}

static int at_end(sqlite3_vtab_cursor *base)
{
    return ((struct cursor *)base)->at >= ((struct vtab *)base->pVtab)->table->wanted.rows.n;
}

static size_t row_of(const struct cursor *cursor)
{
    return cursor->order ? cursor->order[cursor->at] : cursor->at;
}

static void give_text(sqlite3_context *result, const struct texts *texts, uint32_t number)
{
    const struct texts_item *item = texts_get(texts, number);

    /* the rows outlive the statement */
    sqlite3_result_text(result, item->bytes, (int)item->size, SQLITE_STATIC);
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *result, int i)
{
    const struct vtab_table *t = ((struct vtab *)base->pVtab)->table;
    const struct rows *rows = &t->wanted.rows;
    unsigned slot = slot_of(t, (unsigned)i);
    double real;

    if (slot == ROWS_UNUSED)
        return SQLITE_OK;
    uint64_t word = rows_word(rows, row_of((struct cursor *)base), slot);
    switch ((enum column_type)rows->types[slot]) {
    case COLUMN_INTEGER:
        if ((int64_t)word != ROWS_NULL)
            sqlite3_result_int64(result, (int64_t)word);
        break;
    case COLUMN_REAL: /* NaN is NULL to SQLite, too */
        memcpy(&real, &word, sizeof real);
        sqlite3_result_double(result, real);
        break;
    case COLUMN_TEXT:
        if (word)
            give_text(result, &rows->texts[slot], (uint32_t)word);
        break;
    }
    return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)row_of((struct cursor *)base);
    return SQLITE_OK;
}

/* ---- the module ---- */

static int do_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out,
                      char **error)
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

/* The module of our tables. As its xCreate does no more than xConnect, a table exists by its name
 * alone. */
static const sqlite3_module module = {
    .xCreate = do_connect,
    .xConnect = do_connect,
    .xBestIndex = vtab_best_index,
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

int vtab_set_create(struct vtab_set *set, sqlite3 *db)
{
    char sql[200];

    for (size_t i = 0; i < set->n; i++) {
        const char *name = set->tables[i].wanted.table->name;
        snprintf(sql, sizeof sql, "CREATE VIRTUAL TABLE python.%s USING %s", name, name);
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return -ENOMEM;
    }
    return 0;
}

void vtab_set_reset(struct vtab_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        struct vtab_table *t = &set->tables[i];
        if (!t->used)
            continue;
        while (t->lookups) {
            struct lookup *following = t->lookups->next;
            lookup_free(t->lookups);
            t->lookups = following;
        }
        while (t->orders) {
            struct sort *following = t->orders->next;
            sort_free(t->orders);
            t->orders = following;
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
