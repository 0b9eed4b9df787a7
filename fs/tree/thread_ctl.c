/* threads/<tid>/ctl: how a thread is held, and what it is to do. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/format/held.h"
#include "fs/proc/lwp.h"
#include "fs/process/registry.h"
#include "fs/recording/ring_reader.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/thread_order.h"
#include "schema/rows.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

/* Reads how the thread of the tree is held, in a process that is read here; since_ns 0: it runs. */
static int read_own(struct file_context *context, struct held *out)
{
    _cleanup_(held_list_deinit) struct held_list list = {0};

    *out = (struct held){0};
    int r = held_list_read(context->target, NULL, &list);
    const struct held *held = r == 0 ? held_find(&list, context->tid) : NULL;
    if (held)
        *out = *held;
    return r;
}

/* ---- what it was held by, as its row in hits has it ---- */

#define ROWS_BACK 256u /* the newest, among which a stop is looked for */

/* How long after the beginning of a stop its row is waited for: the thread may lose its processor
 * in between. */
#define ROW_NS 200000000u

struct stop_row {
    uint32_t number;
    struct text *out;
};

/* `bytes` of a column, escaped. False: there is nothing. */
static bool add_column(const struct ring_row *row, unsigned column, const char *front,
                       struct text *out)
{
    uint32_t size;
    bool cut;
    const char *bytes = ring_text(row, column, &size, &cut);

    if (bytes) {
        text_puts(out, front);
        text_add_escaped(out, bytes, size);
    }
    return bytes;
}

static int add_row(void *arg, const struct ring_row *row)
{
    struct stop_row *stop = arg;
    int64_t number;

    if (!ring_integer(row, HITS_STOP, &number) || number != stop->number)
        return 0;
    if (add_column(row, HITS_EXCEPTION, "Exception: ", stop->out)) {
        add_column(row, HITS_MESSAGE, ": ", stop->out);
        text_putc(stop->out, '\n');
    }
    if (add_column(row, HITS_RETURNED, "-> ", stop->out))
        text_putc(stop->out, '\n');
    return 1;
}

static void ignore_lost(void *arg, uint64_t count) {}

/* Whether its row was found. */
static bool find_row(struct file_context *context, const struct held *held, struct text *out)
{
    struct stop_row stop = {held->number, out};
    const struct ring_follower follower = {add_row, ignore_lost, &stop};
    struct ring_counts counts;

    registry_watch(context->registry, context->process);
    return recording_pass(context->recording, RECORDED_HITS, ROWS_BACK, &follower, &counts) == 1;
}

/* `Exception: TYPE: MESSAGE` and `-> VALUE`, where there are such. The row is written right after
 * the thread can be seen to be held. */
static void add_values(struct file_context *context, const struct held *held, struct text *out)
{
    while (!find_row(context, held, out) && realtime_ns() < held->since_ns + ROW_NS)
        nap_ns(500000);
}

/* ---- */

int thread_held_since(struct file_context *context, uint64_t *out)
{
    struct held held;

    int r = read_own(context, &held);
    *out = r == 0 ? held.since_ns : 0;
    return r;
}

/* As thread_held_since(), wherever the process is read. */
static int ask_held(struct file_context *context, uint64_t *out)
{
    const struct asked_for asked = {.what = ASKED_HELD, .tid = context->tid};
    uint64_t told[2] = {0};

    int r = snapshot_ask(context, &asked, told);
    *out = told[0];
    return r > 0 ? thread_held_since(context, out) : r;
}

int thread_state_text(struct file_context *context, struct text *out)
{
    struct held held;

    int r = read_own(context, &held);
    if (r < 0)
        return r;
    if (held.since_ns) {
        text_puts(out, "stopped by ");
        held_text(context->target, &held, out);
        text_putc(out, '\n');
        add_values(context, &held, out);
    } else {
        text_puts(out, "running\n");
    }
    return 0;
}

static int add_state(struct file_context *context, struct text *out)
{
    int r = snapshot_ask_text(context, ASKED_STATE, out);
    return r > 0 ? thread_state_text(context, out) : r;
}

/* The number by which its process knows it. */
static int inner_tid(struct file_context *context, int32_t *out)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};

    int r = lwp_list_read(context->target->pid, LWP_STATES, &lwps);
    const struct lwp *lwp = r == 0 ? lwp_find(&lwps, context->tid) : NULL;
    if (!lwp)
        return r < 0 ? r : -ESRCH;
    *out = lwp->inner_tid;
    return 0;
}

static int give(struct ctl_line *line, struct proto_thread *order, struct text *said)
{
    struct file_context *context = line->context;
    struct session *session;

    int r = inner_tid(context, &order->tid);
    if (r == 0)
        r = agent_session_connect(context, &session);
    if (r == -ENOTCONN) {
        text_clear(&context->why);
        text_puts(&context->why, "the thread isn't stopped");
        return -EBUSY;
    }
    if (r < 0)
        return r;
    r = thread_order_give(context, session, line->here, order, said);
    session_unref(session);
    return r;
}

/* Whether the thread is held, and not as it was before. */
static bool is_held_again(struct file_context *context, void *arg)
{
    const uint64_t *before = arg;
    uint64_t now;

    return ask_held(context, &now) < 0 || (now && now != *before);
}

/* After a step its next stop is waited for, a moment: the next command is for that. One that takes
 * longer runs, also where it doesn't have the GIL yet and seems to be held as it was. */
static int run(struct ctl_line *line, enum thread_verb verb, int jump)
{
    struct proto_thread order = {.verb = verb, .line = jump};
    struct file_context *context = line->context;
    _cleanup_(text_deinit) struct text words = TEXT_INIT;
    uint64_t before;

    int r = ask_held(context, &before);
    if (r == 0)
        r = give(line, &order, &words);
    int held = verb == THREAD_JUMP;
    if (r == 0 && verb != THREAD_CONTINUE && verb != THREAD_JUMP)
        held = r = thread_order_wait(context, is_held_again, &before);
    if (r < 0)
        return r;
    text_clear(line->said); /* of the verbs of one write, where the last one has left it */
    if (held)
        return add_state(context, line->said);
    text_puts(line->said, "running\n");
    return 0;
}

/* `step own`. */
static int run_step(struct ctl_line *line)
{
    if (line->nwords == 2 && !ctl_word_is(&line->words[1], "own"))
        return ctl_complain(line, line->words[1].text, "write it as: step, or step own");
    return run(line, line->nwords == 2 ? THREAD_STEP_OWN : THREAD_STEP, 0);
}

static int run_continue(struct ctl_line *line) { return run(line, THREAD_CONTINUE, 0); }
static int run_next(struct ctl_line *line) { return run(line, THREAD_NEXT, 0); }
static int run_finish(struct ctl_line *line) { return run(line, THREAD_FINISH, 0); }
static int run_return(struct ctl_line *line) { return run(line, THREAD_RETURN, 0); }

static int read_line(struct ctl_line *line, int *out)
{
    unsigned number;

    if (!ctl_word_number(&line->words[1], &number) || !number || number > INT32_MAX)
        return ctl_complain(line, line->words[1].text, "a line is a number, from 1");
    *out = (int)number;
    return 0;
}

static int run_jump(struct ctl_line *line)
{
    int number = 0;

    int r = read_line(line, &number);
    return r < 0 ? r : run(line, THREAD_JUMP, number);
}

static int run_until(struct ctl_line *line)
{
    int number = 0;

    int r = line->nwords == 2 ? read_line(line, &number) : 0;
    return r < 0 ? r : run(line, THREAD_UNTIL, number);
}

/* ---- pause ---- */

static bool is_held(struct file_context *context, void *unused)
{
    uint64_t since;

    return ask_held(context, &since) < 0 || since;
}

static int run_pause(struct ctl_line *line)
{
    struct proto_thread order = {.verb = THREAD_PAUSE};
    struct file_context *context = line->context;
    struct session *session;
    uint64_t since = 0;
    int held_now = 1;
    int64_t interp;

    int r = ctl_pause_duration(line, &order.stop_ns);
    if (r == 0)
        r = ask_held(context, &since);
    if (r == 0 && !since) {
        r = snapshot_find_thread(context, context->tid, &order.thread, &interp);
        if (r == -EINVAL)
            text_puts(&context->why, ": there is no line that it could stop at");
        if (r == 0)
            r = agent_session_order(context, &session);
        if (r < 0)
            return r;
        r = thread_order_give(context, session, line->here, &order, line->said);
        session_unref(session);
        if (r == 0)
            held_now = r = thread_order_wait(context, is_held, NULL);
    }
    if (r < 0)
        return r;
    text_clear(line->said);
    r = add_state(context, line->said);
    if (r == 0 && !held_now)
        text_puts(line->said, "It stops at the next line of Python that it runs.\n");
    return r;
}

static const struct ctl_verb verbs[] = {
    {"continue", "continue", 1, 1, run_continue},
    {"step", "step [own]", 1, 2, run_step, .here = true},
    {"next", "next", 1, 1, run_next, .here = true},
    {"finish", "finish", 1, 1, run_finish, .here = true},
    {"return", "return", 1, 1, run_return, .here = true},
    {"until", "until [LINE]", 1, 2, run_until, .here = true},
    {"jump", "jump LINE", 2, 2, run_jump},
    {"pause", "pause [for TIME]", 1, 3, run_pause, .here = true},
};

int thread_ctl_run(struct file_context *context, const struct input *input, struct text *said,
                   struct outcome *outcome)
{
    return ctl_run_verbs(verbs, ARRAY_SIZE(verbs), context, input, said, outcome);
}

/* What was said of a verb that worked is how the thread was then: that is over. */
static bool is_state(const char *reply)
{
    static const char *const fronts[] = {"running\n", "stopped by ", "-> ", "Exception: "};
    bool is = false;

    for (size_t i = 0; i < ARRAY_SIZE(fronts); i++)
        is = is || !strncmp(reply, fronts[i], strlen(fronts[i]));
    return is;
}

int thread_ctl_render(struct file_context *context, struct text *out)
{
    int r = add_state(context, out);
    if (r < 0)
        return context->why.size ? r : snapshot_error(context, r);
    reply_add_apart(context, is_state, out);
    return 0;
}
