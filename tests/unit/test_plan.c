/* What of a process is read for a statement: no more than it needs. */
#include "fs/sql/engine.h"
#include "fs/tables/scene.h"
#include "tests/unit/check.h"

static struct plan plan;

static int make_plan(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                     struct text *why)
{
    plan = (struct plan){0};
    for (size_t i = 0; i < n; i++) {
        rows_init(&wanted[i]->rows, wanted[i]->table, wanted[i]->use.columns, NULL);
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
    return 0;
}
