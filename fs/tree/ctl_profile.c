/* The verb `profile` of ctl. */
#include "agent/base/cleanup.h"
#include "agent/wire/allocations.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"
#include "fs/sampler/profile.h"
#include "fs/tree/agent_session.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/heap.h"
#include "fs/tree/profile_view.h"

#include <errno.h>

#define OF_ALLOCATIONS (SAMPLER_MODE(MODE_ALLOC) | SAMPLER_MODE(MODE_HEAP))

/* Has allocations sampled: it is the agent that does that, so it is told before. */
static int start_allocations(struct ctl_line *line, const struct profile_request *request)
{
    if (!(request->options.modes & OF_ALLOCATIONS))
        return 0;
    if (request->options.modes & ~OF_ALLOCATIONS) {
        text_puts(&line->context->why,
                  "alloc and heap come from the agent, the other modes from outside: ask for them "
                  "one after the other");
        return -EINVAL;
    }
    return heap_sites_order(line->context, ALLOCATION_MEAN, line->said);
}

/* `inside`: an agent is put in for it. */
static int attach(struct ctl_line *line)
{
    struct session *session;

    int error = agent_session_order(line->context, &session);
    if (!error)
        session_unref(session);
    return error;
}

static int stop(struct ctl_line *line, struct profile *profile)
{
    struct profile_state state;

    int error = profile_look(profile, &state);
    bool samples = !error && state.started && state.running && state.options.modes & OF_ALLOCATIONS;
    profile_state_deinit(&state);
    profile_stop(profile);
    return samples ? heap_sites_order(line->context, 0, line->said) : 0;
}

static int start(struct ctl_line *line, const struct profile_request *request)
{
    struct file_context *context = line->context;

    if (request->options.tid && !proc_has_thread(context->process->pid, request->options.tid)) {
        text_printf(&context->why, "the process has no thread %d", (int)request->options.tid);
        return -ENOENT;
    }
    int error = start_allocations(line, request);
    if (!error && request->options.inside)
        error = attach(line);
    if (!error && !context->target->sampled_by) /* who samples it is this daemon */
        error = snapshot_find(context);
    if (error)
        return error;
    error = profile_start(context->process->profile, context->target, &request->options,
                          request->duration, context->interrupt, &context->why);
    if (error)
        return error;
    registry_watch(context->registry, context->process);
    registry_follow(context->registry);
    if (request->asked != request->options.hz)
        text_printf(line->said,
                    "%u Hz instead of %u: a round rate beats with what programs do at that rate\n",
                    request->options.hz, request->asked);
    return 0;
}

static int explain(struct ctl_line *line, int error)
{
    struct text *why = &line->context->why;

    if (error == -ENODATA)
        text_puts(why, "nothing is sampled yet: write `profile cpu` first");
    else if (error == -ENOSPC)
        text_printf(why, "there are %u marks already: `profile clear` takes them", STORE_MARKS_MAX);
    return error == -ENODATA ? -EINVAL : error;
}

int ctl_profile(struct ctl_line *line)
{
    struct profile *profile = line->context->process->profile;
    const char *text = line->words[0].text + line->words[0].size, *at = text;
    struct profile_request request;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    int error = 0;

    if (line->nwords > 1 && ctl_word_is(&line->words[1], "torch"))
        return ctl_profile_torch(line);
    if (profile_request_read(text, (size_t)(line->text + line->size - text), &request, &at, &why) <
        0)
        return ctl_complain(line, at, why.data ? why.data : "it can't be read");
    switch (request.verb) {
    case PROFILE_STATUS: break;
    case PROFILE_START: error = start(line, &request); break;
    case PROFILE_STOP: error = stop(line, profile); break;
    case PROFILE_CLEAR: error = explain(line, profile_clear(profile)); break;
    case PROFILE_MARK: error = explain(line, profile_mark(profile, request.mark)); break;
    }
    if (error)
        return error;
    if (profile_any(profile))
        profile_add_line(line->context->process, line->said);
    else
        text_puts(line->said, "Profile: never started\n");
    return 0;
}
