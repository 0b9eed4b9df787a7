/* <pid>/ctl: verbs, one a line; reading shows how things are, and what the last verbs said. */
#include "fs/tree/ctl.h"

#include "agent/base/cleanup.h"
#include "fs/format/agent.h"
#include "fs/format/recorded.h"
#include "fs/process/registry.h"
#include "fs/sampler/profile.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl_on_crash.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/profile_view.h"
#include "fs/tree/heap.h"
#include "fs/watch/follow.h"
#include "fs/watch/registers.h"

#include <errno.h>

/* Adds how its agent is. Whom this daemon talks with it knows itself. */
static int add_agent(struct file_context *context, struct text *out)
{
    struct session *session = agent_session(context->target);
    struct attach_status status = {0};

    int r = session ? 1 : snapshot_ask_text(context, ASKED_AGENT, out);
    session_unref(session);
    if (r <= 0)
        return r;
    r = agent_status(context->target, &status);
    if (r == 0)
        agent_text(&status, out);
    return r;
}

static int run_interpreter(struct ctl_line *line)
{
    unsigned id;

    if (!ctl_word_number(&line->words[1], &id))
        return ctl_complain(line, line->words[1].text,
                            "an interpreter is a number, 0 is the main one");
    atomic_store(&line->context->process->interp, id);
    text_printf(line->said, "Interpreter: %u\n", id);
    return 0;
}

static int run_attach(struct ctl_line *line)
{
    struct file_context *context = line->context;
    enum attach_way way = ATTACH_ANY;
    struct session *session;

    if (line->nwords > 1) {
        if (!ctl_word_is(&line->words[1], "remote-exec"))
            return ctl_complain(line, line->words[1].text, "the one way to choose is remote-exec");
        way = ATTACH_REMOTE_EXEC;
    }
    int r = agent_session_attach(context, way, &session);
    if (r < 0)
        return r;
    session_unref(session);
    (void)add_agent(context, line->said);
    return 0;
}

/* Without anything that is watched: who writes to that gets a signal which the agent handles. */
static int detach(struct file_context *context, bool *unloaded)
{
    int r = -EBUSY;
    pid_t waiting = 0;

    bool disarmed = watches_hold(context->process->watches);
    bool sampled = profile_leave_agent(context->process->profile) < 0;
    if (disarmed && !sampled)
        waiting = watch_waiting(context->target->pid);
    if (waiting)
        text_printf(&context->why,
                    "thread %d blocks SIGTRAP, and that of a watchpoint or of a profile waits for "
                    "it: without the agent the program would die of it",
                    (int)waiting);
    else if (sampled)
        text_puts(&context->why, "the agent's profile doesn't end just now: try again");
    else if (disarmed)
        r = agent_detach(context->target, context->interrupt, unloaded, &context->why);
    else
        text_puts(
            &context->why,
            "a thread with a watchpoint can't be stopped just now, and may still need the agent");
    watches_let_go(context->process->watches);
    profile_resume(context->process->profile, context->target);
    return r;
}

/* Detaching what isn't attached is done already. */
static int run_detach(struct ctl_line *line)
{
    struct file_context *context = line->context;
    bool unloaded = false;

    int r = detach(context, &unloaded);
    if (r < 0 && r != -ENOTCONN)
        return r;
    if (r == 0)
        recording_clear(context->recording); /* as the agent has done */
    if (r < 0 || unloaded)
        text_puts(line->said, "Agent: none\n");
    else
        text_printf(line->said, "Agent: ended; %s\n",
                    context->why.size ? context->why.data : "the library stays");
    text_clear(&context->why);
    return 0;
}

/* Unlike a read, this asks the agent. */
static int run_status(struct ctl_line *line)
{
    struct file_context *context = line->context;
    struct session *session;

    int r = agent_session_connect(context, &session);
    if (r < 0 && r != -ENOTCONN)
        return r;
    if (r == 0) {
        struct proto_ready ready;
        r = session_status(session, &ready);
        session_unref(session);
        if (r < 0) {
            text_puts(&context->why, "the agent does not answer");
            return r;
        }
    }
    text_clear(&context->why);
    return add_agent(context, line->said);
}

static const struct ctl_verb verbs[] = {
    {"attach", "attach [remote-exec]", 1, 2, run_attach},
    {"detach", "detach", 1, 1, run_detach},
    {"status", "status", 1, 1, run_status},
    {"interpreter", "interpreter N", 2, 2, run_interpreter},
    {"on-crash", "on-crash off|record|stop [for TIME]", 2, 4, ctl_on_crash, .here = true},
    {"pause", "pause [for TIME]", 1, 3, ctl_pause, .here = true},
    {"continue", "continue", 1, 1, ctl_continue},
    {"heap", "heap mark NAME|drop NAME|sites on [BYTES]|sites off", 3, 4, ctl_heap},
    {"profile",
     "profile [MODE...] [97hz] [for TIME] [native] [children] [inside] [tid N]|off|clear|mark "
     "NAME|torch [steps=N|off]",
     1, CTL_WORDS_MAX, ctl_profile},
    {"record", "record [TABLE [on|off] [SIZE] [rate=R|LIMIT] [layers=L] [locals]]", 1, 6,
     ctl_record},
};

int ctl_run(struct file_context *context, const struct input *input, struct text *said,
            struct outcome *outcome)
{
    return ctl_run_verbs(verbs, ARRAY_SIZE(verbs), context, input, said, outcome);
}

int ctl_render(struct file_context *context, struct text *out)
{
    (void)add_agent(context, out); /* else it is left out, as who is held */
    text_printf(out, "Interpreter: %lld\n", (long long)atomic_load(&context->process->interp));
    (void)ctl_add_held(context, false, out);
    text_clear(&context->why);
    heap_marks_text(context->target, out);
    on_crash_text(context->recording, out);
    recorded_text_all(context->recording, out);
    profile_add_line(context->process, out);
    reply_add_apart(context, NULL, out);
    return 0;
}
