/* threads/<tid>/ctl: how a thread is held, and what it is to do. */
#include "agent/base/cleanup.h"
#include "fs/format/held.h"
#include "fs/proc/lwp.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/thread_order.h"

#include <errno.h>
#include <string.h>

/* Of the thread of the tree; since_ns 0: it runs. */
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

static int add_state(struct file_context *context, struct text *out)
{
    struct held held;

    int r = read_own(context, &held);
    if (r < 0)
        return r;
    if (held.since_ns) {
        text_puts(out, "stopped by ");
        held_text(context->target, &held, out);
        text_putc(out, '\n');
    } else {
        text_puts(out, "running\n");
    }
    return 0;
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

static int give(struct file_context *context, struct proto_thread *order, struct text *said)
{
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
    r = thread_order_give(context, session, order, said);
    session_unref(session);
    return r;
}

/* Whether the thread is held, and not as it was before. */
static bool is_held_again(struct file_context *context, void *arg)
{
    const struct held *before = arg;
    struct held now;

    return read_own(context, &now) < 0 || (now.since_ns && now.since_ns != before->since_ns);
}

/* After a step its next stop is waited for, a moment: the next command is for that. One that takes
 * longer runs, also where it doesn't have the GIL yet and seems to be held as it was. */
static int run(struct ctl_line *line, enum thread_verb verb, int jump)
{
    struct proto_thread order = {.verb = verb, .line = jump};
    struct file_context *context = line->context;
    _cleanup_(text_deinit) struct text words = TEXT_INIT;
    struct held before;

    int r = read_own(context, &before);
    if (r == 0)
        r = give(context, &order, &words);
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

static int run_continue(struct ctl_line *line) { return run(line, THREAD_CONTINUE, 0); }
static int run_step(struct ctl_line *line) { return run(line, THREAD_STEP, 0); }
static int run_next(struct ctl_line *line) { return run(line, THREAD_NEXT, 0); }
static int run_finish(struct ctl_line *line) { return run(line, THREAD_FINISH, 0); }

static int run_jump(struct ctl_line *line)
{
    unsigned number;

    if (!ctl_word_number(&line->words[1], &number) || !number)
        return ctl_complain(line, line->words[1].text, "a line is a number, from 1");
    return run(line, THREAD_JUMP, (int)number);
}

static const struct ctl_verb verbs[] = {
    {"continue", "continue", 1, 1, run_continue},
    {"step", "step", 1, 1, run_step},
    {"next", "next", 1, 1, run_next},
    {"finish", "finish", 1, 1, run_finish},
    {"jump", "jump LINE", 2, 2, run_jump},
};

int thread_ctl_run(struct file_context *context, const struct input *input, struct text *said,
                   struct outcome *outcome)
{
    return ctl_run_verbs(verbs, ARRAY_SIZE(verbs), context, input, said, outcome);
}

/* What was said of a verb that worked is how the thread was then: that is over. */
static bool is_state(const char *reply)
{
    return !strncmp(reply, "running\n", 8) || !strncmp(reply, "stopped by ", 11);
}

int thread_ctl_render(struct file_context *context, struct text *out)
{
    int r = add_state(context, out);
    if (r < 0)
        return snapshot_error(context, r);
    reply_add_apart(context, is_state, out);
    return 0;
}
