/* heap/diff/FROM..TO: by how much each type's objects have become more, or less, from one census
 * that was kept to another, or to now: `+COUNT +BYTES TYPE`, what grew most first. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/remote/heap/marks.h"
#include "fs/tree/heap.h"

#include <errno.h>
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
    int r = till_now ? census_take(context->target, &census, &context->why) : 0;
    if (r < 0)
        return heap_error(context, r);
    clock_gettime(CLOCK_REALTIME, &now);
    return add_changes(from, to ? &to->census : &census, to ? &to->when : &now, out);
}
