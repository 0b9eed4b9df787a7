/* First each group of Python frames is matched with the native frame that runs it; then the two
 * are written out along the matches. Matches ascend: whatever breaks that order is no match. */
#include "fs/remote/moment/merge.h"

#define NOTE_MISMATCH "native and Python frames don't fit together here"
#define NOTE_APART "where its native frames, which follow, belong"

struct merger {
    const struct native_frame *frames;
    size_t nnative;
    const struct merge_group *groups;
    size_t ngroups;
    struct merge_item *items;
    size_t n;
    size_t python; /* frames written */
};

static void add(struct merger *m, enum merge_kind kind, size_t index, const char *note)
{
    m->items[m->n++] = (struct merge_item){kind, index, note};
}

/* Native frames [from, to) without those of the evaluation loop. */
static void add_native(struct merger *m, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (!m->frames[i].eval)
            add(m, MERGE_NATIVE, i, NULL);
}

static void add_group(struct merger *m, size_t group)
{
    for (size_t i = 0; i < m->groups[group].nframes; i++)
        add(m, MERGE_PYTHON, m->python++, NULL);
}

/* The native frame, not before `from`, whose part of the stack holds the anchor; nnative: none. */
static size_t find_anchor(const struct merger *m, size_t from, uint64_t anchor)
{
    for (size_t i = from; i < m->nnative; i++)
        if (anchor >= m->frames[i].sp && anchor < m->frames[i].cfa)
            return i;
    return m->nnative;
}

static void add_groups(struct merger *m, size_t from)
{
    for (size_t g = from; g < m->ngroups; g++)
        add_group(m, g);
}

/* Whether an address on the stack lies further out than what the native frames cover. */
static bool beyond(const struct merger *m, uint64_t anchor)
{
    return !m->nnative || anchor >= m->frames[m->nnative - 1].sp;
}

/* Adds native frames of which nothing is known but their own order. */
static void add_apart(struct merger *m)
{
    if (!m->nnative)
        return;
    add(m, MERGE_NOTE, 0, NOTE_APART);
    for (size_t i = 0; i < m->nnative; i++)
        add(m, MERGE_APART, i, NULL);
}

/* Merges by address. Native frames around a group without a match can't be placed; where none has
 * one, as in a program whose frames a compiler made (Nuitka), they stand apart. */
static void merge_by_anchor(struct merger *m, const char *why)
{
    size_t at = 0;     /* native frames before it are done */
    bool lost = false; /* the group before has no match */
    bool any = !m->ngroups;

    for (size_t g = 0; g < m->ngroups; g++) {
        uint64_t anchor = m->groups[g].anchor;
        /* two groups in one native frame stand directly behind each other */
        size_t found = find_anchor(m, at && !lost ? at - 1 : at, anchor);
        if (found < m->nnative) {
            if (!lost && found >= at)
                add_native(m, at, found);
            at = found + 1;
            lost = false;
            any = true;
        } else if (why && beyond(m, anchor)) {
            if (!lost)
                add_native(m, at, m->nnative);
            add(m, MERGE_NOTE, 0, why);
            add_groups(m, g);
            return;
        } else {
            if (!lost)
                add(m, MERGE_NOTE, 0, NOTE_MISMATCH);
            lost = true;
        }
        add_group(m, g);
    }
    if (!lost)
        add_native(m, at, m->nnative);
    else if (!any && !why)
        add_apart(m);
    if (why)
        add(m, MERGE_NOTE, 0, why);
}

/* Merges by counting: the k-th call of the evaluation loop runs the k-th frame, the first `skip`
 * calls run none. */
static void merge_matched(struct merger *m, size_t skip, const char *why)
{
    size_t g = 0;

    for (size_t i = 0; i < m->nnative; i++) {
        if (!m->frames[i].eval)
            add(m, MERGE_NATIVE, i, NULL);
        else if (skip)
            skip--;
        else
            add_group(m, g++);
    }
    if (why)
        add(m, MERGE_NOTE, 0, why);
    add_groups(m, g);
}

static void merge_by_count(struct merger *m, const char *why)
{
    size_t calls = 0, first = m->nnative, last = m->nnative;

    for (size_t i = 0; i < m->nnative; i++) {
        if (!m->frames[i].eval)
            continue;
        calls++;
        last = i;
        if (first == m->nnative)
            first = i;
    }
    /* A call that has just begun, or is about to return, has no frame; nothing to speak of lies
     * further in then. With fewer native frames than there are, that can't be told apart. */
    bool innermost = calls && first <= 1;
    if (!why && calls == m->ngroups)
        merge_matched(m, 0, NULL);
    else if (!why && calls == m->ngroups + 1 && innermost)
        merge_matched(m, 1, NULL);
    else if (why && calls <= m->ngroups && !innermost)
        merge_matched(m, 0, why);
    else {
        if (calls)
            add_native(m, 0, first);
        add(m, MERGE_NOTE, 0, why ? why : NOTE_MISMATCH);
        add_groups(m, 0);
        if (calls && !why)
            add_native(m, last + 1, m->nnative);
        else if (!why)
            add_apart(m);
    }
}

size_t merge_stacks(const struct native_frame *frames, size_t nnative, enum native_end end,
                    const struct merge_group *groups, size_t ngroups, struct merge_item *items)
{
    struct merger m = {
        .frames = frames, .nnative = nnative, .groups = groups, .ngroups = ngroups, .items = items};
    const char *why = native_end_describe(end);
    bool anchors = false;

    for (size_t g = 0; g < ngroups; g++)
        anchors |= groups[g].anchor != 0;
    if (anchors || !ngroups)
        merge_by_anchor(&m, why);
    else
        merge_by_count(&m, why);
    return m.n;
}
