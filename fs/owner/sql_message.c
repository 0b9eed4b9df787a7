#include "fs/owner/sql_message.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_MAX 4095

/* ---- what is asked of tables ---- */

static bool is_default(const struct bound *bound)
{
    return !bound->bounded && bound->low == INT64_MIN && bound->high == INT64_MAX &&
           bound->least == -INFINITY && bound->most == INFINITY && !bound->equal[0];
}

static bool add(char *message, size_t *at, size_t cap, const void *from, size_t size)
{
    if (size > cap - *at)
        return false;
    memcpy(message + *at, from, size);
    *at += size;
    return true;
}

/* Adds a bound, if it is one and there is room. How many. */
static unsigned add_bound(const struct bound *bound, unsigned column, char *message, size_t *at,
                          size_t cap)
{
    struct sql_bound what = {
        .column = column,
        .bounded = bound->bounded,
        .low = bound->low,
        .high = bound->high,
        .least = bound->least,
        .most = bound->most,
    };

    if (is_default(bound))
        return 0;
    memcpy(what.equal, bound->equal, sizeof what.equal);
    return add(message, at, cap, &what, sizeof what);
}

size_t sql_wanted_write(struct wanted *const *wanted, size_t n, char *message, size_t cap)
{
    size_t at = 0, heads = n * sizeof(struct sql_table);

    for (size_t i = 0; i < n; i++)
        heads += wanted[i]->use.ncalls * sizeof(struct call);
    for (size_t i = 0; i < n; i++) {
        const struct use *use = &wanted[i]->use;
        struct sql_table head = {
            .table = (uint32_t)(wanted[i]->table - python_tables.items),
            .columns = use->columns,
            .ncalls = use->ncalls,
        };
        size_t begin = at;
        add(message, &at, cap, &head, sizeof head);
        add(message, &at, cap, use->calls, use->ncalls * sizeof(struct call));
        heads -= sizeof head + use->ncalls * sizeof(struct call);
        for (unsigned k = 0; k < wanted[i]->table->ncolumns; k++)
            head.nbounds += add_bound(&use->bounds[k], k, message, &at, cap - heads);
        head.nbounds += add_bound(&wanted[i]->pid, SQL_LEAD, message, &at, cap - heads);
        head.nbounds += add_bound(&wanted[i]->rank, SQL_LEAD + 1, message, &at, cap - heads);
        memcpy(message + begin, &head, sizeof head);
    }
    return at;
}

static bool take(const char **message, size_t *size, void *out, size_t wants)
{
    if (wants > *size)
        return false;
    memcpy(out, *message, wants);
    *message += wants;
    *size -= wants;
    return true;
}

static int read_bound(const struct sql_bound *from, struct wanted *wanted)
{
    struct bound *to = from->column < wanted->table->ncolumns ? &wanted->use.bounds[from->column]
                       : from->column == SQL_LEAD             ? &wanted->pid
                       : from->column == SQL_LEAD + 1         ? &wanted->rank
                                                              : NULL;

    if (!to || from->bounded > 1 || isnan(from->least) || isnan(from->most) ||
        strnlen(from->equal, sizeof from->equal) == sizeof from->equal)
        return -EPROTO;
    *to = (struct bound){
        .bounded = from->bounded,
        .low = from->low,
        .high = from->high,
        .least = from->least,
        .most = from->most,
    };
    memcpy(to->equal, from->equal, sizeof to->equal);
    return 0;
}

static int read_calls(const char **message, size_t *size, uint64_t n, const struct table *table,
                      struct use *use)
{
    bool is_function = false;

    for (unsigned i = 0; i < table->ncolumns; i++)
        is_function |= table->columns[i].argument;
    if (n > (is_function ? CALLS_MAX : 0) ||
        !take(message, size, use->calls, n * sizeof(struct call)))
        return -EPROTO;
    use->ncalls = (unsigned)n;
    for (unsigned i = 0; i < use->ncalls; i++)
        if (strnlen(use->calls[i].text, CALL_TEXT_MAX) == CALL_TEXT_MAX)
            return -EPROTO;
    return 0;
}

/* Reads one table into wanted[at]; those before it are other ones. */
static int read_table(const char **message, size_t *size, struct wanted *wanted, size_t at)
{
    struct sql_table head;
    struct sql_bound bound;

    if (!take(message, size, &head, sizeof head) || head.table >= python_tables.n)
        return -EPROTO;
    const struct table *table = &python_tables.items[head.table];
    for (size_t i = 0; i < at; i++)
        if (wanted[i].table == table)
            return -EPROTO;
    if (table->ncolumns < 64 && head.columns >> table->ncolumns)
        return -EPROTO;
    struct wanted *to = &wanted[at];
    *to = (struct wanted){.table = table, .pid = UNBOUNDED, .rank = UNBOUNDED};
    to->use.columns = head.columns;
    for (size_t i = 0; i < ARRAY_SIZE(to->use.bounds); i++)
        to->use.bounds[i] = UNBOUNDED;
    int r = read_calls(message, size, head.ncalls, table, &to->use);
    for (uint32_t i = 0; r == 0 && i < head.nbounds; i++)
        r = take(message, size, &bound, sizeof bound) ? read_bound(&bound, to) : -EPROTO;
    return r;
}

int sql_wanted_read(const char *message, size_t size, struct wanted **out, size_t *n)
{
    size_t wants = *n;
    int r = 0;

    if (!wants || wants > python_tables.n)
        return -EPROTO;
    struct wanted *wanted = calloc(wants, sizeof *wanted);
    if (!wanted)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < wants; i++)
        r = read_table(&message, &size, wanted, i);
    if (r == 0 && size)
        r = -EPROTO;
    if (r < 0)
        free(wanted);
    else
        *out = wanted;
    return r;
}

bool sql_done_is_sane(const struct sql_done *done, size_t size)
{
    return done->error <= 0 && done->error >= -ERROR_MAX && done->retake <= 1 &&
           done->consumed <= size && done->said <= TEXT_MAX && done->passing <= done->said &&
           done->why <= SQL_WHY_MAX;
}

/* ---- values ---- */

void sql_value_add(struct text *out, int type, uint64_t word, const char *bytes)
{
    const struct sql_value value = {.type = (uint64_t)type, .word = word};

    text_add(out, (const char *)&value, sizeof value);
    if (sql_value_bytes(&value))
        text_add(out, bytes, word);
}

size_t sql_value_bytes(const struct sql_value *value)
{
    return value->type == SQLITE_TEXT || value->type == SQLITE_BLOB ? value->word : 0;
}

double sql_value_real(const struct sql_value *value)
{
    double real;

    memcpy(&real, &value->word, sizeof real);
    return real;
}

uint64_t sql_value_word(double real)
{
    uint64_t word;

    memcpy(&word, &real, sizeof word);
    return word;
}

static int bind(sqlite3_stmt *stmt, int at, const struct sql_value *value, const char *bytes)
{
    switch (value->type) {
    case SQLITE_INTEGER: return sqlite3_bind_int64(stmt, at, (sqlite3_int64)value->word);
    case SQLITE_FLOAT: return sqlite3_bind_double(stmt, at, sql_value_real(value));
    case SQLITE_TEXT:
        return sqlite3_bind_text64(stmt, at, bytes, value->word, SQLITE_TRANSIENT, SQLITE_UTF8);
    case SQLITE_BLOB: return sqlite3_bind_blob64(stmt, at, bytes, value->word, SQLITE_TRANSIENT);
    case SQLITE_NULL: return sqlite3_bind_null(stmt, at);
    default: return SQLITE_MISUSE;
    }
}

int sql_values_bind(const char *message, size_t size, sqlite3_stmt *stmt, unsigned n)
{
    struct sql_value value;

    for (unsigned i = 0; i < n; i++) {
        if (!take(&message, &size, &value, sizeof value) || sql_value_bytes(&value) > size)
            return -EPROTO;
        int result = bind(stmt, attached_file_parameter(i), &value, message);
        if (result != SQLITE_OK)
            return result == SQLITE_NOMEM ? -ENOMEM : -EPROTO;
        message += sql_value_bytes(&value);
        size -= sql_value_bytes(&value);
    }
    return size ? -EPROTO : 0;
}

/* ---- rows ---- */

/* The next column of texts from that slot on, or the words. */
static void next_column(struct rows_stream *stream, unsigned slot)
{
    const struct rows *rows = &stream->wanted[stream->table].rows;

    while (slot < rows->width && rows->types[slot] != COLUMN_TEXT)
        slot++;
    stream->slot = slot;
    stream->at = slot < rows->width ? STREAM_COUNT : STREAM_WORDS;
}

/* What is on its way now. */
static const void *current(struct rows_stream *stream, size_t *size)
{
    const struct rows *rows = &stream->wanted[stream->table].rows;
    const struct texts_item *item;

    switch (stream->at) {
    case STREAM_HEAD:
        stream->head[0] = rows->lead;
        stream->head[1] = rows->n;
        *size = sizeof stream->head;
        return stream->head;
    case STREAM_COUNT:
        stream->head[0] = rows->texts[stream->slot].n;
        *size = sizeof *stream->head;
        return stream->head;
    case STREAM_SIZE:
        stream->head[0] = texts_get(&rows->texts[stream->slot], (uint32_t)stream->item)->size;
        *size = sizeof *stream->head;
        return stream->head;
    case STREAM_BYTES:
        item = texts_get(&rows->texts[stream->slot], (uint32_t)stream->item);
        *size = item->size;
        return item->bytes;
    default: *size = rows->n * rows->width * sizeof *rows->words; return rows->words;
    }
}

static void advance(struct rows_stream *stream)
{
    const struct rows *rows = &stream->wanted[stream->table].rows;

    stream->offset = 0;
    switch (stream->at) {
    case STREAM_HEAD: next_column(stream, 0); break;
    case STREAM_COUNT: stream->item = 0; __attribute__((fallthrough));
    case STREAM_BYTES:
        if (++stream->item <= rows->texts[stream->slot].n)
            stream->at = STREAM_SIZE;
        else
            next_column(stream, stream->slot + 1);
        break;
    case STREAM_SIZE: stream->at = STREAM_BYTES; break;
    case STREAM_WORDS:
        stream->at = STREAM_HEAD;
        stream->table++;
        break;
    }
    if (stream->at == STREAM_COUNT && !rows->n) /* then there are no texts */
        stream->at = STREAM_WORDS;
}

size_t rows_stream_take(struct rows_stream *stream, char *out, size_t cap)
{
    size_t taken = 0;

    while (taken < cap && stream->table < stream->n) {
        size_t size;
        const char *from = current(stream, &size);
        size_t n = size - stream->offset < cap - taken ? size - stream->offset : cap - taken;
        if (n)
            memcpy(out + taken, from + stream->offset, n);
        taken += n;
        stream->offset += n;
        if (stream->offset == size)
            advance(stream);
    }
    return taken;
}

/* Reads one text. buffer: of *cap bytes, which grows. */
static int read_text(rows_read *read, void *arg, struct texts *texts, char **buffer, size_t *cap)
{
    uint64_t size;

    int r = read(arg, &size, sizeof size);
    if (r == 0 && size > INT32_MAX)
        return -EPROTO;
    if (r == 0 && size > *cap) {
        char *more = realloc(*buffer, size);
        if (!more)
            return -ENOMEM;
        *buffer = more;
        *cap = size;
    }
    if (r == 0 && size)
        r = read(arg, *buffer, size);
    if (r == 0 && !texts_add(texts, size ? *buffer : "", size))
        r = -ENOMEM;
    return r;
}

static int read_texts(rows_read *read, void *arg, struct texts *texts)
{
    _cleanup_free_ char *buffer = NULL;
    size_t cap = 0;
    uint64_t n;

    int r = read(arg, &n, sizeof n);
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = read_text(read, arg, texts, &buffer, &cap);
    return r;
}

static int read_rows(rows_read *read, void *arg, size_t most, struct wanted *wanted)
{
    static const struct rows_front nothing = {.host = ""};
    struct rows *rows = &wanted->rows;
    uint64_t head[2];

    int r = read(arg, head, sizeof head);
    if (r < 0)
        return r;
    rows_init(rows, wanted->table, wanted->use.columns, head[0] ? &nothing : NULL);
    if (head[1] > ROWS_MAX || head[1] * rows->width * sizeof *rows->words > most)
        return -EPROTO;
    r = rows_make(rows, head[1]);
    for (unsigned i = 0; r == 0 && rows->n && i < rows->width; i++)
        if (rows->types[i] == COLUMN_TEXT)
            r = read_texts(read, arg, &rows->texts[i]);
    return r == 0 ? read(arg, rows->words, rows->n * rows->width * sizeof *rows->words) : r;
}

int rows_stream_read(rows_read *read, void *arg, size_t most, struct wanted *const *wanted,
                     size_t n)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++)
        r = read_rows(read, arg, most, wanted[i]);
    return r;
}
