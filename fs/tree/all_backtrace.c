/* all/backtrace and all/stacks.folded, and those of a job: equal stacks once, the rarest first, for
 * the one that isn't where all others are is the one to look at.
 *
 * Above stands which ranks of which job have been read, and which are missing. Below it no pids of
 * ranks and no addresses: what many hosts say can be folded. Where that leaves many stacks, those
 * of a loop's body are one: they are told apart without the numbers of lines. */
#include "fs/tree/all_reading.h"
#include "fs/tree/who.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>

#define STACKS_MANY 16 /* then lines don't tell them apart */

/* One process. */
struct one {
    struct who who;
    struct text text; /* its stacks, each ending with a NUL */
    char *why;        /* it was not read; else NULL */
    bool told;        /* that */
};

/* A stack of a process. */
struct its_stack {
    char *text;
    size_t one;
};

/* Equal ones. */
struct group {
    const struct its_stack *stacks;
    size_t n, processes;
};

struct all {
    struct one *ones;
    size_t n, alloc; /* of them */
    struct its_stack *stacks;
    size_t nstacks, stacks_alloc;
    struct group *groups;
    size_t ngroups;
    size_t njobs;
};

static void all_deinit(struct all *all)
{
    for (size_t i = 0; i < all->n; i++) {
        who_deinit(&all->ones[i].who);
        text_deinit(&all->ones[i].text);
        free(all->ones[i].why);
    }
    free(all->ones);
    free(all->stacks);
    free(all->groups);
}

static int take(void *arg, struct process *process, struct text *text, const char *why)
{
    struct all *all = arg;

    if (ARRAY_GROW(all->ones, all->alloc, all->n + 1) < 0)
        return -ENOMEM;
    struct one *one = &all->ones[all->n];
    *one = (struct one){.why = why ? strdup(why) : NULL};
    if (why && !one->why)
        return -ENOMEM;
    if (text) {
        one->text = *text;
        *text = TEXT_INIT;
    }
    who_init(&one->who, process);
    all->n++;
    return 0;
}

static int compare_ones(const void *x, const void *y)
{
    return who_compare(&((const struct one *)x)->who, &((const struct one *)y)->who);
}

static bool has_job(const struct one *one) { return one->who.of.rank >= 0; }

/* The first one behind it that is of another job. */
static size_t end_of_job(const struct all *all, size_t i)
{
    size_t end = i + 1;

    while (end < all->n && who_same_job(&all->ones[i].who, &all->ones[end].who))
        end++;
    return end;
}

/* ---- equal ones ---- */

static int compare_stacks(const void *x, const void *y)
{
    const struct its_stack *a = x, *b = y;
    int r = strcmp(a->text, b->text);

    return r ? r : (a->one > b->one) - (a->one < b->one);
}

static bool is_main(const struct group *group)
{
    return !strncmp(group->stacks->text, "MainThread ", 11);
}

/* The rare before the many; then the main threads, and the lower ranks. */
static int compare_groups(const void *x, const void *y)
{
    const struct group *a = x, *b = y;

    if (a->processes != b->processes)
        return a->processes < b->processes ? -1 : 1;
    if (is_main(a) != is_main(b))
        return is_main(b) - is_main(a);
    if (a->stacks->one != b->stacks->one)
        return a->stacks->one < b->stacks->one ? -1 : 1;
    return a->n != b->n ? (a->n < b->n ? -1 : 1) : strcmp(a->stacks->text, b->stacks->text);
}

static int find_groups(struct all *all)
{
    free(all->groups);
    all->ngroups = 0;
    all->groups = calloc(all->nstacks + 1, sizeof *all->groups);
    if (!all->groups)
        return -ENOMEM;
    array_sort(all->stacks, all->nstacks, sizeof *all->stacks, compare_stacks);
    for (size_t i = 0, end; i < all->nstacks; i = end) {
        struct group *group = &all->groups[all->ngroups++];
        *group = (struct group){.stacks = &all->stacks[i]};
        for (end = i; end < all->nstacks && !strcmp(all->stacks[i].text, all->stacks[end].text);
             end++)
            group->processes += end == i || all->stacks[end].one != all->stacks[end - 1].one;
        group->n = end - i;
    }
    array_sort(all->groups, all->ngroups, sizeof *all->groups, compare_groups);
    return 0;
}

/* The processes of a group, each once: to be freed. NULL: -ENOMEM. */
static const struct who **whom(const struct all *all, const struct group *group, size_t *n)
{
    const struct who **some = calloc(group->n, sizeof *some);

    *n = 0;
    for (size_t i = 0; some && i < group->n; i++)
        if (i == 0 || group->stacks[i].one != group->stacks[i - 1].one)
            some[(*n)++] = &all->ones[group->stacks[i].one].who;
    return some;
}

/* Takes ":88" out of lines that end in ":88)". */
static void drop_lines(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        if (*from == '\n' && to > text && to[-1] == ')') {
            char *p = to - 1;
            while (p > text && p[-1] >= '0' && p[-1] <= '9')
                p--;
            if (p > text && p < to - 1 && p[-1] == ':') {
                to = p - 1;
                *to++ = ')';
            }
        }
        *to++ = *from;
    }
    *to = 0;
}

/* ---- the text ---- */

static int add_job(const struct all *all, size_t first, size_t end, struct text *out)
{
    _cleanup_free_ const struct who **some = calloc(end - first, sizeof *some);

    for (size_t i = first; some && i < end; i++)
        some[i - first] = &all->ones[i].who;
    return some ? who_add_job(some, end - first, out) : -ENOMEM;
}

static void add_counts(const struct all *all, size_t threads, struct text *out)
{
    size_t read = 0;

    for (size_t i = 0; i < all->n; i++)
        read += !all->ones[i].why;
    text_printf(out, "%zu process%s, %zu thread%s, %zu different stack%s\n", read,
                read == 1 ? "" : "es", threads, threads == 1 ? "" : "s", all->ngroups,
                all->ngroups == 1 ? "" : "s");
}

/* Adds the processes that can't be read, each reason once. */
static int add_unread(struct all *all, struct text *out)
{
    _cleanup_free_ const struct who **some = calloc(all->n + 1, sizeof *some);
    int r = some ? 0 : -ENOMEM;

    for (size_t i = 0; r == 0 && i < all->n; i++) {
        const char *why = all->ones[i].why;
        size_t n = 0;
        if (!why || all->ones[i].told)
            continue;
        for (size_t k = i; k < all->n; k++)
            if (all->ones[k].why && !strcmp(all->ones[k].why, why)) {
                all->ones[k].told = true;
                some[n++] = &all->ones[k].who;
            }
        text_puts(out, "Not read: ");
        r = who_add(some, n, all->njobs > 1, out);
        text_printf(out, ": %s\n", why);
    }
    return r;
}

static int add_group(const struct all *all, const struct group *group, struct text *out)
{
    size_t n;
    _cleanup_free_ const struct who **some = whom(all, group, &n);

    if (!some)
        return -ENOMEM;
    text_putc(out, '\n');
    int r = who_add(some, n, all->njobs > 1, out);
    text_printf(out, " (%zu", group->processes);
    if (group->n > group->processes)
        text_printf(out, ", %zu threads", group->n);
    text_puts(out, "): ");
    text_puts(out, group->stacks->text);
    return r;
}

/* "77 threads of 8 processes without Python: futex 61, epoll_wait 16". */
static void add_others(const struct all *others, struct text *out)
{
    if (!others->nstacks)
        return;
    text_printf(out, "\n%zu thread%s of %zu process%s without Python: ", others->nstacks,
                others->nstacks == 1 ? "" : "s", others->n, others->n == 1 ? "" : "es");
    for (size_t i = others->ngroups; i-- > 0;)
        text_printf(out, "%s %zu%s", others->groups[i].stacks->text, others->groups[i].n,
                    i ? ", " : "\n");
}

static int add_stack(struct all *to, char *text, size_t one)
{
    if (ARRAY_GROW(to->stacks, to->stacks_alloc, to->nstacks + 1) < 0)
        return -ENOMEM;
    to->stacks[to->nstacks++] = (struct its_stack){text, one};
    return 0;
}

/* The stacks of all processes; into others the states of those without Python, and of how many
 * processes they are. */
static int sort_stacks(struct all *all, struct all *others)
{
    int r = 0;

    for (size_t i = 0; i < all->n; i++) {
        struct text *text = &all->ones[i].text;
        size_t before = others->nstacks;
        for (size_t at = 0; r == 0 && at < text->size; at += strlen(text->data + at) + 1) {
            char *stack = text->data + at;
            r = *stack == STACKS_NO_PYTHON ? add_stack(others, stack + 1, i)
                                           : add_stack(all, stack, i);
        }
        others->n += others->nstacks > before;
    }
    return r;
}

static int read_all(struct file_context *context, stacks_text *text, struct all *all)
{
    int r = all_read(context, NULL, text, take, all);

    if (r == 0 && all->n)
        array_sort(all->ones, all->n, sizeof *all->ones, compare_ones);
    for (size_t i = 0; i < all->n && has_job(&all->ones[i]); i = end_of_job(all, i))
        all->njobs++;
    return r;
}

static int group_stacks(struct all *all, struct all *others)
{
    int r = sort_stacks(all, others);
    if (r == 0)
        r = find_groups(others);
    if (r == 0)
        r = find_groups(all);
    if (r < 0 || all->ngroups <= STACKS_MANY)
        return r;
    for (size_t i = 0; i < all->nstacks; i++)
        drop_lines(all->stacks[i].text);
    return find_groups(all);
}

static int add_text(struct all *all, const struct all *others, struct text *out)
{
    int r = 0;

    add_counts(all, all->nstacks + others->nstacks, out);
    for (size_t i = 0, end; r == 0 && i < all->n && has_job(&all->ones[i]); i = end) {
        end = end_of_job(all, i);
        r = add_job(all, i, end, out);
    }
    if (r == 0)
        r = add_unread(all, out);
    for (size_t i = 0; r == 0 && i < all->ngroups; i++)
        r = add_group(all, &all->groups[i], out);
    add_others(others, out);
    return r;
}

int all_backtrace_render(struct file_context *context, struct text *out)
{
    struct all all = {0}, others = {0};

    int r = read_all(context, stacks_blocks_text, &all);
    if (r == 0)
        r = group_stacks(&all, &others);
    if (r == 0)
        r = add_text(&all, &others, out);
    free(others.stacks);
    free(others.groups);
    all_deinit(&all);
    return r;
}

/* ---- folded ---- */

/* Sorts the lines, each of which ends in " 1"; what doesn't isn't one. */
static int sort_lines(struct all *all)
{
    int r = 0;

    for (size_t i = 0; i < all->n; i++) {
        char *line = all->ones[i].text.data, *end;
        for (; r == 0 && line && (end = strchr(line, '\n')); line = end + 1) {
            if (end - line < 2 || memcmp(end - 2, " 1", 2))
                continue;
            end[-2] = 0;
            r = add_stack(all, line, i);
        }
    }
    return r;
}

int all_stacks_folded_render(struct file_context *context, struct text *out)
{
    struct all all = {0};

    int r = read_all(context, stacks_folded_text, &all);
    if (r == 0)
        r = sort_lines(&all);
    if (r == 0)
        r = find_groups(&all);
    for (size_t i = 0; r == 0 && i < all.ngroups; i++)
        text_printf(out, "%s %zu\n", all.groups[i].stacks->text, all.groups[i].n);
    all_deinit(&all);
    return r;
}
