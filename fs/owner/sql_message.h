/* How a process that runs statements (sql_process.h) and the mount's talk: over a pair of
 * SOCK_SEQPACKET sockets. It is told what to do by struct sql_job. Then it asks, one message at a
 * time, and each is answered by one; when it is done it tells what came of it. Both ends are one
 * binary.
 *
 * The mount's process believes nothing of what it is asked or told. The other one believes it all.
 */
#pragma once

#include "fs/sql/attached_file.h"
#include "fs/sql/engine.h"
#include "fs/tree/file.h"

#include <assert.h>

#define SQL_PIECE 61440u    /* bytes of one message */
#define SQL_WHY_MAX 65536u  /* bytes of words */
#define SQL_WHY_SHOWN 4096u /* of those that say why there are no rows */
#define SQL_LEAD 48u        /* number of the column `pid` in front in a bound; next is `rank` */
static_assert(SQL_LEAD >= TABLE_COLUMNS_MAX, "no table's own");

enum statement_op {
    STATEMENT_BEGUN = 1, /* it has work, which it says once, and nothing answers */
    STATEMENT_TEXT,      /* more of the text, from byte `number` on: bytes */
    STATEMENT_ROWS,      /* the rows of `number` tables, struct sql_table each: struct sql_filled */
    STATEMENT_NEXT,      /* more of these rows: bytes of a stream (struct rows_stream) */
    STATEMENT_SHARE,     /* so many bytes more of the user's share of memory: a byte, 1: yes */
    STATEMENT_ATTACH,    /* what it may ask beside: int32_t, an error or 0, and then words, or
                            struct attached_ops' tables */
    STATEMENT_BEGIN,     /* cursor `number`, struct attached_plan and values: int32_t, and words */
    STATEMENT_STEP,      /* more of its rows: bytes of a stream, of each row enum sql_step, and
                            values */
    STATEMENT_END,       /* no more of that cursor: a byte */
    STATEMENT_DONE,      /* followed by struct sql_done and what that counts, in as many messages as
                            it takes */
};

#define SQL_SCHEMA_MAX 32

enum sql_step {
    SQL_STEP_END,
    SQL_STEP_ROW,
    SQL_STEP_FAILED, /* then a value: the words */
};

/* A value on its way: this head, and then so many bytes. */
struct sql_value {
    uint64_t type; /* SQLITE_INTEGER and the like */
    uint64_t word; /* the number, the bits of a REAL, or how many bytes there are */
};

/* The beginning of each message to the mount's process. */
struct sql_request {
    uint64_t op;
    uint64_t number;
};

/* What is to be run: struct input, and struct provider. Followed by the beginning of the text. */
struct sql_job {
    uint64_t left_ns; /* until the deadline */
    uint64_t share;   /* bytes of the user's share of memory that it has without asking */
    uint64_t size, before, lines;
    uint32_t last, many;
    char attached[SQL_SCHEMA_MAX]; /* name of a schema; "": there is none */
};

/* What is used of a table; followed by its calls, struct call each, and its bounds. */
struct sql_table {
    uint32_t table; /* index in python_tables */
    uint32_t nbounds;
    uint64_t columns;
    uint64_t ncalls;
};
static_assert(CALLS_MAX * sizeof(struct call) < SQL_PIECE / 4, "calls are never left out");

struct sql_bound {
    uint32_t column; /* or SQL_LEAD and the next */
    uint32_t bounded;
    int64_t low, high;
    double least, most;
    char equal[BOUND_TEXT_MAX];
};

/* Whether there are rows, followed by the words why not. */
struct sql_filled {
    int32_t error;
    uint32_t exceeded; /* they took more memory than a statement may */
    uint64_t why;      /* bytes of words that follow; then come the first bytes of the stream */
};

/* What came of it: struct outcome, and how many bytes of words, and then of what was said, follow.
 */
struct sql_done {
    int32_t error;
    uint32_t retake;
    uint64_t consumed, passing, why, said;
};

/* Adds what is asked of tables, behind the head of the message. What bounds them is left out where
 * there is no room: then there are rows that nobody wants. Returns the bytes. */
size_t sql_wanted_write(struct wanted *const *wanted, size_t n, char *message, size_t cap);
/* Reads it: no table twice, no column that it hasn't, no bound that can't be. *out: n tables,
 * without rows, to be freed by free(3). -EPROTO, -ENOMEM. */
int sql_wanted_read(const char *message, size_t size, struct wanted **out, size_t *n);
/* Whether what came of a text of that many bytes can be true. */
bool sql_done_is_sane(const struct sql_done *done, size_t size);

/* Adds a value. bytes: of a text or a blob. */
void sql_value_add(struct text *out, int type, uint64_t word, const char *bytes);
/* How many bytes follow such a head. */
size_t sql_value_bytes(const struct sql_value *value);
/* Binds the values that follow, which must be n, to what attached_file_prepare() made. -EPROTO. */
int sql_values_bind(const char *message, size_t size, sqlite3_stmt *stmt, unsigned n);
/* A REAL, and its word. */
double sql_value_real(const struct sql_value *value);
uint64_t sql_value_word(double real);

/* Rows on their way, as bytes: of each table whether something stands in front and how many there
 * are; of each column of texts these, in the order of their numbers; the words of all rows. */
struct rows_stream {
    const struct wanted *wanted; /* n of them, which outlive it */
    size_t n;
    /* where it is */
    size_t table, item, offset;
    unsigned slot;
    enum {
        STREAM_HEAD,
        STREAM_COUNT,
        STREAM_SIZE,
        STREAM_BYTES,
        STREAM_WORDS,
    } at;
    uint64_t head[2];
};

/* Takes the next bytes: as many as there is room for, or all that are left, which may be none. */
size_t rows_stream_take(struct rows_stream *stream, char *out, size_t cap);

/* Gives the next `size` bytes of such a stream; or -errno. */
typedef int rows_read(void *arg, void *out, size_t size);
/* Fills wanted[i]->rows from it, which can't be more than `most` bytes. -EPROTO, -errno. */
int rows_stream_read(rows_read *read, void *arg, size_t most, struct wanted *const *wanted,
                     size_t n);
