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
    if (draft->place)
        budget_give(drafts->budget, draft->who->who.fsuid, draft->text.alloc);
    text_deinit(&draft->text);
    credentials_unref(draft->who);
    *draft = (struct draft){0};
}

void drafts_deinit(struct drafts *drafts)
{
    for (size_t i = 0; i < DRAFTS_MAX; i++)
        drop(drafts, &drafts->items[i]);
    pthread_mutex_destroy(&drafts->lock);
}

/* The draft of a user at a place; drafts that are too old go meanwhile. Caller holds lock. */
static struct draft *find(struct drafts *drafts, uint64_t place, const struct credentials *who)
{
    uint64_t now = monotonic_ns();
    struct draft *found = NULL;

    for (struct draft *d = drafts->items; d < drafts->items + DRAFTS_MAX; d++) {
        if (d->place && now - d->made_ns > DRAFT_NS)
            drop(drafts, d);
        if (d->place == place && who->known && d->who->who.tid == who->who.tid &&
            credentials_same(d->who, who))
            found = d;
    }
    return found;
}

void drafts_put(struct drafts *drafts, uint64_t place, struct credentials *who, struct text *text)
{
    _guard_mutex_(&drafts->lock);
    struct draft *to = find(drafts, place, who);

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
    if (!budget_take(drafts->budget, who->who.fsuid, text->alloc)) {
        text_deinit(text);
        return;
    }
    *to = (struct draft){
        .place = place, .who = credentials_ref(who), .text = *text, .made_ns = monotonic_ns()};
    *text = TEXT_INIT;
}

bool drafts_find(struct drafts *drafts, uint64_t place, const struct credentials *who, size_t *size)
{
    _guard_mutex_(&drafts->lock);
    const struct draft *draft = find(drafts, place, who);

    if (draft)
        *size = draft->text.size;
    return draft;
}

bool drafts_take(struct drafts *drafts, uint64_t place, const struct credentials *who,
                 struct text *out)
{
    _guard_mutex_(&drafts->lock);
    struct draft *draft = find(drafts, place, who);

    if (!draft)
        return false;
    budget_give(drafts->budget, draft->who->who.fsuid, draft->text.alloc);
    *out = draft->text;
    credentials_unref(draft->who);
    *draft = (struct draft){0};
    return true;
}
