#include "agent/base/fork_count.h"
#include "agent/breakpoint/listen.h"
#include "agent/breakpoint/location.h"
#include "agent/breakpoint/places_table.h"
#include "agent/breakpoint/raise.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/statement.h"
#include "agent/monitor/hear.h"

#include <errno.h>

#define BUCKETS_LEAST 256 /* buckets; a power of two */
#define AGAIN_MAX 8

/* What is at one line, start or return of one code object. */
struct place_list {
    struct place_list *next;  /* in the bucket */
    struct code_place *first; /* never NULL */
    unsigned nagain;
    int again[AGAIN_MAX]; /* offsets of instructions in the midst of the line */
};

/* A code object with something in it. */
struct armed {
    struct armed *next; /* in the bucket */
    PyObject *code;
    unsigned counts[3]; /* by enum place_event */
    bool changed;
};

/* ---- looking up ---- */

/* By interpreter. */
static struct places *kept[INTERPRETERS_MAX];

struct places **places_kept(const struct interpreter *interpreter)
{
    return &kept[interpreter_index(interpreter)];
}

struct places *places_here(const struct interpreter *interpreter)
{
    struct places *places = *places_kept(interpreter);
    return places && places->forks == fork_count() ? places : NULL;
}

static size_t hash(const PyObject *code, unsigned salt)
{
    uint64_t x = ((uintptr_t)code >> 4) + (uint64_t)salt * 0x9e3779b97f4a7c15;
    return x * 0x9e3779b97f4a7c15 >> 32;
}

static struct place_list **list_at(const struct places *places, const PyObject *code,
                                   enum place_event event, int line)
{
    struct place_list **link =
        &places->lists[hash(code, (unsigned)line * 4 + event) & (places->nbuckets - 1)];

    for (; *link; link = &(*link)->next) {
        const struct code_place *place = (*link)->first;
        if (place->code == code && place->line == line && place->event == event)
            break;
    }
    return link;
}

const struct code_place *places_at(const struct places *places, const PyObject *code,
                                   enum place_event event, int line)
{
    const struct place_list *list = *list_at(places, code, event, line);
    return list ? list->first : NULL;
}

bool places_again(const struct places *places, const struct code_place *place, int offset)
{
    const struct place_list *list = *list_at(places, place->code, place->event, place->line);

    for (unsigned i = 0; list && i < list->nagain; i++)
        if (list->again[i] == offset)
            return true;
    return false;
}

static struct armed **armed_at(const struct places *places, const PyObject *code)
{
    struct armed **link = &places->armed[hash(code, 0) & (places->nbuckets - 1)];

    while (*link && (*link)->code != code)
        link = &(*link)->next;
    return link;
}

static unsigned events_of(const struct armed *armed)
{
    unsigned events = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(armed->counts); i++)
        events |= armed->counts[i] ? 1u << i : 0;
    return events;
}

unsigned places_in(const struct places *places, const PyObject *code)
{
    const struct armed *armed = *armed_at(places, code);
    return armed ? events_of(armed) : 0;
}

struct breakpoint *const *places_raises(const struct places *places, unsigned *count)
{
    *count = places->nraises;
    return places->raises;
}

void places_each(const struct places *places,
                 void (*visit)(void *arg, PyObject *code, unsigned events), void *arg)
{
    for (size_t i = 0; i < places->nbuckets; i++)
        for (const struct armed *armed = places->armed[i]; armed; armed = armed->next)
            visit(arg, armed->code, events_of(armed));
}

/* ---- the table ---- */

static bool holds_code(void) { return !hear_tells_of_ends(); }

static bool grow(struct places *places)
{
    struct places grown = {.nbuckets = 2 * places->nbuckets};

    if (places->count < places->nbuckets)
        return true;
    grown.lists = calloc(grown.nbuckets, sizeof *grown.lists);
    grown.armed = calloc(grown.nbuckets, sizeof *grown.armed);
    if (!grown.lists || !grown.armed) {
        free(grown.lists);
        free(grown.armed);
        return false;
    }
    for (size_t i = 0; i < places->nbuckets; i++) {
        for (struct place_list *list; (list = places->lists[i]);) {
            const struct code_place *place = list->first;
            struct place_list **link = list_at(&grown, place->code, place->event, place->line);
            places->lists[i] = list->next;
            list->next = NULL;
            *link = list;
        }
        for (struct armed *armed; (armed = places->armed[i]);) {
            struct armed **link = armed_at(&grown, armed->code);
            places->armed[i] = armed->next;
            armed->next = NULL;
            *link = armed;
        }
    }
    free(places->lists);
    free(places->armed);
    places->lists = grown.lists;
    places->armed = grown.armed;
    places->nbuckets = grown.nbuckets;
    return true;
}

static struct armed *have_armed(struct places *places, PyObject *code)
{
    struct armed **link = armed_at(places, code);

    if (*link)
        return *link;
    struct armed *armed = calloc(1, sizeof *armed);
    if (!armed)
        return NULL;
    armed->code = code;
    if (holds_code())
        Py_IncRef(code);
    return *link = armed;
}

static struct place_list *have_list(struct places *places, PyObject *code, enum place_event event,
                                    int line)
{
    struct place_list **link = list_at(places, code, event, line);

    if (*link)
        return *link;
    *link = calloc(1, sizeof **link);
    if (*link && event == PLACE_LINE)
        (*link)->nagain = statement_again(code, line, (*link)->again, AGAIN_MAX);
    return *link;
}

static bool is_there(const struct place_list *list, const struct breakpoint *breakpoint)
{
    for (const struct code_place *place = list->first; place; place = place->next)
        if (place->breakpoint == breakpoint)
            return true;
    return false;
}

/* In the order of their ids. */
static void link_place(struct place_list *list, struct code_place *place)
{
    struct code_place **link = &list->first;

    while (*link && (*link)->breakpoint->id < place->breakpoint->id)
        link = &(*link)->next;
    place->next = *link;
    *link = place;
}

int places_add(struct places *places, struct breakpoint *breakpoint, PyObject *code,
               enum place_event event, int line)
{
    if (event != PLACE_LINE)
        line = 0;
    if (places->count == PLACES_MAX)
        return -ENOSPC;
    struct code_place *place = grow(places) ? malloc(sizeof *place) : NULL;
    struct armed *armed = place ? have_armed(places, code) : NULL;
    struct place_list *list = armed ? have_list(places, code, event, line) : NULL;
    if (!list || is_there(list, breakpoint)) {
        free(place);
        return list ? -EEXIST : -ENOMEM;
    }
    *place = (struct code_place){NULL, breakpoint_ref(breakpoint), code, event, line, list->nagain};
    link_place(list, place);
    armed->counts[event]++;
    armed->changed = true;
    places->count++;
    __atomic_fetch_add(&breakpoint->places, 1, __ATOMIC_RELAXED);
    return 0;
}

static void free_place(struct places *places, struct code_place *place)
{
    places->count--;
    __atomic_fetch_sub(&place->breakpoint->places, 1, __ATOMIC_RELAXED);
    breakpoint_unref(place->breakpoint);
    free(place);
}

static void take_out(struct places *places, struct place_list **link, const PyObject *gone)
{
    struct place_list *list = *link;
    struct code_place **at = &list->first;

    while (*at) {
        struct code_place *place = *at;
        if (place->code != gone && !place->breakpoint->removed) {
            at = &place->next;
            continue;
        }
        struct armed *armed = *armed_at(places, place->code);
        armed->counts[place->event]--;
        armed->changed = true;
        *at = place->next;
        struct breakpoint *breakpoint = breakpoint_ref(place->breakpoint);
        free_place(places, place);
        breakpoints_count(breakpoint);
        breakpoint_unref(breakpoint);
    }
    if (!list->first) {
        *link = list->next;
        free(list);
    }
}

void places_take_out(struct places *places, const PyObject *gone)
{
    for (size_t i = 0; i < places->nbuckets; i++)
        for (struct place_list **link = &places->lists[i]; *link;) {
            struct place_list *list = *link;
            take_out(places, link, gone);
            if (*link == list)
                link = &list->next;
        }
}

/* ---- telling the interpreter ---- */

static void drop_armed(struct armed **link)
{
    struct armed *armed = *link;

    *link = armed->next;
    if (holds_code())
        Py_DecRef(armed->code);
    free(armed);
}

int places_apply(struct interpreter *interpreter, struct places *places)
{
    int r = 0;

    for (size_t i = 0; i < places->nbuckets; i++)
        for (struct armed **link = &places->armed[i]; *link;) {
            struct armed *armed = *link;
            if (armed->changed && r == 0) {
                armed->changed = false;
                r = listen_code(interpreter, armed->code, events_of(armed));
            }
            if (events_of(armed))
                link = &armed->next;
            else
                drop_armed(link);
        }
    return r;
}

/* ---- its life ---- */

struct places *places_new(void)
{
    struct places *places = calloc(1, sizeof *places);

    if (!places)
        return NULL;
    places->forks = fork_count();
    places->nbuckets = BUCKETS_LEAST;
    places->lists = calloc(places->nbuckets, sizeof *places->lists);
    places->armed = calloc(places->nbuckets, sizeof *places->armed);
    places->wanted = calloc(PROTO_BREAKPOINTS_MAX, sizeof *places->wanted);
    places->raises = calloc(PROTO_BREAKPOINTS_MAX, sizeof *places->raises);
    if (places->lists && places->armed && places->wanted && places->raises)
        return places;
    free(places->lists);
    free(places->armed);
    free(places->wanted);
    free(places->raises);
    free(places);
    return NULL;
}

static void free_list(struct breakpoint **all, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        breakpoint_unref(all[i]);
    free(all);
}

static void free_places(struct places *places)
{
    for (size_t i = 0; i < places->nbuckets; i++) {
        for (struct place_list *list; (list = places->lists[i]);) {
            for (struct code_place *place; (place = list->first);) {
                list->first = place->next;
                free_place(places, place);
            }
            places->lists[i] = list->next;
            free(list);
        }
        while (places->armed[i])
            drop_armed(&places->armed[i]);
    }
    free(places->lists);
    free(places->armed);
    free_list(places->wanted, places->nwanted);
    free_list(places->raises, places->nraises);
    Py_DecRef(places->file);
    raise_free(places->raising);
    free(places);
}

void places_leave(struct interpreter *interpreter)
{
    struct places *places = *places_kept(interpreter);

    if (!places)
        return;
    listen_end(interpreter);
    *places_kept(interpreter) = NULL;
    free_places(places);
    PyErr_Clear();
}

void places_code_gone(struct interpreter *interpreter, PyObject *code)
{
    struct places *places = *places_kept(interpreter);
    struct armed **link = places ? armed_at(places, code) : NULL;

    if (!link || !*link)
        return;
    places_take_out(places, code);
    drop_armed(armed_at(places, code));
}

/* The first one, or NULL. */
static PyObject *find_left(const struct places *places)
{
    for (size_t i = 0; i < places->nbuckets; i++)
        for (const struct armed *armed = places->armed[i]; armed; armed = armed->next)
            if (Py_REFCNT(armed->code) == 1)
                return armed->code;
    return NULL;
}

void places_sweep(struct interpreter *interpreter)
{
    PyObject *code;

    while (holds_code() && (code = find_left(*places_kept(interpreter))))
        places_code_gone(interpreter, code);
}
