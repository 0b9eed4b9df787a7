/* all/breakpoints, and that of a job: what is written is carried out in every process that its
 * opener and its writers may control (everywhere.h), all or none of it in each, and each says what
 * came of it. */
#include "fs/tree/breakpoints.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/tree/everywhere.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int carry_out(const void *of, struct file_context *context, struct text *said,
                     struct outcome *outcome)
{
    return breakpoints_carry_out(context, of, said, outcome);
}

static void free_request(void *request)
{
    breakpoint_request_deinit(request);
    free(request);
}

/* Adds each line behind the number of its process. */
static void add_lines(const struct everywhere_item *item, struct text *out)
{
    for (size_t i = 0; i < item->said.size;) {
        const char *line = item->said.data + i, *newline = memchr(line, '\n', item->said.size - i);
        size_t size = newline ? (size_t)(newline - line) : item->said.size - i;
        text_printf(out, "%d: ", (int)item->who.process->pid);
        text_add(out, line, size);
        text_putc(out, '\n');
        i += size + 1;
    }
}

/* What is to be taken out is only in some, mostly. */
static bool has_failed(const struct breakpoint_request *request, const struct everywhere_item *item)
{
    return item->error < 0 && (item->error != -ENOENT || request->sets);
}

static bool is_same(const struct everywhere_item *a, const struct everywhere_item *b)
{
    return a->why.size == b->why.size && memcmp(a->why.data, b->why.data, a->why.size) == 0;
}

static void add_who(const struct process *process, struct text *out)
{
    if (process->rank >= 0)
        text_printf(out, "rank %ld (pid %d)", (long)process->rank, (int)process->pid);
    else
        text_printf(out, "pid %d", (int)process->pid);
}

/* What has failed, each once, after those in which it did. */
static void add_failure(const struct breakpoint_request *request, const struct everywhere *all,
                        size_t first, struct text *out)
{
    struct everywhere_item *one = &all->items[first];
    const char *before = "error: ";

    for (size_t i = first; i < all->n; i++) {
        struct everywhere_item *item = &all->items[i];
        if (!has_failed(request, item) || item->told || !is_same(one, item))
            continue;
        text_puts(out, before);
        add_who(item->who.process, out);
        item->told = true;
        before = ", ";
    }
    text_puts(out, ": ");
    text_add(out, one->why.data, one->why.size);
    text_putc(out, '\n');
}

/* Orders processes by rank, of whatever job; those without one come behind the others, by
 * number. */
static int by_rank(const void *a, const void *b)
{
    const struct who *x = &((const struct everywhere_item *)a)->who,
                     *y = &((const struct everywhere_item *)b)->who;
    uint64_t rank_x = (uint64_t)x->of.rank, rank_y = (uint64_t)y->of.rank; /* of -1 the highest */

    if (rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    return (x->process->pid > y->process->pid) - (x->process->pid < y->process->pid);
}

/* 0 if it was done somewhere, or, where that is asked for, everywhere. */
static int collect(const struct breakpoint_request *request, const struct everywhere *all,
                   struct text *why, struct text *said)
{
    int error = 0;
    size_t done = 0, failed = 0;

    for (size_t i = 0; i < all->n; i++) {
        struct everywhere_item *item = &all->items[i];
        add_lines(item, said);
        done += item->error == 0;
        failed += has_failed(request, item);
        if (item->error < 0 && (!error || has_failed(request, item)))
            error = item->error;
    }
    for (size_t i = 0; i < all->n; i++)
        if (has_failed(request, &all->items[i]) && !all->items[i].told)
            add_failure(request, all, i, said);
    if (!all->n || (done && !(request->strict && failed)))
        return 0;
    if (done)
        text_printf(why, "it was done in %zu of %zu processes", done, done + failed);
    else
        text_puts(why, "it was done in no process");
    return error;
}

/* Whether some line is for one of them. */
static bool is_for_any(const struct breakpoint_request *request, const struct everywhere *all)
{
    for (size_t i = 0; i < request->n; i++)
        for (size_t k = 0; k < all->n; k++)
            if (breakpoint_line_is_for(&request->lines[i],
                                       all->items[k].who.worker ? -1 : all->items[k].who.of.rank))
                return true;
    return !request->n;
}

static int carry_out_all(struct file_context *context, struct breakpoint_request *of,
                         struct text *said, struct outcome *outcome)
{
    struct breakpoint_request *request = malloc(sizeof *request);
    _cleanup_everywhere_ struct everywhere *all = NULL;

    if (!request)
        return -ENOMEM;
    *request = *of;
    *of = (struct breakpoint_request){0};
    bool empty = !request->n;
    int r = everywhere_new(context, carry_out, request, free_request, &all);
    if (r == 0)
        r = everywhere_list(all, context, NULL);
    if (r == -ESRCH && empty) {
        text_clear(&context->why);
        r = 0;
    }
    if (r < 0)
        return r;
    if (!is_for_any(request, all)) {
        text_puts(&context->why, "there is none of these ranks here that you may control");
        return -ESRCH;
    }
    everywhere_do(all, context->interrupt);
    array_sort(all->items, all->n, sizeof *all->items, by_rank);
    r = collect(request, all, &context->why, said);
    outcome->cleared = r == 0 && (request->sets || empty);
    outcome->keeps = r == 0;
    return r;
}

int all_breakpoints_run(struct file_context *context, const struct input *input, struct text *said,
                        struct outcome *outcome)
{
    return breakpoints_feed(context, input, carry_out_all, said, outcome);
}

static bool has_set(struct process *process)
{
    return recording_attached(process_recording(process));
}

static int add_set(const void *of, struct file_context *context, struct text *said,
                   struct outcome *outcome)
{
    char mark[32];

    snprintf(mark, sizeof mark, "pid %d, ", (int)context->process->pid);
    return breakpoints_lines(context->recording, context->target, mark, said);
}

int all_breakpoints_render(struct file_context *context, struct text *out)
{
    _cleanup_everywhere_ struct everywhere *all = NULL;
    int r = everywhere_new(context, add_set, NULL, NULL, &all);

    if (r == 0)
        r = everywhere_list_wanted(all, context, has_set);
    if (r < 0)
        return r;
    everywhere_do(all, context->interrupt);
    for (size_t i = 0; i < all->n; i++) {
        const struct everywhere_item *item = &all->items[i];
        if (item->error == 0)
            text_add(out, item->said.data, item->said.size);
        else if (item->error != -ESRCH)
            text_printf(out, "# pid %d: %s\n", (int)item->who.process->pid, item->why.data);
    }
    breakpoints_reply(context, out);
    return 0;
}
