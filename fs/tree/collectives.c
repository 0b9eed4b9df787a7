/* all/collectives, and that of a job: which rank is in which collective of torch.distributed, by
 * group, equal ones once; and where those are that the others wait for.
 *
 * What one process says of itself (process/collectives.h) comes as the bytes of its struct through
 * the reading of all processes. */
#include "fs/process/collectives.h"
#include "fs/tree/all_reading.h"
#include "fs/tree/who.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* One process. */
struct one {
    struct who who;
    struct collectives *its; /* NULL: it was not read, and why says why not */
    char *why;
};

#define STANDING "\1"

/* What is said of one of them; equal ones are one line. */
struct line {
    char *text; /* without what may differ; STANDING is where for how long belongs */
    const struct one *one;
    const struct collective *collective; /* NULL: no more is known */
};

struct all {
    struct one *ones;
    size_t n, alloc;
    size_t njobs;
    struct line *lines; /* of the group that is written */
    size_t nlines, lines_alloc;
};

static void drop_lines(struct all *all)
{
    while (all->nlines)
        free(all->lines[--all->nlines].text);
}

static void all_deinit(struct all *all)
{
    for (size_t i = 0; i < all->n; i++) {
        who_deinit(&all->ones[i].who);
        free(all->ones[i].its);
        free(all->ones[i].why);
    }
    free(all->ones);
    drop_lines(all);
    free(all->lines);
}

/* ---- reading ---- */

static int read_one(struct target *target, struct recording *recording, struct text *why,
                    struct text *out)
{
    _cleanup_free_ struct collectives *its = calloc(1, sizeof *its);

    int r = its ? collectives_read(target, recording, why, its) : -ENOMEM;
    if (r == 0)
        text_add(out, (const char *)its, sizeof *its);
    return r == -ENOENT ? 0 : r;
}

/* The bytes of the struct; none: it has no groups. */
int collectives_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    return read_one(context->target, context->recording, &context->why, out);
}

/* Takes a process. One that has no groups, or has inherited its rank, is nobody here. */
static int take(void *arg, struct process *process, struct text *text, const char *why)
{
    struct all *all = arg;
    struct one one = {0};

    if (process_is_worker(process) || (text && !text->size) || (!text && process->rank < 0))
        return 0;
    if (ARRAY_GROW(all->ones, all->alloc, all->n + 1) < 0)
        return -ENOMEM;
    if (text && (text->size != sizeof *one.its || !collectives_make_sane(text->data))) {
        text = NULL;
        why = "what reads it says what no process is";
    }
    if (text)
        one.its = malloc(sizeof *one.its);
    else
        one.why = strdup(why);
    if (!one.its && !one.why)
        return -ENOMEM;
    if (text)
        memcpy(one.its, text->data, sizeof *one.its);
    who_init(&one.who, process);
    all->ones[all->n++] = one;
    return 0;
}

static int compare_ones(const void *x, const void *y)
{
    return who_compare(&((const struct one *)x)->who, &((const struct one *)y)->who);
}

/* ---- what is said of one ---- */

static void add_place(const struct collective *c, struct text *out)
{
    text_printf(out, "%s (%s", c->func, c->file);
    if (c->line >= 0)
        text_printf(out, ":%d", c->line);
    text_putc(out, ')');
}

/* "all_reduce #7 float32[64, 32]". of: the group that is spoken of; NULL: it is to be named. */
static void add_operation(const struct collective *c, const char *of, struct text *out)
{
    text_puts(out, c->op);
    if (c->seq >= 0)
        text_printf(out, " #%lld", (long long)c->seq);
    if (c->has_shape)
        text_printf(out, " %s[%s]", c->dtype, c->shape);
    if (c->peer >= 0)
        text_printf(out, " %s rank %lld", strstr(c->op, "send") ? "to" : "from",
                    (long long)c->peer);
    if (c->kind == COLLECTIVE_NATIVE)
        text_puts(out, " [native]");
    if (!of && *c->group)
        text_printf(out, " of group %s", c->group);
}

static void add_where(const struct collective *c, const char *of, struct text *out)
{
    if (c->kind != COLLECTIVE_NONE) {
        text_puts(out, "in ");
        add_operation(c, of, out);
    } else if (*c->op) {
        text_printf(out, "in %s", c->op);
    } else if (*c->func) {
        text_puts(out, "in ");
        add_place(c, out);
    } else {
        text_puts(out, "in no Python");
    }
    if (c->kind == COLLECTIVE_NONE && *c->wait)
        text_printf(out, " [%s]", c->wait);
    text_puts(out, STANDING);
    if (*c->func && (c->kind != COLLECTIVE_NONE || *c->op)) {
        text_puts(out, ", by ");
        add_place(c, out);
    }
}

static const struct torch_its_group *find_group(const struct collectives *its, const char *name)
{
    for (size_t i = 0; i < its->groups.n; i++)
        if (!strcmp(its->groups.items[i].name, name))
            return &its->groups.items[i];
    return NULL;
}

static const struct collective *find_in(const struct collectives *its, const char *group)
{
    for (size_t i = 0; i < its->n; i++)
        if (its->items[i].kind != COLLECTIVE_NONE && !strcmp(its->items[i].group, group))
            return &its->items[i];
    return NULL;
}

static int64_t count_of(const struct collectives *its, const struct torch_its_group *group)
{
    return its->counts[group - its->groups.items].seq;
}

/* ---- the lines of a group ---- */

static int add_line(struct all *all, struct text *text, const struct one *one,
                    const struct collective *collective)
{
    if (text_finish(text) < 0 || ARRAY_GROW(all->lines, all->lines_alloc, all->nlines + 1) < 0)
        return -ENOMEM;
    all->lines[all->nlines++] = (struct line){text->data, one, collective};
    *text = TEXT_INIT;
    return 0;
}

/* What a member of it does: group "" is none. */
static int describe(struct all *all, const struct one *one, const char *group)
{
    const struct torch_its_group *its_group = find_group(one->its, group);
    const struct collective *c = find_in(one->its, group);
    struct text text = TEXT_INIT;

    if (!its_group && !c && *group)
        return 0;
    if (!c) {
        c = one->its->n ? &one->its->items[0] : NULL;
        int64_t seq = its_group ? count_of(one->its, its_group) : -1;
        if (seq >= 0)
            text_printf(&text, "has begun #%lld%s", (long long)seq, c ? "; " : "");
        if (c)
            add_where(c, NULL, &text);
    } else {
        add_where(c, group, &text);
    }
    int r = text.size ? add_line(all, &text, one, c) : 0;
    text_deinit(&text);
    return r;
}

/* Orders lines: the ranks that are in the collective come first, then equal ones side by side. */
static int compare_lines(const void *x, const void *y)
{
    const struct line *a = x, *b = y;
    int r = strcmp(a->text, b->text);

    return r ? r : (a->one > b->one) - (a->one < b->one);
}

/* Equal ones. */
struct group {
    const struct line *lines;
    size_t n;
};

/* The many before the few. */
static int compare_groups(const void *x, const void *y)
{
    const struct group *a = x, *b = y;

    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    return (a->lines->one > b->lines->one) - (a->lines->one < b->lines->one);
}

/* Variables that all of them have, with the same values. */
static void add_variables(const struct group *group, struct text *out)
{
    for (const char *p = group->lines[0].collective->variables; *p;) {
        size_t size = strcspn(p, "\n"), i = 1;
        for (; i < group->n; i++) {
            const char *other = group->lines[i].collective->variables;
            while (*other && !(strcspn(other, "\n") == size && !memcmp(other, p, size)))
                other += strcspn(other, "\n") + (other[strcspn(other, "\n")] == '\n');
            if (!*other)
                break;
        }
        if (i == group->n)
            text_printf(out, " %.*s", (int)size, p);
        p += size + (p[size] == '\n');
    }
}

/* Adds for how long all of a group have stood there. */
static void add_standing(const struct group *group, struct text *out)
{
    const struct standing *least = &group->lines[0].collective->standing;

    for (size_t i = 0; i < group->n; i++) {
        const struct standing *s = &group->lines[i].collective->standing;
        if (s->kind == STANDS_NOT || s->ns < least->ns)
            least = s;
    }
    if (standing_said(least)) {
        text_putc(out, ' ');
        standing_add(least, out);
    }
}

static int add_group_line(const struct group *group, struct text *out)
{
    _cleanup_free_ const struct who **some = calloc(group->n, sizeof *some);
    const char *text = group->lines[0].text, *standing = strstr(text, STANDING);

    if (!some)
        return -ENOMEM;
    for (size_t i = 0; i < group->n; i++)
        some[i] = &group->lines[i].one->who;
    text_puts(out, "  ");
    int r = who_add(some, group->n, false, out);
    text_printf(out, " (%zu): ", group->n);
    if (standing) {
        text_add(out, text, (size_t)(standing - text));
        add_standing(group, out);
        text_puts(out, standing + strlen(STANDING));
        add_variables(group, out);
    } else {
        text_puts(out, text);
    }
    text_putc(out, '\n');
    return r;
}

static int add_lines(struct all *all, struct text *out)
{
    _cleanup_free_ struct group *groups = calloc(all->nlines + 1, sizeof *groups);
    size_t n = 0;
    int r = groups ? 0 : -ENOMEM;

    array_sort(all->lines, all->nlines, sizeof *all->lines, compare_lines);
    for (size_t i = 0; groups && i < all->nlines; i++) {
        if (i && !strcmp(all->lines[i].text, all->lines[i - 1].text))
            groups[n - 1].n++;
        else
            groups[n++] = (struct group){&all->lines[i], 1};
    }
    if (groups)
        array_sort(groups, n, sizeof *groups, compare_groups);
    for (size_t i = 0; i < n && r == 0; i++)
        r = add_group_line(&groups[i], out);
    drop_lines(all);
    return r;
}

/* ---- a job ---- */

/* The members of a group from `first` to `end`, which are one job. */
struct members {
    const struct torch_its_group *any;
    bool is_default, busy; /* somebody is in it, or they differ */
    int64_t at, behind;    /* the highest and the lowest count; -1: none is known */
    double since;          /* [s] since 1970, since when those at the highest are there; or NaN */
};

static struct members look(const struct all *all, size_t first, size_t end, const char *name)
{
    struct members m = {.at = -1, .behind = -1, .since = NAN};

    for (size_t i = first; i < end; i++) {
        const struct collectives *its = all->ones[i].its;
        const struct torch_its_group *group = its ? find_group(its, name) : NULL;
        if (!group)
            continue;
        int64_t seq = count_of(its, group);
        double since = its->counts[group - its->groups.items].since;
        m.any = group;
        m.is_default |= group == &its->groups.items[0];
        m.busy |= find_in(its, name) != NULL;
        if (seq > m.at || (seq == m.at && since > m.since))
            m.since = since;
        if (seq > m.at)
            m.at = seq;
        if (seq >= 0 && (m.behind < 0 || seq < m.behind))
            m.behind = seq;
    }
    m.busy |= m.behind != m.at;
    return m;
}

/* The count of one of them; -1: it is no member, or that isn't known. */
static int64_t count_in(const struct one *one, const char *name)
{
    const struct torch_its_group *group = one->its ? find_group(one->its, name) : NULL;

    return group ? count_of(one->its, group) : -1;
}

/* The highest count below another one; -1: there is none. */
static int64_t next_below(const struct all *all, size_t first, size_t end, const char *name,
                          int64_t other)
{
    int64_t highest = -1;

    for (size_t i = first; i < end; i++) {
        int64_t seq = count_in(&all->ones[i], name);
        if (seq < other && seq > highest)
            highest = seq;
    }
    return highest;
}

/* Adds for how long it has been that number, if that is long enough to be told. */
static void add_unchanged(double since, struct text *out)
{
    double ns = (realtime_s() - since) * 1e9;
    struct standing standing = {.kind = STANDS};

    if (!(ns > 0) || ns > 1e18)
        return;
    standing.ns = (uint64_t)ns;
    if (standing_said(&standing)) {
        text_putc(out, ' ');
        standing_add(&standing, out);
    }
}

/* How far the first ones have come, and by how much others are behind: PyTorch may begin to count
 * anywhere, but does so alike in all ranks. */
static int add_counts(const struct all *all, size_t first, size_t end, const char *name,
                      const struct members *m, struct text *out)
{
    _cleanup_free_ const struct who **some = calloc(end - first, sizeof *some);
    int r = some ? 0 : -ENOMEM;

    text_printf(out, ": at #%lld", (long long)m->at);
    add_unchanged(m->since, out);
    for (int64_t seq = m->at; r == 0 && (seq = next_below(all, first, end, name, seq)) >= 0;) {
        size_t n = 0;
        for (size_t i = first; i < end; i++)
            if (count_in(&all->ones[i], name) == seq)
                some[n++] = &all->ones[i].who;
        text_puts(out, ", ");
        r = who_add(some, n, false, out);
        text_printf(out, " %s %lld behind", n == 1 ? "is" : "are", (long long)(m->at - seq));
    }
    return r;
}

static int add_group(struct all *all, size_t first, size_t end, const char *name,
                     const struct members *m, struct text *out)
{
    int r = 0;

    text_printf(out, "\ngroup %s%s", *name ? name : "?", m->is_default ? " (default)" : "");
    if (*m->any->backend)
        text_printf(out, ", %s", m->any->backend);
    if (m->any->size >= 0)
        text_printf(out, ", %lld rank%s", (long long)m->any->size, m->any->size == 1 ? "" : "s");
    if (m->at >= 0)
        r = add_counts(all, first, end, name, m, out);
    text_putc(out, '\n');
    for (size_t i = first; i < end && r == 0; i++)
        if (all->ones[i].its)
            r = describe(all, &all->ones[i], name);
    return r == 0 ? add_lines(all, out) : r;
}

/* Whether an earlier one has that group, too. */
static bool is_new(const struct all *all, size_t first, size_t i, const char *name)
{
    while (i-- > first)
        if (all->ones[i].its && find_group(all->ones[i].its, name))
            return false;
    return true;
}

/* Adds a line for all groups of which there is nothing to say: nobody is in a known one, or
 * both. */
static int add_rest(struct all *all, size_t first, size_t end, bool any, struct text *idle,
                    struct text *out)
{
    int r = 0;

    if (idle->size)
        text_printf(out, "\nNobody is known to be in a collective of group%s\n", idle->data);
    for (size_t i = first; i < end && r == 0; i++)
        if (all->ones[i].its && (!any || !all->ones[i].its->groups.n))
            r = describe(all, &all->ones[i], "");
    if (all->nlines)
        text_puts(out, "\nOf no known group:\n");
    return r == 0 ? add_lines(all, out) : r;
}

static int add_unread(const struct all *all, size_t first, size_t end, struct text *out)
{
    int r = 0;

    for (size_t i = first; i < end && r == 0; i++) {
        const struct who *who = &all->ones[i].who;
        if (all->ones[i].its)
            continue;
        text_puts(out, "Not read: ");
        r = who_add(&who, 1, false, out);
        text_printf(out, ": %s\n", all->ones[i].why);
    }
    return r;
}

static int add_job(struct all *all, size_t first, size_t end, struct text *out)
{
    _cleanup_free_ const struct who **some = calloc(end - first, sizeof *some);
    _cleanup_(text_deinit) struct text idle = TEXT_INIT;
    bool any = false;
    int r = 0;

    for (size_t i = first; some && i < end; i++)
        some[i - first] = &all->ones[i].who;
    if (all->ones[first].who.of.rank >= 0)
        r = some ? who_add_job(some, end - first, out) : -ENOMEM;
    if (r == 0)
        r = add_unread(all, first, end, out);
    for (size_t i = first; i < end && r == 0; i++)
        for (size_t k = 0; all->ones[i].its && k < all->ones[i].its->groups.n && r == 0; k++) {
            const char *name = all->ones[i].its->groups.items[k].name;
            if (!is_new(all, first, i, name))
                continue;
            const struct members m = look(all, first, end, name);
            any |= m.busy;
            if (m.busy)
                r = add_group(all, first, end, name, &m, out);
            else
                text_printf(&idle, "%s %s%s", idle.size ? "," : "", *name ? name : "?",
                            m.is_default ? " (default)" : "");
        }
    return r == 0 ? add_rest(all, first, end, any, &idle, out) : r;
}

int collectives_render(struct file_context *context, struct text *out)
{
    struct all all = {0};

    int r = all_read(context, NULL, read_one, take, &all);
    if (r == 0)
        array_sort(all.ones, all.n, sizeof *all.ones, compare_ones);
    for (size_t i = 0, end; i < all.n && r == 0; i = end) {
        for (end = i + 1; end < all.n && who_same_job(&all.ones[i].who, &all.ones[end].who); end++)
            ;
        if (i)
            text_putc(out, '\n');
        r = add_job(&all, i, end, out);
    }
    if (r == 0 && !all.n)
        text_puts(out, "no process here has a group of torch.distributed\n");
    all_deinit(&all);
    return r;
}
