#include "fs/mount/draft.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

void drafts_init(struct drafts *drafts, struct budget *budget)
{
    *drafts = (struct drafts){.budget = budget};
    pthread_mutex_init(&drafts->lock, NULL);
}

/* Caller holds lock. */
static void drop(struct drafts *drafts, struct draft *draft)
{
    budget_give(drafts->budget, draft->text.alloc);
    text_deinit(&draft->text);
    *draft = (struct draft){0};
}

void drafts_deinit(struct drafts *drafts)
{
    for (size_t i = 0; i < DRAFTS_MAX; i++)
        drop(drafts, &drafts->items[i]);
    pthread_mutex_destroy(&drafts->lock);
}

/* Those too old go meanwhile. Caller holds lock. */
static struct draft *find(struct drafts *drafts, uint64_t place, const struct caller *caller)
{
    uint64_t now = monotonic_ns();
    struct draft *found = NULL;

    for (struct draft *d = drafts->items; d < drafts->items + DRAFTS_MAX; d++) {
        if (d->place && now - d->made_ns > DRAFT_NS)
            drop(drafts, d);
        if (d->place == place && caller->pid && d->caller.pid == caller->pid &&
            d->caller.uid == caller->uid && d->caller.gid == caller->gid)
            found = d;
    }
    return found;
}

void drafts_put(struct drafts *drafts, uint64_t place, const struct caller *caller,
                struct text *text)
{
    _guard_mutex_(&drafts->lock);
    struct draft *to = find(drafts, place, caller);

    for (struct draft *d = drafts->items; !to && d < drafts->items + DRAFTS_MAX; d++)
        if (!d->place)
            to = d;
    if (!to) {
        to = drafts->items;
        for (struct draft *d = drafts->items; d < drafts->items + DRAFTS_MAX; d++)
            if (d->made_ns < to->made_ns)
                to = d;
    }
    drop(drafts, to);
    if (!budget_take(drafts->budget, text->alloc)) {
        text_deinit(text);
        return;
    }
    *to =
        (struct draft){.place = place, .caller = *caller, .text = *text, .made_ns = monotonic_ns()};
    *text = TEXT_INIT;
}

bool drafts_find(struct drafts *drafts, uint64_t place, const struct caller *caller, size_t *size)
{
    _guard_mutex_(&drafts->lock);
    const struct draft *draft = find(drafts, place, caller);

    if (draft)
        *size = draft->text.size;
    return draft;
}

bool drafts_take(struct drafts *drafts, uint64_t place, const struct caller *caller,
                 struct text *out)
{
    _guard_mutex_(&drafts->lock);
    struct draft *draft = find(drafts, place, caller);

    if (!draft)
        return false;
    budget_give(drafts->budget, draft->text.alloc);
    *out = draft->text;
    *draft = (struct draft){0};
    return true;
}
