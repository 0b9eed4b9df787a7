/* What of a process is read for a statement: no more than it needs. */
#include "fs/sql/engine.h"
#include "fs/tables/scene.h"
#include "schema/schema.h"
#include "tests/unit/check.h"

static struct plan plan;
static struct use use; /* of the last table */

static int make_plan(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                     struct text *why)
{
    plan = (struct plan){0};
    for (size_t i = 0; i < n; i++) {
        rows_init(&wanted[i]->rows, wanted[i]->table, wanted[i]->use.columns, NULL);
        use = wanted[i]->use;
        if (wanted[i]->table->rows->plan)
            wanted[i]->table->rows->plan(&wanted[i]->use, &plan);
    }
    return 0;
}

static void needs(const char *sql, const struct plan *want)
{
    const struct provider provider = {.tables = &python_tables, .fill = make_plan};
    struct text out = TEXT_INIT;
    struct engine *engine;
    size_t end;

    CHECK_INT(engine_open(&provider, NULL, &engine), 0);
    CHECK_INT(engine_prepare(engine, sql, strlen(sql), &end), SQL_READY);
    CHECK_INT(engine_run(engine, FORMAT_CSV, &out), 0);
    engine_close(engine);
    text_deinit(&out);
    CHECK_INT(plan.moment, want->moment);
    CHECK_INT(plan.threads, want->threads);
    CHECK_INT(plan.native, want->native);
    CHECK_INT(plan.tasks, want->tasks);
    CHECK_INT(plan.tid, want->tid);
    CHECK_INT(plan.depth, want->depth);
}

/* What is asked of a function, of one call: how many rows, from which position on. */
static void asks(const char *sql, uint64_t rows, int64_t from)
{
    needs(sql, &(struct plan){.moment = true, .tid = 7, .depth = 3});
    CHECK_INT(use.ncalls, 1);
    CHECK_STR(use.calls[0].text, "a.b");
    CHECK(use.calls[0].rows == rows);
    CHECK_INT(use.calls[0].ranges[VALUE_POSITION].low, from);
    CHECK(use.calls[0].ranges[VALUE_TID].low == 7 && use.calls[0].ranges[VALUE_TID].high == 7);
    CHECK(use.calls[0].ranges[VALUE_DEPTH].low == 2 && use.calls[0].ranges[VALUE_DEPTH].high == 2);
}

#define VALUE "SELECT name FROM value(7, 2, 'a.b') "

static void test_calls(void)
{
    asks(VALUE, CALL_ALL, INT64_MIN);
    asks(VALUE "LIMIT 5", 5, INT64_MIN);
    asks(VALUE "LIMIT 5 OFFSET 3", 8, INT64_MIN);
    asks(VALUE "WHERE position >= 9 LIMIT 5", 5, 9);
    asks(VALUE "ORDER BY position LIMIT 5", 5, INT64_MIN);
    asks("SELECT name FROM value WHERE inside = 'a.b' AND depth = 2 AND tid = 7 LIMIT 2", 2,
         INT64_MIN);
    /* the same in two places: as many as either wants */
    asks("SELECT * FROM (" VALUE "LIMIT 4), (" VALUE "LIMIT 2)", 4, INT64_MIN);
    asks("SELECT * FROM (" VALUE "LIMIT 4), (SELECT count(*) FROM value(7, 2, 'a.b'))", CALL_ALL,
         INT64_MIN);
    /* more is compared, or another order is wanted */
    asks(VALUE "WHERE type = 'int' LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "WHERE length > 5 LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "WHERE length(name) > 5 LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "WHERE name LIKE 'a%' LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "WHERE value IS NOT NULL LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "WHERE position > 1.5 LIMIT 5", CALL_ALL, 1);
    asks(VALUE "WHERE position > (SELECT 3) LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "ORDER BY position DESC LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "ORDER BY name LIMIT 5", CALL_ALL, INT64_MIN);
    asks(VALUE "LIMIT -1", CALL_ALL, INT64_MIN);
    asks(VALUE "LIMIT (SELECT 5)", CALL_ALL, INT64_MIN);
    asks(VALUE "LIMIT 5 OFFSET (SELECT 5)", CALL_ALL, INT64_MIN);
    asks("SELECT DISTINCT name FROM value(7, 2, 'a.b') LIMIT 5", CALL_ALL, INT64_MIN);
    asks("SELECT count(*) FROM value(7, 2, 'a.b') LIMIT 5", CALL_ALL, INT64_MIN);
    asks("SELECT a.name FROM value(7, 2, 'a.b') a, value(7, 2, 'a.b') b LIMIT 5", CALL_ALL,
         INT64_MIN);
    needs("SELECT name FROM value(7, 2, 'a') UNION ALL SELECT name FROM value(7, 0, 'a')",
          &(struct plan){.moment = true, .tid = 7, .depth = 3});
    CHECK_INT(use.ncalls, 2);
    needs("SELECT v.name FROM json_each('[7]') j, value(j.value, 2, 'a') v",
          &(struct plan){.moment = true, .depth = 3});
    CHECK_INT(use.ncalls, 1);
    CHECK_INT(use.calls[0].ranges[VALUE_TID].low, INT64_MIN);
}

#define STACKS .moment = true, .threads = true

int main(void)
{
    needs("SELECT * FROM backtrace", &(struct plan){STACKS, .native = true});
    needs("SELECT func FROM backtrace WHERE depth = 0", &(struct plan){STACKS, .depth = 1});
    needs("SELECT func FROM backtrace WHERE depth < 3", &(struct plan){STACKS, .depth = 3});
    needs("SELECT func FROM backtrace WHERE depth BETWEEN 1 AND 4",
          &(struct plan){STACKS, .depth = 5});
    needs("SELECT func FROM backtrace WHERE depth >= 2", &(struct plan){STACKS});
    needs("SELECT func FROM backtrace WHERE depth = 100000", &(struct plan){STACKS});
    needs("SELECT func FROM backtrace WHERE depth = -1", &(struct plan){STACKS, .depth = 1});
    needs("SELECT func, number FROM backtrace WHERE depth = 0",
          &(struct plan){STACKS, .native = true, .depth = 1});
    needs("SELECT func FROM backtrace WHERE frame_type = 'Python'", &(struct plan){STACKS});
    needs("SELECT func FROM backtrace WHERE frame_type <> 'Native'",
          &(struct plan){STACKS, .native = true});
    needs("SELECT func FROM backtrace WHERE tid = 7 AND depth = 0",
          &(struct plan){STACKS, .tid = 7, .depth = 1});
    needs("SELECT func FROM backtrace WHERE tid IN (7, 8)", &(struct plan){STACKS, .native = true});
    needs("SELECT tid FROM threads", &(struct plan){STACKS, .depth = 1});
    needs("SELECT tid, depth FROM threads WHERE tid = 7", &(struct plan){STACKS, .tid = 7});
    needs("SELECT name FROM locals WHERE depth = 1", &(struct plan){.moment = true, .depth = 2});
    needs("SELECT * FROM locals", &(struct plan){.moment = true});
    needs("SELECT name FROM modules", &(struct plan){.moment = true, .depth = 1});
    needs("SELECT name FROM tasks", &(struct plan){.moment = true, .tasks = true});
    needs("SELECT * FROM process, environ, maps, tables, columns", &(struct plan){0});
    /* what one table doesn't need another may */
    needs(
        "SELECT * FROM locals l JOIN backtrace b USING (tid, depth) WHERE l.tid = 7 AND b.tid = 7 "
        "AND l.depth = 0 AND b.depth <= 2",
        &(struct plan){STACKS, .native = true, .tid = 7, .depth = 3});
    needs("SELECT l.name FROM locals l JOIN threads t USING (tid) WHERE l.tid = 7",
          &(struct plan){STACKS});
    needs("SELECT a.func FROM backtrace a, backtrace b WHERE a.depth = 0 AND b.depth = 4",
          &(struct plan){STACKS, .depth = 5});
    test_calls();
    return 0;
}
