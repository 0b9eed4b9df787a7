/* The verb `on-crash` of ctl: what becomes of an exception that nobody catches,
 * and of a fatal signal. */
#include "fs/tree/ctl_on_crash.h"

#include "agent/base/cleanup.h"
#include "fs/base/duration.h"
#include "fs/link/lifetime.h"
#include "fs/process/registry.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"

#include <errno.h>

static const char *const modes[] = {
    [CRASH_OFF] = "off",
    [CRASH_RECORD] = "record",
    [CRASH_STOP] = "stop",
};

void on_crash_text(struct recording *recording, struct text *out)
{
    uint32_t mode = recording_on_crash(recording);
    text_printf(out, "OnCrash: %s\n", mode < ARRAY_SIZE(modes) ? modes[mode] : "?");
}

/* ---- reading the line ---- */

static int read_mode(struct ctl_line *line, uint32_t *out)
{
    for (uint32_t mode = 0; mode < ARRAY_SIZE(modes); mode++)
        if (ctl_word_is(&line->words[1], modes[mode])) {
            *out = mode;
            return 0;
        }
    return ctl_complain(line, line->words[1].text, "write off, record or stop");
}

/* [for DURATION] */
static int read_duration(struct ctl_line *line, struct proto_on_crash *order)
{
    const struct ctl_word *for_word = &line->words[2], *duration = &line->words[3];

    if (line->nwords == 2)
        return 0;
    if (order->mode != CRASH_STOP || !ctl_word_is(for_word, "for"))
        return ctl_complain(line, for_word->text, "only stop has more: stop for 60s");
    if (line->nwords == 3)
        return ctl_complain(line, line->text + line->size, "for how long? as 500ms, 60s, 5m, 2h");
    if (!duration_parse(duration->text, duration->size, &order->stop_ns) || !order->stop_ns)
        return ctl_complain(line, duration->text, "a time is written as 500ms, 60s, 5m, 2h");
    if (order->stop_ns > PROTO_STOP_MAX_NS)
        return ctl_complain(line, duration->text, "at most 7d");
    return 0;
}

/* ---- asking the agent ---- */

static int ask(struct ctl_line *line, struct session *session, struct proto_on_crash *order)
{
    struct file_context *context = line->context;
    struct proto_done done = {0};

    int r = line->here ? agent_session_here(context, session) : 0;
    if (r < 0)
        return r;
    order->here = line->here ? lifetime_number(context->lifetime) : 0;
    order->gil_interval = agent_session_gil_interval(context, 0);
    r = session_order(session, PROTO_ON_CRASH, order, sizeof *order,
                      agent_session_patience(context, 0), context->interrupt, &done);
    if (line->here)
        lifetime_asked(context->lifetime, session);
    registry_watch(context->registry, context->process);
    return r < 0 ? agent_session_explain(context, r, &done, "crashes are dealt with as before") : 0;
}

int ctl_on_crash(struct ctl_line *line)
{
    struct file_context *context = line->context;
    struct proto_on_crash order = {0};
    struct session *session;

    int r = read_mode(line, &order.mode);
    if (r == 0)
        r = read_duration(line, &order);
    if (r < 0)
        return r;
    r = order.mode == CRASH_OFF ? agent_session_connect(context, &session)
                                : agent_session_order(context, &session);
    if (r == -ENOTCONN) { /* nothing is done where there is no agent */
        text_clear(&context->why);
        on_crash_text(context->recording, line->said);
        return 0;
    }
    if (r < 0)
        return r;
    r = ask(line, session, &order);
    session_unref(session);
    if (r == 0)
        on_crash_text(context->recording, line->said);
    return r;
}
