#include "fs/sql/engine.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/sql/functions.h"
#include "fs/sql/heap.h"
#include "fs/sql/own_table.h"
#include "fs/sql/vtab.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STEPS_BETWEEN_LOOKS 2000 /* of SQLite's machine: some 20 us */

struct engine {
    const struct provider *provider;
    struct stop stop;
    struct heap *heap;
    sqlite3 *db;
    struct vtab_set set;
    struct attached *attached; /* NULL: no statement named its schema so far */
    int attach_error;          /* -errno; then it isn't there, and ... */
    struct text attach_why;    /* ... this says why */
    sqlite3_stmt *stmt;
    char *sql;       /* the text looked at last, as a C string, up to a NUL in it */
    int offset;      /* in it, of the last error; -1: not known */
    bool ended;      /* by a semicolon */
    bool denied;     /* by the authorizer */
    int error;       /* what the provider failed with */
    struct text why; /* ... in words; else SQLite's */
};

static int look_around(void *arg)
{
    const struct engine *engine = arg;
    /* some functions go on without memory, to fail in the end */
    return stop_reason(&engine->stop) < 0 || atomic_load(&engine->heap->exceeded);
}

/* ---- what a statement may do ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (name && !sqlite3_stricmp(name, *names))
            return true;
    return false;
}

/* The hidden columns of json_each and json_tree, which SQLite's json.c gives out of the cursor's
 * own memory: where a row is shown after the cursor's end, beside an aggregate, that has been
 * freed. */
static bool is_of_cursor(const char *table, const char *column)
{
    static const char *const tables[] = {"json_each", "json_tree", NULL};
    static const char *const columns[] = {"json", "root", NULL};

    return is_one_of(table, tables) && is_one_of(column, columns);
}

static int authorize(void *arg, int action, const char *first, const char *second,
                     const char *database, const char *trigger)
{
    static const char *const pragmas[] = {"table_info",    "table_xinfo",     "table_list",
                                          "function_list", "compile_options", NULL};
    static const char *const functions[] = {"load_extension", "fts3_tokenizer", NULL};
    /* takes the square of its arguments' size, minutes of one of 100 kB, and nothing ends it */
    static const char *const endless[] = {"json_patch", "jsonb_patch", NULL};
    struct engine *engine = arg;

    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_READ:
        if (!is_of_cursor(first, second))
            return SQLITE_OK;
        text_clear(&engine->why);
        text_printf(&engine->why,
                    "the column %s of %s isn't allowed: SQLite may show memory that it has freed",
                    second, first);
        break;
    case SQLITE_UPDATE: /* sqlite3_declare_vtab() asks that, too; a statement's own is refused */
        if (first && !strcmp(first, "sqlite_master"))
            return SQLITE_OK;
        break;
    case SQLITE_FUNCTION:
        if (is_one_of(second, endless)) {
            text_clear(&engine->why);
            text_printf(&engine->why, "%s() isn't allowed: it could run for hours", second);
        } else if (!is_one_of(second, functions)) {
            return SQLITE_OK;
        }
        break;
    case SQLITE_PRAGMA:
        if (is_one_of(first, pragmas))
            return SQLITE_OK;
        break;
    }
    engine->denied = true;
    return SQLITE_DENY;
}

/* Not every statement asks the authorizer (VACUUM INTO a file doesn't), so what isn't a question is
 * refused by its looks as well. */
static bool is_question(sqlite3_stmt *stmt)
{
    return sqlite3_column_count(stmt) > 0 && sqlite3_stmt_readonly(stmt);
}

/* And there are no files. */
static int open_no_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    file->pMethods = NULL;
    return SQLITE_CANTOPEN;
}

static int delete_no_file(sqlite3_vfs *vfs, const char *name, int sync)
{
    return SQLITE_IOERR_DELETE;
}

static int access_no_file(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    *out = 0;
    return SQLITE_OK;
}

static sqlite3_vfs fileless;

static void make_fileless(void)
{
    fileless = *sqlite3_vfs_find(NULL); /* for its clock and its randomness */
    fileless.pNext = NULL;
    fileless.zName = "fileless";
    fileless.xOpen = open_no_file;
    fileless.xDelete = delete_no_file;
    fileless.xAccess = access_no_file;
    sqlite3_vfs_register(&fileless, 0);
}

static const struct {
    int id, value;
} limits[] = {
    {SQLITE_LIMIT_LENGTH, 16 << 20}, /* of one value: some functions take its square */
    {SQLITE_LIMIT_SQL_LENGTH, ENGINE_SQL_MAX},
    {SQLITE_LIMIT_EXPR_DEPTH, 200},
    {SQLITE_LIMIT_COMPOUND_SELECT, 100},
    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000},
    {SQLITE_LIMIT_ATTACHED, 0},
    {SQLITE_LIMIT_WORKER_THREADS, 0},
};

/* ---- opening ---- */

static int fill(void *arg)
{
    struct engine *engine = arg;
    struct wanted **wanted = calloc(engine->set.n, sizeof *wanted);
    size_t n = 0;

    if (!wanted)
        return engine->error = -ENOMEM;
    for (size_t i = 0; i < engine->set.n; i++)
        if (engine->set.tables[i].used)
            wanted[n++] = &engine->set.tables[i].wanted;
    engine->error =
        engine->provider->fill(engine->provider->arg, wanted, n, &engine->stop, &engine->why);
    for (size_t i = 0; i < n && engine->error == 0; i++)
        engine->error = wanted[i]->rows.error;
    free(wanted);
    return engine->error;
}

static int configure(struct engine *engine)
{
    sqlite3 *db = engine->db;

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        sqlite3_limit(db, limits[i].id, limits[i].value);
    sqlite3_db_config(db, SQLITE_DBCONFIG_MAINDBNAME, "python");
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* a name in double quotes that doesn't exist is an error, and no text */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    sqlite3_progress_handler(db, STEPS_BETWEEN_LOOKS, look_around, engine);
    /* sorting in memory: there is no file that it may be done in */
    if (sqlite3_exec(db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL) != SQLITE_OK)
        return -ENOMEM;
    int r = functions_add(db, &engine->stop);
    engine->set.fill = fill;
    engine->set.stop = &engine->stop;
    engine->set.arg = engine;
    if (r == 0)
        r = vtab_set_init(&engine->set, engine->provider, db);
    sqlite3_set_authorizer(db, authorize, engine);
    return r;
}

int engine_make(const struct provider *provider, struct engine **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    int r = heap_start();
    if (r < 0)
        return r;
    pthread_once(&once, make_fileless);
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return -ENOMEM;
    engine->provider = provider;
    r = heap_new(provider->memory ? provider->memory : (long)HEAP_MAX, provider->uid,
                 &engine->heap);
    if (r < 0) {
        free(engine);
        return r;
    }
    engine->stop.deadline_ns = UINT64_MAX;
    engine->offset = -1;
    heap_enter(engine->heap);
    r = sqlite3_open_v2(":memory:", &engine->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX,
                        fileless.zName);
    r = r == SQLITE_OK ? configure(engine) : -ENOMEM;
    if (r < 0) {
        engine_close(engine);
        return r;
    }
    heap_enter(NULL);
    *out = engine;
    return 0;
}

void engine_begin(struct engine *engine, const struct provider *provider,
                  const struct interrupt *interrupt)
{
    engine->provider = provider;
    engine->stop = (struct stop){
        .interrupt = interrupt,
        .deadline_ns = monotonic_ns() +
                       (provider->deadline_ns ? provider->deadline_ns : ENGINE_DEADLINE_NS),
    };
    heap_enter(engine->heap);
    heap_watch(&engine->stop);
}

int engine_open(const struct provider *provider, const struct interrupt *interrupt,
                struct engine **out)
{
    int r = engine_make(provider, out);

    if (r == 0)
        engine_begin(*out, provider, interrupt);
    return r;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    heap_watch(NULL);
    sqlite3_finalize(engine->stmt);
    vtab_set_deinit(&engine->set);
    sqlite3_close(engine->db);
    attached_close(engine->attached);
    heap_enter(NULL);
    heap_unref(engine->heap);
    text_deinit(&engine->why);
    text_deinit(&engine->attach_why);
    free(engine->sql);
    free(engine);
}

/* ---- what is attached ---- */

static bool names_attached(const struct engine *engine)
{
    const struct attached_schema *schema = engine->provider->attached;
    return schema && strcasestr(engine->sql, schema->name);
}

/* Attaches the file, once a text names its schema: most don't. */
static void attach(struct engine *engine)
{
    sqlite3_set_authorizer(engine->db, NULL, NULL);
    sqlite3_limit(engine->db, SQLITE_LIMIT_ATTACHED, 1);
    int r = vtab_set_create(&engine->set, engine->db);
    if (r == 0)
        r = attached_open(engine->db, engine->provider->attached, &engine->stop,
                          &engine->attach_why, &engine->attached);
    sqlite3_limit(engine->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_set_authorizer(engine->db, authorize, engine);
    engine->attach_error = r;
}

/* ---- preparing ---- */

/* Whether the text has the word FROM, outside of names, strings and comments or within: it is only
 * asked of texts that are wrong. */
static bool has_from(const char *sql)
{
    for (const char *p = sql; (p = strcasestr(p, "from")); p += 4)
        if (p > sql && strchr(" \t\r\n)\"'*", p[-1]) && (!p[4] || strchr(" \t\r\n(\"", p[4])))
            return true;
    return false;
}

/* Whether some table has such a column, which a JOIN may bring. */
static bool is_column(const struct tables *tables, const char *name)
{
    for (size_t i = 0; i < tables->n; i++)
        for (unsigned k = 0; k < tables->items[i].ncolumns; k++)
            if (!sqlite3_stricmp(tables->items[i].columns[k].name, name))
                return true;
    return false;
}

/* What SQLite's error says of a text that may go on. */
static enum sql_state judge(const char *said)
{
    static const char *const open[] =
        {
            "incomplete input",         "unrecognized token: \"'",
            "unrecognized token: \"\"", "unrecognized token: \"`",
            "unrecognized token: \"[",  "unrecognized token: \"x'",
            "unrecognized token: \"X'", NULL,
        },
                             *const unresolved[] = {
                                 "no such column: ",
                                 "ambiguous column name: ",
                                 "no tables specified",
                                 "SELECTs to the left and right of ",
                                 NULL,
                             };

    for (size_t i = 0; open[i]; i++)
        if (!strncmp(said, open[i], strlen(open[i])))
            return SQL_OPEN;
    for (size_t i = 0; unresolved[i]; i++)
        if (!strncmp(said, unresolved[i], strlen(unresolved[i])))
            return SQL_UNRESOLVED;
    return SQL_WRONG;
}

bool engine_is_hopeless(const struct engine *engine)
{
    static const char column[] = "no such column: ";
    const char *said = sqlite3_errmsg(engine->db);

    if (strncmp(said, column, sizeof column - 1))
        return false;
    said += sizeof column - 1;
    return has_from(engine->sql) && !strchr(said, '.') &&
           !is_column(engine->provider->tables, said);
}

static enum sql_state refuse(struct engine *engine, const char *words)
{
    text_clear(&engine->why);
    text_puts(&engine->why, words);
    return SQL_WRONG;
}

static int failure(struct engine *engine, int result)
{
    int stopped = stop_reason(&engine->stop);

    if (atomic_load(&engine->heap->exceeded))
        return -EFBIG;
    if (stopped < 0 && (result == SQLITE_INTERRUPT || result == SQLITE_NOMEM ||
                        engine->error == -ENOMEM)) /* heap_watch() */
        return engine->error = stopped;
    if (engine->error < 0)
        return engine->error;
    if (result == SQLITE_NOMEM)
        return -ENOMEM;
    return result == SQLITE_TOOBIG ? -EFBIG : -EINVAL;
}

int engine_refusal(const struct engine *engine) { return engine->error ? engine->error : -EINVAL; }

/* Whether a semicolon that ends a statement is the last of these bytes. Writes there for a moment.
 */
static bool ends_statement(char *sql, size_t size)
{
    char next = sql[size];

    sql[size] = 0;
    bool ends = sqlite3_complete(sql);
    sql[size] = next;
    return ends;
}

/* Makes a view of a table of the program's own: of its rows, which are read for that. */
static bool make_own_table(struct engine *engine, const char *name)
{
    vtab_set_reset(&engine->set);
    sqlite3_set_authorizer(engine->db, NULL, NULL);
    int r = own_table_view(engine->db, name, engine->provider->many);
    sqlite3_set_authorizer(engine->db, authorize, engine);
    vtab_set_reset(&engine->set);
    return r == SQLITE_OK;
}

/* One of SQLite's results, and its words. */
static int prepare(struct engine *engine, size_t size, const char **tail)
{
    for (bool made = true;;) {
        int r = sqlite3_prepare_v2(engine->db, engine->sql, (int)size + 1, &engine->stmt, tail);
        const char *missing =
            r == SQLITE_ERROR && made ? own_table_missing(sqlite3_errmsg(engine->db)) : NULL;
        _cleanup_free_ char *name =
            missing && tables_find(engine->provider->tables, "events") ? strdup(missing) : NULL;
        if (!name)
            return r;
        engine->denied = false;
        made = make_own_table(engine, name);
    }
}

enum sql_state engine_prepare(struct engine *engine, const char *sql, size_t size, size_t *end)
{
    const char *tail;

    *end = size;
    sqlite3_finalize(steal_pointer(engine->stmt));
    vtab_set_reset(&engine->set);
    text_clear(&engine->why);
    engine->denied = false;
    engine->error = 0;
    engine->offset = -1;
    free(engine->sql);
    engine->sql = strndup(sql, size);
    if (!engine->sql)
        return refuse(engine, "out of memory");
    if (strlen(engine->sql) < size) {
        engine->offset = (int)strlen(engine->sql);
        return refuse(engine, "a NUL is no part of SQL");
    }
    if (names_attached(engine)) {
        if (!engine->attached && !engine->attach_error)
            attach(engine);
        engine->error = engine->attach_error;
        if (engine->error < 0)
            return refuse(engine,
                          engine->attach_why.data ? engine->attach_why.data : "out of memory");
    }
    int r = prepare(engine, size, &tail);
    *end = (size_t)(tail - engine->sql);
    engine->ended = ends_statement(engine->sql, *end);
    if (r == SQLITE_OK) {
        engine->denied = engine->stmt && !is_question(engine->stmt);
        return !engine->stmt ? SQL_EMPTY : engine->denied ? SQL_WRONG : SQL_READY;
    }
    engine->offset = sqlite3_error_offset(engine->db);
    if (r == SQLITE_ERROR)
        return judge(sqlite3_errmsg(engine->db));
    engine->error = failure(engine, r);
    return r == SQLITE_TOOBIG ? refuse(engine, "over the limit: a statement may have 64 KiB")
                              : SQL_WRONG;
}

bool engine_has_ended(const struct engine *engine) { return engine->ended; }

int engine_error_offset(const struct engine *engine) { return engine->offset; }

static bool is_in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c & 0x80;
}

static bool begins(const char *name, const char *with)
{
    return strlen(name) > strlen(with) && !strncasecmp(name, with, strlen(with));
}

/* Whether some table's name begins so. */
static bool begins_table(const struct engine *engine, const char *with)
{
    static const char *const others[] = {"python", "json_each", "json_tree", "pragma_table_info"};
    const struct tables *tables = engine->provider->tables;

    for (size_t i = 0; i < tables->n; i++)
        if (begins(tables->items[i].name, with))
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (begins(others[i], with))
            return true;
    /* WITH may have given such a name to one */
    for (const char *p = engine->sql; (p = strcasestr(p, with)); p++)
        if (is_in_word(p[strlen(with)]) && (p == engine->sql || !is_in_word(p[-1])))
            return true;
    return !strcasecmp(with, "python");
}

/* Whether the word at the end of what SQLite said stands at the end of the text, too. */
static bool is_last_word(const struct engine *engine, const char *said)
{
    const char *space = strrchr(said, ' '), *last = space ? space + 1 : said;
    size_t size = strlen(engine->sql), word = strlen(last);

    return word && word <= size && !strcasecmp(engine->sql + size - word, last);
}

bool engine_word_is_open(const struct engine *engine)
{
    static const char missing[] = "no such table: ", python[] = "python.";
    const char *said = sqlite3_errmsg(engine->db), *p = engine->sql + engine->offset;
    const struct attached_schema *schema = engine->provider->attached;

    if (engine->attach_error < 0)
        return false;
    if (engine->offset < 0) {
        if (strncmp(said, missing, sizeof missing - 1))
            return is_last_word(engine, said);
        said += sizeof missing - 1;
        if (!is_last_word(engine, said))
            return false;
        if (schema && !strncasecmp(said, schema->name, strlen(schema->name)))
            return true;
        return begins_table(engine, begins(said, python) ? said + sizeof python - 1 : said);
    }
    if (strlen(p) <= 2) /* operators, too */
        return true;
    while (is_in_word(*p))
        p++;
    return !*p;
}

/* ---- words ---- */

/* The line of the text that offset is in, and a caret below. */
static void point_at(const char *sql, size_t offset, struct text *out)
{
    const char *at = sql + offset, *begin = at;
    size_t column = 0;

    while (begin > sql && begin[-1] != '\n')
        begin--;
    text_puts(out, "\n  ");
    text_add_escaped(out, begin, strcspn(begin, "\n"));
    _cleanup_(text_deinit) struct text before = TEXT_INIT;
    text_add_escaped(&before, begin, (size_t)(at - begin));
    for (size_t i = 0; i < before.size; i++)
        column += ((unsigned char)before.data[i] & 0xc0) != 0x80;
    text_printf(out, "\n  %*s^", (int)column, "");
}

static const char *what_went_wrong(const struct engine *engine)
{
    if (atomic_load(&engine->heap->exceeded))
        return "over the limit: a statement may take 256 MiB of memory, those of one user together "
               "512 MiB, all together 1 GiB; select less, or aggregate";
    if (engine->why.size)
        return engine->why.data;
    if (engine->denied)
        return "only reading is allowed: SELECT, WITH, VALUES, EXPLAIN";
    switch (engine->error ? engine->error : stop_reason(&engine->stop)) {
    case -EINTR: return "interrupted";
    case -ETIMEDOUT: return "over the limit: a statement may take 10 s";
    case -EFBIG: return "over the limit: a table may have 16,777,216 rows; bound its times";
    case 0: return sqlite3_errmsg(engine->db);
    }
    return strerror(-engine->error);
}

static void list_tables(const struct tables *tables, struct text *out)
{
    text_puts(out, "; there are: ");
    for (size_t i = 0; i < tables->n; i++)
        text_printf(out, "%s%s", i ? ", " : "", tables->items[i].name);
}

void engine_explain(const struct engine *engine, struct text *out)
{
    const char *said = what_went_wrong(engine);

    text_add_escaped(out, said, strlen(said));
    if (begins(said, "no such table: "))
        list_tables(engine->provider->tables, out);
    if (begins(said, "no such table: ") && tables_find(engine->provider->tables, "events"))
        text_puts(out, "; one of the program's own is there once it has a row");
    if (engine->offset >= 0 && engine->sql && (size_t)engine->offset <= strlen(engine->sql))
        point_at(engine->sql, (size_t)engine->offset, out);
}

/* ---- running ---- */

/* A result counts while it grows; then it belongs to who asked. */
static bool charge_result(size_t bytes, size_t *taken)
{
    if (bytes <= *taken)
        return true;
    if (!heap_take(bytes - *taken))
        return false;
    *taken = bytes;
    return true;
}

int engine_run(struct engine *engine, enum format format, struct text *out)
{
    size_t before = out->size, taken = 0;
    struct formatter f;
    int result;

    int r = formatter_init(&f, format, out, engine->stmt);
    if (r < 0)
        return r;
    while ((result = sqlite3_step(engine->stmt)) == SQLITE_ROW && f.rows < ENGINE_ROWS_MAX &&
           out->size - before + f.cells.size < ENGINE_BYTES_MAX) {
        formatter_row(&f, engine->stmt);
        if (!charge_result(out->alloc + f.cells.alloc, &taken)) {
            result = SQLITE_NOMEM;
            break;
        }
    }
    heap_give(taken);
    if (result == SQLITE_ROW || result == SQLITE_DONE) {
        r = formatter_finish(&f);
        if (result == SQLITE_ROW)
            text_puts(out, f.rows == ENGINE_ROWS_MAX
                               ? "[cut: the limit of 1,000,000 rows was reached]\n"
                               : "[cut: the limit of 31 MiB was reached]\n");
    } else {
        r = failure(engine, result);
        engine->offset = -1;
        text_truncate(out, before);
    }
    formatter_deinit(&f);
    return r;
}
