/* profile/source/<file>: the file's text, with self and total in front of each line that was hit.
 */
#include "agent/base/cleanup.h"
#include "fs/profile/render.h"
#include "fs/tree/profile_view.h"
#include "fs/tree/source.h"
#include "fs/tree/source_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LINES_MAX (16 * SOURCE_LINES_MAX)

struct heat {
    int64_t self, total;
};

struct finding {
    const char *name;
    char path[TRIE_NAME_MAX + 1];
};

static int find_path(void *arg, const char *name, const char *path)
{
    struct finding *finding = arg;

    if (strcmp(name, finding->name))
        return 0;
    snprintf(finding->path, sizeof finding->path, "%s", path);
    return 1;
}

static void add_heat(enum profile_mode mode, const struct heat *heat, struct text *out)
{
    _cleanup_(text_deinit) struct text self = TEXT_INIT, total = TEXT_INIT;

    if (!heat->self && !heat->total) {
        text_printf(out, "%11s %11s", ".", ".");
        return;
    }
    render_weight(mode, heat->self, &self);
    render_weight(mode, heat->total, &total);
    text_printf(out, "%11s %11s", self.data ? self.data : "", total.data ? total.data : "");
}

static void add_lines(enum profile_mode mode, const struct text *lines, int first,
                      const struct heat *heats, int n, struct text *out)
{
    const char *at = lines->data, *end = at + lines->size;

    for (int number = first; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = newline ? (size_t)(newline - at) : (size_t)(end - at);
        add_heat(mode, number <= n ? &heats[number] : &(struct heat){0}, out);
        text_printf(out, " %6d  ", number);
        source_add_text(out, at, size);
        text_putc(out, '\n');
        at += size + 1;
    }
}

/* What was hit, where the text can't be had. */
static void add_hits(enum profile_mode mode, const char *path, int error, const struct heat *heats,
                     int n, struct text *out)
{
    text_printf(out, "(no source: %s: %s)\n", path,
                error == -ESRCH ? "the process has ended" : strerror(-error));
    for (int number = 1; number <= n; number++)
        if (heats[number].self || heats[number].total) {
            add_heat(mode, &heats[number], out);
            text_printf(out, " %6d\n", number);
        }
}

static int add_file(struct file_context *context, const char *path, const struct sum *sum,
                    struct text *out)
{
    _cleanup_free_ struct place_sum *places = NULL;
    _cleanup_free_ struct heat *heats = NULL;
    size_t nplaces = 0;
    int last = 0;

    int error = sum_lines(sum, &places, &nplaces);
    if (error)
        return error;
    for (int fill = 0; fill < 2; fill++) {
        for (size_t i = 0; i < nplaces; i++) {
            const struct profile_frame *frame = &places[i].frame;
            if (frame->kind != PROFILE_PYTHON || strcmp(frame->file, path) ||
                frame->line > LINES_MAX)
                continue;
            if (fill)
                heats[frame->line] = (struct heat){places[i].self, places[i].total};
            else if (frame->line > last)
                last = frame->line;
        }
        if (!fill && !(heats = calloc((size_t)last + 1, sizeof *heats)))
            return -ENOMEM;
    }
    for (int first = 1; first <= LINES_MAX; first += SOURCE_LINES_MAX) {
        _cleanup_(text_deinit) struct text lines = TEXT_INIT;
        int n = 0;
        error = context->target ? source_read_lines(context, path, first,
                                                    first + SOURCE_LINES_MAX - 1, &lines, &n)
                                : -ESRCH;
        if (error && first == 1)
            add_hits(sum->mode, path, error, heats, last, out);
        if (error || !n)
            break;
        add_lines(sum->mode, &lines, first, heats, last, out);
        if (n < SOURCE_LINES_MAX)
            break;
    }
    return 0;
}

int profile_source_render(struct file_context *context, struct text *out)
{
    struct finding finding = {.name = context->part};
    struct sum sum;

    int error = profile_each_source(context, find_path, &finding);
    if (error <= 0)
        return error ? error : -ENOENT;
    error = profile_view(context, false, &sum);
    if (error)
        return error;
    error = add_file(context, finding.path, &sum, out);
    sum_deinit(&sum);
    return error;
}
