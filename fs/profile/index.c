#include "fs/profile/index.h"

#include <errno.h>
#include <stdlib.h>

uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash_add(0, hash);
}

/* The part of a hash that is kept. */
static uint32_t kept(uint64_t hash) { return (uint32_t)(hash >> 32 ^ hash); }

bool index_next(const struct index *index, uint64_t hash, size_t *step, uint32_t *number)
{
    for (; *step < index->room; (*step)++) {
        const struct index_slot *slot = &index->slots[(kept(hash) + *step) & (index->room - 1)];
        if (!slot->number)
            return false;
        if (slot->hash == kept(hash)) {
            *number = slot->number - 1;
            (*step)++;
            return true;
        }
    }
    return false;
}

static void place(struct index_slot *slots, size_t room, struct index_slot what)
{
    size_t i = what.hash & (room - 1);

    while (slots[i].number)
        i = (i + 1) & (room - 1);
    slots[i] = what;
}

int index_add(struct index *index, uint64_t hash, uint32_t number)
{
    if (index->n >= index->room / 4 * 3) {
        size_t room = index->room ? index->room * 2 : 64;
        struct index_slot *more = calloc(room, sizeof *more);
        if (!more)
            return -ENOMEM;
        for (size_t i = 0; i < index->room; i++)
            if (index->slots[i].number)
                place(more, room, index->slots[i]);
        free(index->slots);
        index->slots = more;
        index->room = room;
    }
    place(index->slots, index->room, (struct index_slot){kept(hash), number + 1});
    index->n++;
    return 0;
}

void index_clear(struct index *index)
{
    free(index->slots);
    *index = (struct index){0};
}

size_t index_bytes(const struct index *index) { return index->room * sizeof *index->slots; }
