/* all/ctl, and that of a job: each line is a verb of <pid>/ctl, done in every process that its
 * opener and its writers may control, side by side; `on 0,2-3` in front: in these ranks themselves.
 * `stop all` holds all of them at their next line, `stop all LOCATION` each where it comes there.
 * Whoever is held is told how long the others wait for it: that is read from outside, since a rank
 * that hangs with its GIL could not be asked. */
#include "fs/tree/everywhere.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/caret.h"
#include "fs/process/torch_group.h"
#include "fs/tree/ctl.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A line without its newline. */
struct line {
    size_t size;
    bool holds;  /* threads, from then on */
    bool is_set; /* it is one of `breakpoints` */
    char text[];
};

#define TIMEOUTS_MAX 8 /* that are told of one process */

static int by_timeout(const void *x, const void *y)
{
    const struct torch_its_group *a = x, *b = y;

    if (a->timeout != b->timeout)
        return a->timeout < b->timeout ? -1 : 1;
    return strcmp(a->name, b->name);
}

void ctl_add_timeouts(struct file_context *context, struct text *out)
{
    _cleanup_free_ struct torch_groups *groups = calloc(1, sizeof *groups);
    int64_t before = -1;
    size_t told = 0, known = 0;

    if (!groups || torch_timeouts_read(context->target, groups) < 0)
        return;
    array_sort(groups->items, groups->n, sizeof *groups->items, by_timeout);
    for (size_t i = 0; i < groups->n; i++) {
        const struct torch_its_group *group = &groups->items[i];
        if (group->timeout < 0 || !*group->name || known++ >= TIMEOUTS_MAX)
            continue;
        if (group->timeout == before)
            text_printf(out, ", %s", group->name);
        else
            text_printf(out, "%s%g s of group %s",
                        told++ ? "; " : "Timeouts: ", (double)group->timeout / 1e3, group->name);
        before = group->timeout;
    }
    if (known > TIMEOUTS_MAX)
        text_printf(out, " and %zu more", known - TIMEOUTS_MAX);
    if (known)
        text_putc(out, '\n');
}

static void add_its_timeouts(struct file_context *context, struct text *said)
{
    size_t size = context->why.size;

    if (snapshot_ask_text(context, ASKED_TIMEOUTS, said) > 0)
        ctl_add_timeouts(context, said);
    text_truncate(&context->why, size);
}

static int run(const void *of, struct file_context *context, struct text *said,
               struct outcome *outcome)
{
    const struct line *line = of;
    const struct input input = {.text = line->text, .size = line->size, .last = true};

    int r = line->is_set ? breakpoints_run(context, &input, said, outcome)
                         : ctl_run(context, &input, said, outcome);
    if (r != -EINVAL && line->holds && context->target)
        add_its_timeouts(context, said);
    return r;
}

/* What is behind a word that a text begins with; NULL: it doesn't. */
static const char *behind(const char *text, const char *word)
{
    size_t n = strlen(word);

    text += strspn(text, " \t");
    if (strncmp(text, word, n) || (text[n] && !strchr(" \t\r", text[n])))
        return NULL;
    return text + n + strspn(text + n, " \t\r");
}

/* Behind `for TIME`, if a text begins with that. */
static const char *behind_time(const char *text)
{
    const char *time = behind(text, "for");

    if (!time)
        return text;
    time += strcspn(time, " \t\r");
    return time + strspn(time, " \t\r");
}

/* A line of ctl, or, of `stop all LOCATION`, of breakpoints. NULL: -ENOMEM. */
static struct line *line_new(const char *text, size_t size)
{
    static const char here_word[] = "here ", pause[] = "pause ", stop[] = "stop ";
    _cleanup_free_ char *copy = strndup(text, size);
    struct line *line = copy ? calloc(1, sizeof *line + sizeof here_word + sizeof pause + size)
                             : NULL;

    if (!line)
        return NULL;
    const char *here = behind(copy, "here"), *verb = here ? here : copy;
    const char *all = behind(verb, "stop");
    const char *rest = all ? behind(all, "all") : NULL;
    line->holds = rest || behind(verb, "pause");
    line->is_set = rest && *behind_time(rest);
    if (rest)
        line->size = (size_t)sprintf(line->text, "%s%s%s", here ? here_word : "",
                                     line->is_set ? stop : pause, rest);
    else
        line->size = (size_t)sprintf(line->text, "%s", copy);
    return line;
}

/* What goes on while ranks are held. */
static void add_timeouts(const struct everywhere *all, struct text *said)
{
    const char *launcher = all->items[0].who.of.launcher;

    text_puts(said, "Timeouts go on meanwhile, those of torch.distributed's groups: one that isn't "
                    "told above isn't known, it is 30 min unless the job says otherwise, with NCCL "
                    "10 min in newer versions");
    if (!strcmp(launcher, "torchrun"))
        text_puts(said, "; torchrun has none for ranks that are held, but ends all ranks here once "
                        "one has exited");
    text_puts(said, ".\n");
}

static int run_all(struct file_context *context, struct line *line, const struct ranges *ranks,
                   struct text *said)
{
    _cleanup_everywhere_ struct everywhere *all = NULL;

    int r = everywhere_new(context, run, line, free, &all);
    if (r == 0)
        r = everywhere_list(all, context, ranks);
    if (r < 0)
        return r;
    everywhere_do(all, context->interrupt);
    r = everywhere_tell(all, false, said, &context->why);
    if (r == 0 && all->njobs && line->holds)
        add_timeouts(all, said);
    return r;
}

static bool is_empty(const char *text, size_t size)
{
    while (size && strchr(" \t\r", text[size - 1]))
        size--;
    return !size;
}

static int run_line(struct file_context *context, const char *text, size_t size, struct text *said)
{
    const char *verb = text, *wrong;
    struct ranges ranks;

    int has_ranks = everywhere_read_on(text, size, &ranks, &verb, &wrong);
    if (has_ranks < 0) {
        text_puts(&context->why, "ranks belong here: 0,2-3");
        text_add_caret(&context->why, text, size, wrong);
        return -EINVAL;
    }
    size_t left = (size_t)(text + size - verb);
    if (is_empty(verb, left)) {
        if (!has_ranks)
            return 0;
        text_puts(&context->why, "a verb belongs here, as in ctl of a process");
        text_add_caret(&context->why, text, size, verb);
        return -EINVAL;
    }
    struct line *line = line_new(verb, left);
    if (!line)
        return -ENOMEM;
    return run_all(context, line, has_ranks ? &ranks : NULL, said);
}

int all_ctl_run(struct file_context *context, const struct input *input, struct text *said,
                struct outcome *outcome)
{
    while (outcome->consumed < input->size) {
        const char *text = input->text + outcome->consumed;
        size_t rest = input->size - outcome->consumed;
        const char *newline = memchr(text, '\n', rest);
        if (!newline && !input->last)
            return 0;
        size_t size = newline ? (size_t)(newline - text) : rest;
        int r = run_line(context, text, size, said);
        if (r < 0)
            return r;
        outcome->consumed += size + (newline != NULL);
    }
    return 0;
}
