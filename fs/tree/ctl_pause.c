/* The verbs `pause` and `continue` of <pid>/ctl: all threads of a process. */
#include "agent/base/cleanup.h"
#include "fs/base/duration.h"
#include "fs/format/held.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/thread_order.h"

#include <errno.h>
#include <string.h>

/* Whether all threads that run Python are held, but for the agent's own. */
static bool all_held(struct file_context *context, void *unused)
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
        r = agent_session_attach(context, ATTACH_ANY, &session);
    if (r < 0)
        return r;
    r = thread_order_give(context, session, line->here, &order, line->said);
    session_unref(session);
    int held = r == 0 ? thread_order_wait(context, all_held, NULL) : r;
    if (held == 0)
        text_puts(line->said, "The others stop at the next line of Python that they run.\n");
    if (strncmp(context->file, "<pid>/", 6))
        held_text_count(context->target, line->said);
    else
        held_text_all(context->target, line->said);
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
