/* flamegraph.html: one page that needs nothing else, with the stacks as JSON in it (flamegraph.html
 * beside this file draws them). */
#include "fs/profile/render.h"

#include "agent/base/cleanup.h"

#include <inttypes.h>
#include <string.h>

static const char page[] =
#include "flamegraph_html.h"
    ;

static void add_frames(const struct trie *trie, struct text *out)
{
    text_puts(out, ",\"frames\":[");
    for (uint32_t i = 0; i < trie->nframes; i++) {
        struct profile_frame frame = trie_frame_of(trie, i);
        text_puts(out, i ? ",[" : "[");
        text_add_json(out, frame.func, strlen(frame.func));
        text_putc(out, ',');
        text_add_json(out, frame.file, strlen(frame.file));
        text_printf(out, ",%d,%d]", frame.first_line, frame.kind);
    }
    text_putc(out, ']');
}

static void add_threads(const struct sum *sum, struct text *out)
{
    text_puts(out, ",\"threads\":[");
    for (size_t i = 0; i < sum->nthreads; i++) {
        const struct sum_thread *thread = &sum->threads[i];
        _cleanup_(text_deinit) struct text name = TEXT_INIT;
        if (i)
            text_putc(out, ',');
        if (thread->tid)
            text_printf(&name, "%d %s", (int)thread->tid, thread->name);
        else
            text_printf(&name, "other threads of %d", (int)thread->pid);
        text_add_json(out, name.data, name.size);
    }
    text_putc(out, ']');
}

static void add_data(const struct sum *sum, struct text *out)
{
    const char *mode = profile_mode_name(sum->mode);

    text_printf(out, "{\"title\":\"%s%s", sum->compares ? "difference of " : "", mode);
    for (size_t i = 0; i < sum->nthreads; i++)
        if (!i || sum->threads[i].pid != sum->threads[i - 1].pid)
            text_printf(out, "%s%d", i ? ", " : " of ", (int)sum->threads[i].pid);
    text_printf(out, "\",\"mode\":\"%s\",\"unit\":\"%s\",\"compares\":%s", mode,
                profile_mode_unit(sum->mode), sum->compares ? "true" : "false");
    add_threads(sum, out);
    add_frames(&sum->trie, out);
    text_puts(out, ",\"nodes\":[0,0");
    for (uint32_t i = 1; i < sum->trie.nnodes; i++)
        text_printf(out, ",%u,%u", sum->trie.nodes[i].parent, sum->trie.nodes[i].frame);
    text_puts(out, "],\"cells\":[");
    for (size_t i = 0; i < sum->ncells; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        text_printf(out, "%s%u,%u,%" PRId64 ",%" PRId64, i ? "," : "", cell->thread, cell->node,
                    cell->weight, cell->before);
    }
    text_puts(out, "]}");
}

int render_flamegraph(const struct sum *sum, struct text *out)
{
    static const char mark[] = "@DATA@";
    const char *at = strstr(page, mark);
    _cleanup_(text_deinit) struct text data = TEXT_INIT;
    struct sum functions;

    int error = sum_functions(sum, &functions);
    if (error)
        return error;
    add_data(&functions, &data);
    sum_deinit(&functions);
    text_add(out, page, (size_t)(at - page));
    for (size_t i = 0; i < data.size; i++) { /* nothing in a name ends the script */
        if (data.data[i] == '<')
            text_puts(out, "\\u003c");
        else
            text_putc(out, data.data[i]);
    }
    text_puts(out, at + strlen(mark));
    return data.error;
}
