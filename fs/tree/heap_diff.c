/* heap/diff/FROM..TO: by how much each type's objects have become more, or less, from one census
 * that was kept to another, or to now: `+COUNT +BYTES TYPE`, what grew most first. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/remote/heap/marks.h"
#include "fs/tree/from_snapshot.h"
#include "fs/tree/heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BETWEEN ".."

static void cleanup_mark(struct mark **mark) { mark_unref(*mark); }

struct pair {
    char from[MARK_NAME_MAX], to[MARK_NAME_MAX];
};

static bool parse(const char *word, struct pair *out)
{
    const char *between = strstr(word, BETWEEN);
    size_t size = between ? (size_t)(between - word) : 0;

    if (!between || !mark_is_name(word, size))
        return false;
    *out = (struct pair){0};
    memcpy(out->from, word, size);
    word = between + strlen(BETWEEN);
    if (!mark_is_name(word, strlen(word)) && strcmp(word, MARK_NOW) != 0)
        return false;
    memcpy(out->to, word, strlen(word));
    return true;
}

static bool exists(struct target *target, const char *name)
{
    _cleanup_(cleanup_mark) struct mark *mark = marks_get(target, name);

    return mark;
}

static int find(struct file_context *context, unsigned value)
{
    struct pair pair;

    return parse(context->word, &pair) && exists(context->target, pair.from) &&
                   (!strcmp(pair.to, MARK_NOW) || exists(context->target, pair.to))
               ? 0
               : -ENOENT;
}

static int add_pair(struct numbers *numbers, const char *from, const char *to)
{
    _cleanup_(text_deinit) struct text word = TEXT_INIT;

    text_printf(&word, "%s%s%s", from, BETWEEN, to);
    return word.error ? word.error : numbers_add_word(numbers, word.data, NULL);
}

/* From each to the next, and to now. */
static int list(struct file_context *context, struct numbers *out)
{
    char names[MARKS_MAX][MARK_NAME_MAX];
    size_t n = context->target ? marks_names(context->target, names) : 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++) {
        if (i + 1 < n)
            r = add_pair(out, names[i], names[i + 1]);
        if (r == 0)
            r = add_pair(out, names[i], MARK_NOW);
    }
    return r;
}

const struct naming heap_diffs = {WORD_MODULE, list, find};

/* ---- a census as a text, for who is told ---- */

/* So much is believed of one type, so many of them: sums stay numbers. */
#define TOLD_MAX (1ull << 44)
#define TOLD_TYPES_MAX (1u << 18)

/* "OBJECTS CUT", and then a line for each type: "COUNT BYTES NAME". */
int heap_diff_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    _cleanup_(census_deinit) struct census census = {
        .scan = {.unwanted = heap_unwanted, .unwanted_arg = context->interrupt},
    };

    int r = census_take(context->target, &census, &context->why);
    if (r < 0)
        return heap_error(context, r);
    text_printf(out, "%lu %d\n", census.objects, census.scan.cut);
    for (size_t i = 0; i < census.n; i++)
        text_printf(out, "%lu %lu %s\n", census.types[i].count, census.types[i].bytes,
                    census.types[i].name);
    return 0;
}

/* Reads a line of it. -EIO: it is none. */
static int read_type(const char *line, size_t size, struct census_type *out)
{
    unsigned long count, bytes;
    int used = 0;

    if (sscanf(line, "%lu %lu %n", &count, &bytes, &used) != 2 || !used || (size_t)used >= size ||
        count > TOLD_MAX || bytes > TOLD_MAX)
        return -EIO;
    char *name = strndup(line + used, size - (size_t)used);
    if (!name)
        return -ENOMEM;
    *out = (struct census_type){name, count, bytes};
    return 0;
}

int heap_census_read(const char *text, struct census *out)
{
    unsigned long objects;
    size_t alloc = 0;
    int cut, r = 0;

    if (sscanf(text, "%lu %d", &objects, &cut) != 2)
        return -EIO;
    out->objects = objects;
    out->scan.cut = cut;
    text += strcspn(text, "\n");
    while (r == 0 && *text && text[1]) {
        const char *line = text + 1;
        text = line + strcspn(line, "\n");
        if (out->n == TOLD_TYPES_MAX)
            return -EIO;
        r = ARRAY_GROW(out->types, alloc, out->n + 1);
        if (r == 0)
            r = read_type(line, (size_t)(text - line), &out->types[out->n]);
        out->n += r == 0;
    }
    return r;
}

int heap_take_census(struct file_context *context, struct census *out)
{
    _cleanup_(text_deinit) struct text told = TEXT_INIT;

    int r = snapshot_say(context, "<pid>/heap/diff/<marks>", "", 0, &told);
    if (r > 0)
        r = census_take(context->target, out, &context->why);
    else if (r == 0)
        r = told.error ? told.error : told.size ? heap_census_read(told.data, out) : -EIO;
    return r < 0 ? heap_error(context, r) : 0;
}

/* ---- */

static int add_changes(const struct mark *from, const struct census *to, const struct timespec *end,
                       struct text *out)
{
    _cleanup_free_ struct census_change *changes = NULL;
    size_t n;

    int r = census_compare(&from->census, to, &changes, &n);
    if (r < 0)
        return r;
    text_printf(out, "# within %.1f s, since ", timespec_s(end) - timespec_s(&from->when));
    text_add_time(out, from->when.tv_sec);
    text_putc(out, '\n');
    if (from->census.scan.cut || to->scan.cut)
        text_puts(out, "# cut: one of them is no census of the whole heap\n");
    for (size_t i = 0; i < n; i++)
        text_printf(out, "%+ld %+ld %s\n", changes[i].count, changes[i].bytes, changes[i].name);
    return 0;
}

int heap_diff_render(struct file_context *context, struct text *out)
{
    struct pair pair;
    struct timespec now;

    if (!parse(context->word, &pair))
        return -ENOENT;
    _cleanup_(cleanup_mark) struct mark *from = marks_get(context->target, pair.from);
    _cleanup_(cleanup_mark) struct mark *to = marks_get(context->target, pair.to);
    _cleanup_(census_deinit) struct census census = {
        .scan = {.unwanted = heap_unwanted, .unwanted_arg = context->interrupt},
    };
    bool till_now = !strcmp(pair.to, MARK_NOW);
    if (!from || (!to && !till_now)) {
        text_printf(&context->why, "there is no mark %s: it was dropped",
                    from ? pair.to : pair.from);
        return -ENOENT;
    }
    int r = till_now ? heap_take_census(context, &census) : 0;
    if (r < 0)
        return r;
    clock_gettime(CLOCK_REALTIME, &now);
    return add_changes(from, to ? &to->census : &census, to ? &to->when : &now, out);
}
