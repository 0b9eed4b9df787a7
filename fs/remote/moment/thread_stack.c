#include "fs/remote/moment/thread_stack.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

struct group {
    const struct stack *stack;
    size_t first, end;
    uint64_t anchor;
};

static int by_anchor(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->anchor != y->anchor)
        return x->anchor < y->anchor ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Splits one stack; frames that no anchor covers (3.8 and 3.9 have none, a chain may break) stand
 * alone. */
static size_t split(const struct stack *s, struct group *out)
{
    size_t n = 0, from = 0;

    for (size_t i = 0; i < s->nanchors; i++) {
        size_t end = s->anchors[i].end < s->n ? s->anchors[i].end : s->n;
        out[n++] = (struct group){s, from, end, s->anchors[i].addr};
        from = end;
    }
    for (; from < s->n; from++)
        out[n++] = (struct group){s, from, from + 1, 0};
    return n;
}

int thread_stack_collect(const struct stack *const *stacks, size_t n, struct thread_stack *out)
{
    struct thread_stack result = {0};
    size_t nframes = 0, most = 0, ngroups = 0;
    bool anchored = true;

    for (size_t i = 0; i < n; i++) {
        nframes += stacks[i]->n;
        most += stacks[i]->n + stacks[i]->nanchors;
    }
    _cleanup_free_ struct group *groups = calloc(most + 1, sizeof *groups);
    result.frames = calloc(nframes + 1, sizeof *result.frames);
    result.groups = calloc(most + 1, sizeof *result.groups);
    if (!groups || !result.frames || !result.groups) {
        thread_stack_deinit(&result);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        ngroups += split(stacks[i], groups + ngroups);
        result.torn |= stacks[i]->torn;
        if (stacks[i]->end > result.end)
            result.end = stacks[i]->end;
    }
    for (size_t i = 0; i < ngroups; i++)
        anchored &= groups[i].anchor != 0;
    if (anchored && n > 1) /* the C stack grows downwards: lower is further in */
        qsort(groups, ngroups, sizeof *groups, by_anchor);

    result.top = ngroups ? groups[0].stack : n ? stacks[0] : NULL;
    for (size_t i = 0; i < ngroups; i++) {
        for (size_t k = groups[i].first; k < groups[i].end; k++)
            result.frames[result.n++] = groups[i].stack->frames[k];
        result.groups[result.ngroups++] =
            (struct merge_group){groups[i].end - groups[i].first, groups[i].anchor};
    }
    *out = result;
    return 0;
}

static bool is_whose(const struct raw_frame *frame, bool entry)
{
    const struct code *code = frame->info;

    return code && code->state == CODE_LOADED &&
           (entry ? code->whose == CODE_AGENTS_ENTRY : code->whose != CODE_PROGRAMS);
}

void thread_stack_hide_agents(struct thread_stack *stack)
{
    size_t hidden = stack->n, left;

    while (hidden && !is_whose(&stack->frames[hidden - 1], true))
        hidden--;
    while (hidden < stack->n && is_whose(&stack->frames[hidden], false))
        hidden++;
    if (!hidden || hidden == stack->n)
        return;
    stack->n -= left = hidden;
    memmove(stack->frames, stack->frames + hidden, stack->n * sizeof *stack->frames);
    for (size_t i = 0; left; i++) {
        size_t some = stack->groups[i].nframes < left ? stack->groups[i].nframes : left;
        stack->groups[i].nframes -= some;
        left -= some;
    }
}

void thread_stack_deinit(struct thread_stack *stack)
{
    if (!stack)
        return;
    free(stack->frames);
    free(stack->groups);
    *stack = (struct thread_stack){0};
}
