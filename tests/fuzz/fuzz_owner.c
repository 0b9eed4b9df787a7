/* The messages of a process that somebody has taken over: the replies of one that reads others, and
 * what one that runs statements asks and tells. What is made of them keeps all limits, and nothing
 * in it drives a terminal or names what isn't there. */
#include "fs/owner/message.h"
#include "fs/owner/rings.h"
#include "fs/owner/rows.h"
#include "fs/owner/sql_message.h"
#include "fs/format/locks.h"
#include "fs/process/collectives.h"
#include "fs/remote/waits/asked.h"
#include "fs/sql/heap.h"
#include "fs/tree/heap.h"
#include "fs/tree/source.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_text(const struct text *text, bool blocks)
{
    for (size_t i = 0; i < text->size; i++) {
        unsigned char c = (unsigned char)text->data[i];
        if ((c < 0x20 && c != '\n' && c != '\t' && (c || !blocks)) || c == 0x7f)
            abort();
    }
    if (blocks && text->size && text->data[text->size - 1])
        abort();
    if (text->size > TEXT_MAX)
        abort();
}

static void check_name(const struct owner_call *call, const struct owner_name *name)
{
    size_t size = strlen(layout[call->entry].path);

    if (name->entry >= layout_size ||
        strncmp(layout[name->entry].path, layout[call->entry].path, size))
        abort();
    if (name->number.word &&
        (strchr(name->number.word, '/') || strlen(name->number.word) > NAME_MAX))
        abort();
}

static void check_word(const char *word, size_t cap)
{
    if (strnlen(word, cap) == cap || strchr(word, '/') || strchr(word, '\x1b'))
        abort();
}

static void check_examined(const struct owner_answer *answer)
{
    struct examined examined;

    if (owner_examined_read(answer, &examined) < 0)
        return;
    if (examined.membership.rank < -1 || examined.agent.pid < 0)
        abort();
    check_word(examined.membership.job, sizeof examined.membership.job);
    check_word(examined.membership.role, sizeof examined.membership.role);
}

/* What files are told of a process. */
static void check_said(const struct text *text)
{
    _cleanup_(census_deinit) struct census census = {0};
    uint64_t bytes = 0;
    char path[64];

    if (!text->size)
        return;
    if (source_path_read(text->data, path, sizeof path) == 0 && strlen(path) >= sizeof path)
        abort();
    if (heap_census_read(text->data, &census) < 0)
        return;
    for (size_t i = 0; i < census.n; i++) {
        bytes += census.types[i].bytes;
        if (!*census.types[i].name || bytes > INT64_MAX)
            abort();
    }
}

static void check_shown(const char *text, size_t cap)
{
    if (strnlen(text, cap) == cap || strpbrk(text, "\x1b\r\x7f\x01"))
        abort();
}

/* What a process says of where it stands, in all its bytes. */
static void check_collectives(const char *message, size_t size)
{
    struct collectives *its = malloc(sizeof *its);

    if (!its)
        abort();
    for (size_t at = 0; size && at < sizeof *its; at++)
        ((char *)its)[at] = message[at % size];
    if (size) {
        its->n %= COLLECTIVES_MAX + 2; /* else hardly any would do */
        its->groups.n %= TORCH_GROUPS_MAX + 2;
    }
    if (size && collectives_make_sane(its)) {
        if (its->n > COLLECTIVES_MAX || its->groups.n > TORCH_GROUPS_MAX)
            abort();
        for (size_t i = 0; i < its->n; i++) {
            check_shown(its->items[i].op, sizeof its->items[i].op);
            check_shown(its->items[i].file, sizeof its->items[i].file);
            check_shown(its->items[i].variables, sizeof its->items[i].variables);
        }
        for (size_t i = 0; i < its->groups.n; i++)
            check_shown(its->groups.items[i].name, sizeof its->groups.items[i].name);
    }
    free(its);
}

static void check_bound(const struct bound *bound)
{
    if (bound->least != bound->least || bound->most != bound->most ||
        strnlen(bound->equal, sizeof bound->equal) == sizeof bound->equal)
        abort();
}

/* What a statement's process asks of tables. */
static void check_wanted(const char *message, size_t size)
{
    size_t n = size % (python_tables.n + 2);
    struct wanted *wanted;

    if (sql_wanted_read(message, size, &wanted, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        const struct table *table = wanted[i].table;
        if (table < python_tables.items || table >= python_tables.items + python_tables.n ||
            (table->ncolumns < 64 && wanted[i].use.columns >> table->ncolumns))
            abort();
        for (size_t k = 0; k < i; k++)
            if (wanted[k].table == table)
                abort();
        for (size_t k = 0; k < TABLE_COLUMNS_MAX; k++)
            check_bound(&wanted[i].use.bounds[k]);
        if (wanted[i].use.ncalls > CALLS_MAX)
            abort();
        for (size_t k = 0; k < wanted[i].use.ncalls; k++)
            if (strlen(wanted[i].use.calls[k].text) >= CALL_TEXT_MAX)
                abort();
        check_bound(&wanted[i].pid);
        check_bound(&wanted[i].rank);
    }
    free(wanted);
}

/* What it wants columns of a file to be compared with. */
static void check_values(const char *message, size_t size)
{
    sqlite3_stmt *stmt;
    sqlite3 *db;

    if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT ?4, ?5, ?6", -1, &stmt, NULL) != SQLITE_OK)
        abort();
    if (sql_values_bind(message, size, stmt, 3) == 0 && sqlite3_step(stmt) != SQLITE_ROW)
        abort();
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

/* Rows that an owner process gives. */
static void check_rows(const char *message, size_t size)
{
    const struct table *table = &python_tables.items[size % python_tables.n];
    struct wanted asked = {.table = table, .use.columns = (1ull << table->ncolumns) - 1};
    struct wanted *wanted = &asked;
    const struct owner_answer answer = {.text = {.data = (char *)message, .size = size}};
    _cleanup_(waits_deinit) struct waits waits = {0};
    struct heap *heap;

    if (heap_new(16l << 20, 0, &heap) < 0) /* it may say any number of rows */
        abort();
    struct heap *before = heap_enter(heap);
    rows_init(&asked.rows, table, asked.use.columns, NULL);
    int r = rows_answer_read(&answer, &wanted, 1, &waits);
    for (size_t row = 0; r == 0 && row < asked.rows.n; row++)
        for (unsigned slot = 0; slot < asked.rows.width; slot++)
            if (asked.rows.types[slot] == COLUMN_TEXT &&
                rows_word(&asked.rows, row, slot) > asked.rows.texts[slot].n)
                abort();
    rows_deinit(&asked.rows);
    heap_enter(before);
    heap_unref(heap);
}

/* Waits, which stand behind rows, and what is told of processes at their other ends. */
static void check_waits(const char *message, size_t size)
{
    _cleanup_(text_deinit) struct text told = TEXT_INIT, shown = TEXT_INIT;
    _cleanup_(semaphores_deinit) struct semaphores semaphores = {0};
    _cleanup_(waits_deinit) struct waits waits = {0};
    _cleanup_(peer_deinit) struct peer peer = {.pid = 1};

    if (!size)
        return;
    text_add(&told, message, size);
    owner_drop_controls(&told, -1);
    if (waits_parse(told.data, told.size, &waits) == 0) {
        locks_add(&waits, &shown);
        locks_add_stuck(&waits, &shown);
        check_text(&shown, false);
        if (shown.size > (1u << 20) + size * 4096)
            abort();
    }
    if (asked_peer_read(&told, &peer) == 0 &&
        (peer.nthreads > PEER_THREADS_MAX || peer.pid != 1 ||
         strnlen(peer.command, sizeof peer.command) == sizeof peer.command))
        abort();
    if (asked_holds_read(&told, 1, &semaphores) == 0)
        for (size_t i = 0; i < semaphores.n; i++)
            if (semaphores.items[i].pid != 1 || !semaphores.items[i].kind)
                abort();
}

static int check_row(void *arg, const struct ring_row *row)
{
    const struct ring_layout *of_table = arg;
    volatile char byte;
    uint32_t size;
    bool cut;

    for (unsigned i = 0; i < of_table->columns; i++) {
        const char *text = of_table->types[i] == 'T' ? ring_text(row, i, &size, &cut) : NULL;
        for (uint32_t k = 0; text && k < size; k++)
            byte = text[k]; /* for the sanitizer */
    }
    (void)byte;
    return 0;
}

static void check_lost(void *arg, uint64_t count)
{
    if (count > RING_COUNT_MAX)
        abort();
}

/* What came in rings. */
static void check_rings(const char *message, size_t size)
{
    const struct text answer = {.data = (char *)message, .size = size};
    struct ring_copy copies[3] = {0};

    for (size_t i = 0; i < ARRAY_SIZE(copies); i++)
        copies[i].ask = (struct ring_ask){.table = (size + i) % RECORDED_TABLES, .most = 1};
    if (ring_copies_read(copies, ARRAY_SIZE(copies), &answer) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(copies); i++) {
        const struct ring_layout *of_table = &recorded_layouts[copies[i].ask.table];
        const struct ring_follower follower = {check_row, check_lost, (void *)of_table};
        struct ring_position at = {0};
        (void)ring_copy_pass(&copies[i], &at, &follower);
        if (at.row > RING_COUNT_MAX)
            abort();
    }
}

static void check_done(const char *message, size_t size)
{
    struct sql_done done;

    if (size < sizeof done)
        return;
    memcpy(&done, message, sizeof done);
    if (sql_done_is_sane(&done, 1000) &&
        (done.error > 0 || done.consumed > 1000 || done.said > TEXT_MAX ||
         done.passing > done.said || done.why > SQL_WHY_MAX))
        abort();
}

static void check_statement(const uint8_t *data, size_t size)
{
    char *message = malloc(size ? size : 1); /* no more, for the sanitizer */

    if (heap_start() < 0)
        abort();
    memcpy(message, data, size);
    check_wanted(message, size);
    check_values(message, size);
    check_rows(message, size);
    check_waits(message, size);
    check_rings(message, size);
    check_done(message, size);
    check_collectives(message, size);
    free(message);
}

/* The first two bytes say what is asked; then messages, each after its size. From 128 on it is one
 * of a statement's process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum owner_op ops[] = {OWNER_RENDER, OWNER_LIST, OWNER_EXAMINE, OWNER_STACKS,
                                        OWNER_FIND,   OWNER_TELL, OWNER_SAY};
    struct owner_call call = {.op = OWNER_RENDER};
    struct owner_receipt receipt = {.call = &call};
    struct owner_answer answer = {0};
    int r = 1;

    if (size < 2)
        return 0;
    if (data[0] >= 128) {
        check_statement(data + 2, size - 2);
        return 0;
    }
    call.op = ops[data[0] % ARRAY_SIZE(ops)];
    call.value = data[0] / ARRAY_SIZE(ops) % STACKS_FORMS;
    call.entry = data[1] % layout_size;
    for (size_t at = 2; r > 0 && at < size; at += 1 + data[at]) {
        size_t n = data[at] < size - at - 1 ? data[at] : size - at - 1;
        r = owner_receipt_take(&receipt, (const char *)data + at + 1, n);
    }
    if (r == 0)
        r = owner_receipt_answer(&receipt, &answer);
    if (r && answer.text.size)
        abort(); /* it waits for more, or nothing comes of it */
    if (call.op == OWNER_EXAMINE)
        check_examined(&answer);
    else if (call.op != OWNER_SAY || layout[call.entry].render != collectives_render)
        check_text(&answer.text, call.op == OWNER_STACKS && call.value == STACKS_BLOCKS);
    if (call.op == OWNER_SAY)
        check_said(&answer.text);
    check_text(&answer.why, false);
    for (size_t i = 0; i < answer.nnames; i++)
        check_name(&call, &answer.names[i]);
    owner_answer_deinit(&answer);
    owner_receipt_deinit(&receipt);
    return 0;
}
