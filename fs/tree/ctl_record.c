/* The verb `record` of ctl: what the process's agent records, and how. */
#include "fs/tree/ctl.h"

#include "agent/base/cleanup.h"
#include "fs/base/duration.h"
#include "fs/base/size.h"
#include "fs/format/recorded.h"
#include "fs/process/registry.h"
#include "fs/tree/agent_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What people call the tables with longer names. */
static const struct alias {
    const char *name;
    enum recorded table;
} aliases[] = {
    {"torch", RECORDED_TORCH_TRACE},
    {"process", RECORDED_PROCESS_SAMPLES},
};

/* ---- reading the line ---- */

static const char *name_of(enum recorded table)
{
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
        if (aliases[i].table == table)
            return aliases[i].name;
    return recorded_layouts[table].name;
}

static int read_table(struct ctl_line *line, uint32_t *out)
{
    _cleanup_(text_deinit) struct text what = TEXT_INIT;
    const struct ctl_word *word = &line->words[1];

    text_puts(&what, "what is recorded is one of");
    for (enum recorded table = 0; table < RECORDED_TABLES; table++) {
        if (ctl_word_is(word, recorded_layouts[table].name) || ctl_word_is(word, name_of(table))) {
            *out = table;
            return 0;
        }
        text_printf(&what, "%s %s", table ? "," : "", name_of(table));
    }
    return ctl_complain(line, word->text, what.data ? what.data : "there is no such table");
}

/* From how long on a loop counts as blocked. */
#define LIMIT_MIN_NS 10000000ull
#define LIMIT_MAX_NS 3600000000000ull

static int read_size(struct ctl_line *line, const struct ctl_word *word, uint64_t *out)
{
    uint64_t size;

    if (!size_parse(word->text, word->size, &size))
        return ctl_complain(line, word->text,
                            "write on, off, a size as 64M, rate=0.05, layers=0.5, locals, or for "
                            "loop a limit as 100ms");
    if (size < RING_SIZE_MIN || size > RING_SIZE_MAX)
        return ctl_complain(line, word->text, "a ring has 64K to 1G");
    if (*out)
        return ctl_complain(line, word->text, "there is a size already");
    *out = size;
    return 0;
}

static int read_rate(struct ctl_line *line, const struct ctl_word *word,
                     struct proto_record *record)
{
    const char *text = word->text + strlen("rate=");
    size_t size = word->size - strlen("rate=");
    char number[32] = "", *end;

    if (size < sizeof number)
        memcpy(number, text, size);
    double rate = strtod(number, &end);
    if (!*number || *end || !(rate > 0 && rate <= 1))
        return ctl_complain(line, text, "a rate is the share that is recorded: above 0, at most 1");
    if (record->table != RECORDED_TORCH_TRACE)
        return ctl_complain(line, word->text, "only torch has a rate");
    record->rate = rate;
    return 0;
}

/* A share of the modules. */
static int read_layers(struct ctl_line *line, const struct ctl_word *word,
                       struct proto_record *record)
{
    const char *text = word->text + strlen("layers=");
    size_t size = word->size - strlen("layers=");
    char number[32] = "", *end;

    if (size < sizeof number)
        memcpy(number, text, size);
    double share = strtod(number, &end);
    if (!*number || *end || !(share >= 0.001 && share <= 1))
        return ctl_complain(line, text,
                            "layers= is the share of the modules that one step has: 0.001 to 1");
    if (record->table != RECORDED_TORCH_TRACE)
        return ctl_complain(line, word->text, "only torch has layers");
    record->layers = (uint32_t)(1 / share + 0.5);
    return 0;
}

static int read_limit(struct ctl_line *line, const struct ctl_word *word, uint64_t ns,
                      struct proto_record *record)
{
    if (record->table != RECORDED_LOOP)
        return ctl_complain(line, word->text, "only loop has a limit in time");
    if (ns < LIMIT_MIN_NS || ns > LIMIT_MAX_NS)
        return ctl_complain(line, word->text, "a limit is 10ms to 1h");
    if (record->rate > 0)
        return ctl_complain(line, word->text, "there is a limit already");
    record->rate = (double)ns * 1e-9;
    return 0;
}

static int read_line(struct ctl_line *line, struct proto_record *out)
{
    const struct ctl_word *off = NULL;
    uint64_t ns;

    int r = read_table(line, &out->table);
    for (size_t i = 2; r == 0 && i < line->nwords; i++) {
        const struct ctl_word *word = &line->words[i];
        if (ctl_word_is(word, "on") || ctl_word_is(word, "off")) {
            if (i > 2)
                return ctl_complain(line, word->text, "on and off follow the table");
            off = ctl_word_is(word, "off") ? word : NULL;
        } else if (off) {
            return ctl_complain(line, word->text, "nothing follows off");
        } else if (ctl_word_is(word, "locals")) {
            if (out->table != RECORDED_EXCEPTIONS)
                return ctl_complain(line, word->text, "only exceptions have locals");
            out->flags |= RECORD_LOCALS;
        } else if (word->size >= 5 && !memcmp(word->text, "rate=", 5)) {
            r = read_rate(line, word, out);
        } else if (word->size >= 7 && !memcmp(word->text, "layers=", 7)) {
            r = read_layers(line, word, out);
        } else if (duration_parse(word->text, word->size, &ns)) {
            r = read_limit(line, word, ns, out);
        } else {
            r = read_size(line, word, &out->size);
        }
    }
    out->action = off ? RECORD_OFF : RECORD_ON;
    return r;
}

/* ---- asking the agent ---- */

static int ask(struct file_context *context, struct session *session, struct proto_record *record,
               struct text *said)
{
    struct proto_done done = {0};

    record->interp = atomic_load(&context->process->interp);
    record->gil_interval = agent_session_gil_interval(context, record->interp);
    int r = session_order(session, PROTO_RECORD, record, sizeof *record,
                          agent_session_patience(context, record->interp), context->interrupt,
                          &done);
    registry_watch(context->registry, context->process);
    if (r < 0)
        return agent_session_explain(
            context, r, &done,
            record->action == RECORD_OFF
                ? "no more rows are written, but its hooks stay: write it again"
                : "what is recorded stays as it was");
    recorded_text(context->recording, record->table, said);
    if (done.words[0]) {
        text_add_escaped(said, done.words, strnlen(done.words, sizeof done.words));
        text_putc(said, '\n');
    }
    return 0;
}

int ctl_record(struct ctl_line *line)
{
    struct file_context *context = line->context;
    struct proto_record record = {0};
    struct session *session;

    if (line->nwords == 1) {
        for (enum recorded table = 0; table < RECORDED_TABLES; table++)
            recorded_text(context->recording, table, line->said);
        return 0;
    }
    int r = read_line(line, &record);
    if (r < 0)
        return r;
    r = record.action == RECORD_ON ? agent_session_order(context, &session)
                                   : agent_session_connect(context, &session);
    if (r == -ENOTCONN) { /* nothing is recorded where there is no agent */
        text_clear(&context->why);
        recorded_text(context->recording, record.table, line->said);
        return 0;
    }
    if (r < 0)
        return r;
    r = ask(context, session, &record, line->said);
    session_unref(session);
    return r;
}
