/* Finding where breakpoints belong, in what is loaded and in what comes later. */
#include "agent/breakpoint/listen.h"
#include "agent/breakpoint/location.h"
#include "agent/breakpoint/places_table.h"
#include "agent/breakpoint/raise.h"
#include "agent/breakpoint/set.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whether a breakpoint is of a kind whose places are found by name. */
static bool is_located(const struct breakpoint *breakpoint)
{
    return breakpoint->kind == BREAKPOINT_LINE || breakpoint->kind == BREAKPOINT_FUNCTION ||
           breakpoint->kind == BREAKPOINT_RETURN;
}

/* ---- names that are wanted ---- */

static bool filter(struct places *places, PyObject *name, bool set)
{
    size_t bit = name ? (size_t)PyObject_Hash(name) % PLACES_FILTER : 0;

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
    int r = places_add(one->places, one->breakpoint, code, event, line);

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
    struct places *places = *places_kept(interpreter);

    int r = listen_begin(interpreter, places->nraises > 0, places->costs);
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "%s", places->costs);
    return r;
}

static int begin(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    if (*places_kept(interpreter) && !places_here(interpreter))
        places_leave(interpreter); /* the parent's */
    if (*places_kept(interpreter))
        return 0;
    if (!codes_bind()) {
        snprintf(words, PROTO_WORDS_MAX, "this interpreter lacks what it takes to find code");
        return -EOPNOTSUPP;
    }
    struct places *places = *places_kept(interpreter) = places_new();
    return places ? listen(interpreter, words) : say(-ENOMEM, words);
}

/* Those that are found by name. */
static int arm_located(struct places *places, struct breakpoint *const *breakpoints, unsigned count,
                       struct place_report *reports)
{
    _cleanup_codes_ struct codes codes = {0};
    struct location_index *index = NULL;
    int r = 0;

    for (unsigned i = 0; i < count && r == 0; i++) {
        if (!is_located(breakpoints[i]))
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
    struct places *places = *places_kept(interpreter);

    if (r < 0)
        return r;
    memset(reports, 0, count * sizeof *reports);
    for (unsigned i = 0; i < count; i++)
        if (breakpoints[i]->kind == BREAKPOINT_RAISE) {
            places->raises[places->nraises++] = breakpoint_ref(breakpoints[i]);
            reports[i].known = raise_knows(places, breakpoints[i]->where);
        }
    r = say(arm_located(places, breakpoints, count, reports), words);
    if (r == 0)
        r = places_apply(interpreter, places);
    if (r == 0)
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

static void forget_removed(struct breakpoint **all, unsigned *count)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < *count; i++)
        if (all[i]->removed)
            breakpoint_unref(all[i]);
        else
            all[kept++] = all[i];
    *count = kept;
}

void places_disarm(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct places *places = *places_kept(interpreter);

    if (!places)
        return;
    forget_removed(places->wanted, &places->nwanted);
    forget_removed(places->raises, &places->nraises);
    if (!places_here(interpreter) || (!places->nwanted && !places->nraises)) {
        places_leave(interpreter);
        return;
    }
    places_take_out(places, NULL);
    raise_free(places->raising);
    places->raising = NULL;
    places_apply(interpreter, places);
    PyErr_Clear();
    listen(interpreter, words);
    PyErr_Clear();
}

/* ---- code that comes and goes ---- */

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
    places_apply(interpreter, places);
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
        places_sweep(interpreter);
        arm_new(interpreter, places, &codes);
    }
    python_let_collector(collects);
    PyErr_Restore(type, value, traceback);
}
