/* The verbs `pause` and `continue` of <pid>/ctl: all threads of a process. */
#include "agent/base/cleanup.h"
#include "fs/base/duration.h"
#include "fs/format/held.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/thread_order.h"

#include <errno.h>
#include <string.h>

bool ctl_all_held(struct file_context *context)
{
    _cleanup_(held_list_deinit) struct held_list list = {0};
    const struct snapshot_options options = {0};
    struct attach_status status = {0};
    struct snapshot *snapshot;
    bool all = true;

    if (agent_status(context->target, &status) < 0 ||
        held_list_read(context->target, NULL, &list) < 0 ||
        snapshot_take(context->target, &options, &snapshot) < 0)
        return true; /* it has ended */
    for (size_t i = 0; i < snapshot->nthreads && all; i++) {
        const struct thread *thread = &snapshot->threads[i];
        all = !thread->tstate || !thread->depth || held_find(&list, thread->tid);
    }
    snapshot_free(snapshot);
    return all;
}

static bool all_held(struct file_context *context, void *unused)
{
    const struct asked_for asked = {.what = ASKED_ALL_HELD};
    uint64_t told[2];

    int r = snapshot_ask(context, &asked, told);
    return r > 0 ? ctl_all_held(context) : r < 0 || told[0];
}

int ctl_add_held(struct file_context *context, bool many, struct text *out)
{
    int r = snapshot_ask_text(context, many ? ASKED_STOPPED_MANY : ASKED_STOPPED, out);
    if (r > 0 && many)
        held_text_count(context->target, out);
    else if (r > 0)
        held_text_all(context->target, out);
    return r < 0 ? r : 0;
}

int ctl_pause_duration(struct ctl_line *line, uint64_t *ns)
{
    if (line->nwords == 1)
        return 0;
    if (!ctl_word_is(&line->words[1], "for") || line->nwords < 3)
        return ctl_complain(line, line->words[1].text, "write it as: pause for 60s");
    const struct ctl_word *word = &line->words[2];
    if (!duration_parse(word->text, word->size, ns) || !*ns || *ns > PROTO_STOP_MAX_NS)
        return ctl_complain(line, word->text,
                            "how long is a number with ms, s, m, h or d, at most 7d");
    return 0;
}

int ctl_pause(struct ctl_line *line)
{
    struct proto_thread order = {.verb = THREAD_PAUSE};
    struct file_context *context = line->context;
    struct session *session;

    int r = ctl_pause_duration(line, &order.stop_ns);
    if (r == 0)
        r = agent_session_order(context, &session);
    if (r < 0)
        return r;
    r = thread_order_give(context, session, line->here, &order, line->said);
    session_unref(session);
    int held = r == 0 ? thread_order_wait(context, all_held, NULL) : r;
    if (held == 0)
        text_puts(line->said, "The others stop at the next line of Python that they run.\n");
    (void)ctl_add_held(context, strncmp(context->file, "<pid>/", 6) != 0, line->said);
    if (held >= 0)
        text_clear(&context->why);
    return held < 0 ? held : 0;
}

int ctl_continue(struct ctl_line *line)
{
    struct proto_thread order = {.verb = THREAD_CONTINUE};
    struct file_context *context = line->context;
    struct session *session;

    int r = agent_session_connect(context, &session);
    if (r == -ENOTCONN) { /* nobody holds them */
        text_clear(&context->why);
        return 0;
    }
    if (r < 0)
        return r;
    r = thread_order_give(context, session, false, &order, line->said);
    session_unref(session);
    return r;
}
