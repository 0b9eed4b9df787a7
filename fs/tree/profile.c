/* The files of profile/: each is a sum in one of the formats. Before anything was sampled they are
 * empty, and profile/status says how to begin. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/process/process.h"
#include "fs/profile/render.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/sampler/profile.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/profile_view.h"

#include <errno.h>

#define SECOND 1000000000

static int render(struct file_context *context, sum_render *format, bool moments, struct text *out)
{
    struct sum sum;

    int error = profile_view(context, moments, &sum);
    if (error)
        return error;
    if (sum.ncells)
        error = format(&sum, out);
    sum_deinit(&sum);
    return error;
}

/* The stacks of the threads that run now, as if each had had its processor for a second. */
static int look_once(struct file_context *context, struct sum *sum)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int error = held_snapshot(context->target, context->recording, &(struct snapshot_options){0},
                              &snapshot);
    if (error)
        return snapshot_error(context, error);
    for (size_t i = 0; !error && i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        uint32_t node = TRIE_ROOT, id;
        if (thread->state != THREAD_RUNNING)
            continue;
        for (size_t k = thread->nframes; !error && k-- > 0;) {
            const struct frame *frame = &thread->frames[k];
            struct profile_frame named = {PROFILE_PYTHON, frame->func, frame->file, 0, frame->line};
            if (frame->kind != FRAME_PYTHON)
                continue;
            error = trie_frame(&sum->trie, &named, &id);
            if (!error)
                error = trie_child(&sum->trie, node, id, &node);
        }
        if (!error && node)
            error = sum_add(sum, 0, node, SECOND, 0, 1);
    }
    return error;
}

int profile_folded_render(struct file_context *context, struct text *out)
{
    return render(context, render_folded, false, out);
}

int profile_top_render(struct file_context *context, struct text *out)
{
    return render(context, render_top, false, out);
}

int profile_lines_render(struct file_context *context, struct text *out)
{
    return render(context, render_lines, false, out);
}

int profile_flamegraph_render(struct file_context *context, struct text *out)
{
    return render(context, render_flamegraph, false, out);
}

int profile_speedscope_render(struct file_context *context, struct text *out)
{
    return render(context, render_speedscope, false, out);
}

int profile_gecko_render(struct file_context *context, struct text *out)
{
    return render(context, render_gecko, true, out);
}

int profile_pprof_render(struct file_context *context, struct text *out)
{
    return render(context, render_pprof, false, out);
}

/* Of the last second, if its processor time is sampled; else of this moment: the functions that its
 * threads run. */
int top_render(struct file_context *context, struct text *out)
{
    struct store *store = profile_store(context->process->profile);
    struct profile_state state;
    struct sum sum;

    int error = profile_look(context->process->profile, &state);
    bool sampled = !error && state.running && state.options.modes & SAMPLER_ON_MODES;
    profile_state_deinit(&state);
    if (!error)
        error = sum_init(&sum, MODE_CPU);
    if (!error && store && sampled) {
        const struct store_view view = {.mode = MODE_CPU,
                                        .from = (monotonic_ns() / SECOND - 1) * SECOND};
        error = store_sum(store, &view, &sum);
    } else if (!error) {
        error = look_once(context, &sum);
    }
    store_unref(store);
    if (!error)
        error = render_top(&sum, out);
    sum_deinit(&sum);
    return error;
}
