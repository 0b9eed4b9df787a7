/* `profile torch [steps=N]` and `profile torch off` in ctl: PyTorch's own profiler, for some steps.
 */
#include "fs/format/recorded.h"
#include "fs/process/registry.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"

#include <errno.h>
#include <string.h>

#define STEPS 5
#define STEPS_MAX 100
#define RING_SIZE (16u << 20) /* of some 100,000 events */

/* steps 0: it is to end. */
static int read_line(struct ctl_line *line, unsigned *steps)
{
    static const char name[] = "steps=";
    const struct ctl_word *word = &line->words[2];

    *steps = STEPS;
    if (line->nwords == 2)
        return 0;
    if (line->nwords > 3)
        return ctl_complain(line, line->words[3].text, "write it as: profile torch [steps=N|off]");
    if (ctl_word_is(word, "off")) {
        *steps = 0;
        return 0;
    }
    if (word->size <= sizeof name - 1 || memcmp(word->text, name, sizeof name - 1))
        return ctl_complain(line, word->text, "write steps=N, or off");
    const struct ctl_word number = {word->text + sizeof name - 1, word->size - (sizeof name - 1)};
    if (!ctl_word_number(&number, steps) || *steps < 1 || *steps > STEPS_MAX)
        return ctl_complain(line, number.text, "1 to 100 steps can be profiled");
    return 0;
}

static int ask(struct file_context *context, struct session *session, unsigned steps,
               struct text *said)
{
    const int64_t interp = atomic_load(&context->process->interp);
    const struct proto_record record = {
        .table = RECORDED_TORCH_PROFILE,
        .action = steps ? RECORD_ON : RECORD_OFF,
        .size = steps ? RING_SIZE : 0,
        .rate = steps,
        .interp = interp,
        .gil_interval = agent_session_gil_interval(context, interp),
    };
    struct proto_done done = {0};

    int r = session_order(session, PROTO_RECORD, &record, sizeof record,
                          agent_session_patience(context, interp), context->interrupt, &done);
    registry_watch(context->registry, context->process);
    if (r < 0)
        return agent_session_explain(context, r, &done, "nothing is profiled");
    if (steps)
        text_printf(said, "%u steps from the next one on; then read torch/top, torch/trace.json\n",
                    steps);
    else
        recorded_text(context->recording, RECORDED_TORCH_PROFILE, said);
    return 0;
}

int ctl_profile_torch(struct ctl_line *line)
{
    struct file_context *context = line->context;
    struct session *session;
    unsigned steps;

    int r = read_line(line, &steps);
    if (r < 0)
        return r;
    r = steps ? agent_session_order(context, &session) : agent_session_connect(context, &session);
    if (r == -ENOTCONN) { /* nothing is profiled where there is no agent */
        text_clear(&context->why);
        return 0;
    }
    if (r < 0)
        return r;
    r = ask(context, session, steps, line->said);
    session_unref(session);
    return r;
}
