#include "fs/format/recorded.h"

#include <string.h>

void recorded_text(struct recording *recording, enum recorded table, struct text *out)
{
    struct ring_reader *ring = recording_ring(recording, table);
    struct recording_state state;
    struct ring_counts counts = {0};
    size_t size = 0;

    recording_state(recording, table, &state);
    if (ring) {
        ring_reader_count(ring, &counts);
        size = ring_reader_size(ring) - RING_HEADER_SIZE;
    }
    text_printf(out, "Record: %s %s %zu rows=%lu lost=%lu", recorded_layouts[table].name,
                state.on ? "on" : "off", size, (unsigned long)counts.kept,
                (unsigned long)counts.lost);
    if (table == RECORDED_TORCH_TRACE && state.rate > 0)
        text_printf(out, " rate=%g", state.rate);
    if (table == RECORDED_LOOP && state.rate > 0)
        text_printf(out, " limit=%gms", state.rate * 1e3);
    if (state.error && !ring)
        text_printf(out, " error=%s",
                    strerrorname_np(state.error) ? strerrorname_np(state.error) : "?");
    text_putc(out, '\n');
    ring_reader_unref(ring);
}

void recorded_text_all(struct recording *recording, struct text *out)
{
    for (enum recorded table = 0; table < RECORDED_TABLES; table++) {
        struct ring_reader *ring = recording_ring(recording, table);
        if (ring)
            recorded_text(recording, table, out);
        ring_reader_unref(ring);
    }
}
