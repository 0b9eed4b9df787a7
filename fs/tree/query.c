/* <pid>/query and all/query: write SQL, read what it selects.
 *
 * The first line may choose how the result is written: `-- format: csv|json|jsonl|metrics|table`. A
 * semicolon ends a statement, and so does the end of what is written. Before that nobody knows:
 * shells write line by line, and a line may make a statement whole that the next one continues. So
 * whatever is whole is run, and run again with what follows, if that continues it; its result then
 * takes the former one's place. What can't continue it (SELECT, WITH and the like at the beginning
 * of a line) begins the next statement. */
#include "fs/tree/file.h"

#include "agent/base/cleanup.h"
#include "fs/access/access.h"
#include "fs/history/history.h"
#include "fs/process/control.h"
#include "fs/process/registry.h"
#include "fs/tables/every_process.h"
#include "fs/tree/jobs.h"
#include "fs/tree/query.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

struct query {
    const struct input *input;
    struct engine *engine;
    enum format format;
    struct text *said, *why;
    struct outcome *outcome;
    size_t at; /* where in the input the next statement begins */
};

/* `-- format: NAME` at the beginning; other comments say nothing. -EINVAL: no such format. */
static int read_format(struct query *q)
{
    static const char marks[] = "-- format:";
    const char *p = q->input->text + q->at, *end = q->input->text + q->input->size;

    while (p < end && isspace((unsigned char)*p))
        p++;
    if ((size_t)(end - p) < sizeof marks - 1 || memcmp(p, marks, sizeof marks - 1))
        return 0;
    p += sizeof marks - 1;
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    if (!newline && !q->input->last)
        return 0; /* not all of it is there */
    end = newline ? newline : end;
    while (p < end && isspace((unsigned char)*p))
        p++;
    while (p < end && isspace((unsigned char)end[-1]))
        end--;
    if (format_find(p, (size_t)(end - p), &q->format))
        return 0;
    text_puts(q->why, "there is no format \"");
    text_add_escaped(q->why, p, (size_t)(end - p));
    text_puts(q->why, "\": -- format: csv, json, jsonl, metrics or table");
    return -EINVAL;
}

/* What is behind lines that are empty, or nothing but a comment. */
static const char *behind_comments(const char *text, const char *end)
{
    for (;;) {
        const char *p = text;
        while (p < end && (*p == ' ' || *p == '\t'))
            p++;
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        if (!newline || (p != newline && (newline - p < 2 || memcmp(p, "--", 2))))
            return text;
        text = newline + 1;
    }
}

/* Whether a text that is wrong as it is may become right by what follows. A line that is written by
 * itself, or behind a comment, is what shells write of a longer text; one that doesn't end may be
 * cut anywhere. */
static bool may_go_on(const struct query *q, enum sql_state state)
{
    const struct input *input = q->input;
    const char *before = input->text + input->before, *end = input->text + input->size;
    const char *fresh = behind_comments(before, end);
    bool ends_line = end > before && end[-1] == '\n';

    if (input->last || (state == SQL_UNRESOLVED && engine_has_ended(q->engine)))
        return false;
    if (state == SQL_WRONG)
        return !ends_line && engine_word_is_open(q->engine);
    if (state == SQL_OPEN || !ends_line || fresh == end)
        return true;
    if (behind_comments(input->text + q->at, end) >= before && engine_is_hopeless(q->engine))
        return false; /* a first line that has its FROM already is the only one, mostly */
    return memchr(fresh, '\n', (size_t)(end - fresh)) == end - 1;
}

static int complain(struct query *q, int error)
{
    engine_explain(q->engine, q->why);
    q->outcome->retake = q->at < q->input->before;
    return error;
}

static int run(struct query *q)
{
    int r = engine_run(q->engine, q->format, q->said);
    return r < 0 ? complain(q, r) : 0;
}

/* Finds where the next statement begins, if the text is wrong only because there are two; else
 * 0. */
static size_t find_second(struct query *q)
{
    static const char *const words[] = {"SELECT", "WITH", "VALUES", "EXPLAIN"};
    const char *text = q->input->text + q->at;
    int offset = engine_error_offset(q->engine);
    size_t end;

    if (offset <= 0)
        return 0;
    const char *line = text + offset;
    while (line > text && (line[-1] == ' ' || line[-1] == '\t'))
        line--;
    if (line == text || line[-1] != '\n')
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (!strncasecmp(text + offset, words[i], strlen(words[i])))
            return engine_prepare(q->engine, text, (size_t)offset, &end) == SQL_READY
                       ? (size_t)offset
                       : 0;
    return 0;
}

/* A statement that ends with its semicolon, or with the text. */
static int run_ready(struct query *q)
{
    bool ended = engine_has_ended(q->engine);
    size_t before = q->said->size;

    if (!ended && q->input->last && q->input->before == q->input->size)
        return 0; /* it was run when it was written */
    q->outcome->retake = q->at < q->input->before;
    int r = run(q);
    if (!ended)
        q->outcome->passing = q->said->size - before;
    return r;
}

/* The text is wrong as it is. 1: it waits for what follows. */
static int run_wrong(struct query *q, enum sql_state state)
{
    const struct input *input = q->input;
    size_t second = state == SQL_WRONG ? find_second(q) : 0;
    size_t end;

    if (second) {
        if (q->at + second != input->before) { /* else it was run when it was written */
            q->outcome->retake = q->at < input->before;
            int r = run(q);
            if (r < 0)
                return r;
        }
        q->at += second;
        return 0;
    }
    if (state == SQL_WRONG) /* finding out may have prepared another text */
        engine_prepare(q->engine, input->text + q->at, input->size - q->at, &end);
    if (may_go_on(q, state))
        return 1;
    return complain(q, engine_refusal(q->engine));
}

static int run_all(struct query *q)
{
    size_t end;
    int r = 0;

    while (r == 0 && q->at < q->input->size) {
        r = read_format(q);
        if (r < 0)
            return r;
        const char *text = q->input->text + q->at;
        enum sql_state state = engine_prepare(q->engine, text, q->input->size - q->at, &end);
        if (state == SQL_EMPTY)
            return 0; /* comments, for what follows */
        if (state != SQL_READY) {
            r = run_wrong(q, state);
            continue;
        }
        r = run_ready(q);
        if (r < 0 || !engine_has_ended(q->engine))
            return r;
        q->at += end;
    }
    return r < 0 ? r : 0;
}

int query_feed_engine(struct engine *engine, const struct input *input, struct text *said,
                      struct text *why, struct outcome *outcome)
{
    struct query q = {
        .input = input, .engine = engine, .said = said, .why = why, .outcome = outcome};

    int r = run_all(&q);
    outcome->consumed = q.at;
    return r;
}

int query_feed(const struct provider *provider, const struct interrupt *interrupt,
               const struct input *input, struct text *said, struct text *why,
               struct outcome *outcome)
{
    struct engine *engine;

    int r = engine_open(provider, interrupt, &engine);
    if (r < 0) {
        text_puts(why, "out of memory");
        return r;
    }
    r = query_feed_engine(engine, input, said, why, outcome);
    engine_close(engine);
    return r;
}

/* What else there is to say where no such table of it was found. */
static void explain_history(struct file_context *context)
{
    static const char missing[] = "no such table: history.";
    struct text *why = &context->why;

    if (!why->data || strncmp(why->data, missing, sizeof missing - 1))
        return;
    if (context->process || context->recording)
        text_puts(why, "\nthe history can be asked in all/query");
    else if (context->history)
        text_puts(why, "\nthe history has: " HISTORY_TABLES);
    else
        text_puts(why, "\nthe daemon keeps no history: start it with -o history=FILE");
}

/* The history as the one who asks sees it: the rows that are theirs, or all if they are what the
 * daemon is. */
static struct attached_file history_of(const struct file_context *context)
{
    const struct principals *principals = context->principals;
    const struct access_caller *first = &principals->opener->who;
    struct attached_file file = {
        .schema = "history",
        .path = history_path(context->history),
        .all = true,
        .uid = first->fsuid,
        .gid = first->fsgid,
    };

    for (size_t i = 0; i < principals->n; i++) {
        const struct access_caller *who = &principals->items[i];
        file.all = file.all && access_is_daemon(context->access, who);
        if (who->fsuid != first->fsuid || who->fsgid != first->fsgid)
            file.uid = 0; /* as root's, which only who may see all sees */
    }
    return file;
}

struct provider tables_provider(const struct file_context *context, struct tables_of *of)
{
    bool one = context->process || context->recording;

    of->file = (struct attached_file){0};
    of->looker = (struct looker){context->access, *context->principals};
    of->one = (struct subject){context->process, context->target, context->recording, &of->looker};
    of->every = (struct every_process){
        .registry = context->registry,
        .access = context->access,
        .principals = context->principals,
        .job = context_job(context),
        .file = context->file,
    };
    if (context->history && !one)
        of->file = history_of(context);
    of->history = (struct attached_schema){of->file.schema, &attached_file_ops, &of->file};
    return (struct provider){
        .tables = &python_tables,
        .many = !one,
        .attached = of->file.path ? &of->history : NULL,
        .fill = one ? scene_provide : every_process_provide,
        .arg = one ? (void *)&of->one : (void *)&of->every,
        .uid = context->principals->opener->who.fsuid,
    };
}

/* Provides one process's rows; which rank it is, or works for, the rows of the others tell. */
static int provide_one(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                       struct text *why)
{
    struct tables_of *of = arg;

    for (size_t i = 0; i < n; i++)
        if (!strcmp(wanted[i]->table->name, "process"))
            (void)jobs_learn(of->every.registry); /* else it is what is known of it */
    return scene_provide(&of->one, wanted, n, stop, why);
}

/* By whom statements are run, which may be this process. */
static int feed(struct file_context *context, const struct provider *provider,
                const struct input *input, struct text *said, struct outcome *outcome)
{
    const struct statement_runner *runner = context->statements;

    return runner ? runner->feed(runner->arg, provider, context->interrupt, input, said,
                                 &context->why, outcome)
                  : query_feed(provider, context->interrupt, input, said, &context->why, outcome);
}

int query_select(struct file_context *context, const struct provider *provider, const char *sql,
                 const char *format, struct text *out)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    struct outcome outcome = {0};

    text_printf(&text, "-- format: %s\n%s", format, sql);
    if (text.error)
        return text.error;
    const struct input input = {.text = text.data, .size = text.size, .last = true};
    return feed(context, provider, &input, out, &outcome);
}

int query_run(struct file_context *context, const struct input *input, struct text *said,
              struct outcome *outcome)
{
    struct tables_of of;
    struct provider provider = tables_provider(context, &of);

    if (context->target && !context->target->core) {
        provider.fill = provide_one;
        provider.arg = &of;
    }
    int r = feed(context, &provider, input, said, outcome);
    if (r < 0)
        explain_history(context);
    if (!context->target)
        return r;
    /* what was read meanwhile may be of a program with more rights that was just executed */
    int looked = look_may_all(context->access, context->principals, context->process);
    if (looked < 0)
        text_clear(said);
    return looked < 0 ? looked : r;
}
