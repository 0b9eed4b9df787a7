/* SQL over the tables of a provider: one SQLite connection, in memory and without any file, for
 * each text that is run.
 *
 * The tables are virtual (vtab.c). Preparing a statement tells which tables and columns it uses;
 * the first table that is then read has the provider fill all of them at once, so that a statement
 * sees one moment. The main schema is called "python", so that python.backtrace and backtrace are
 * the same table. An authorizer lets statements read and nothing else.
 *
 * Not thread-safe: an engine is used by the thread that opened it. */
#pragma once

#include "fs/base/text.h"
#include "fs/sql/attached.h"
#include "fs/sql/format.h"
#include "fs/sql/stop.h"
#include "fs/sql/table.h"

#include <sys/types.h>

#define ENGINE_DEADLINE_NS 10000000000ull /* of one text, from engine_begin() on */
#define ENGINE_ROWS_MAX 1000000           /* of one result */
#define ENGINE_BYTES_MAX (31u << 20)      /* of one result */
#define ENGINE_SQL_MAX (64u << 10)        /* bytes of one statement */

/* One table that a statement uses. */
struct wanted {
    const struct table *table;
    struct use use;
    struct bound pid, rank; /* of the columns in front */
    struct rows rows;
};

struct provider {
    const struct tables *tables;
    bool many; /* rows of many processes: host, pid and rank stand in front of each */
    /* Begins and fills wanted[i]->rows of each, of one moment (of one process). 0 or -errno, and
     * `why` may say more. */
    int (*fill)(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                struct text *why);
    void *arg;
    uint64_t deadline_ns;                   /* 0: ENGINE_DEADLINE_NS */
    long memory;                            /* bytes; 0: HEAP_MAX */
    uid_t uid;                              /* whose share of memory is taken */
    const struct attached_schema *attached; /* statements may ask it, too; NULL: there is none */
};

/* What a text is. */
enum sql_state {
    SQL_READY,      /* a statement; engine_run() runs it */
    SQL_EMPTY,      /* nothing but space and comments */
    SQL_OPEN,       /* the beginning of a statement */
    SQL_UNRESOLVED, /* wrong, but text that follows might make it right: names of columns that a
                       table brings which is not named yet */
    SQL_WRONG,      /* wrong whatever follows */
};

struct engine;

/* Makes one for texts over such tables, of one process or of many, as the provider says: nothing
 * else of it is used, and no thread works for its heap yet. The caller owns *out. -ENOMEM. */
int engine_make(const struct provider *provider, struct engine **out);
/* Has it work for this provider, which outlives it, with the calling thread, from now on until its
 * deadline. interrupt may be NULL. */
void engine_begin(struct engine *engine, const struct provider *provider,
                  const struct interrupt *interrupt);
/* Both. */
int engine_open(const struct provider *provider, const struct interrupt *interrupt,
                struct engine **out);
void engine_close(struct engine *engine);

/* Looks at the first statement of the text, which is not NUL-terminated. *end: behind it and its
 * semicolon; meaningless where it is wrong. */
enum sql_state engine_prepare(struct engine *engine, const char *sql, size_t size, size_t *end);
/* After SQL_READY and SQL_UNRESOLVED: whether a semicolon ends the statement, so that nothing can
 * continue it. */
bool engine_has_ended(const struct engine *engine);
/* After SQL_WRONG and SQL_UNRESOLVED: where in the text, -1: not known. */
int engine_error_offset(const struct engine *engine);
/* After SQL_UNRESOLVED: whether a JOIN would hardly help, since no table has such a column. */
bool engine_is_hopeless(const struct engine *engine);
/* After SQL_WRONG: whether the text ends in what may be the beginning of a longer, right word. */
bool engine_word_is_open(const struct engine *engine);
/* After SQL_WRONG and SQL_UNRESOLVED: -EINVAL, or what it was given up for: -EFBIG (too long, or
 * over the memory limit), -ETIMEDOUT, -EINTR, -ENOMEM. */
int engine_refusal(const struct engine *engine);
/* What was wrong, in SQLite's words, with the line and a caret below. After any failure. */
void engine_explain(const struct engine *engine, struct text *out);

/* Runs what was prepared last and adds its result. -EINVAL: SQLite refused; -ETIMEDOUT, -EINTR;
 * -EFBIG: over the memory limit; or what the provider said. Then nothing is added. */
int engine_run(struct engine *engine, enum format format, struct text *out);
