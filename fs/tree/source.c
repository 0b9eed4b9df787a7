/* threads/<tid>/frames/<depth>/source: the lines around the one that the frame is at.
 *
 *   forward (/w/model.py:88)
 *      87          for layer in self.layers:
 *      88  ->          x = layer(x)
 *                           ^^^^^^^^
 *      89          return x
 *
 * Below the current line, carets mark what of it is executed, unless it is all of it. Where there
 * are none to show, the line below the first says why. */
#include "agent/base/cleanup.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/object.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/source.h"
#include "fs/tree/source_reader.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_BEFORE 5
#define LINES_AFTER 5

struct frame_source {
    const struct offsets *offsets;
    unsigned depth;
    char *func, *file; /* as shown */
    char path[PATH_MAX];
    struct position position;
    bool jit;       /* raw_frame.jit */
    int first_line; /* of the function */
};

static int find_source(void *arg, struct view *view, const struct raw_stack *stack)
{
    struct frame_source *source = arg;
    uint64_t name;

    free(source->func);
    free(source->file);
    source->func = source->file = NULL;
    if (source->depth >= stack->nframes)
        return -ENOENT;
    const struct raw_frame *frame = &stack->frames[source->depth];
    if (!frame->info || frame->info->state != CODE_LOADED)
        return -EIO;
    source->position = linetable_position(&frame->info->lines, frame->lasti);
    source->jit = frame->jit;
    source->first_line = frame->info->lines.first_line;
    source->func = strdup(frame->info->name);
    source->file = strdup(frame->info->file);
    if (!source->func || !source->file)
        return -ENOMEM;
    if (!object_field(view, frame->code, source->offsets->code_filename, &name) ||
        str_file_name(view, source->offsets, name, source->path, sizeof source->path) < 0)
        source->path[0] = 0;
    return 0;
}

void source_add_text(struct text *out, const char *line, size_t size)
{
    if (size && line[size - 1] == '\r')
        size--;
    while (size) {
        const char *tab = memchr(line, '\t', size);
        size_t n = tab ? (size_t)(tab - line) : size;
        text_add_escaped(out, line, n);
        if (tab)
            text_putc(out, '\t');
        line += n + (tab != NULL);
        size -= n + (tab != NULL);
    }
}

static bool is_utf8(const char *s, size_t size)
{
    for (size_t n; size; s += n, size -= n)
        if (!(n = utf8_length((const unsigned char *)s, size)))
            return false;
    return true;
}

/* Columns that the text takes as source_add_text() shows it, with its tabs as they are. */
static void add_blank(struct text *out, const char *line, size_t size)
{
    _cleanup_(text_deinit) struct text shown = TEXT_INIT;

    source_add_text(&shown, line, size);
    for (size_t i = 0; i < shown.size; i++)
        if ((shown.data[i] & 0xc0) != 0x80)
            text_putc(out, shown.data[i] == '\t' ? '\t' : ' ');
}

/* Carets below the line, from one byte of it up to another. Columns count bytes of UTF-8: they say
 * nothing of a file that isn't. */
static void add_carets(struct text *out, const char *line, size_t size,
                       const struct position *position)
{
    size_t blank = 0, from = (size_t)position->col;
    size_t to = position->end_line > position->line ? size : (size_t)position->end_col;
    _cleanup_(text_deinit) struct text marked = TEXT_INIT;

    while (size && strchr(" \t\f\r", line[size - 1]))
        size--;
    while (blank < size && strchr(" \t\f", line[blank]))
        blank++;
    if (to > size)
        to = size;
    if (position->col < 0 || position->end_col < 0 || from >= to || !is_utf8(line, size) ||
        (from <= blank && to == size))
        return;
    text_printf(out, "%12s", "");
    add_blank(out, line, from);
    source_add_text(&marked, line + from, to - from);
    for (size_t i = 0; i < marked.size; i++)
        if ((marked.data[i] & 0xc0) != 0x80)
            text_putc(out, '^');
    text_putc(out, '\n');
}

static void add_lines(struct text *out, const struct text *lines, int first,
                      const struct source_place *place)
{
    const char *at = lines->data, *end = at + lines->size, *mark = place->near ? "~>" : "->";

    for (int number = first; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = newline ? (size_t)(newline - at) : (size_t)(end - at);
        text_printf(out, "%6d  %s  ", number, number == place->line ? mark : "  ");
        source_add_text(out, at, size);
        text_puts(out, size >= SOURCE_LINE_BYTES ? "...\n" : "\n");
        if (number == place->line && place->position)
            add_carets(out, at, size, place->position);
        at += size + 1;
    }
}

static void add_reason(struct text *out, const struct source_place *place, int error, int last)
{
    text_puts(out, "(no source: ");
    if (error == 0)
        text_printf(out, "%s has no line %d", place->file, last);
    else if (error == -ETIMEDOUT)
        text_printf(out, "%s: its file system did not answer in time", place->file);
    else if (error == -EINVAL)
        text_printf(out, "%s is not a regular file", place->file);
    else if (error == -EXDEV)
        text_printf(out, "%s leads out of the working directory", place->file);
    else if (error == -EDQUOT)
        text_printf(out, "%s: too many files are being read already, or hang: try again",
                    place->file);
    else if (error == -ENOSYS)
        text_puts(out, "this kernel lacks openat2(2)");
    else
        text_printf(out, "%s: %s", place->file, strerror(-error));
    text_puts(out, ")\n");
}

bool source_is_pseudo(const char *path)
{
    size_t n = strlen(path);
    return n >= 2 && path[0] == '<' && path[n - 1] == '>';
}

/* Opens where the process finds its files, and reads. */
static int read_there(const struct file_context *context, struct source_request *request,
                      struct text *out, int *n)
{
    _cleanup_close_ int root = -1;
    _cleanup_close_ int cwd = -1;
    char link[64];
    const struct credentials *opener = context->principals->opener;

    const struct core *core = context->target->core; /* whose working directory isn't known */

    snprintf(link, sizeof link, "/proc/%d/root", context->target->pid);
    root = open(core ? core->root : link, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = root < 0 ? -errno : 0;
    snprintf(link, sizeof link, "/proc/%d/cwd", context->target->pid);
    cwd = open(core ? core->root : link, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cwd < 0)
        error = -errno;
    if (!error && !target_alive(context->target)) /* the two may be another process's */
        error = -ESRCH;
    request->root = root;
    request->cwd = cwd;
    request->as = access_is_daemon(context->access, &opener->who) ? NULL : opener;
    return error ? error : source_read(request, out, n);
}

int source_read_lines(const struct file_context *context, const char *path, int first, int last,
                      struct text *out, int *n)
{
    struct source_request request = {.path = path, .first = first, .last = last};

    return read_there(context, &request, out, n);
}

int source_read_whole(const struct file_context *context, const char *path, struct text *out)
{
    struct source_request request = {.path = path, .whole = true};
    int n;

    return read_there(context, &request, out, &n);
}

static void add_source(const struct file_context *context, const struct source_place *place,
                       struct text *out)
{
    struct text lines = TEXT_INIT;
    int n = 0, at = place->line > 0 ? place->line : place->first_line;
    int first = at > LINES_BEFORE ? at - LINES_BEFORE : 1;
    int last = at < INT_MAX - LINES_AFTER ? at + LINES_AFTER : INT_MAX;

    if (!place->path[0]) {
        text_puts(out, "(no source: the file's name is unreadable)\n");
        return;
    }
    if (source_is_pseudo(place->path)) {
        text_printf(out, "(no source: %s is no file)\n", place->file);
        return;
    }
    int error = source_read_lines(context, place->path, first, last, &lines, &n);
    if (error < 0 || first + n <= at)
        add_reason(out, place, error, at);
    else
        add_lines(out, &lines, first, place);
    text_deinit(&lines);
}

void source_add(const struct file_context *context, const struct source_place *place,
                struct text *out)
{
    if (place->line > 0)
        text_printf(out, "%s (%s:%s%d)\n", place->func, place->file, place->near ? "~" : "",
                    place->line);
    else
        text_printf(out, "%s (%s)\n", place->func, place->file);
    add_source(context, place, out);
}

/* Finds the source of the context's frame in its process, which is read here. */
static int find(struct file_context *context, struct frame_source *source)
{
    source->offsets = &context->target->runtime.offsets;
    source->depth = context->depth;
    int r = snapshot_visit(context->target, context->tid, find_source, source);
    if (r == -ENOENT)
        text_printf(&context->why, "the thread has no Python frame %u", context->depth);
    else if (r == -EIO)
        text_printf(&context->why, "the code object of frame %u is unreadable", context->depth);
    return r < 0 ? snapshot_error(context, r) : 0;
}

/* ---- as a text, for who is told ---- */

/* The numbers, and then each on a line of its own, what is called how and where, and the path as
 * source_path_say() has it. */
int source_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    struct frame_source source = {0};
    const struct position *at = &source.position;

    int r = find(context, &source);
    if (r == 0) {
        text_printf(out, "%d %d %d %d %d %d\n%s\n%s\n", at->line, at->end_line, at->col,
                    at->end_col, source.first_line, source.jit, source.func, source.file);
        source_path_say(source.path, out);
    }
    free(source.func);
    free(source.file);
    return r;
}

void source_path_say(const char *path, struct text *out)
{
    for (; *path; path++)
        text_printf(out, "%02x", (unsigned char)*path);
    text_putc(out, '\n');
}

int source_path_read(const char *text, char *path, size_t cap)
{
    for (; *text && *text != '\n'; text += 2, path++, cap--) {
        /* no sscanf(), which looks for the end of all that was told each time */
        if (cap < 2 || !isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
            return -EIO;
        *path = (char)strtoul((char[]){text[0], text[1], 0}, NULL, 16);
        if (!*path)
            return -EIO;
    }
    *path = 0;
    return *text && !text[1] ? 0 : -EIO;
}

/* Takes a line of a text, without its end; NULL: there is none. */
static char *take_line(const char **text)
{
    const char *end = strchr(*text, '\n');
    char *line = end ? strndup(*text, (size_t)(end - *text)) : NULL;

    if (line)
        *text = end + 1;
    return line;
}

static int read_told(const char *text, struct frame_source *out)
{
    struct position *at = &out->position;
    int jit, used = 0;

    if (sscanf(text, "%d %d %d %d %d %d%n", &at->line, &at->end_line, &at->col, &at->end_col,
               &out->first_line, &jit, &used) != 6 ||
        text[used] != '\n')
        return -EIO;
    text += used + 1;
    out->jit = jit;
    out->func = take_line(&text);
    out->file = out->func ? take_line(&text) : NULL;
    return out->file ? source_path_read(text, out->path, sizeof out->path) : -EIO;
}

/* ---- */

/* Where the context's frame is, wherever its process is read. */
static int ask(struct file_context *context, struct frame_source *source)
{
    _cleanup_(text_deinit) struct text told = TEXT_INIT;

    int r = snapshot_say(context, context->file, "", 0, &told);
    if (r == 0)
        r = told.size ? text_finish(&told) : -EIO;
    else if (r > 0)
        return find(context, source);
    return r == 0 ? read_told(told.data, source) : r;
}

int source_render(struct file_context *context, struct text *out)
{
    struct frame_source source = {0};

    int r = ask(context, &source);
    if (r == 0) {
        const struct source_place found = {
            .func = source.func,
            .file = source.file,
            .path = source.path,
            .line = source.position.line,
            .first_line = source.first_line,
            .position = source.jit ? NULL : &source.position,
            .near = source.jit,
        };
        source_add(context, &found, out);
    }
    free(source.func);
    free(source.file);
    return r;
}
