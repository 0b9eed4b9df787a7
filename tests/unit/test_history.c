/* The history's file: how large it becomes, what is dropped, what a failure leaves. SQLite itself,
 * by a connection of the test's, says what is in it. */
#include "agent/base/cleanup.h"
#include "fs/history/file.h"
#include "fs/history/stacks.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT HISTORY_BYTES_MIN
#define DAY 86400.0

static char directory[] = "/tmp/probefs-unit-XXXXXX";
static char path[64];

static const struct history_front front = {"host", 7, 3, NULL, 1000, 1000};
static const struct history_sample sample = {'R', 1, 2, 3, 4, true, true, 5, 6};

static struct history_file *open_file(uint64_t age_s)
{
    const struct history_limits limits = {age_s * 1000000000u, LIMIT, HISTORY_INTERVAL_MIN};
    struct text why = TEXT_INIT;
    struct history_file *file;

    CHECK_INT(history_file_open(path, &limits, &why, &file), 0);
    text_deinit(&why);
    return file;
}

static double ask(const char *sql)
{
    sqlite3_stmt *stmt;
    sqlite3 *db;

    CHECK_INT(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    double value = sqlite3_column_double(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

static void add(struct history_file *file, double from, unsigned n, double step)
{
    CHECK_INT(history_file_begin(file), 0);
    for (unsigned i = 0; i < n; i++)
        CHECK_INT(history_file_add_sample(file, &front, from + i * step, &sample), 0);
    CHECK_INT(history_file_commit(file), 0);
}

/* Two days of 12 processes, each 5 s: far more than fits. */
static void test_size(void)
{
    struct history_file *file = open_file(3650 * 86400ul);
    double now = 1e9;

    for (; now < 1e9 + 2 * DAY; now += 300) {
        add(file, now, 12 * 60, 300.0 / (12 * 60));
        CHECK_INT(history_file_trim(file, now + 300), 0);
        CHECK(history_file_size(file) <= LIMIT);
    }
    CHECK(ask("SELECT max(ts) FROM samples") > now - 1);
    CHECK(ask("SELECT count(*) FROM samples") > 4000);
    /* what goes is the oldest, and nothing in between */
    CHECK_INT(ask("SELECT round((max(ts) - min(ts)) * 2.4 + 1 - count(*)) FROM samples"), 0);
    history_file_close(file);
}

static void test_age(void)
{
    struct history_file *file = open_file(DAY);

    add(file, 2e9, 20, DAY / 10);
    CHECK_INT(history_file_trim(file, 2e9 + 2 * DAY), 0);
    CHECK_INT(ask("SELECT count(*) FROM samples"), 10);
    CHECK_INT(ask("SELECT min(ts) >= 2e9 + 86400 FROM samples"), 1);
    history_file_close(file);
}

/* What can't be appended as a whole isn't, and the next one can. */
static void test_all_or_nothing(void)
{
    static const char line[] = "{\"ts\": 5.5, \"kind\": \"exit\", \"pid\": 7}", bad[] = "no JSON";
    struct history_file *file = open_file(DAY);
    struct history_followed followed = {
        .name = HISTORY_EVENTS, .since = 11, .at = {1, 2}, .upto = 4};
    struct history_followed found = {.name = HISTORY_EVENTS, .since = 11};

    CHECK_INT(history_file_begin(file), 0);
    CHECK_INT(history_file_add_event(file, &front, line, sizeof line - 1), 0);
    CHECK_INT(history_file_add_event(file, &front, bad, sizeof bad - 1), -EIO);
    CHECK_INT(history_file_add_sample(file, &front, 6, &sample), -EIO);
    CHECK_INT(history_file_commit(file), -EIO);
    CHECK(strstr(history_file_why(file), "malformed JSON"));
    CHECK_INT(ask("SELECT count(*) FROM events"), 0);
    CHECK(!history_file_get_followed(file, &front, &found));
    CHECK_INT(history_file_begin(file), 0);
    CHECK_INT(history_file_add_event(file, &front, line, sizeof line - 1), 0);
    CHECK_INT(history_file_put_followed(file, &front, &followed), 0);
    CHECK_INT(history_file_commit(file), 0);
    CHECK_INT(ask("SELECT ts = 5.5 AND kind = 'exit' AND pid = 7 AND rank = 3 AND job IS NULL AND "
                  "uid = 1000 "
                  "FROM events"),
              1);
    history_file_close(file);
    file = open_file(DAY);
    CHECK(history_file_get_followed(file, &front, &found));
    CHECK_INT(found.at.row, 1);
    CHECK_INT(found.upto, 4);
    found.since = 12;
    CHECK(!history_file_get_followed(file, &front, &found));
    history_file_close(file);
}

/* A sample of what a profile has, a kind after the other. */
static void sampled(struct store *store, enum sample_kind kind, bool gil, int64_t weight,
                    const char *leaf)
{
    const struct profile_frame frames[] = {{PROFILE_PYTHON, "f", "f.py", 1, 2},
                                           {PROFILE_WORD, leaf, ""}};
    struct sample one = {
        .when = 5 * STORE_SLICE, .tid = 7, .kind = kind, .gil = gil, .weight = weight};
    uint32_t ids[2];

    one.frames = ids;
    one.n = *leaf ? 2 : 1;
    for (size_t i = 0; i < one.n; i++)
        CHECK_INT(store_intern(store, &frames[i], &ids[i]), 0);
    CHECK_INT(store_add(store, &one), 0);
}

/* Of each kind of samples all that there is, and nothing twice in a mode. */
static void test_modes(void)
{
    struct history_file *file = open_file(DAY);
    struct store_budget budget = {0};
    struct store *store;

    CHECK_INT(store_new(7, &budget, &store), 0);
    sampled(store, SAMPLE_CPU, true, 100, "");
    sampled(store, SAMPLE_CPU, false, 30, "");
    sampled(store, SAMPLE_OFF, false, 1000, "[futex]");
    sampled(store, SAMPLE_PREEMPTED, false, 200, "[preempted]");
    sampled(store, SAMPLE_FAULT, false, 4, "");
    sampled(store, SAMPLE_ALLOC, false, 5000, "");
    sampled(store, SAMPLE_HEAP, false, 700, "");
    sampled(store, SAMPLE_HEAP, false, -900, "");
    CHECK_INT(history_file_begin(file), 0);
    CHECK_INT(history_add_stacks(file, &front, store, 0, 9 * STORE_SLICE), 0);
    CHECK_INT(history_file_commit(file), 0);
    store_unref(store);
    CHECK_INT(ask("SELECT count(*) FROM profile"), 7);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'cpu'"), 130);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'gil'"), 100);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'off' AND stack LIKE '%;[futex]'"),
              1000);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'preempted' AND "
                  "stack = 'f (f.py:2);[preempted]' AND tid = 7"),
              200);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'faults'"), 4);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'alloc'"), 5000);
    CHECK_INT(ask("SELECT sum(weight) FROM profile WHERE mode = 'heap'"), -200);
    history_file_close(file);
}

int main(void)
{
    struct stat st;

    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/x.db", directory);
    test_size();
    test_age();
    test_all_or_nothing();
    test_modes();
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(directory), 0); /* nothing is left beside it */
    return 0;
}
