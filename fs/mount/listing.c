#include "fs/mount/listing.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdio.h>

static int add(struct listing *listing, const char *name, const struct place *place)
{
    if (listing->n == listing->alloc) {
        size_t alloc = listing->alloc ? listing->alloc * 2 : 32;
        struct listing_name *names = realloc(listing->names, alloc * sizeof *names);
        if (!names)
            return -ENOMEM;
        listing->names = names;
        listing->alloc = alloc;
    }
    struct listing_name *item = &listing->names[listing->n++];
    *item = (struct listing_name){.number = place_number(place), .mode = place->entry->mode};
    snprintf(item->name, sizeof item->name, "%s", name);
    return 0;
}

static int add_numbers(struct listing *listing, const struct place *child,
                       struct file_context *context,
                       bool (*sees)(void *arg, struct process *process), void *arg)
{
    _cleanup_(numbers_deinit) struct numbers numbers = {0};
    char name[16];

    int r = child->entry->naming->list(context, &numbers);
    for (size_t i = 0; r == 0 && i < numbers.n; i++) {
        struct number *number = &numbers.items[i];
        struct place place = *child;
        if (number->process) {
            if (!sees(arg, number->process))
                continue;
            place.process = number->process;
        }
        place_set(&place, child->entry->naming->kind, number->value, number->word);
        name_format(child->entry->naming->kind, number->value, name);
        r = add(listing, number->word ? number->word : name, &place);
    }
    return r;
}

int listing_new(const struct place *place, struct file_context *context,
                bool (*sees)(void *arg, struct process *process), void *arg, struct listing **out)
{
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing)
        return -ENOMEM;
    int r = add(listing, ".", place);
    if (r == 0)
        r = add(listing, "..", place);
    for (const struct entry *e = NULL; r == 0 && (e = layout_next(place->entry, e));) {
        struct place child = *place;
        if (e->listed && !e->listed(context))
            continue;
        child.entry = e;
        if (e->is_there && !e->is_there(context))
            continue;
        r = e->naming ? add_numbers(listing, &child, context, sees, arg)
                      : add(listing, entry_name(e), &child);
    }
    if (r < 0) {
        listing_free(listing);
        return r;
    }
    *out = listing;
    return 0;
}

void listing_free(struct listing *listing)
{
    if (!listing)
        return;
    free(listing->names);
    free(listing);
}
