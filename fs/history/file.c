#include "fs/history/file.h"

#include "agent/base/cleanup.h"
#include "fs/sql/heap.h"
#include "fs/sql/table.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define APPLICATION_ID 0x70726f62 /* "prob" */
#define FORMAT_VERSION 1
#define BUSY_MS 1000          /* somebody else writes to it */
#define TRIM_ROWS 20000       /* of each table, each time */
#define TRIM_ABOVE 0.9        /* of the limit: then the oldest ... */
#define TRIM_PART (1.0 / 16)  /* ... of the time that it spans goes */
#define VACUUM_ABOVE (1 / 4.) /* of the limit, unused: then some is given back to the disk */

static const char *const tables_sql =
#include "fs/history_tables_sql.h"
    ;

/* The recorded tables, whose columns are the live table's. */
static const char *const recorded_names[HISTORY_RECORDED] = {
    [HISTORY_EXCEPTIONS] = "exceptions",
    [HISTORY_CRASH] = "crash",
};

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    ADD_SAMPLE,
    ADD_EVENT,
    ADD_STACK,
    PUT_FOLLOWED,
    DROP_FOLLOWED,
    GET_FOLLOWED,
    COUNT_PAGES,
    COUNT_FREE,
    VACUUM,
    ADD_ROW, /* of each recorded table */
    STATEMENTS = ADD_ROW + HISTORY_RECORDED,
};

#define FRONT 6 /* columns */

static const char *const statements[ADD_ROW] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [ADD_SAMPLE] = "INSERT INTO samples VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [ADD_EVENT] = "INSERT INTO events VALUES(?, ?, ?, ?, ?, ?, json_extract(?7, '$.ts'), "
                  "json_extract(?7, '$.kind'), ?7)",
    [ADD_STACK] = "INSERT INTO profile VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [PUT_FOLLOWED] = "INSERT OR REPLACE INTO followed VALUES(?, ?, ?, ?, ?, ?, ?)",
    [DROP_FOLLOWED] = "DELETE FROM followed WHERE host = ? AND pid = ?",
    [GET_FOLLOWED] = "SELECT row, dropped, upto FROM followed WHERE host = ? AND pid = ? AND "
                     "name = ? AND since = ?",
    [COUNT_PAGES] = "PRAGMA page_count",
    [COUNT_FREE] = "PRAGMA freelist_count",
    [VACUUM] = "PRAGMA incremental_vacuum(1000)",
};

struct history_file {
    struct history_limits limits;
    int lock; /* the file, flocked as long as this daemon appends to it; closed after `db`, for
                 that lets go of SQLite's own locks on it */
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    int64_t page_size;
    int log_pages; /* of its -wal, after the last commit */
    int error;     /* of what is being appended; 0 */
    struct text why;
};

const char *history_recorded_name(enum history_recorded table) { return recorded_names[table]; }

const char *history_file_why(const struct history_file *file)
{
    return file->why.data ? file->why.data : "";
}

/* ---- errors ---- */

/* -errno for what SQLite said, in words. */
static int fail(struct history_file *file, int result)
{
    text_clear(&file->why);
    switch (result & 0xff) {
    case SQLITE_FULL:
        text_puts(&file->why, "no space left on its device: nothing is appended until there is");
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        text_puts(&file->why, "another program writes to it: nothing is appended until that ends");
        return -EBUSY;
    case SQLITE_NOMEM: text_puts(&file->why, "out of memory"); return -ENOMEM;
    case SQLITE_NOTADB:
        text_puts(&file->why, "it is no SQLite database; name another file");
        return -EINVAL;
    }
    text_printf(&file->why, "SQLite says: %s", sqlite3_errmsg(file->db));
    return -EIO;
}

/* Runs one whose parameters are bound. *value, if not NULL: its first column, 0 where it has no
 * row. */
static int run(struct history_file *file, unsigned number, int64_t *value)
{
    sqlite3_stmt *stmt = file->statements[number];

    int result = sqlite3_step(stmt);
    if (value)
        *value = result == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    while (result == SQLITE_ROW)
        result = sqlite3_step(stmt);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    return result == SQLITE_DONE ? 0 : fail(file, result);
}

static int execute(struct history_file *file, const char *sql)
{
    int result = sqlite3_exec(file->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? 0 : fail(file, result);
}

/* ---- opening ---- */

static int refuse(struct text *why, int error, const char *path, const char *words)
{
    text_printf(why, "history=%s: %s", path, words);
    return error;
}

/* SQLite maps a file beside it, FILE-shm: who might cut that could end the daemon. */
static int check_directory(const char *path, struct text *why)
{
    _cleanup_free_ char *directory = strdup(path);
    struct stat st;

    if (!directory)
        return -ENOMEM;
    strrchr(directory, '/')[1] = 0;
    if (stat(directory, &st) < 0)
        return refuse(why, -errno, path, "its directory can't be looked at; make it first");
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH))
        return refuse(why, -EACCES, path,
                      "others may write to its directory; make one of your own for it, with mode "
                      "0700");
    return 0;
}

static int open_locked(const char *path, struct text *why)
{
    struct stat st;

    _cleanup_close_ int fd =
        open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse(why, -errno, path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse(why, -EINVAL, path, "it is no file");
    if (st.st_uid != geteuid())
        return refuse(why, -EACCES, path, "it belongs to another user; name another file");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return refuse(why, -EBUSY, path, "another daemon appends to it; name another file");
    return steal_fd(fd);
}

static int pragma(struct history_file *file, const char *sql, int64_t *out)
{
    sqlite3_stmt *stmt;

    int result = sqlite3_prepare_v2(file->db, sql, -1, &stmt, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(stmt);
    *out = result == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    sqlite3_finalize(stmt);
    return result == SQLITE_ROW || result == SQLITE_DONE ? 0 : fail(file, result);
}

/* Whether it is a history, or empty. */
static int check_format(struct history_file *file)
{
    int64_t id, version, objects;

    int r = pragma(file, "PRAGMA application_id", &id);
    if (r == 0)
        r = pragma(file, "PRAGMA user_version", &version);
    if (r == 0)
        r = pragma(file, "SELECT count(*) FROM sqlite_master", &objects);
    if (r < 0)
        return r;
    if (id != APPLICATION_ID && (id || version || objects)) {
        text_puts(&file->why, "it is some other program's database; name another file");
        return -EINVAL;
    }
    if (version > FORMAT_VERSION) {
        text_puts(&file->why, "it was made by a newer probefs; name another file");
        return -EINVAL;
    }
    return 0;
}

static const struct table *recorded_table(enum history_recorded table)
{
    return tables_find(&python_tables, recorded_names[table]);
}

/* The table of that name, as schema/ has it, with the columns in front; one that was made by an
 * older daemon gets what it lacks. */
static int make_recorded(struct history_file *file, const struct table *table)
{
    _cleanup_(text_deinit) struct text sql = TEXT_INIT;
    int64_t has;

    text_printf(&sql,
                "CREATE TABLE IF NOT EXISTS %s(host TEXT, pid INTEGER, rank INTEGER, job TEXT, "
                "uid INTEGER, gid INTEGER,%sCREATE INDEX IF NOT EXISTS %s_ts ON %s(ts)",
                table->name, strstr(table->sql, "(\n") + 1, table->name, table->name);
    int r = sql.error ? sql.error : execute(file, sql.data);
    for (unsigned i = 0; r == 0 && i < table->ncolumns; i++) {
        text_clear(&sql);
        text_printf(&sql, "SELECT count(*) FROM pragma_table_info('%s') WHERE name = '%s'",
                    table->name, table->columns[i].name);
        r = sql.error ? sql.error : pragma(file, sql.data, &has);
        if (r < 0 || has)
            continue;
        text_clear(&sql);
        text_printf(&sql, "ALTER TABLE %s ADD COLUMN %s %s", table->name, table->columns[i].name,
                    column_type_name(table->columns[i].type));
        r = sql.error ? sql.error : execute(file, sql.data);
    }
    return r;
}

static int prepare(struct history_file *file, unsigned number, const char *sql)
{
    int result = sqlite3_prepare_v3(file->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                    &file->statements[number], NULL);
    return result == SQLITE_OK ? 0 : fail(file, result);
}

static int prepare_add_row(struct history_file *file, enum history_recorded recorded)
{
    const struct table *table = recorded_table(recorded);
    _cleanup_(text_deinit) struct text sql = TEXT_INIT;

    text_printf(&sql, "INSERT INTO %s(host, pid, rank, job, uid, gid", table->name);
    for (unsigned i = 0; i < table->ncolumns; i++)
        text_printf(&sql, ", %s", table->columns[i].name);
    text_puts(&sql, ") VALUES(?");
    for (unsigned i = 1; i < FRONT + table->ncolumns; i++)
        text_puts(&sql, ", ?");
    text_putc(&sql, ')');
    return sql.error ? sql.error : prepare(file, ADD_ROW + recorded, sql.data);
}

static int note_log(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct history_file *file = arg;

    file->log_pages = pages;
    /* as SQLite does by itself where nothing is hooked in here */
    if (pages >= 1000)
        (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return SQLITE_OK;
}

static int set_up(struct history_file *file)
{
    char sql[160];

    sqlite3_busy_timeout(file->db, BUSY_MS);
    int r = check_format(file);
    if (r == 0)
        r = execute(file, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; "
                          "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304; "
                          "PRAGMA temp_store = MEMORY");
    if (r == 0)
        r = pragma(file, "PRAGMA page_size", &file->page_size);
    if (r < 0)
        return r;
    snprintf(sql, sizeof sql,
             "PRAGMA max_page_count = %lld; PRAGMA application_id = %d; PRAGMA user_version = %d",
             (long long)file->limits.bytes / file->page_size, APPLICATION_ID, FORMAT_VERSION);
    r = execute(file, sql);
    if (r == 0)
        r = execute(file, tables_sql);
    for (unsigned i = 0; r == 0 && i < HISTORY_RECORDED; i++)
        r = make_recorded(file, recorded_table((enum history_recorded)i));
    for (unsigned i = 0; r == 0 && i < ADD_ROW; i++)
        r = prepare(file, i, statements[i]);
    for (unsigned i = 0; r == 0 && i < HISTORY_RECORDED; i++)
        r = prepare_add_row(file, (enum history_recorded)i);
    sqlite3_wal_hook(file->db, note_log, file);
    return r;
}

int history_file_open(const char *path, const struct history_limits *limits, struct text *why,
                      struct history_file **out)
{
    int r = heap_start(); /* before anything else of SQLite's */
    if (r == 0)
        r = check_directory(path, why);
    if (r < 0)
        return r;
    struct history_file *file = calloc(1, sizeof *file);
    if (!file)
        return -ENOMEM;
    file->limits = *limits;
    r = file->lock = open_locked(path, why);
    if (r >= 0) {
        int result = sqlite3_open_v2(path, &file->db,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
                                         SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE,
                                     NULL);
        r = result == SQLITE_OK ? set_up(file) : fail(file, result);
        if (r < 0)
            refuse(why, r, path, history_file_why(file));
    }
    if (r < 0) {
        history_file_close(file);
        return r;
    }
    *out = file;
    return 0;
}

void history_file_close(struct history_file *file)
{
    if (!file)
        return;
    for (unsigned i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(file->statements[i]);
    sqlite3_close(file->db);
    if (file->lock >= 0)
        close(file->lock);
    text_deinit(&file->why);
    free(file);
}

/* ---- appending ---- */

int history_file_begin(struct history_file *file)
{
    if (file->log_pages * file->page_size > HISTORY_LOG_MAX) {
        /* moves what it can into the file; note_log() hears of it with the next commit */
        if (sqlite3_wal_checkpoint_v2(file->db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL) !=
            SQLITE_OK) {
            text_clear(&file->why);
            text_puts(&file->why, "a program that reads it for long keeps its -wal growing, which "
                                  "has 64 MiB: nothing is appended until that ends");
            return file->error = -EFBIG;
        }
        file->log_pages = 0;
    }
    return file->error = run(file, BEGIN, NULL);
}

int history_file_commit(struct history_file *file)
{
    int r = file->error ? file->error : run(file, COMMIT, NULL);

    if (r < 0 && !sqlite3_get_autocommit(file->db)) {
        struct text why = file->why;
        file->why = TEXT_INIT;
        (void)run(file, ROLLBACK, NULL);
        text_deinit(&file->why);
        file->why = why;
    }
    return r;
}

static void bind_text(sqlite3_stmt *stmt, int i, const char *text, size_t size)
{
    if (text)
        sqlite3_bind_text(stmt, i, text, (int)size, SQLITE_STATIC); /* run before it goes */
}

static sqlite3_stmt *bind_front(struct history_file *file, unsigned number,
                                const struct history_front *front)
{
    sqlite3_stmt *stmt = file->statements[number];

    bind_text(stmt, 1, front->host, strlen(front->host));
    sqlite3_bind_int64(stmt, 2, front->pid);
    if (front->rank >= 0)
        sqlite3_bind_int64(stmt, 3, front->rank);
    bind_text(stmt, 4, front->job, front->job ? strlen(front->job) : 0);
    sqlite3_bind_int64(stmt, 5, front->uid);
    sqlite3_bind_int64(stmt, 6, front->gid);
    return stmt;
}

int history_file_add_sample(struct history_file *file, const struct history_front *front, double ts,
                            const struct history_sample *sample)
{
    if (file->error)
        return file->error;
    sqlite3_stmt *stmt = bind_front(file, ADD_SAMPLE, front);
    sqlite3_bind_double(stmt, FRONT + 1, ts);
    bind_text(stmt, FRONT + 2, &sample->state, 1);
    sqlite3_bind_double(stmt, FRONT + 3, sample->cpu_user);
    sqlite3_bind_double(stmt, FRONT + 4, sample->cpu_system);
    sqlite3_bind_int64(stmt, FRONT + 5, (int64_t)sample->rss);
    sqlite3_bind_int64(stmt, FRONT + 6, sample->threads);
    if (sample->known) {
        sqlite3_bind_int64(stmt, FRONT + 7, sample->running);
        sqlite3_bind_int64(stmt, FRONT + 8, sample->gil_held);
        sqlite3_bind_int64(stmt, FRONT + 9, sample->gil_waiting);
    }
    return file->error = run(file, ADD_SAMPLE, NULL);
}

int history_file_add_event(struct history_file *file, const struct history_front *front,
                           const char *line, size_t size)
{
    if (file->error)
        return file->error;
    bind_text(bind_front(file, ADD_EVENT, front), FRONT + 1, line, size);
    return file->error = run(file, ADD_EVENT, NULL);
}

int history_file_add_stack(struct history_file *file, const struct history_front *front,
                           const struct history_stack *stack)
{
    if (file->error)
        return file->error;
    sqlite3_stmt *stmt = bind_front(file, ADD_STACK, front);
    sqlite3_bind_double(stmt, FRONT + 1, stack->ts);
    sqlite3_bind_double(stmt, FRONT + 2, stack->seconds);
    bind_text(stmt, FRONT + 3, stack->mode, strlen(stack->mode));
    sqlite3_bind_int64(stmt, FRONT + 4, stack->tid);
    bind_text(stmt, FRONT + 5, stack->thread, strlen(stack->thread));
    bind_text(stmt, FRONT + 6, stack->stack, strlen(stack->stack));
    sqlite3_bind_int64(stmt, FRONT + 7, stack->weight);
    sqlite3_bind_int64(stmt, FRONT + 8, stack->samples);
    return file->error = run(file, ADD_STACK, NULL);
}

static bool is_utf8(const char *bytes, size_t size)
{
    for (size_t i = 0, n; i < size; i += n)
        if (!(n = utf8_length((const unsigned char *)bytes + i, size - i)))
            return false;
    return true;
}

/* Binds a text. As in recorded.c, what was longer ends in three dots. A target may have written
 * anything, and there are readers that end at what is no UTF-8: such a text is escaped. */
static void bind_ring_text(sqlite3_stmt *stmt, int i, const struct ring_row *row, unsigned column)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    uint32_t size;
    bool cut;
    const char *bytes = ring_text(row, column, &size, &cut);

    if (!bytes)
        return;
    if (is_utf8(bytes, size))
        text_add(&text, bytes, size);
    else
        text_add_escaped(&text, bytes, size);
    if (cut)
        text_puts(&text, "...");
    sqlite3_bind_text(stmt, i, text.data ? text.data : "", (int)text.size, SQLITE_TRANSIENT);
}

int history_file_add_row(struct history_file *file, enum history_recorded recorded,
                         const struct history_front *front, const struct ring_row *row)
{
    const struct table *table = recorded_table(recorded);
    int64_t integer;

    if (file->error)
        return file->error;
    sqlite3_stmt *stmt = bind_front(file, ADD_ROW + recorded, front);
    for (unsigned i = 0; i < table->ncolumns; i++) {
        int at = FRONT + 1 + (int)i;
        switch (table->columns[i].type) {
        case COLUMN_INTEGER:
            if (ring_integer(row, i, &integer))
                sqlite3_bind_int64(stmt, at, integer);
            break;
        case COLUMN_REAL: sqlite3_bind_double(stmt, at, ring_real(row, i)); break;
        case COLUMN_TEXT: bind_ring_text(stmt, at, row, i); break;
        }
    }
    return file->error = run(file, ADD_ROW + recorded, NULL);
}

/* ---- how far processes have been followed ---- */

static sqlite3_stmt *bind_followed(struct history_file *file, unsigned number,
                                   const struct history_front *front,
                                   const struct history_followed *followed)
{
    sqlite3_stmt *stmt = file->statements[number];

    bind_text(stmt, 1, front->host, strlen(front->host));
    sqlite3_bind_int64(stmt, 2, front->pid);
    if (followed) {
        bind_text(stmt, 3, followed->name, strlen(followed->name));
        sqlite3_bind_double(stmt, 4, followed->since);
    }
    return stmt;
}

int history_file_put_followed(struct history_file *file, const struct history_front *front,
                              const struct history_followed *followed)
{
    if (file->error)
        return file->error;
    sqlite3_stmt *stmt = bind_followed(file, PUT_FOLLOWED, front, followed);
    sqlite3_bind_int64(stmt, 5, (int64_t)followed->at.row);
    sqlite3_bind_int64(stmt, 6, (int64_t)followed->at.dropped);
    sqlite3_bind_double(stmt, 7, followed->upto);
    return file->error = run(file, PUT_FOLLOWED, NULL);
}

int history_file_drop_followed(struct history_file *file, const struct history_front *front)
{
    if (file->error)
        return file->error;
    bind_followed(file, DROP_FOLLOWED, front, NULL);
    return file->error = run(file, DROP_FOLLOWED, NULL);
}

bool history_file_get_followed(struct history_file *file, const struct history_front *front,
                               struct history_followed *followed)
{
    sqlite3_stmt *stmt = bind_followed(file, GET_FOLLOWED, front, followed);

    bool found = sqlite3_step(stmt) == SQLITE_ROW;
    if (found) {
        followed->at.row = (uint64_t)sqlite3_column_int64(stmt, 0);
        followed->at.dropped = (uint64_t)sqlite3_column_int64(stmt, 1);
        followed->upto = sqlite3_column_double(stmt, 2);
    }
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    return found;
}

/* ---- what goes ---- */

/* Drops what is older than `cut` from one table. */
static int drop_before(struct history_file *file, const char *table, double cut)
{
    char sql[200];

    snprintf(sql, sizeof sql,
             "DELETE FROM %s WHERE rowid IN (SELECT rowid FROM %s WHERE ts < %.17g OR ts IS NULL "
             "ORDER BY ts LIMIT %d)",
             table, table, cut, TRIM_ROWS);
    return execute(file, sql);
}

static int oldest(struct history_file *file, const char *table, double *ts)
{
    char sql[100];
    int64_t value;

    snprintf(sql, sizeof sql, "SELECT coalesce(min(ts), 9e15) FROM %s", table);
    int r = pragma(file, sql, &value);
    if (r == 0 && (double)value < *ts)
        *ts = (double)value;
    return r;
}

int history_file_trim(struct history_file *file, double now)
{
    static const char *const others[] = {"samples", "events", "profile"};
    double cut = now - (double)file->limits.age / 1e9, first = now;
    int64_t pages, unused, limit = (int64_t)file->limits.bytes / file->page_size;
    int r = run(file, COUNT_PAGES, &pages);

    if (r == 0)
        r = run(file, COUNT_FREE, &unused);
    for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(others); i++)
        r = oldest(file, others[i], &first);
    for (unsigned i = 0; r == 0 && i < HISTORY_RECORDED; i++)
        r = oldest(file, recorded_names[i], &first);
    if (r < 0)
        return r;
    if ((double)(pages - unused) > TRIM_ABOVE * (double)limit &&
        first + 1 + (now - first) * TRIM_PART > cut)
        cut = first + 1 + (now - first) * TRIM_PART;
    if (first >= cut && (double)unused <= VACUUM_ABOVE * (double)limit)
        return 0;
    for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(others); i++)
        r = drop_before(file, others[i], cut);
    for (unsigned i = 0; r == 0 && i < HISTORY_RECORDED; i++)
        r = drop_before(file, recorded_names[i], cut);
    if (r == 0 && (double)unused > VACUUM_ABOVE * (double)limit)
        r = run(file, VACUUM, NULL);
    return r;
}

uint64_t history_file_size(const struct history_file *file)
{
    struct stat st;

    return fstat(file->lock, &st) == 0 ? (uint64_t)st.st_size : 0;
}
