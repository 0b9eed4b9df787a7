/* <pid>/ctl: verbs, one a line; reading shows how things are, and what the last verbs said. */
#include "fs/ctl.h"

#include "fs/agent_text.h"
#include "fs/attached.h"
#include "fs/caret.h"
#include "fs/cleanup.h"
#include "fs/on_crash.h"
#include "fs/recorded_text.h"
#include "fs/registry.h"
#include "fs/watches.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

struct ctl_verb {
    const char *name;
    const char *usage;
    size_t least, most; /* words, with the verb itself */
    int (*run)(struct ctl_line *line);
};

bool ctl_word_is(const struct ctl_word *word, const char *text)
{
    return word->size == strlen(text) && !memcmp(word->text, text, word->size);
}

int ctl_complain(struct ctl_line *line, const char *at, const char *what)
{
    text_puts(&line->context->why, what);
    text_add_caret(&line->context->why, line->text, line->size, at);
    return -EINVAL;
}

static int run_interpreter(struct ctl_line *line)
{
    const struct ctl_word *word = &line->words[1];
    char number[20] = "", *end;

    if (word->size < sizeof number)
        memcpy(number, word->text, word->size);
    long long id = strtoll(number, &end, 10);
    if (!isdigit((unsigned char)*number) || *end)
        return ctl_complain(line, word->text, "an interpreter is a number, 0 is the main one");
    atomic_store(&line->context->process->interp, id);
    text_printf(line->said, "Interpreter: %lld\n", id);
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
    int r = attached_session(context, way, &session);
    if (r < 0)
        return r;
    session_unref(session);
    agent_text_passive(context->target, line->said);
    return 0;
}

/* Without anything that is watched: who writes to that gets a signal which the agent handles. */
static int detach(struct file_context *context, bool *unloaded)
{
    int r = -EBUSY;

    if (watches_hold(context->process))
        r = agent_detach(context->target, context->interrupt, unloaded, &context->why);
    else
        text_puts(&context->why, "a thread with a watchpoint can't be stopped just now, and may still need the agent");
    watches_let_go(context->process);
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
    struct attach_status status = {0};
    struct session *session;

    int r = attached_connect(context, &session);
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
    r = agent_status(context->target, &status);
    if (r == 0)
        agent_text(&status, line->said);
    return r;
}

static const struct ctl_verb verbs[] = {
    {"attach", "attach [remote-exec]", 1, 2, run_attach},
    {"detach", "detach", 1, 1, run_detach},
    {"status", "status", 1, 1, run_status},
    {"interpreter", "interpreter N", 2, 2, run_interpreter},
    {"on-crash", "on-crash off|record|stop [for TIME]", 2, 4, ctl_on_crash},
    {"record", "record [TABLE [on|off] [SIZE] [rate=R]]", 1, 5, ctl_record},
};

static int unknown(struct ctl_line *line)
{
    _cleanup_(text_deinit) struct text what = TEXT_INIT;

    text_puts(&what, "unknown verb; there are ");
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        text_printf(&what, "%s%s", i ? ", " : "", verbs[i].usage);
    return ctl_complain(line, line->words[0].text, what.data ? what.data : "unknown verb");
}

static int run_line(struct ctl_line *line)
{
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        const struct ctl_verb *verb = &verbs[i];
        if (!ctl_word_is(&line->words[0], verb->name))
            continue;
        if (line->nwords < verb->least || line->nwords > verb->most) {
            const char *at = line->nwords > verb->most ? line->words[verb->most].text
                                                       : line->text + line->size;
            _cleanup_(text_deinit) struct text what = TEXT_INIT;
            text_printf(&what, "write it as: %s", verb->usage);
            return ctl_complain(line, at, what.data ? what.data : verb->usage);
        }
        return verb->run(line);
    }
    return unknown(line);
}

/* Cuts a line into words; what is beyond the last is one. */
static void split(struct ctl_line *line)
{
    const char *p = line->text, *end = line->text + line->size;

    while (line->nwords < CTL_WORDS_MAX) {
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (p == end)
            return;
        struct ctl_word *word = &line->words[line->nwords++];
        word->text = p;
        while (p < end && !isspace((unsigned char)*p))
            p++;
        word->size = (size_t)(p - word->text);
    }
}

int ctl_run(struct file_context *context, const struct input *input, size_t *consumed,
            struct text *said)
{
    while (*consumed < input->size) {
        const char *text = input->text + *consumed;
        size_t rest = input->size - *consumed;
        const char *newline = memchr(text, '\n', rest);
        if (!newline && !input->last)
            return 0;
        struct ctl_line line = {
            .context = context,
            .text = text,
            .size = newline ? (size_t)(newline - text) : rest,
            .said = said,
        };
        split(&line);
        int r = line.nwords ? run_line(&line) : 0;
        if (r < 0)
            return r;
        *consumed += line.size + (newline != NULL);
    }
    return 0;
}

int ctl_render(struct file_context *context, struct text *out)
{
    agent_text_passive(context->target, out);
    text_printf(out, "Interpreter: %lld\n",
                (long long)atomic_load(&context->process->interp));
    on_crash_text(context->recording, out);
    recorded_text_all(context->recording, out);
    return reply_render(context, out);
}
