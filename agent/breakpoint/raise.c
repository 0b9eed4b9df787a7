#include "agent/breakpoint/raise.h"

#include "agent/breakpoint/places_table.h"
#include "agent/breakpoint/reach.h"
#include "agent/breakpoint/set.h"
#include "agent/record/exceptions_seen.h"

#include <stdio.h>
#include <string.h>

#define VERDICTS 64u /* a power of two */
#define NAME_MAX_SIZE 1000
#define CLASSES_DEPTH 100

/* Whether a class is what a breakpoint means. */
struct verdict {
    const struct breakpoint *breakpoint; /* NULL: free */
    PyObject *type;                      /* held */
    bool is;
};

struct raising {
    struct sightings sightings;
    struct attribute module, qualname, mro; /* of type */
    struct verdict verdicts[VERDICTS];
};

/* ---- classes ---- */

/* Whether `where` is the end, on whole parts, of what a class is called with its module. */
static bool is_called(const struct raising *raising, const char *where, PyObject *type)
{
    _cleanup_unref_ PyObject *module = attribute_of(&raising->module, type),
                             *name = attribute_of(&raising->qualname, type);
    _cleanup_unref_ PyObject *module_owner = NULL, *name_owner = NULL;
    struct ring_text module_text, name_text;
    char full[NAME_MAX_SIZE];

    if (!text_of(name, &name_text, &name_owner))
        return false;
    text_of(module, &module_text, &module_owner);
    int size = snprintf(full, sizeof full, "%.*s.%.*s", (int)module_text.size,
                        module_text.bytes ? module_text.bytes : "", (int)name_text.size,
                        name_text.bytes);
    size_t length = strlen(where);
    if (size < 0 || (size_t)size >= sizeof full || length > (size_t)size)
        return false;
    const char *end = full + size - length;
    return strcmp(end, where) == 0 && (end == full || end[-1] == '.');
}

/* Also by a class that it is derived from. */
static bool find_out(const struct raising *raising, const char *where, PyObject *type)
{
    _cleanup_unref_ PyObject *mro = attribute_of(&raising->mro, type);
    Py_ssize_t count = mro && is_exactly(mro, &PyTuple_Type) ? PyTuple_Size(mro) : 0;

    for (Py_ssize_t i = 0; i < count; i++)
        if (is_called(raising, where, PyTuple_GetItem(mro, i)))
            return true;
    return false;
}

/* By these iterators and generators end. */
static bool ends_iteration(PyObject *type)
{
    return type == PyExc_StopIteration || type == PyExc_StopAsyncIteration ||
           type == PyExc_GeneratorExit;
}

static bool is_meant(struct raising *raising, const struct breakpoint *breakpoint, PyObject *type)
{
    struct verdict *verdict =
        &raising->verdicts[(((uintptr_t)type ^ (uintptr_t)breakpoint) >> 5) % VERDICTS];

    if (!breakpoint->where[0])
        return !ends_iteration(type);
    if (verdict->breakpoint != breakpoint || verdict->type != type) {
        python_clear(&verdict->type);
        Py_IncRef(type);
        *verdict = (struct verdict){breakpoint, type, find_out(raising, breakpoint->where, type)};
    }
    return verdict->is;
}

/* ---- exceptions ---- */

static struct raising *make(void)
{
    PyObject *type = (PyObject *)&PyType_Type;
    struct raising *raising = calloc(1, sizeof *raising);

    if (raising && sightings_init(&raising->sightings) == 0 &&
        attribute_find(type, "__module__", &raising->module) &&
        attribute_find(type, "__qualname__", &raising->qualname) &&
        attribute_find(type, "__mro__", &raising->mro))
        return raising;
    raising_free(raising);
    return NULL;
}

/* Among a class and those that are derived from it. */
static bool is_below(const struct raising *raising, const char *where, PyObject *type,
                     unsigned depth)
{
    if (is_called(raising, where, type))
        return true;
    _cleanup_unref_ PyObject *all =
        depth < CLASSES_DEPTH
            ? PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type)
            : NULL;
    Py_ssize_t count = all && PyList_Check(all) ? PyList_Size(all) : 0;

    PyErr_Clear();
    for (Py_ssize_t i = 0; i < count; i++)
        if (is_below(raising, where, PyList_GetItem(all, i), depth + 1))
            return true;
    return false;
}

bool raising_knows(struct places *places, const char *where)
{
    if (!places->raising && !(places->raising = make()))
        return true; /* nobody knows */
    bool knows = !where[0] || is_below(places->raising, where, PyExc_BaseException, 0);
    PyErr_Clear();
    return knows;
}

/* Whether it was seen in a frame that it has come up from; else it is from now on. */
static bool seen_before(struct sightings *sightings, PyObject *code, PyObject *exception,
                        PyObject *traceback)
{
    struct sighting *sighting = sighting_find(sightings, exception);
    PyObject *older = traceback ? sighting_older(sightings, traceback) : NULL;
    bool again = older && sighting && sighting_is(sightings, sighting, older);

    sighting_own(sightings, traceback, exception);
    if (!again)
        sighting = sighting_add(sightings, exception, sighting);
    sighting_note(sighting, traceback, code, traceback ? sighting_lasti(sightings, traceback) : -1);
    return again;
}

/* Those that want it, held. */
static void take(struct raising *raising, const struct places *places, PyObject *type,
                 struct reach *reach)
{
    unsigned count;
    struct breakpoint *const *all = places_raises(places, &count);

    reach->count = 0;
    reach->all = count <= REACH_AT_ONCE ? reach->few : malloc(count * sizeof *reach->all);
    for (unsigned i = 0; i < count && reach->all; i++)
        if (!breakpoint_is_over(all[i]) && is_meant(raising, all[i], type)) {
            breakpoints_found(all[i], &(struct place_report){.known = true});
            reach->all[reach->count++] = breakpoint_ref(all[i]);
        }
}

/* Whether there is any that is to hit, which reach_hit() is to be called for. */
static bool is_wanted(struct places *places, PyObject *code, PyObject *exception,
                      PyObject *traceback, struct reach *reach)
{
    if (!places->raising && !(places->raising = make()))
        return false;
    if (seen_before(&places->raising->sightings, code, exception, traceback))
        return false;
    take(places->raising, places, (PyObject *)Py_TYPE(exception), reach);
    return reach->count || reach->all != reach->few;
}

bool raising_seen(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception,
                  PyObject *traceback)
{
    struct places *places = places_here(interpreter);
    struct reach reach;

    if (!places || !places->nraises)
        return true;
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    bool collects = python_keep_collector();
    bool wanted = is_wanted(places, code, exception, traceback, &reach);
    python_let_collector(collects);
    if (!wanted)
        return true;
    struct reached reached = {frame, code, 0, exception, NULL, STOP_BREAKPOINT, HEAR_RAISE};
    return reach_hit(&reach, interpreter, &reached);
}

void raising_free(struct raising *raising)
{
    if (!raising)
        return;
    sightings_clear(&raising->sightings);
    attribute_clear(&raising->module);
    attribute_clear(&raising->qualname);
    attribute_clear(&raising->mro);
    for (unsigned i = 0; i < VERDICTS; i++)
        Py_DecRef(raising->verdicts[i].type);
    free(raising);
}
