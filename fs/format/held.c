#include "fs/format/held.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/link/attach.h"
#include "fs/remote/moment/snapshot.h"

static void add_why(const struct held *held, struct text *out)
{
    if (held->id) {
        text_printf(out, "%s %u", held->why == STOP_WATCH ? "watchpoint" : "breakpoint", held->id);
        return;
    }
    switch (held->why) {
    case STOP_STEP: text_puts(out, "a step"); break;
    case STOP_RETURN: text_puts(out, "the return of its function"); break;
    case STOP_PAUSE: text_puts(out, "pause"); break;
    case STOP_CRASH: text_puts(out, "an exception that nobody caught"); break;
    default: break;
    }
}

static void add_where(struct target *target, const struct held *held, struct text *out)
{
    if (held->why == STOP_CRASH) { /* its stack is gone, but for what the exception keeps */
        text_puts(out, " (see crash/)");
        return;
    }
    const struct snapshot_options options = {.tid = held->tid};
    struct snapshot *snapshot;
    size_t at = 0;

    if (snapshot_take(target, &options, &snapshot) < 0)
        return;
    const struct thread *thread = snapshot->nthreads ? &snapshot->threads[0] : NULL;
    while (thread && at < thread->nframes && thread->frames[at].kind != FRAME_PYTHON)
        at++;
    if (thread && at < thread->nframes)
        text_printf(out, " at %s:%d (%s)", thread->frames[at].file, held->line,
                    thread->frames[at].func);
    snapshot_free(snapshot);
}

void held_text(struct target *target, const struct held *held, struct text *out)
{
    double now = realtime_s(), since = (double)held->since_ns * 1e-9,
           until = (double)held->until_ns * 1e-9;

    add_why(held, out);
    add_where(target, held, out);
    text_printf(out, " for %.1f s, stop %u, goes on in %.0f s", now > since ? now - since : 0.,
                held->number, until > now ? until - now + 0.5 : 0.); /* 0 s only at its end */
}

/* Why it isn't there yet. */
static const char *does_now(const struct thread *thread)
{
    return thread->state == THREAD_IDLE && *thread->wait ? thread->wait
                                                         : thread_state_name(thread->state);
}

static void add_pausing(struct target *target, const struct held_list *list, struct text *out)
{
    const struct snapshot_options options = {0};
    struct snapshot *snapshot;
    const char *before = "Pausing: ";

    if (!list->npausing || snapshot_take(target, &options, &snapshot) < 0)
        return;
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        if (!thread->tstate || held_find(list, thread->tid) ||
            !held_is_pausing(list, thread->thread_id))
            continue;
        text_printf(out, "%s%d (%s)", before, (int)thread->tid, does_now(thread));
        before = ", ";
    }
    text_puts(out, *before == ',' ? "\n" : "");
    snapshot_free(snapshot);
}

/* False: no agent runs there. */
static bool read_all(struct target *target, struct held_list *out)
{
    struct attach_status status;

    return agent_status(target, &status) == 0 && status.running &&
           held_list_read(target, NULL, out) == 0;
}

void held_text_all(struct target *target, struct text *out)
{
    _cleanup_(held_list_deinit) struct held_list list = {0};

    if (!read_all(target, &list))
        return;
    text_puts(out, "Stopped:");
    for (size_t i = 0; i < list.n; i++)
        text_printf(out, " %d", (int)list.items[i].tid);
    text_puts(out, list.n ? "\n" : " none\n");
    add_pausing(target, &list, out);
}

void held_text_count(struct target *target, struct text *out)
{
    _cleanup_(held_list_deinit) struct held_list list = {0};

    if (!read_all(target, &list))
        return;
    if (list.n)
        text_printf(out, "Stopped: %zu thread%s\n", list.n, list.n == 1 ? "" : "s");
    else
        text_puts(out, "Stopped: none\n");
}
