/* speedscope.json: https://www.speedscope.app/file-format-schema.json, one profile a thread. */
#include "fs/profile/render.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>
#include <inttypes.h>

static void add_frames(const struct trie *trie, struct text *out)
{
    for (uint32_t i = 0; i < trie->nframes; i++) {
        struct profile_frame frame = trie_frame_of(trie, i);
        text_puts(out, i ? ",{\"name\":" : "{\"name\":");
        text_add_json(out, frame.func, strlen(frame.func));
        if (*frame.file) {
            text_puts(out, ",\"file\":");
            text_add_json(out, frame.file, strlen(frame.file));
        }
        if (frame.first_line)
            text_printf(out, ",\"line\":%d", frame.first_line);
        text_putc(out, '}');
    }
}

static void add_stack(const struct trie *trie, uint32_t node, struct text *out)
{
    uint32_t path[1 << 11], n = 0;

    for (; node && n < ARRAY_SIZE(path); node = trie->nodes[node].parent)
        path[n++] = trie->nodes[node].frame;
    text_putc(out, '[');
    while (n) {
        n--;
        text_printf(out, n ? "%u," : "%u", path[n]);
    }
    text_putc(out, ']');
}

/* Cells in the order of their threads. */
static int by_thread(const void *a, const void *b)
{
    const struct sum_cell *x = *(const struct sum_cell *const *)a;
    const struct sum_cell *y = *(const struct sum_cell *const *)b;

    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void add_thread(const struct sum *sum, const struct sum_cell *const *cells, size_t n,
                       struct text *out)
{
    const struct sum_thread *thread = &sum->threads[cells[0]->thread];
    const char *unit = profile_mode_unit(sum->mode);
    _cleanup_(text_deinit) struct text name = TEXT_INIT;
    int64_t end = 0;
    bool any = false;

    text_printf(&name, "%d/%d %s", (int)thread->pid, (int)thread->tid, thread->name);
    text_puts(out, "{\"type\":\"sampled\",\"name\":");
    text_add_json(out, name.data, name.size);
    text_printf(out, ",\"unit\":\"%s\",\"startValue\":0,\"samples\":[",
                !strcmp(unit, "ns")      ? "nanoseconds"
                : !strcmp(unit, "bytes") ? "bytes"
                                         : "none");
    for (size_t i = 0; i < n; i++) {
        if (cells[i]->weight <= 0)
            continue;
        if (any)
            text_putc(out, ',');
        any = true;
        add_stack(&sum->trie, cells[i]->node, out);
    }
    text_puts(out, "],\"weights\":[");
    any = false;
    for (size_t i = 0; i < n; i++) {
        if (cells[i]->weight <= 0)
            continue;
        text_printf(out, any ? ",%" PRId64 : "%" PRId64, cells[i]->weight);
        end += cells[i]->weight;
        any = true;
    }
    text_printf(out, "],\"endValue\":%" PRId64 "}", end);
}

/* The thread that weighs most is shown first. */
static size_t heaviest(const struct sum_cell *const *cells, size_t n)
{
    int64_t most = -1;
    size_t number = 0, found = 0;

    for (size_t i = 0, k; i < n; i = k, number++) {
        int64_t weight = 0;
        for (k = i; k < n && cells[k]->thread == cells[i]->thread; k++)
            weight += cells[k]->weight;
        if (weight > most) {
            most = weight;
            found = number;
        }
    }
    return found;
}

static int add_profile(const struct sum *sum, struct text *out)
{
    size_t n = sum->ncells;
    _cleanup_free_ const struct sum_cell **cells = calloc(n + 1, sizeof *cells);

    if (!cells)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        cells[i] = &sum->cells[i];
    if (n)
        array_sort(cells, n, sizeof *cells, by_thread);
    text_puts(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
                   "\"exporter\":\"probefs\",\"name\":");
    text_printf(out, "\"%s\",\"activeProfileIndex\":%zu,\"shared\":{\"frames\":[",
                profile_mode_name(sum->mode), heaviest(cells, n));
    add_frames(&sum->trie, out);
    text_puts(out, "]},\"profiles\":[");
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i; k < n && cells[k]->thread == cells[i]->thread; k++)
            ;
        if (i)
            text_putc(out, ',');
        add_thread(sum, cells + i, k - i, out);
    }
    text_puts(out, "]}\n");
    return 0;
}

int render_speedscope(const struct sum *sum, struct text *out)
{
    struct sum functions;

    int error = sum_functions(sum, &functions);
    if (error)
        return error;
    error = add_profile(&functions, out);
    sum_deinit(&functions);
    return error;
}
