/* The files of profile/: each is a sum in one of the formats. Before anything was sampled they are
 * empty, and profile/status says how to begin. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/format/backtrace.h"
#include "fs/process/process.h"
#include "fs/profile/render.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/sampler/profile.h"
#include "fs/tree/all_reading.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/profile_view.h"

#include <errno.h>
#include <string.h>

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

/* ---- top: of the last second, if processor time is sampled, else of this moment ---- */

static bool is_sampled(struct process *process)
{
    struct profile_state state;

    int error = profile_look(process->profile, &state);
    bool sampled = !error && state.running && state.options.modes & SAMPLER_ON_MODES;
    profile_state_deinit(&state);
    return sampled;
}

static bool is_not_sampled(struct process *process) { return !is_sampled(process); }

static int add_last_second(struct process *process, const struct sum_role *role, struct sum *sum)
{
    const struct store_view view = {.mode = MODE_CPU,
                                    .from = (monotonic_ns() / SECOND - 1) * SECOND};
    struct store *store = profile_store(process->profile);
    struct sum part;

    if (!store)
        return 0;
    int error = sum_init(&part, MODE_CPU);
    if (!error)
        error = store_sum(store, &view, &part);
    if (!error)
        error = sum_merge(sum, &part, role);
    sum_deinit(&part);
    store_unref(store);
    return error;
}

/* The stacks of the threads that run now: of each frame, the outermost first, `f` and the function,
 * and the file, each on a line of its own; then `.`. */
static int running_text(struct target *target, struct recording *recording, struct text *why,
                        struct text *out)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int error = held_snapshot(target, recording, &(struct snapshot_options){0}, &snapshot);
    if (error)
        return snapshot_explain(target, 0, error, why);
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        if (thread->state != THREAD_RUNNING)
            continue;
        for (size_t k = thread->nframes; k-- > 0;) {
            const struct frame *frame = &thread->frames[k];
            if (frame->kind == FRAME_PYTHON)
                text_printf(out, "f%s\n%s\n", frame->func, frame->file);
        }
        text_puts(out, ".\n");
    }
    return text_finish(out);
}

int top_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    return running_text(context->target, context->recording, &context->why, out);
}

/* Takes a line of such a text, which is changed; NULL: there is none. */
static char *take_line(char **text)
{
    char *line = *text, *end = line ? strchr(line, '\n') : NULL;

    if (!end)
        return NULL;
    *end = 0;
    *text = end + 1;
    return line;
}

/* Adds threads as if each had had its processor for a second; below a root, or NULL. -EIO: it is no
 * such text, as who reads the process has been taken over. */
static int add_running(struct text *running, const struct profile_frame *root, struct sum *sum)
{
    char *text = running->data, *at;
    uint32_t top = TRIE_ROOT, node, id;
    int error = 0;

    if (root) {
        error = trie_frame(&sum->trie, root, &id);
        if (!error)
            error = trie_child(&sum->trie, TRIE_ROOT, id, &top);
    }
    node = top;
    while (!error && (at = take_line(&text))) {
        if (!strcmp(at, ".")) {
            error = node == top ? 0 : sum_add(sum, 0, node, SECOND, 0, 1);
            node = top;
            continue;
        }
        const char *file = *at == 'f' ? take_line(&text) : NULL;
        if (!file)
            return -EIO;
        const struct profile_frame frame = {PROFILE_PYTHON, at + 1, file, 0, 0};
        error = trie_frame(&sum->trie, &frame, &id);
        if (!error)
            error = trie_child(&sum->trie, node, id, &node);
    }
    return error == -ENOSPC ? 0 : error;
}

int top_render(struct file_context *context, struct text *out)
{
    _cleanup_(text_deinit) struct text running = TEXT_INIT;
    struct sum sum;

    int error = sum_init(&sum, MODE_CPU);
    if (!error && is_sampled(context->process)) {
        error = add_last_second(context->process, &(struct sum_role){0}, &sum);
    } else if (!error) {
        error = snapshot_say(context, context->file, "", 0, &running);
        if (error > 0)
            error = top_say(context, "", 0, &running);
        if (!error)
            error = add_running(&running, NULL, &sum);
    }
    if (!error)
        error = render_top(&sum, out);
    sum_deinit(&sum);
    return error;
}

struct all_top {
    struct sum sum;
    struct text unread;
};

static int take_running(void *arg, struct process *process, struct text *text, const char *why)
{
    struct all_top *all = arg;
    char name[32];

    profile_root(process, name);
    if (!text) {
        text_printf(&all->unread, "# %s was not read: %s\n", name, why);
        return 0;
    }
    int error = add_running(text, &(struct profile_frame){PROFILE_WORD, name, "", 0, 0}, &all->sum);
    if (error == -EIO)
        text_printf(&all->unread, "# %s was not read: what reads it says what no process is\n",
                    name);
    return error == -EIO ? 0 : error;
}

static int add_sampled(struct file_context *context, struct sum *sum)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    char name[32];

    int error = context_processes(context, &list);
    for (size_t i = 0; !error && i < list.n; i++) {
        if (!is_sampled(list.items[i]))
            continue;
        profile_root(list.items[i], name);
        const struct profile_frame root = {PROFILE_WORD, name, "", 0, 0};
        error = add_last_second(list.items[i], &(struct sum_role){.root = &root}, sum);
    }
    return error;
}

int all_top_render(struct file_context *context, struct text *out)
{
    struct all_top all = {.unread = TEXT_INIT};

    int error = sum_init(&all.sum, MODE_CPU);
    if (!error)
        error = all_read(context, is_not_sampled, running_text, take_running, &all);
    if (!error)
        error = add_sampled(context, &all.sum);
    if (!error)
        error = render_top(&all.sum, out);
    if (!error && all.unread.size)
        text_add(out, all.unread.data, all.unread.size);
    text_deinit(&all.unread);
    sum_deinit(&all.sum);
    return error;
}
