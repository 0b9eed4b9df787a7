/* eval, threads/<tid>/eval and threads/<tid>/frames/<depth>/eval: Python that runs in the
 * target, on its agent's thread.
 *
 * Complete statements run as they arrive; the agent says how much of the text that was. */
#include "fs/process/jobs.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/eval_head.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <string.h>

static bool in_crash(const struct file_context *context)
{
    return strstr(context->file, "/crash/") != NULL;
}

/* Only an agent that is there already can hold the process at an exception. */
static int connect_to(struct file_context *context, struct session **out)
{
    if (!in_crash(context))
        return context->tid ? agent_session_order(context, out)
                            : agent_session_attach(context, ATTACH_ANY, out);
    int r = agent_session_connect(context, out);
    if (r != -ENOTCONN)
        return r;
    text_clear(&context->why);
    text_puts(&context->why, "no exception holds the process: that takes `on-crash stop`, written "
                             "to ctl before it is raised");
    return -ENOENT;
}

/* What the request says besides its text. */
static int fill_request(struct file_context *context, const struct input *input,
                        const struct eval_head *head, struct proto_eval *request)
{
    bool in_frame = strstr(context->file, "<depth>") != NULL;

    request->interp = atomic_load(&context->process->interp);
    request->depth = context->depth;
    request->before = input->lines < INT32_MAX ? (uint32_t)input->lines : 0;
    request->flags = (input->last ? EVAL_LAST : 0) | (head->as_json ? EVAL_AS_JSON : 0);
    if (in_crash(context))
        request->flags |= EVAL_IN_CRASH;
    if (context->tid) {
        request->flags |= in_frame ? EVAL_IN_FRAME : EVAL_ON_THREAD;
        int r = snapshot_find_thread(context, context->tid, &request->thread, &request->interp);
        if (r == -EINVAL)
            text_puts(&context->why, ": there is nothing to evaluate in");
        if (r < 0)
            return r;
    }
    request->gil_interval = agent_session_gil_interval(context, request->interp);
    return 0;
}

#define END_OF_TEXT '\4' /* in a line of its own, as on a terminal */

/* The line of an end of text: where it begins; *after: behind it. NULL: there is none. */
static const char *find_end(const struct input *input, const char **after)
{
    const char *end = input->text + input->size, *at = input->text;

    for (; (at = memchr(at, END_OF_TEXT, (size_t)(end - at))); at++) {
        bool begins = at == input->text || at[-1] == '\n';
        if (begins && (at + 1 == end || at[1] == '\n')) {
            *after = at + 1 == end ? end : at + 2;
            return at;
        }
    }
    return NULL;
}

static int run_code(struct file_context *context, const struct input *input,
                    const struct eval_head *head, struct text *said, struct outcome *outcome)
{
    struct session_eval eval = {
        .text = input->text,
        .size = input->size,
    };
    struct proto_done done = {0};
    struct session *session;

    int r = fill_request(context, input, head, &eval.request);
    if (r < 0)
        return r;
    r = connect_to(context, &session);
    if (r < 0)
        return r;
    eval.gil_deadline_ns = agent_session_patience(context, eval.request.interp);
    r = session_eval(session, &eval, context->interrupt, said, &done);
    session_unref(session);
    if (done.flags & DONE_CUT) {
        if (said->size && said->data[said->size - 1] != '\n')
            text_putc(said, '\n');
        text_puts(said, "[cut: one reply holds at most 16 MiB]\n");
    }
    outcome->consumed = done.consumed < input->size ? done.consumed : input->size;
    return r < 0 ? agent_session_explain(context, r, &done, "the code will not run") : 0;
}

/* Where ends of texts are in it, what is before one is whole. */
int eval_run_behind(struct file_context *context, const struct input *input,
                    const struct eval_head *head, struct text *said, struct outcome *outcome)
{
    struct input rest = *input;
    const char *end, *after;
    size_t done = 0;
    int r = 0;

    while (r == 0 && (end = find_end(&rest, &after))) {
        struct input part = rest;
        part.size = (size_t)(end - rest.text);
        part.last = true;
        if (part.size)
            r = run_code(context, &part, head, said, outcome);
        done += (size_t)(after - rest.text);
        rest.size -= (size_t)(after - rest.text);
        rest.text = after;
        rest.before = 0;
    }
    outcome->consumed = 0;
    if (r == 0 && rest.size)
        r = run_code(context, &rest, head, said, outcome);
    outcome->consumed += done;
    return r;
}

/* 1: the process is one of these ranks itself, or they aren't said; 0: it isn't. */
static int is_for(const struct eval_head *head, const struct file_context *context)
{
    int64_t rank;

    if (!head->has_ranks)
        return 1;
    int r = job_own_rank(context->registry, context->process, &rank);
    return r < 0 ? r : ranges_have(&head->ranges, rank);
}

int eval_run(struct file_context *context, const struct input *input, struct text *said,
             struct outcome *outcome)
{
    struct eval_head head = {0};

    int r = eval_head_read(context, input, &head);
    if (r < 0)
        return r;
    outcome->stays = head.stays;
    if (r > 0 || head.size == input->size)
        return 0;
    r = is_for(&head, context);
    if (r <= 0) {
        outcome->consumed = r < 0 ? outcome->consumed : input->size;
        return r;
    }
    struct input code = *input;
    code.text += head.size;
    code.size -= head.size;
    code.before = input->before > head.size ? input->before - head.size : 0;
    r = eval_run_behind(context, &code, &head, said, outcome);
    outcome->consumed += head.size;
    return r;
}
