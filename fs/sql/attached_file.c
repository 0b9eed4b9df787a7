#include "fs/sql/attached_file.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_BETWEEN_LOOKS 2000 /* of SQLite's machine, as engine.c has it */
#define BUSY_MS 500
#define OWN 3 /* parameters that say whose rows */

struct file {
    const struct attached_file *what;
    sqlite3 *db;
    const struct stop *stop;
    struct text names;
    struct attached_tables tables;
    sqlite3_stmt *stmts[ATTACHED_CURSORS];
};

static int look_around(void *arg)
{
    const struct file *file = arg;
    return stop_reason(file->stop) < 0;
}

/* ---- tables and statements ---- */

/* The name at *at, which goes on behind it; NULL: the text ends before. */
static const char *next_name(const struct text *names, size_t *at)
{
    if (*at >= names->size)
        return NULL;
    const char *name = names->data + *at;
    *at += strlen(name) + 1;
    return name;
}

static int read_table(const struct text *names, size_t *at, struct attached_table *table)
{
    *table = (struct attached_table){.name = next_name(names, at)};
    for (const char *name; (name = next_name(names, at));) {
        if (!*name)
            return 0;
        const char *type = next_name(names, at);
        if (!type || table->ncolumns == ATTACHED_COLUMNS)
            return -EIO;
        table->columns[table->ncolumns] = name;
        table->types[table->ncolumns++] = type;
    }
    return -EIO;
}

int attached_tables_read(const struct text *names, struct attached_tables *out)
{
    size_t alloc = 0, at = 0;
    int r = names->error;

    while (r == 0 && at < names->size) {
        r = ARRAY_GROW(out->items, alloc, out->n + 1);
        if (r == 0)
            r = read_table(names, &at, &out->items[out->n++]);
    }
    return r;
}

void attached_tables_deinit(struct attached_tables *tables) { free(tables->items); }

const struct attached_table *attached_tables_find(const struct attached_tables *tables,
                                                  const char *name)
{
    for (size_t i = 0; i < tables->n; i++)
        if (!sqlite3_stricmp(tables->items[i].name, name))
            return &tables->items[i];
    return NULL;
}

char *attached_sql(const struct attached_table *table, const struct attached_plan *plan)
{
    static const char *const ops[ATTACHED_OPS] = {"=", ">", ">=", "<", "<="};
    sqlite3_str *sql = sqlite3_str_new(NULL);

    for (unsigned i = 0; i < table->ncolumns; i++)
        sqlite3_str_appendf(sql, plan->columns >> i & 1 ? "%s\"%w\"" : "%sNULL",
                            i ? ", " : "SELECT ", table->columns[i]);
    sqlite3_str_appendf(sql, " FROM \"%w\" WHERE (?1 OR (uid = ?2 AND gid = ?3))", table->name);
    for (unsigned i = 0; i < plan->nbounds; i++)
        sqlite3_str_appendf(sql, " AND \"%w\" %s ?%d", table->columns[plan->bounds[i].column],
                            ops[plan->bounds[i].op], attached_file_parameter(i));
    for (unsigned i = 0; i < plan->norder; i++)
        sqlite3_str_appendf(sql, "%s\"%w\"%s", i ? ", " : " ORDER BY ",
                            table->columns[plan->order[i].column],
                            plan->order[i].descending ? " DESC" : "");
    return sqlite3_str_finish(sql);
}

int attached_file_parameter(unsigned bound) { return OWN + 1 + (int)bound; }

bool attached_file_has(const void *of, const struct attached_plan *plan)
{
    const struct file *file = of;

    if (plan->table >= file->tables.n || plan->nbounds > ATTACHED_BOUNDS ||
        plan->norder > ATTACHED_ORDER)
        return false;
    unsigned n = file->tables.items[plan->table].ncolumns;
    for (unsigned i = 0; i < plan->nbounds; i++)
        if (plan->bounds[i].column >= n || plan->bounds[i].op >= ATTACHED_OPS)
            return false;
    for (unsigned i = 0; i < plan->norder; i++)
        if (plan->order[i].column >= n)
            return false;
    return true;
}

unsigned attached_file_columns(const void *of, unsigned table)
{
    return ((const struct file *)of)->tables.items[table].ncolumns;
}

/* ---- the file ---- */

static int fail(struct file *file, int result, struct text *why)
{
    int stopped = stop_reason(file->stop);

    text_puts(why, sqlite3_errmsg(file->db));
    return result == SQLITE_NOMEM                      ? -ENOMEM
           : result == SQLITE_INTERRUPT && stopped < 0 ? stopped
                                                       : -EIO;
}

/* Adds the tables of the file that say whose their rows are. */
static int list_tables(sqlite3 *db, struct text *out)
{
    static const char whose[] =
        "SELECT m.name, p.name, p.type FROM sqlite_master m, pragma_table_info(m.name) p"
        " WHERE m.type = 'table' AND (SELECT count(*) FROM pragma_table_info(m.name) c"
        " WHERE c.name IN ('uid', 'gid')) = 2 ORDER BY m.name, p.cid";
    char *last = NULL;
    sqlite3_stmt *stmt;
    int result = sqlite3_prepare_v2(db, whose, -1, &stmt, NULL);

    if (result != SQLITE_OK)
        return result;
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *const row[] = {(const char *)sqlite3_column_text(stmt, 0),
                                   (const char *)sqlite3_column_text(stmt, 1),
                                   (const char *)sqlite3_column_text(stmt, 2)};
        if (!row[0] || !row[1] || !row[2])
            break;
        if (!last || strcmp(last, row[0]) != 0) {
            if (last)
                text_putc(out, 0);
            free(last);
            last = strdup(row[0]);
            text_add(out, row[0], strlen(row[0]) + 1);
        }
        text_add(out, row[1], strlen(row[1]) + 1);
        text_add(out, row[2], strlen(row[2]) + 1);
    }
    if (last)
        text_putc(out, 0);
    free(last);
    sqlite3_finalize(stmt);
    return result == SQLITE_DONE ? SQLITE_OK : result == SQLITE_ROW ? SQLITE_NOMEM : result;
}

static void close_file(void *of)
{
    struct file *file = of;

    for (size_t i = 0; i < ARRAY_SIZE(file->stmts); i++)
        sqlite3_finalize(file->stmts[i]);
    sqlite3_close(file->db);
    attached_tables_deinit(&file->tables);
    text_deinit(&file->names);
    free(file);
}

static int open_file(void *arg, const struct stop *stop, struct text *tables, struct text *why,
                     void **out)
{
    const struct attached_file *what = arg;
    struct file *file = calloc(1, sizeof *file);

    if (!file)
        return -ENOMEM;
    file->what = what;
    file->stop = stop;
    int result = sqlite3_open_v2(what->path, &file->db,
                                 SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
                                     SQLITE_OPEN_PRIVATECACHE,
                                 NULL);
    if (result == SQLITE_OK) {
        sqlite3_busy_timeout(file->db, BUSY_MS);
        sqlite3_progress_handler(file->db, STEPS_BETWEEN_LOOKS, look_around, file);
        result = list_tables(file->db, &file->names);
    }
    int r = result == SQLITE_OK      ? attached_tables_read(&file->names, &file->tables)
            : result == SQLITE_NOMEM ? -ENOMEM
                                     : -EIO;
    if (r < 0) {
        text_printf(why, "%s can't be read: %s", what->schema, sqlite3_errmsg(file->db));
        close_file(file);
        return r;
    }
    text_add(tables, file->names.data ? file->names.data : "", file->names.size);
    *out = file;
    return 0;
}

/* ---- reading ---- */

static void end(void *of, unsigned cursor)
{
    sqlite3_finalize(steal_pointer(((struct file *)of)->stmts[cursor]));
}

int attached_file_prepare(void *of, unsigned cursor, const struct attached_plan *plan,
                          sqlite3_stmt **out, struct text *why)
{
    struct file *file = of;
    const struct attached_file *what = file->what;
    sqlite3_stmt **stmt = &file->stmts[cursor];

    end(of, cursor);
    char *sql = attached_sql(&file->tables.items[plan->table], plan);
    int result = sql ? sqlite3_prepare_v2(file->db, sql, -1, stmt, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (result != SQLITE_OK)
        return fail(file, result, why);
    sqlite3_bind_int(*stmt, 1, what->all);
    /* what is root's is seen by who may see all */
    if (what->uid) {
        sqlite3_bind_int64(*stmt, 2, what->uid);
        sqlite3_bind_int64(*stmt, 3, what->gid);
    }
    *out = *stmt;
    return 0;
}

static int begin(void *of, unsigned cursor, const struct attached_plan *plan, int argc,
                 sqlite3_value **argv, struct text *why)
{
    sqlite3_stmt *stmt;

    int r = attached_file_prepare(of, cursor, plan, &stmt, why);
    for (int i = 0; r == 0 && i < argc; i++)
        sqlite3_bind_value(stmt, attached_file_parameter((unsigned)i), argv[i]);
    return r;
}

static int next(void *of, unsigned cursor, struct text *why)
{
    struct file *file = of;

    int result = sqlite3_step(file->stmts[cursor]);
    return result == SQLITE_ROW ? 1 : result == SQLITE_DONE ? 0 : fail(file, result, why);
}

static void column(void *of, unsigned cursor, int i, sqlite3_context *result)
{
    sqlite3_result_value(result, sqlite3_column_value(((struct file *)of)->stmts[cursor], i));
}

const struct attached_ops attached_file_ops = {
    .open = open_file,
    .begin = begin,
    .next = next,
    .column = column,
    .end = end,
    .close = close_file,
};
