#include "fs/format/recorded.h"

#include <inttypes.h>
#include <string.h>

/* always: where there is no ring, too. */
static void add(struct recording *recording, enum recorded table, bool always, struct text *out)
{
    struct recording_state state;
    struct ring_counts counts = {0};
    uint64_t size = 0;

    recording_state(recording, table, &state);
    int r = recording_count(recording, table, &counts, &size);
    if (r == 0 && !always)
        return;
    if (r < 0)
        state.error = -r;
    text_printf(out, "Record: %s %s %" PRIu64 " rows=%lu lost=%lu", recorded_layouts[table].name,
                state.on ? "on" : "off", size, (unsigned long)counts.kept,
                (unsigned long)counts.lost);
    if (table == RECORDED_TORCH_TRACE && state.rate > 0)
        text_printf(out, " rate=%g", state.rate);
    if (table == RECORDED_LOOP && state.rate > 0)
        text_printf(out, " limit=%gms", state.rate * 1e3);
    if (state.error && r <= 0)
        text_printf(out, " error=%s",
                    strerrorname_np(state.error) ? strerrorname_np(state.error) : "?");
    text_putc(out, '\n');
}

void recorded_text(struct recording *recording, enum recorded table, struct text *out)
{
    add(recording, table, true, out);
}

void recorded_text_all(struct recording *recording, struct text *out)
{
    for (enum recorded table = 0; table < RECORDED_TABLES; table++)
        add(recording, table, false, out);
}
