#include "agent/breakpoint/raise.h"

#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/places.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/own_code.h"
#include "agent/record/exceptions_seen.h"

#include <stdio.h>
#include <string.h>

#define VERDICTS 64u /* a power of two */
#define NAME_MAX_SIZE 1000
#define CLASSES_DEPTH 100
#define TRACEBACK_MAX 256u /* entries that are looked through */

/* Whether a class is what a breakpoint means. */
struct verdict {
    const struct breakpoint *breakpoint; /* NULL: free */
    PyObject *type;                      /* held */
    bool is;
};

struct raise {
    struct exceptions_seen all_seen;
    struct attribute module, qualname, mro; /* of type */
    struct verdict verdicts[VERDICTS];
};

/* ---- classes ---- */

/* Whether `where` is the end, on whole parts, of what a class is called with its module. */
static bool is_called(const struct raise *raising, const char *where, PyObject *type)
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

/* Whether `where` means a class, by its own name or that of a class that it is derived from. */
static bool find_out(const struct raise *raising, const char *where, PyObject *type)
{
    _cleanup_unref_ PyObject *mro = attribute_of(&raising->mro, type);
    Py_ssize_t count = mro && is_exactly(mro, &PyTuple_Type) ? PyTuple_Size(mro) : 0;

    for (Py_ssize_t i = 0; i < count; i++)
        if (is_called(raising, where, PyTuple_GetItem(mro, i)))
            return true;
    return false;
}

/* Whether iterators and generators end by exceptions of this class. */
static bool ends_iteration(PyObject *type)
{
    return type == PyExc_StopIteration || type == PyExc_StopAsyncIteration ||
           type == PyExc_GeneratorExit;
}

static bool is_meant(struct raise *raising, const struct breakpoint *breakpoint, PyObject *type)
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

static struct raise *make(void)
{
    PyObject *type = (PyObject *)&PyType_Type;
    struct raise *raising = calloc(1, sizeof *raising);

    if (raising && exceptions_seen_init(&raising->all_seen) == 0 &&
        attribute_find(type, "__module__", &raising->module) &&
        attribute_find(type, "__qualname__", &raising->qualname) &&
        attribute_find(type, "__mro__", &raising->mro))
        return raising;
    raise_free(raising);
    return NULL;
}

/* What is kept for these places, made if needed; NULL: it can't be. */
static struct raise *have(struct places *places)
{
    struct raise **raising = places_raise(places);

    if (!*raising)
        *raising = make();
    return *raising;
}

/* Whether `where` means a class, or one that is derived from it. */
static bool is_below(const struct raise *raising, const char *where, PyObject *type, unsigned depth)
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

bool raise_knows(struct places *places, const char *where)
{
    const struct raise *raising = have(places);

    if (!raising)
        return true; /* nobody knows */
    bool knows = !where[0] || is_below(raising, where, PyExc_BaseException, 0);
    PyErr_Clear();
    return knows;
}

/* Whether it was seen in a frame that it has come up from; else it is from now on. */
static bool seen_before(struct exceptions_seen *all, PyObject *code, PyObject *exception,
                        PyObject *traceback)
{
    struct seen_exception *seen = exceptions_seen_find(all, exception);
    PyObject *older = traceback ? exceptions_seen_older(all, traceback) : NULL;
    bool again = older && seen && seen_exception_is(all, seen, older);

    exceptions_seen_own(all, traceback, exception);
    if (!again)
        seen = exceptions_seen_add(all, exception, seen);
    seen_exception_note(seen, traceback, code,
                        traceback ? exceptions_seen_lasti(all, traceback) : -1);
    return again;
}

/* Whether a file is, or is below, that path, matched on whole parts. */
static bool is_below_path(const struct ring_text *file, const char *path)
{
    size_t size = strlen(path);
    const char *at = file->bytes, *end = file->bytes + file->size;

    for (; (at = memmem(at, (size_t)(end - at), path, size)); at++) {
        bool begins = at == file->bytes || at[-1] == '/' || *path == '/';
        const char *behind = at + size;
        if (begins && (behind == end || *behind == '/' || path[size - 1] == '/'))
            return true;
    }
    return false;
}

static bool is_within(const struct breakpoint *breakpoint, PyObject *code)
{
    struct ring_text name;

    if (strcmp(breakpoint->within, "own") == 0)
        return own_code_is(code);
    _cleanup_unref_ PyObject *file = PyObject_GetAttrString(code, "co_filename");
    _cleanup_unref_ PyObject *owner = NULL;
    PyErr_Clear();
    return file && text_of(file, &name, &owner) && is_below_path(&name, breakpoint->within);
}

/* The code of the frame of an entry of a traceback; new. */
static PyObject *code_of(PyObject *entry)
{
    _cleanup_unref_ PyObject *frame = PyObject_GetAttrString(entry, "tb_frame");
    PyObject *code = frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)frame) : NULL;

    PyErr_Clear();
    return code;
}

/* Whether this is the first frame there that the exception has come to. */
static bool is_first_within(const struct breakpoint *breakpoint, PyObject *code,
                            PyObject *traceback)
{
    bool first = is_within(breakpoint, code);
    PyObject *entry = first && traceback ? PyObject_GetAttrString(traceback, "tb_next") : NULL;

    for (unsigned n = 0; n < TRACEBACK_MAX && first && entry && entry != Py_None; n++) {
        _cleanup_unref_ PyObject *inner = code_of(entry);
        PyObject *next = PyObject_GetAttrString(entry, "tb_next");
        first = !(inner && is_within(breakpoint, inner));
        Py_DecRef(entry);
        entry = next;
    }
    Py_DecRef(entry);
    PyErr_Clear();
    return first;
}

/* Lists the breakpoints that want an exception as it is raised. False: there is no memory. */
static bool take_raised(struct raise *raising, struct places *places, PyObject *code,
                        PyObject *exception, PyObject *traceback, struct hit_list *list)
{
    PyObject *type = (PyObject *)Py_TYPE(exception);
    bool again = seen_before(&raising->all_seen, code, exception, traceback);
    unsigned count;
    struct breakpoint *const *all = places_raises(places, &count);

    if (!hit_list_begin(list, count))
        return false;
    for (unsigned i = 0; i < count; i++)
        if (!breakpoint_is_over(all[i]) && !all[i]->leaving && (all[i]->within[0] || !again) &&
            is_meant(raising, all[i], type) &&
            (!all[i]->within[0] || is_first_within(all[i], code, traceback))) {
            breakpoints_found(all[i], &(struct place_report){.known = true});
            list->all[list->count++] = breakpoint_ref(all[i]);
        }
    return true;
}

/* Whether the frame that an exception is about to leave is code that a breakpoint means, and its
 * caller, if there is one, isn't. */
static bool is_last_within(const struct breakpoint *breakpoint, PyObject *code,
                           PyFrameObject *frame)
{
    if (!is_within(breakpoint, code))
        return false;
    _cleanup_unref_ PyObject *back = (PyObject *)python.frame_back(frame);
    _cleanup_unref_ PyObject *caller = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back)
                                            : NULL;
    return !caller || !is_within(breakpoint, caller);
}

/* Whether an exception has left such code before, further in. traceback: its newest entry is that
 * of a frame of such code; NULL: none. */
static bool has_left_before(const struct breakpoint *breakpoint, PyObject *traceback)
{
    PyObject *entry = traceback ? PyObject_GetAttrString(traceback, "tb_next") : NULL;
    bool outer = true, left = false;

    for (unsigned n = 0; n < TRACEBACK_MAX && entry && entry != Py_None && !left; n++) {
        _cleanup_unref_ PyObject *code = code_of(entry);
        bool inner = code && is_within(breakpoint, code);
        left = inner && !outer;
        outer = inner;
        PyObject *next = PyObject_GetAttrString(entry, "tb_next");
        Py_DecRef(entry);
        entry = next;
    }
    Py_DecRef(entry);
    PyErr_Clear();
    return left;
}

/* Lists the breakpoints that want an exception which leaves a frame. False: there is no memory. */
static bool take_leaving(struct raise *raising, struct places *places, PyFrameObject *frame,
                         PyObject *code, PyObject *exception, struct hit_list *list)
{
    _cleanup_unref_ PyObject *traceback = PyException_GetTraceback(exception);
    unsigned count;
    struct breakpoint *const *all = places_raises(places, &count);

    if (!hit_list_begin(list, count))
        return false;
    for (unsigned i = 0; i < count; i++)
        if (all[i]->leaving && !breakpoint_is_over(all[i]) &&
            is_meant(raising, all[i], (PyObject *)Py_TYPE(exception)) &&
            is_last_within(all[i], code, frame) && !has_left_before(all[i], traceback)) {
            breakpoints_found(all[i], &(struct place_report){.known = true});
            list->all[list->count++] = breakpoint_ref(all[i]);
        }
    return true;
}

/* Has those breakpoints hit that are listed for an exception. event: HEAR_RAISE, which `traceback`
 * is of, or HEAR_UNWIND. False: as raise_seen(). */
static bool hit_those(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception,
                      PyObject *traceback, enum hear_event event)
{
    struct places *places = places_here(interpreter);
    struct hit_list list;
    unsigned count = 0;

    if (places)
        places_raises(places, &count);
    if (!count)
        return true;
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    bool collects = python_keep_collector();
    struct raise *raising = have(places);
    bool listed = raising &&
                  (event == HEAR_UNWIND
                       ? take_leaving(raising, places, frame, code, exception, &list)
                       : take_raised(raising, places, code, exception, traceback, &list));
    python_let_collector(collects);
    if (!listed)
        return true;
    struct reached reached = {frame, code, 0, exception, NULL, STOP_BREAKPOINT, event};
    return hit_list_run(&list, interpreter, &reached);
}

bool raise_seen(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception,
                PyObject *traceback)
{
    return hit_those(interpreter, frame, exception, traceback, HEAR_RAISE);
}

bool raise_left(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception)
{
    return hit_those(interpreter, frame, exception, NULL, HEAR_UNWIND);
}

void raise_free(struct raise *raising)
{
    if (!raising)
        return;
    exceptions_seen_clear(&raising->all_seen);
    attribute_clear(&raising->module);
    attribute_clear(&raising->qualname);
    attribute_clear(&raising->mro);
    for (unsigned i = 0; i < VERDICTS; i++)
        Py_DecRef(raising->verdicts[i].type);
    free(raising);
}
