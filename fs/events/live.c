#include "fs/events/live.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/profile/render.h"
#include "fs/sampler/profile.h"

#include <string.h>

#define SECOND UINT64_C(1000000000)

static void add_head(struct process *process, uint64_t second, enum profile_mode mode,
                     struct text *out)
{
    uint64_t since = realtime_ns() - monotonic_ns();
    int64_t rank = process->rank;

    text_puts(out, "# ");
    text_add_time(out, (time_t)((since + second * SECOND) / SECOND));
    text_printf(out, " pid %d", (int)process->pid);
    if (rank >= 0)
        text_printf(out, " rank %ld", (long)rank);
    text_printf(out, " %s\n", profile_mode_name(mode));
}

/* The first lines of a profile's top. */
static void add_functions(const struct text *top, struct text *out)
{
    const char *at = top->data, *end = top->data + top->size;
    size_t lines = 0;

    for (; at < end && lines <= LIVE_FUNCTIONS_MAX; lines++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        next = next ? next + 1 : end;
        text_add(out, at, (size_t)(next - at));
        at = next;
    }
    for (lines = 0; at < end; lines++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        at = next ? next + 1 : end;
    }
    if (lines)
        text_printf(out, "# %zu more functions\n", lines);
    text_putc(out, '\n');
}

void live_begin(struct process *process)
{
    enum profile_mode mode;

    store_unref(profile_peek(process->profile, &mode));
}

void live_block(struct process *process, uint64_t second, struct text *out)
{
    _cleanup_(text_deinit) struct text top = TEXT_INIT;
    enum profile_mode mode;
    struct store *store = profile_peek(process->profile, &mode);
    const struct store_view view = {.mode = store ? mode : MODE_CPU,
                                    .from = second * SECOND,
                                    .to = (second + 1) * SECOND};
    struct sum sum;

    if (!store)
        return;
    int error = sum_init(&sum, mode);
    if (!error)
        error = store_sum(store, &view, &sum);
    if (!error && sum.ncells)
        error = render_top(&sum, &top);
    sum_deinit(&sum);
    store_unref(store);
    if (error || !top.size)
        return;
    add_head(process, second, mode, out);
    add_functions(&top, out);
}
