/* <pid>/breakpoints: the set. Reading shows it, one a line, as it can be written
 * back, and what else there is to say as comments; it is taken from what the agent
 * has recorded, which is not asked.
 *
 * The lines that one write brings are carried out all or none. A file that was opened with `>` is
 * to hold what is written: its first command replaces the set, and the later ones add to that, for
 * nobody knows how shells cut what they write. One that is closed with nothing in it is empty.
 * Removals alone replace nothing. */
#include "fs/tree/breakpoints.h"

#include "agent/base/cleanup.h"
#include "fs/breakpoint/rows.h"
#include "fs/link/lifetime.h"
#include "fs/process/jobs.h"
#include "fs/recording/held_threads.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/from_snapshot.h"
#include "fs/watch/follow.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

#define LINE_MAX 8192 /* bytes that may wait for the end of their line */

/* ---- writing ---- */

/* The thread that names are to be looked up in, as the agent knows it. */
static int find_thread(struct file_context *context, struct proto_breakpoint *entry)
{
    pid_t tid = (pid_t)entry->thread;
    int64_t interp = 0;

    int r = snapshot_find_thread(context, tid, &entry->thread, &interp);
    if (r == -ESRCH && target_alive(context->target)) {
        text_clear(&context->why);
        text_printf(&context->why, "the process has no thread %d", (int)tid);
    }
    if (r < 0 || interp == 0)
        return r;
    text_puts(&context->why, "values are watched in the main interpreter only, and this thread is "
                             "in another one");
    return -EOPNOTSUPP;
}

/* Has the text of a request say which threads it means. */
static int find_threads(struct file_context *context, const struct breakpoint_request *request,
                        struct text *out)
{
    struct proto_breakpoint entry;

    text_add(out, request->text.data, request->text.size);
    for (size_t at = 0; at < out->size; at += entry.size) {
        memcpy(&entry, out->data + at, sizeof entry);
        int r = entry.thread ? find_thread(context, &entry) : 0;
        if (r < 0) {
            breakpoint_request_blame(request, at, &context->why);
            return r;
        }
        memcpy(out->data + at, &entry, sizeof entry);
    }
    return out->error;
}

static int ask(struct file_context *context, struct session *session,
               const struct breakpoint_request *request, struct text *said, struct outcome *outcome)
{
    bool replaces = context->clears && (request->sets || !request->n);
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    struct session_eval eval = {
        .op = PROTO_BREAKPOINTS,
        .request = {.flags = BREAKPOINTS_LAST | (replaces ? BREAKPOINTS_REPLACE : 0)},
    };
    struct proto_done done = {0};

    int r = find_threads(context, request, &text);
    if (r < 0)
        return r;
    eval.text = text.data;
    eval.size = text.size;
    eval.request.gil_interval = agent_session_gil_interval(context, 0);
    eval.gil_deadline_ns = agent_session_patience(context, 0);
    if (context->lifetime)
        eval.request.thread = lifetime_number(context->lifetime);
    r = request->here ? agent_session_here(context, session) : 0;
    if (r < 0)
        return r;
    r = session_eval(session, &eval, context->interrupt, said, &done);
    if (request->here)
        lifetime_asked(context->lifetime, session);
    registry_watch(context->registry, context->process);
    /* the record may just change, so that nobody knows yet what it wants */
    if (recording_watching(context->recording) ||
        (eval.size && memmem(eval.text, eval.size, "watch", 5)))
        watches_settle(context->process->watches);
    if (r == 0) {
        outcome->cleared = replaces;
        outcome->keeps = true;
        return 0;
    }
    bool blamed = done.words[0] && r != -ETIMEDOUT && r != -EINTR && r != -ECANCELED;
    r = agent_session_explain(context, r, &done, "the breakpoints stay as they were");
    if (blamed)
        breakpoint_request_blame(request, done.consumed, &context->why);
    return r;
}

/* Answers a request where there is no agent: there is nothing to take out. */
static int ask_nobody(struct file_context *context, const struct breakpoint_request *request,
                      struct outcome *outcome)
{
    text_clear(&context->why);
    if (!request->n) {
        outcome->cleared = true;
        return 0;
    }
    text_puts(&context->why, "there is no such breakpoint: none is set");
    breakpoint_request_blame(request, 0, &context->why);
    return -ENOENT;
}

/* Carries out the lines that are for this rank. Where there are none, but there would be some for
 * others, the set is empty, if it is replaced, or stays as it is. */
static int carry_out_own(struct file_context *context, const struct breakpoint_request *request,
                         struct text *said, struct outcome *outcome)
{
    struct breakpoint_request own = {0};
    int64_t rank;

    int r = job_own_rank(context->registry, context->process, &rank);
    if (r == 0)
        r = breakpoint_request_for(request, rank, &own);
    if (r == 0 && (own.n || (request->sets && context->clears)))
        r = breakpoints_carry_out(context, &own, said, outcome);
    breakpoint_request_deinit(&own);
    return r;
}

int breakpoints_carry_out(struct file_context *context, const struct breakpoint_request *request,
                          struct text *said, struct outcome *outcome)
{
    struct session *session;

    if (request->has_ranks)
        return carry_out_own(context, request, said, outcome);
    int r = request->sets ? agent_session_order(context, &session)
                          : agent_session_connect(context, &session);
    if (r == -ENOTCONN && !request->sets)
        return ask_nobody(context, request, outcome);
    if (r < 0)
        return r;
    r = ask(context, session, request, said, outcome);
    session_unref(session);
    return r;
}

/* Bytes of whole lines. */
static size_t whole_lines(const struct input *input)
{
    const char *newline = input->last || !input->size ? NULL
                                                      : memrchr(input->text, '\n', input->size);
    return input->last ? input->size : newline ? (size_t)(newline + 1 - input->text) : 0;
}

int breakpoints_feed(struct file_context *context, const struct input *input,
                     breakpoints_carry *carry, struct text *said, struct outcome *outcome)
{
    _cleanup_(breakpoint_request_deinit) struct breakpoint_request request = {0};
    size_t size = whole_lines(input);

    int r = breakpoint_request_read(input->text, size, &request, &context->why);
    if (r < 0)
        return r;
    if (input->size - size > LINE_MAX) {
        text_puts(&context->why, "a line has at most 2000 bytes");
        return -EINVAL;
    }
    if (request.strict && !request.n && !input->last)
        return 0; /* the line belongs to what follows */
    if (request.n || (input->last && context->clears))
        r = carry(context, &request, said, outcome);
    outcome->consumed = size;
    return r;
}

static int carry_out(struct file_context *context, struct breakpoint_request *request,
                     struct text *said, struct outcome *outcome)
{
    return breakpoints_carry_out(context, request, said, outcome);
}

int breakpoints_run(struct file_context *context, const struct input *input, struct text *said,
                    struct outcome *outcome)
{
    return breakpoints_feed(context, input, carry_out, said, outcome);
}

/* ---- reading ---- */

static void add_text(const struct ring_row *row, unsigned column, struct text *out)
{
    uint32_t size;
    bool cut;

    const char *bytes = ring_text(row, column, &size, &cut);
    if (bytes)
        text_add_escaped(out, bytes, size);
}

static void add_count(const struct ring_row *row, unsigned column, const char *what,
                      struct text *out)
{
    int64_t n;

    if (ring_integer(row, column, &n) && n > 0)
        text_printf(out, ", %ld %s", (long)n, what);
}

static void add_held(const struct held_list *held, int64_t id, struct text *out)
{
    const char *before = ", holds ";

    for (size_t i = 0; i < held->n; i++)
        if (held->items[i].id == id && id) {
            text_printf(out, "%s%d", before, (int)held->items[i].tid);
            before = " ";
        }
}

static void add_line(const struct ring_row *row, const char *mark, const struct held_list *held,
                     struct text *out)
{
    int64_t id = 0, hits = 0;

    ring_integer(row, BREAKPOINTS_ID, &id);
    if (!ring_integer(row, BREAKPOINTS_HITS, &hits))
        hits = 0;
    text_printf(out, "%ld: ", (long)id);
    add_text(row, BREAKPOINTS_BREAKPOINT, out);
    text_puts(out, "  # ");
    text_puts(out, mark);
    add_text(row, BREAKPOINTS_STATE, out);
    text_printf(out, ", %ld hits", (long)hits);
    add_held(held, id, out);
    add_count(row, BREAKPOINTS_DROPPED, "of them without a row", out);
    add_count(row, BREAKPOINTS_ERRORS, "errors", out);
    if (row->words[BREAKPOINTS_NOTE]) {
        text_puts(out, ", ");
        add_text(row, BREAKPOINTS_NOTE, out);
    }
    text_putc(out, '\n');
}

int breakpoints_lines(struct recording *recording, struct target *target, const char *mark,
                      struct text *out)
{
    _cleanup_(held_list_deinit) struct held_list held = {0};
    _cleanup_(breakpoint_rows_deinit) struct breakpoint_rows set = {0};

    if (!recording_attached(recording)) /* with the agent the set is gone */
        return 0;
    int r = breakpoint_rows_read(recording, &set);
    if (target && set.n)
        held_list_read(target, recording, &held); /* which leaves it empty where it fails */
    for (size_t i = 0; r == 0 && i < set.n; i++)
        add_line(set.rows[i], mark, &held, out);
    return r;
}

/* Whether it says more than the set does, which may look otherwise by now. */
static bool is_worth_it(const struct text *reply)
{
    static const char mark[] = "error: ";
    const char *at = reply->size ? strstr(reply->data, mark) : NULL;

    while (at && at != reply->data && at[-1] != '\n' && at[-1] != ' ')
        at = strstr(at + 1, mark);
    return at;
}

void breakpoints_reply(struct file_context *context, struct text *out)
{
    _cleanup_(text_deinit) struct text reply = TEXT_INIT;

    reply_render(context, &reply);
    if (!is_worth_it(&reply))
        return;
    for (size_t i = 0; i < reply.size;) {
        const char *line = reply.data + i, *newline = memchr(line, '\n', reply.size - i);
        size_t size = newline ? (size_t)(newline - line) : reply.size - i;
        text_puts(out, "# ");
        text_add(out, line, size);
        text_putc(out, '\n');
        i += size + 1;
    }
}

int breakpoints_render(struct file_context *context, struct text *out)
{
    int r = breakpoints_lines(context->recording, context->target, "", out);
    breakpoints_reply(context, out);
    return r;
}
