/* What passes between who runs statements and who has the rows. */
#include "fs/owner/rows.h"
#include "fs/owner/sql_message.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <math.h>

#define LARGE 200000 /* bytes of a text: more than a message */
#define MANY 5000

/* ---- rows ---- */

struct reader {
    struct rows_stream stream;
    char piece[100]; /* small ones, so that all is cut somewhere */
    size_t at, size;
};

static int read_stream(void *arg, void *out, size_t size)
{
    struct reader *reader = arg;

    for (char *to = out; size; size--) {
        if (reader->at == reader->size) {
            reader->at = 0;
            reader->size = rows_stream_take(&reader->stream, reader->piece, sizeof reader->piece);
            if (!reader->size)
                return -EIO;
        }
        *to++ = reader->piece[reader->at++];
    }
    return 0;
}

static const struct table *table_of(const char *name)
{
    const struct table *table = tables_find(&python_tables, name);

    CHECK(table);
    return table;
}

static unsigned column_of(const struct table *table, const char *name)
{
    for (unsigned i = 0; i < table->ncolumns; i++)
        if (!strcmp(table->columns[i].name, name))
            return i;
    CHECK(!"in the table");
    return 0;
}

static void check_same(const struct rows *a, const struct rows *b)
{
    CHECK(a->n == b->n && a->width == b->width && a->lead == b->lead);
    CHECK(!memcmp(a->slots, b->slots, sizeof a->slots));
    for (size_t row = 0; row < a->n; row++)
        for (unsigned slot = 0; slot < a->width; slot++) {
            uint64_t word = rows_word(a, row, slot);
            CHECK(rows_word(b, row, slot) == word);
            if (a->types[slot] != COLUMN_TEXT || !word)
                continue;
            const struct texts_item *x = texts_get(&a->texts[slot], (uint32_t)word);
            const struct texts_item *y = texts_get(&b->texts[slot], (uint32_t)word);
            CHECK(x->size == y->size && !memcmp(x->bytes, y->bytes, x->size));
        }
}

static void add_rows(const struct table *table, struct rows *rows, unsigned n)
{
    unsigned func = column_of(table, "func"), lineno = column_of(table, "lineno");
    char *large = malloc(LARGE);

    memset(large, 'x', LARGE);
    for (unsigned i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%u", i % 7);
        rows_add(rows);
        rows_text(rows, func, i % 11 ? name : NULL);
        if (i % 3)
            rows_integer(rows, lineno, (int64_t)i - 2000);
        if (i == 17)
            rows_bytes(rows, func, large, LARGE);
        if (i == 18)
            rows_bytes(rows, func, "", 0);
    }
    free(large);
    CHECK_INT(rows->error, 0);
}

/* Tables as they are, with something in front or not, and empty ones, come out as they went in. */
static void rows(void)
{
    static const struct rows_front front = {.host = "host", .pid = 7, .rank = ROWS_NULL};
    const struct table *table = table_of("backtrace");
    const unsigned counts[] = {MANY, 0, 19};
    struct wanted from[ARRAY_SIZE(counts)] = {0}, to[ARRAY_SIZE(counts)] = {0};
    struct wanted *wanted[ARRAY_SIZE(counts)];
    struct reader reader = {.stream = {.wanted = from, .n = ARRAY_SIZE(counts)}};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        from[i].table = to[i].table = table;
        from[i].use.columns = to[i].use.columns =
            i == 2 ? 0 : 1ull << column_of(table, "func") | 1ull << column_of(table, "lineno");
        rows_init(&from[i].rows, table, from[i].use.columns, i ? &front : NULL);
        add_rows(table, &from[i].rows, counts[i]);
        wanted[i] = &to[i];
    }
    CHECK_INT(rows_stream_read(read_stream, &reader, SIZE_MAX, wanted, ARRAY_SIZE(counts)), 0);
    CHECK(reader.at == reader.size && !rows_stream_take(&reader.stream, reader.piece, 1));
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        check_same(&from[i].rows, &to[i].rows);
        rows_deinit(&from[i].rows);
        rows_deinit(&to[i].rows);
    }
}

/* A stream that ends too early is no table. */
static void cut(void)
{
    const struct table *table = table_of("threads");
    struct wanted to = {.table = table}, *wanted = &to;
    struct reader reader = {0};

    CHECK_INT(rows_stream_read(read_stream, &reader, SIZE_MAX, &wanted, 1), -EIO);
    rows_deinit(&to.rows);
}

/* ---- rows that an owner process gives ---- */

/* Rows as they are sent, of which the last word is replaced. */
static void make_answer(struct wanted *from, uint64_t last, struct owner_answer *out)
{
    struct rows_stream stream = {.wanted = from, .n = 1};
    char piece[100];
    size_t n;

    *out = (struct owner_answer){.text = TEXT_INIT, .why = TEXT_INIT};
    while ((n = rows_stream_take(&stream, piece, sizeof piece)))
        text_add(&out->text, piece, n);
    if (last)
        memcpy(out->text.data + out->text.size - sizeof last, &last, sizeof last);
}

static int read_answer(const struct owner_answer *answer, struct wanted *wanted)
{
    static const struct rows_front front = {.host = "host", .pid = 7, .rank = 3};

    rows_init(&wanted->rows, wanted->table, wanted->use.columns, &front);
    return rows_answer_read(answer, &wanted, 1, NULL);
}

/* They get what stands in front of rows here; what was told is told apart from what can't be. */
static void answers(void)
{
    const struct table *table = table_of("backtrace");
    const unsigned func = column_of(table, "func");
    struct wanted from = {.table = table, .use.columns = 1ull << func};
    struct wanted to = from;
    struct owner_answer answer;

    rows_init(&from.rows, table, from.use.columns, NULL);
    add_rows(table, &from.rows, 30);
    make_answer(&from, 0, &answer);
    CHECK_INT(read_answer(&answer, &to), 0);
    CHECK_INT(to.rows.n, 30);
    CHECK_INT(rows_word(&to.rows, 29, 1), 7);
    CHECK_INT(rows_word(&to.rows, 29, 2), 3);
    const uint64_t word = rows_word(&to.rows, 12, to.rows.slots[func]);
    CHECK(texts_get(&to.rows.texts[to.rows.slots[func]], (uint32_t)word)->size == strlen("f5"));
    rows_deinit(&to.rows);

    text_putc(&answer.text, 'x');
    CHECK_INT(read_answer(&answer, &to), -EPROTO); /* more than there is */
    rows_deinit(&to.rows);
    for (size_t size = 0; size < answer.text.size - 1; size += size < 64 ? 1 : 4093) {
        answer.text.size = size;
        CHECK_INT(read_answer(&answer, &to), -EPROTO); /* less */
        rows_deinit(&to.rows);
    }
    owner_answer_deinit(&answer);
    make_answer(&from, 4242, &answer);
    CHECK_INT(read_answer(&answer, &to), -EPROTO); /* a text that isn't there */
    rows_deinit(&to.rows);
    owner_answer_deinit(&answer);
    rows_deinit(&from.rows);
}

/* ---- what is asked of tables ---- */

static void want(struct wanted *wanted, const char *table)
{
    *wanted = (struct wanted){.table = table_of(table), .pid = UNBOUNDED, .rank = UNBOUNDED};
    for (size_t i = 0; i < ARRAY_SIZE(wanted->use.bounds); i++)
        wanted->use.bounds[i] = UNBOUNDED;
}

static void bounds(void)
{
    char message[SQL_PIECE];
    struct wanted asked[2], *wanted[] = {&asked[0], &asked[1]}, *got;
    size_t n = 2;

    want(&asked[0], "backtrace");
    want(&asked[1], "hits");
    asked[0].use.columns = 5;
    asked[0].use.bounds[1].bounded = true;
    asked[0].use.bounds[1].low = -3;
    strcpy(asked[0].use.bounds[2].equal, "loader");
    asked[1].pid.bounded = true;
    asked[1].pid.high = 99;
    asked[1].use.bounds[0].least = 0.5;
    size_t size = sql_wanted_write(wanted, 2, message, sizeof message);
    CHECK_INT(sql_wanted_read(message, size, &got, &n), 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK(got[i].table == asked[i].table && got[i].use.columns == asked[i].use.columns);
        CHECK(got[i].pid.bounded == asked[i].pid.bounded && got[i].pid.high == asked[i].pid.high);
        for (unsigned k = 0; k < asked[i].table->ncolumns; k++) {
            const struct bound *a = &asked[i].use.bounds[k], *b = &got[i].use.bounds[k];
            CHECK(a->bounded == b->bounded && a->low == b->low && a->high == b->high &&
                  a->least == b->least && a->most == b->most && !strcmp(a->equal, b->equal));
        }
    }
    free(got);
}

static int read_asked(size_t n, const struct sql_table *tables, const struct sql_bound *bound)
{
    char message[SQL_PIECE];
    struct wanted *got;
    size_t size = n * sizeof *tables, count = n;

    memcpy(message, tables, size);
    if (bound) {
        memcpy(message + size, bound, sizeof *bound);
        size += sizeof *bound;
    }
    int r = sql_wanted_read(message, size, &got, &count);
    if (r == 0)
        free(got);
    return r;
}

/* Calls of a function are told, and are never left out. */
static void calls(void)
{
    static char message[SQL_PIECE];
    struct wanted asked, *wanted = &asked, *got;
    size_t n = 1;

    want(&asked, "value");
    asked.use.ncalls = CALLS_MAX;
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        memset(asked.use.calls[i].text, 'a' + (int)i, CALL_TEXT_MAX - 1);
        asked.use.calls[i].ranges[1] = (struct range){-(int64_t)i, i};
        asked.use.calls[i].rows = i;
    }
    size_t room = sizeof(struct sql_table) + sizeof asked.use.calls;
    asked.use.bounds[0].bounded = true;
    CHECK(sql_wanted_write(&wanted, 1, message, room) == room);
    size_t size = sql_wanted_write(&wanted, 1, message, sizeof message);
    CHECK_INT(sql_wanted_read(message, size, &got, &n), 0);
    CHECK_INT(got->use.ncalls, CALLS_MAX);
    CHECK(!memcmp(got->use.calls, asked.use.calls, sizeof asked.use.calls));
    CHECK(got->use.bounds[0].bounded);
    free(got);
    /* lies: no end of a text, too many, and those of what is no function */
    memset(message + sizeof(struct sql_table), 'x', CALL_TEXT_MAX);
    CHECK_INT(sql_wanted_read(message, size, &got, &n), -EPROTO);
    CHECK_INT(read_asked(1,
                         &(struct sql_table){.table = (uint32_t)(asked.table - python_tables.items),
                                             .ncalls = CALLS_MAX + 1},
                         NULL),
              -EPROTO);
    want(&asked, "threads");
    asked.use.ncalls = 1;
    size = sql_wanted_write(&wanted, 1, message, sizeof message);
    CHECK_INT(sql_wanted_read(message, size, &got, &n), -EPROTO);
}

/* Where there is no room bounds are left out, and no table is. */
static void no_room(void)
{
    char message[SQL_PIECE];
    struct wanted asked[2], *wanted[] = {&asked[0], &asked[1]}, *got;
    size_t n = 2, room = 2 * sizeof(struct sql_table) + sizeof(struct sql_bound);

    want(&asked[0], "backtrace");
    want(&asked[1], "threads");
    for (unsigned i = 0; i < 4; i++)
        asked[0].use.bounds[i].bounded = asked[1].use.bounds[i].bounded = true;
    size_t size = sql_wanted_write(wanted, 2, message, room);
    CHECK(size == room);
    CHECK_INT(sql_wanted_read(message, size, &got, &n), 0);
    CHECK(got[0].use.bounds[0].bounded && !got[0].use.bounds[1].bounded &&
          !got[1].use.bounds[0].bounded);
    free(got);
}

/* Whoever has taken such a process over asks for anything. */
static void lies(void)
{
    const struct table *table = table_of("threads");
    struct sql_table asked[2] = {{.table = (uint32_t)(table - python_tables.items)}};
    struct sql_bound bound = {.most = 1};

    CHECK_INT(read_asked(1, asked, NULL), 0);
    asked[1] = asked[0];
    CHECK_INT(read_asked(2, asked, NULL), -EPROTO); /* twice the same */
    CHECK_INT(read_asked(0, asked, NULL), -EPROTO);
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO); /* more than it says */
    asked[0].nbounds = 2;
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO); /* less than it says */
    asked[0].nbounds = 1;
    CHECK_INT(read_asked(1, asked, &bound), 0);
    bound.column = table->ncolumns;
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO);
    bound.column = SQL_LEAD + 2;
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO);
    bound.column = 0;
    bound.bounded = 2;
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO);
    bound.bounded = 1;
    bound.least = NAN;
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO);
    bound.least = 0;
    memset(bound.equal, 'x', sizeof bound.equal);
    CHECK_INT(read_asked(1, asked, &bound), -EPROTO);
    asked[0].nbounds = 0;
    asked[0].columns = 1ull << table->ncolumns;
    CHECK_INT(read_asked(1, asked, NULL), -EPROTO);
    asked[0].columns = 0;
    asked[0].table = (uint32_t)python_tables.n;
    CHECK_INT(read_asked(1, asked, NULL), -EPROTO);
}

static void done(void)
{
    struct sql_done told = {.consumed = 10, .said = 5, .passing = 5};

    CHECK(sql_done_is_sane(&told, 10));
    CHECK(!sql_done_is_sane(&told, 9));
    told.passing = 6;
    CHECK(!sql_done_is_sane(&told, 10));
    told.passing = 0;
    told.error = 1;
    CHECK(!sql_done_is_sane(&told, 10));
    told.error = -4096;
    CHECK(!sql_done_is_sane(&told, 10));
    told.error = 0;
    told.said = TEXT_MAX + 1;
    CHECK(!sql_done_is_sane(&told, 10));
}

int main(void)
{
    rows();
    cut();
    answers();
    bounds();
    calls();
    no_room();
    lies();
    done();
    return 0;
}
