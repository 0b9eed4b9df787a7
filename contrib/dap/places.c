#include "contrib/dap/places.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>

void places_init(struct places *places)
{
    *places = (struct places){0};
    pthread_mutex_init(&places->lock, NULL);
}

void place_deinit(struct place *place)
{
    free(steal_pointer(place->path));
    json_decref(steal_pointer(place->rows));
}

static void numbered_deinit(struct numbered *numbered)
{
    place_deinit(&numbered->place);
    json_decref(numbered->names);
}

int64_t places_add(struct places *places, struct place place)
{
    _guard_mutex_(&places->lock);

    if (places->n == PLACES_MAX) {
        for (size_t i = 0; i < PLACES_MAX / 2; i++)
            numbered_deinit(&places->items[i]);
        places->n -= PLACES_MAX / 2;
        memmove(places->items, places->items + PLACES_MAX / 2, places->n * sizeof *places->items);
    }
    if (ARRAY_GROW(places->items, places->alloc, places->n + 1) < 0) {
        place_deinit(&place);
        return 0;
    }
    places->items[places->n++] = (struct numbered){.number = ++places->last, .place = place};
    return places->last;
}

/* NULL: it stands for nothing. The lock is held. */
static struct numbered *find(struct places *places, int64_t number)
{
    size_t at = LOWER_BOUND(places->n, i, places->items[i].number < number);

    return at < places->n && places->items[at].number == number ? &places->items[at] : NULL;
}

bool places_find(struct places *places, int64_t number, struct place *out)
{
    _guard_mutex_(&places->lock);
    const struct numbered *found = find(places, number);

    if (!found)
        return false;
    *out = found->place;
    out->path = out->path ? strdup(out->path) : NULL;
    json_incref(out->rows);
    return true;
}

void places_name(struct places *places, int64_t number, json_t *names)
{
    _guard_mutex_(&places->lock);
    struct numbered *found = find(places, number);

    if (!found) {
        json_decref(names);
        return;
    }
    if (!found->names)
        found->names = names;
    else {
        json_object_update(found->names, names);
        json_decref(names);
    }
}

char *places_child(struct places *places, int64_t number, const char *name)
{
    _guard_mutex_(&places->lock);
    const struct numbered *found = find(places, number);
    const char *path = found ? json_string_value(json_object_get(found->names, name)) : NULL;

    return path ? strdup(path) : NULL;
}

void places_forget(struct places *places, pid_t tid)
{
    _guard_mutex_(&places->lock);
    size_t n = 0;

    for (size_t i = 0; i < places->n; i++)
        if (places->items[i].place.tid == tid)
            numbered_deinit(&places->items[i]);
        else
            places->items[n++] = places->items[i];
    places->n = n;
}
