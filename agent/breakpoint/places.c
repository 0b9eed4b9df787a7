#include "agent/base/fork_count.h"
#include "agent/breakpoint/hook.h"
#include "agent/breakpoint/listen.h"
#include "agent/breakpoint/location.h"
#include "agent/breakpoint/raise.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/statement.h"
#include "agent/monitor/hear.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILTER 4096u      /* bits */
#define BUCKETS_LEAST 256 /* a power of two */
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

struct places {
    unsigned forks;            /* fork_count() when it was made */
    struct place_list **lists; /* a hash of what is at one place, and ... */
    struct armed **armed;      /* ... of code objects with something in them; both have nbuckets */
    size_t nbuckets, count;
    struct breakpoint **wanted; /* of kinds LINE, FUNCTION and RETURN: references */
    unsigned nwanted;
    struct breakpoint **raises; /* of kind RAISE: references */
    unsigned nraises;
    struct breakpoint **hooks; /* of kind HOOK: references */
    unsigned nhooks;
    bool listens;          /* code is listened to: for all but HOOK */
    struct raise *raising; /* raise.h; NULL: no exception was seen yet */
    /* of the code object that came last; held, so that the next one's is known again */
    PyObject *file;
    bool file_wanted;
    uint64_t names[FILTER / 64]; /* by a hash of the last parts of functions' names */
    char costs[PROTO_WORDS_MAX]; /* of listening, in words; "": nothing to speak of */
};

/* ---- looking up ---- */

/* By interpreter. */
static struct places *kept[INTERPRETERS_MAX];

/* What is kept of an interpreter, the parent's in a child after fork, too; *NULL: nothing. */
static struct places **kept_of(const struct interpreter *interpreter)
{
    return &kept[interpreter_index(interpreter)];
}

struct places *places_here(const struct interpreter *interpreter)
{
    struct places *places = *kept_of(interpreter);
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

struct breakpoint *const *places_hooks(const struct places *places, unsigned *count)
{
    *count = places->nhooks;
    return places->hooks;
}

struct raise **places_raise(struct places *places) { return &places->raising; }

void places_each(const struct interpreter *interpreter,
                 void (*visit)(void *arg, PyObject *code, unsigned events), void *arg)
{
    const struct places *places = *kept_of(interpreter);

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

/* Links a place into its list, which is in the order of the breakpoints' ids. */
static void link_place(struct place_list *list, struct code_place *place)
{
    struct code_place **link = &list->first;

    while (*link && (*link)->breakpoint->id < place->breakpoint->id)
        link = &(*link)->next;
    place->next = *link;
    *link = place;
}

/* 0; -EEXIST: it is there; -ENOMEM, -ENOSPC. */
static int add(struct places *places, struct breakpoint *breakpoint, PyObject *code,
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

/* Whether it is to be armed, or stay so. */
static bool is_on(const struct breakpoint *breakpoint)
{
    return !breakpoint_is_removed(breakpoint) && !breakpoint_is_disabled(breakpoint);
}

static void take_out_of(struct places *places, struct place_list **link, const PyObject *gone)
{
    struct place_list *list = *link;
    struct code_place **at = &list->first;

    while (*at) {
        struct code_place *place = *at;
        if (place->code != gone && is_on(place->breakpoint)) {
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

/* Takes out what is of no use any more: the places of a code object that ends, and those of
 * breakpoints that are removed or switched off. */
static void take_out(struct places *places, const PyObject *gone)
{
    for (size_t i = 0; i < places->nbuckets; i++)
        for (struct place_list **link = &places->lists[i]; *link;) {
            struct place_list *list = *link;
            take_out_of(places, link, gone);
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

/* Has what has changed in code objects take effect. -errno, with words or an exception set. */
static int apply(struct interpreter *interpreter, struct places *places)
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

/* NULL: there is no memory. */
static struct places *make(void)
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
    places->hooks = calloc(PROTO_BREAKPOINTS_MAX, sizeof *places->hooks);
    if (places->lists && places->armed && places->wanted && places->raises && places->hooks)
        return places;
    free(places->lists);
    free(places->armed);
    free(places->wanted);
    free(places->raises);
    free(places->hooks);
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
    free_list(places->hooks, places->nhooks);
    Py_DecRef(places->file);
    raise_free(places->raising);
    free(places);
}

void places_leave(struct interpreter *interpreter)
{
    struct places *places = *kept_of(interpreter);

    if (!places)
        return;
    if (places->listens)
        listen_end(interpreter);
    if (places->nhooks)
        hook_end();
    *kept_of(interpreter) = NULL;
    free_places(places);
    PyErr_Clear();
}

/* Whether a breakpoint is of a kind whose places are found by name. */
static bool is_located(const struct breakpoint *breakpoint)
{
    return breakpoint->kind == BREAKPOINT_LINE || breakpoint->kind == BREAKPOINT_FUNCTION ||
           breakpoint->kind == BREAKPOINT_RETURN;
}

/* ---- names that are wanted ---- */

static bool filter(struct places *places, PyObject *name, bool set)
{
    size_t bit = name ? (size_t)PyObject_Hash(name) % FILTER : 0;

    if (set)
        places->names[bit / 64] |= 1ull << bit % 64;
    return places->names[bit / 64] >> bit % 64 & 1;
}

static void want(struct places *places, struct breakpoint *breakpoint)
{
    const char *dot = strrchr(breakpoint->where, '.');

    places->wanted[places->nwanted++] = breakpoint_ref(breakpoint);
    python_clear(&places->file);
    if (breakpoint->kind == BREAKPOINT_LINE)
        return;
    _cleanup_unref_ PyObject *name = PyUnicode_FromString(dot ? dot + 1 : breakpoint->where);
    filter(places, name, true);
    PyErr_Clear();
}

/* Whether a new code object may be of interest: at once for almost all. */
static bool is_wanted(struct places *places, PyObject *code)
{
    _cleanup_unref_ PyObject *file = codes_get(code, CODE_FILE), *name = codes_get(code, CODE_NAME);

    if (file != places->file) {
        python_clear(&places->file);
        places->file = file;
        Py_IncRef(file);
        places->file_wanted = false;
        for (unsigned i = 0; i < places->nwanted && !places->file_wanted; i++)
            places->file_wanted = places->wanted[i]->kind == BREAKPOINT_LINE &&
                                  location_concerns(places->wanted[i], code);
    }
    return places->file_wanted || filter(places, name, false);
}

/* ---- arming ---- */

struct arming_one {
    struct places *places;
    struct breakpoint *breakpoint;
    unsigned added;
    int error;
};

static bool arm_place(void *arg, PyObject *code, enum place_event event, int line)
{
    struct arming_one *one = arg;
    int r = add(one->places, one->breakpoint, code, event, line);

    if (r == -EEXIST)
        return true;
    one->added += r == 0;
    one->error = r;
    return r == 0;
}

static int arm_one(struct places *places, struct breakpoint *breakpoint,
                   struct location_index *index, bool within, struct place_report *report)
{
    struct arming_one one = {places, breakpoint, 0, 0};
    struct location_told told;

    location_find(index, breakpoint, within, arm_place, &one, &told);
    *report = (struct place_report){one.added, told.files, told.line, told.known};
    return one.error;
}

static int say(int r, char words[PROTO_WORDS_MAX])
{
    if (r == -ENOSPC)
        snprintf(words, PROTO_WORDS_MAX, "breakpoints are in %u pieces of code already",
                 PLACES_MAX);
    else if (r == -ENOMEM)
        snprintf(words, PROTO_WORDS_MAX, "no memory");
    return r;
}

static int listen(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    struct places *places = *kept_of(interpreter);

    unsigned raises = 0;

    places->listens = true;
    for (unsigned i = 0; i < places->nraises; i++)
        raises |= HEAR_BIT(places->raises[i]->leaving ? HEAR_UNWIND : HEAR_RAISE);
    int r = listen_begin(interpreter, raises, places->costs);
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "%s", places->costs);
    return r;
}

static int begin(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    if (*kept_of(interpreter) && !places_here(interpreter))
        places_leave(interpreter); /* the parent's */
    if (*kept_of(interpreter))
        return 0;
    if (!codes_bind()) {
        snprintf(words, PROTO_WORDS_MAX, "this interpreter lacks what it takes to find code");
        return -EOPNOTSUPP;
    }
    *kept_of(interpreter) = make();
    return *kept_of(interpreter) ? 0 : say(-ENOMEM, words);
}

/* Lists those of kind RAISE and HOOK, which are at no code. Whether code is to be listened to for
 * some of all. */
static bool list_named(struct places *places, struct breakpoint *const *breakpoints, unsigned count,
                       struct place_report *reports)
{
    bool listens = false;

    for (unsigned i = 0; i < count; i++) {
        if (!is_on(breakpoints[i]))
            continue;
        listens |= is_located(breakpoints[i]) || breakpoints[i]->kind == BREAKPOINT_RAISE;
        if (breakpoints[i]->kind == BREAKPOINT_RAISE) {
            places->raises[places->nraises++] = breakpoint_ref(breakpoints[i]);
            reports[i].known = raise_knows(places, breakpoints[i]->where);
        }
        if (breakpoints[i]->kind == BREAKPOINT_HOOK)
            places->hooks[places->nhooks++] = breakpoint_ref(breakpoints[i]);
    }
    return listens;
}

static int arm_hooks(struct interpreter *interpreter, struct breakpoint *const *breakpoints,
                     unsigned count, struct place_report *reports)
{
    int r = (*kept_of(interpreter))->nhooks ? hook_begin(interpreter) : 0;
    bool stands = hook_stands();

    for (unsigned i = 0; i < count; i++)
        if (breakpoints[i]->kind == BREAKPOINT_HOOK)
            reports[i].known = stands;
    return r;
}

/* Arms the breakpoints that are found by name. */
static int arm_located(struct places *places, struct breakpoint *const *breakpoints, unsigned count,
                       struct place_report *reports)
{
    _cleanup_codes_ struct codes codes = {0};
    struct location_index *index = NULL;
    int r = 0;

    for (unsigned i = 0; i < count && r == 0; i++) {
        if (!is_located(breakpoints[i]) || !is_on(breakpoints[i]))
            continue;
        if (!index) {
            location_gather(breakpoints, count, &codes);
            index = location_index_new(&codes);
        }
        want(places, breakpoints[i]);
        r = index ? arm_one(places, breakpoints[i], index, false, &reports[i]) : -ENOMEM;
    }
    location_index_free(index);
    return r;
}

static int arm(struct interpreter *interpreter, struct breakpoint *const *breakpoints,
               unsigned count, struct place_report *reports, char words[PROTO_WORDS_MAX])
{
    int r = begin(interpreter, words);
    struct places *places = *kept_of(interpreter);

    if (r < 0)
        return r;
    memset(reports, 0, count * sizeof *reports);
    bool listens = list_named(places, breakpoints, count, reports);
    if (listens && !places->listens)
        r = listen(interpreter, words);
    if (r == 0)
        r = arm_hooks(interpreter, breakpoints, count, reports);
    if (r == 0)
        r = say(arm_located(places, breakpoints, count, reports), words);
    if (r == 0)
        r = apply(interpreter, places);
    if (r == 0 && listens)
        r = listen(interpreter, words);
    for (unsigned i = 0; i < count && places->costs[0]; i++)
        reports[i].costs = places->costs;
    return r;
}

int places_arm(struct interpreter *interpreter, struct breakpoint *const *breakpoints,
               unsigned count, struct place_report *reports, char words[PROTO_WORDS_MAX])
{
    bool collects = python_keep_collector();
    int r = arm(interpreter, breakpoints, count, reports, words);
    python_let_collector(collects);
    return r;
}

static void forget_off(struct breakpoint **all, unsigned *count)
{
    unsigned left = 0;

    for (unsigned i = 0; i < *count; i++)
        if (is_on(all[i]))
            all[left++] = all[i];
        else
            breakpoint_unref(all[i]);
    *count = left;
}

void places_disarm(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct places *places = *kept_of(interpreter);

    if (!places)
        return;
    forget_off(places->wanted, &places->nwanted);
    forget_off(places->raises, &places->nraises);
    bool hooks = places->nhooks, listens = places->nwanted || places->nraises;
    forget_off(places->hooks, &places->nhooks);
    if (hooks && !places->nhooks)
        hook_end();
    if (!places_here(interpreter) || (!places->nhooks && !listens)) {
        places_leave(interpreter);
        return;
    }
    take_out(places, NULL);
    raise_free(places->raising);
    places->raising = NULL;
    apply(interpreter, places);
    PyErr_Clear();
    if (listens)
        listen(interpreter, words);
    else if (places->listens)
        listen_end(interpreter);
    places->listens = listens;
    PyErr_Clear();
}

/* ---- code that comes and goes ---- */

void places_code_gone(struct interpreter *interpreter, PyObject *code)
{
    struct places *places = *kept_of(interpreter);
    struct armed **link = places ? armed_at(places, code) : NULL;

    if (!link || !*link)
        return;
    take_out(places, code);
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

/* Takes out the code objects that nobody else refers to any more: where nobody tells of their
 * end. */
static void sweep(struct interpreter *interpreter)
{
    PyObject *code;

    while (holds_code() && (code = find_left(*kept_of(interpreter))))
        places_code_gone(interpreter, code);
}

static void arm_new(struct interpreter *interpreter, struct places *places,
                    const struct codes *codes)
{
    struct place_report report;
    struct location_index *index = location_index_new(codes);

    for (unsigned i = 0; i < places->nwanted && index; i++) {
        struct breakpoint *breakpoint = places->wanted[i];
        bool concerns = false;
        for (size_t j = 0; j < codes->count && !concerns; j++)
            concerns = location_concerns(breakpoint, codes->all[j].code);
        if (!concerns)
            continue;
        arm_one(places, breakpoint, index, true, &report);
        if (report.places)
            breakpoints_found(breakpoint, &report);
    }
    location_index_free(index);
    apply(interpreter, places);
}

/* Whether any of them may be of interest. */
static bool is_any_wanted(struct places *places, const struct codes *codes)
{
    for (size_t i = 0; i < codes->count; i++)
        if (is_wanted(places, codes->all[i].code))
            return true;
    return false;
}

void places_code_made(struct interpreter *interpreter, PyObject *code, bool whole)
{
    _cleanup_codes_ struct codes codes = {0};
    struct places *places = places_here(interpreter);
    PyObject *type, *value, *traceback;

    if (!places || (!whole && !is_wanted(places, code)))
        return;
    PyErr_Fetch(&type, &value, &traceback);
    bool collects = python_keep_collector();
    codes_gather_tree(&codes, code);
    if (!whole || is_any_wanted(places, &codes)) {
        sweep(interpreter);
        arm_new(interpreter, places, &codes);
    }
    python_let_collector(collects);
    PyErr_Restore(type, value, traceback);
}
