/* LIKE, GLOB and trim() as SQLite's own would answer, and in bounded time. A pattern, and after a
 * NUL the text: each byte stands for something that has a meaning in one of them. */
#include "agent/base/clock.h"
#include "fs/sql/functions.h"
#include "fs/sql/heap.h"
#include "fs/sql/stop.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS 50000000
#define LATE_NS 2000000000 /* a machine may be busy */
#define SAME_MAX 64      /* bytes of what SQLite is asked too: it takes 2^n steps for n wildcards */
#define PATTERN_MAX 4096 /* more than is taken */

static sqlite3 *db;
static sqlite3_stmt *statements[5];
static struct stop stop;

static void prepare(void)
{
    static const char *const texts[] = {"SELECT ?2 LIKE ?1", "SELECT ?2 LIKE ?1 ESCAPE '\\'",
                                        "SELECT ?2 GLOB ?1", "SELECT trim(?2, ?1)",
                                        "SELECT ltrim(?1) || rtrim(?2, ?1)"};

    if (heap_start() < 0 || sqlite3_open(":memory:", &db) != SQLITE_OK ||
        functions_add(db, &stop) < 0)
        abort();
    for (size_t i = 0; i < 5; i++)
        if (sqlite3_prepare_v2(db, texts[i], -1, &statements[i], NULL) != SQLITE_OK)
            abort();
}

/* Returns how many bytes there are of it now. */
static size_t spell(const uint8_t *data, size_t size, char *out)
{
    static const char *const letters[] = {"a", "A",      "b",      "B",      "z",         "%", "_",
                                          "*", "?",      "[",      "]",      "^",         "-", "\\",
                                          " ", "\u00e9", "\u00c9", "\u2603", "\U0001f40d"};
    size_t n = 0;

    for (size_t i = 0; i < size; i++) {
        const char *letter = letters[data[i] % (sizeof letters / sizeof *letters)];
        size_t length = strlen(letter);
        memcpy(out + n, letter, length);
        n += length;
    }
    out[n] = 0;
    return n;
}

/* NULL: it was to end. */
static sqlite3_stmt *ask(unsigned which, const char *pattern, size_t n, const char *text, size_t m)
{
    sqlite3_stmt *statement = statements[which];

    sqlite3_reset(statement);
    stop.deadline_ns = monotonic_ns() + DEADLINE_NS;
    sqlite3_bind_text(statement, 1, pattern, (int)n, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, text, (int)m, SQLITE_STATIC);
    int r = sqlite3_step(statement);
    if (r != SQLITE_ROW && !*sqlite3_errmsg(db))
        abort();
    if (monotonic_ns() > stop.deadline_ns + LATE_NS)
        abort();
    return r == SQLITE_ROW ? statement : NULL;
}

static void compare(const char *pattern, size_t n, const char *text, size_t m)
{
    const int expected[] = {!sqlite3_strlike(pattern, text, 0),
                            !sqlite3_strlike(pattern, text, '\\'), !sqlite3_strglob(pattern, text)};

    for (unsigned i = 0; i < 3; i++) {
        sqlite3_stmt *statement = ask(i, pattern, n, text, m);
        if (statement && sqlite3_column_int(statement, 0) != expected[i])
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t before = nul ? (size_t)(nul - data) : size, after = nul ? size - before - 1 : 0;
    size_t used = before < PATTERN_MAX ? before : PATTERN_MAX;

    if (!db)
        prepare();
    char *pattern = malloc(4 * used + 1), *text = malloc(4 * after + 1);
    size_t n = spell(data, used, pattern), m = spell(nul ? nul + 1 : data, after, text);
    if (n + m <= SAME_MAX)
        compare(pattern, n, text, m);
    for (unsigned i = 0; i < 5; i++) {
        ask(i, pattern, n, text, m);
        ask(i, (const char *)data, before, nul ? (const char *)nul + 1 : "", after);
        sqlite3_reset(statements[i]);
        sqlite3_clear_bindings(statements[i]);
    }
    free(pattern);
    free(text);
    return 0;
}
