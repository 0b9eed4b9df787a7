#include "fs/mount/listing.h"

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

/* Not of a process that isn't to be seen. */
static int add_answered(struct listing *listing, const struct place *place,
                        const struct owner_name *answered,
                        bool (*sees)(void *arg, struct process *process), void *arg)
{
    const struct number *number = &answered->number;
    struct place child = *place;
    char name[16];

    child.entry = &layout[answered->entry];
    if (!child.entry->naming)
        return add(listing, entry_name(child.entry), &child);
    if (number->process) {
        if (!sees(arg, number->process))
            return 0;
        child.process = number->process;
    }
    place_set(&child, child.entry->naming->kind, number->value, number->word);
    name_format(child.entry->naming->kind, number->value, name);
    return add(listing, number->word ? number->word : name, &child);
}

int listing_new(const struct place *place, const struct owner_answer *answer,
                bool (*sees)(void *arg, struct process *process), void *arg, struct listing **out)
{
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing)
        return -ENOMEM;
    int r = add(listing, ".", place);
    if (r == 0)
        r = add(listing, "..", place);
    for (size_t i = 0; r == 0 && i < answer->nnames; i++)
        r = add_answered(listing, place, &answer->names[i], sees, arg);
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
