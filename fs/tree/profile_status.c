/* profile/status: what is sampled and how, what it costs, and what is missing. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/process/registry.h"
#include "fs/sampler/profile.h"
#include "fs/tree/file.h"
#include "fs/tree/jobs.h"
#include "fs/tree/profile_view.h"

#include <errno.h>
#include <inttypes.h>

static void add_modes(unsigned modes, struct text *out)
{
    bool any = false;

    for (enum profile_mode mode = 0; mode < MODE_MODES; mode++)
        if (modes & SAMPLER_MODE(mode)) {
            text_printf(out, "%s%s", any ? " " : "", profile_mode_name(mode));
            any = true;
        }
}

static void add_count(const char *key, uint64_t n, uint64_t of, struct text *out)
{
    text_printf(out, "%s: %" PRIu64, key, n);
    if (of)
        text_printf(out, " (%.2f %%)", 100.0 * (double)n / (double)of);
    text_putc(out, '\n');
}

/* Nanoseconds, and what part of the time that is. */
static void add_cost(const char *key, uint64_t ns, uint64_t of, struct text *out)
{
    text_printf(out, "%s: %" PRIu64 " ns (%.4f %%)\n", key, ns,
                of ? 100.0 * (double)ns / (double)of : 0.0);
}

static void add_when(const char *key, uint64_t when, struct text *out)
{
    text_printf(out, "%s: ", key);
    text_add_time(out, (time_t)((realtime_ns() - monotonic_ns() + when) / 1000000000u));
    text_putc(out, '\n');
}

static int add_mark(void *arg, const char *name, uint64_t when)
{
    text_printf(arg, "Mark: %s, %.3f s ago\n", name, (double)(monotonic_ns() - when) * 1e-9);
    return 0;
}

/* "Why: bpf: ...", one line each. */
static void add_why(const struct text *why, struct text *out)
{
    for (size_t at = 0; at < why->size;) {
        const char *line = why->data + at;
        size_t size = strcspn(line, "\n");
        text_puts(out, "NotBetter: ");
        text_add_escaped(out, line, size);
        text_putc(out, '\n');
        at += size + 1;
    }
}

static void add_state(const struct profile_state *state, struct text *out)
{
    uint64_t now = monotonic_ns();
    uint64_t end = state->running ? now : state->until ? state->until : now;
    uint64_t lasted = end > state->since ? end - state->since : 0;
    const struct store_stats *stats = &state->stats;

    text_printf(out, "State: %s\nMode: ", state->running ? "running" : "off");
    add_modes(state->options.modes, out);
    text_printf(out, "\nShown: %s\nRate: %u Hz\n", profile_mode_name(state->options.shown),
                state->options.hz);
    if (state->options.tid)
        text_printf(out, "Tid: %d\n", (int)state->options.tid);
    if (state->options.children)
        text_puts(out, "Children: yes\n");
    add_when("Since", state->since, out);
    text_printf(out, "Lasted: %.3f\n", (double)lasted * 1e-9);
    if (state->running && state->until)
        text_printf(out, "Left: %.3f\n",
                    state->until > now ? (double)(state->until - now) * 1e-9 : 0.0);
    text_printf(out, "Source: %s\n", state->source ? state->source : "none");
    add_why(&state->why, out);
    if (state->options.native && !state->figures.native)
        text_puts(out, "Native: no, this source sees Python frames only\n");
    if (state->figures.missing) {
        text_puts(out, "Missing: ");
        add_modes(state->figures.missing, out);
        text_puts(out, ", which this source can't see\n");
    }
    if (state->figures.note[0])
        text_printf(out, "Note: %s\n", state->figures.note);
    text_printf(out, "Samples: %" PRIu64 "\n", stats->samples);
    add_count("Lost", stats->lost, stats->samples + stats->lost, out);
    add_count("Torn", stats->torn, stats->samples, out);
    add_count("NoStack", stats->no_stack, stats->samples, out);
    add_count("Folded", stats->folded, stats->samples, out);
    add_cost("TargetCost", state->figures.target_ns, lasted, out);
    add_cost("DaemonCost", state->figures.daemon_ns, lasted, out);
    text_printf(out, "Stacks: %zu of %u\nFrames: %zu of %u\nThreads: %zu\n", stats->nodes - 1,
                STORE_NODES_MAX, stats->frames, STORE_FRAMES_MAX, stats->threads);
    text_printf(out, "Kept: %.3f\nMemory: %zu\n",
                stats->last > stats->first ? (double)(stats->last - stats->first) * 1e-9 : 0.0,
                stats->bytes);
    if (stats->dropped_slices)
        text_printf(out, "Dropped: %" PRIu64 " s, for want of memory\n", stats->dropped_slices);
}

void profile_add_line(struct process *process, struct text *out)
{
    struct profile_state state;

    if (profile_look(process->profile, &state) == 0 && state.started) {
        text_printf(out, "Profile: %s, ", state.running ? "running" : "off");
        add_modes(state.options.modes, out);
        text_printf(out, ", %u Hz, %s, %" PRIu64 " samples\n", state.options.hz,
                    state.source ? state.source : "none", state.stats.samples);
    }
    profile_state_deinit(&state);
}

static int status_of(struct process *process, struct text *out)
{
    struct profile_state state;

    int error = profile_look(process->profile, &state);
    if (!error && !state.started)
        text_puts(out, "State: never started: echo 'profile cpu' > ctl\n");
    else if (!error)
        add_state(&state, out);
    profile_state_deinit(&state);
    struct store *store = error ? NULL : profile_store(process->profile);
    if (store)
        store_marks(store, add_mark, out);
    store_unref(store);
    return error;
}

/* Below all/, one line a process. */
static int status_of_all(struct file_context *context, struct text *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    size_t before = out->size;

    int error = context_processes(context, &list);
    for (size_t i = 0; !error && i < list.n; i++) {
        struct process *process = list.items[i];
        if (!profile_any(process->profile))
            continue;
        text_printf(out, "pid=%d ", (int)process->pid);
        if (process->rank >= 0)
            text_printf(out, "rank=%lld ", (long long)process->rank);
        profile_add_line(process, out);
    }
    if (!error && out->size == before)
        text_puts(out, "State: never started: echo 'profile cpu' > <pid>/ctl\n");
    return error;
}

int profile_status_render(struct file_context *context, struct text *out)
{
    return context->process ? status_of(context->process, out) : status_of_all(context, out);
}
