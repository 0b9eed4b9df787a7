/* sources/<file>: the text of a file that code of the process comes from (remote/moment/sources.h).
 *
 * It is what lies on the disk below the process's root, as who reads it may; where there is nothing
 * to be had, what the process's linecache keeps. A name is the path, with ! for each / in it; what
 * else can't stand in a name, and ! and \ themselves, are escaped as in Python (\x21, \x5c, \n). */
#include "fs/tree/sources.h"

#include "agent/base/cleanup.h"
#include "fs/remote/moment/sources.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/source.h"
#include "fs/tree/source_reader.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* The name of a file. False: it can't have one. */
static bool file_name(const char *path, char name[NAME_MAX + 1])
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    bool dots = !strcmp(path, ".") || !strcmp(path, "..");

    while (*path) {
        size_t n = strcspn(path, "/!\\");
        if (dots) {
            text_puts(&text, "\\x2e");
            path++, n--;
            dots = false;
        }
        text_add_escaped(&text, path, n);
        path += n;
        if (*path == '/')
            text_putc(&text, '!');
        else if (*path)
            text_printf(&text, "\\x%02x", (unsigned char)*path);
        path += *path != 0;
    }
    if (text_finish(&text) < 0 || !text.size || text.size > NAME_MAX)
        return false;
    memcpy(name, text.data, text.size + 1);
    return true;
}

static bool has_name(const char *path, const char *name)
{
    char its[NAME_MAX + 1];

    return file_name(path, its) && !strcmp(its, name);
}

static int list(struct file_context *context, struct numbers *out)
{
    _cleanup_(source_list_deinit) struct source_list found = {0};
    char name[NAME_MAX + 1];

    int r = sources_list(context->target, &found);
    for (size_t i = 0; r == 0 && i < found.n; i++)
        if (file_name(found.paths[i], name))
            r = numbers_add_word(out, name, NULL);
    numbers_sort_words(out);
    return r == -EOPNOTSUPP ? 0 : r;
}

static int find(struct file_context *context, unsigned value)
{
    char path[SOURCE_PATH_MAX + 1];

    int r = sources_find(context->target, has_name, context->word, path);
    return r == -EOPNOTSUPP ? -ENOENT : r;
}

const struct naming source_names = {WORD_MODULE, list, find};

/* ---- content ---- */

/* The lines of a file, as they are but for what could drive a terminal. */
static int add_from_disk(const struct file_context *context, const char *path, struct text *out)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;

    int r = source_read_whole(context, path, &text);
    if (r < 0)
        return r;
    for (const char *at = text.data, *end = at + text.size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = newline ? (size_t)(newline - at) : (size_t)(end - at);
        source_add_text(out, at, size);
        if (newline)
            text_putc(out, '\n');
        at += size + (newline != NULL);
    }
    return 0;
}

/* Why there is no text. */
static int explain(struct file_context *context, int error)
{
    struct text *why = &context->why;

    text_add_escaped(why, context->word, strlen(context->word));
    if (error == 0)
        text_puts(why, " is no file");
    else if (error == -EINVAL)
        text_puts(why, " is not a regular file");
    else if (error == -ETIMEDOUT)
        text_puts(why, ": its file system did not answer in time");
    else if (error == -EFBIG)
        text_printf(why, " has more than %u MiB", SOURCE_TEXT_BYTES >> 20);
    else
        text_printf(why, ": %s", strerror(-error));
    text_puts(why, ", and the process's linecache has no text of it");
    return error == 0 || error == -EINVAL ? -ENOENT : error;
}

#define KEPT "kept" /* what is asked for: the text that is kept of it, else its path */

/* Finds the path of the file in its process, which is read here. */
static int find_path(struct file_context *context, char path[SOURCE_PATH_MAX + 1])
{
    int r = sources_find(context->target, has_name, context->word, path);

    if (r == -ENOENT)
        text_printf(&context->why, "no code of the process comes from %s", context->word);
    return r < 0 ? snapshot_error(context, r) : 0;
}

int sources_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    char path[SOURCE_PATH_MAX + 1];

    int r = find_path(context, path);
    if (r == 0 && size)
        return sources_kept_text(context->target, path, out);
    if (r == 0)
        source_path_say(path, out);
    return r;
}

/* As find_path(), wherever the process is read. */
static int ask_path(struct file_context *context, char path[SOURCE_PATH_MAX + 1])
{
    _cleanup_(text_deinit) struct text told = TEXT_INIT;

    int r = snapshot_say(context, context->file, "", 0, &told);
    if (r == 0)
        r = told.size ? text_finish(&told) : -EIO;
    else if (r > 0)
        return find_path(context, path);
    return r == 0 ? source_path_read(told.data, path, SOURCE_PATH_MAX + 1) : r;
}

static int ask_kept_text(struct file_context *context, const char *path, struct text *out)
{
    int r = snapshot_say(context, context->file, KEPT, sizeof KEPT - 1, out);

    return r > 0 ? sources_kept_text(context->target, path, out) : r;
}

int sources_render(struct file_context *context, struct text *out)
{
    char path[SOURCE_PATH_MAX + 1];

    int r = ask_path(context, path);
    if (r < 0)
        return r;
    int error = source_is_pseudo(path) ? 0 : add_from_disk(context, path, out);
    if (error == 0 && !source_is_pseudo(path))
        return 0;
    r = ask_kept_text(context, path, out);
    if (r == -ENOENT)
        return explain(context, error);
    return r < 0 && !context->why.size ? snapshot_error(context, r) : r;
}
