#include "agent/crash/rows.h"

#include "agent/base/clock.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/safe_repr.h"
#include "agent/record/recorder.h"
#include "agent/wire/channel.h"

#include <stdio.h>

struct writing {
    struct crash_reader *reader;
    int64_t number, tid;
    double ts;
    size_t bytes; /* of values so far */
    struct safe_repr repr;
};

int crash_reader_init(struct crash_reader *reader)
{
    if (!attribute_find(PyExc_BaseException, "__suppress_context__", &reader->suppress_context))
        return -EOPNOTSUPP;
    PyObject **group = looked_up.PyExc_BaseExceptionGroup;
    if (group)
        attribute_find(*group, "exceptions", &reader->members);
    int r = exception_text_init(&reader->raised);
    if (r < 0) {
        attribute_clear(&reader->suppress_context);
        attribute_clear(&reader->members);
    }
    return r;
}

void crash_reader_clear(struct crash_reader *reader)
{
    exception_text_clear(&reader->raised);
    attribute_clear(&reader->suppress_context);
    attribute_clear(&reader->members);
}

static struct ring_text literal(const char *text)
{
    return (struct ring_text){text, text ? strlen(text) : 0};
}

static void append(struct writing *w, const char *kind, struct crash_row row)
{
    struct ring *ring = recorder_ring(RECORDED_CRASH); /* each time: other code may have run */

    row.ts = w->ts;
    row.crash = w->number;
    row.tid = w->tid;
    row.kind = literal(kind);
    if (ring)
        crash_append(ring, &row, NULL);
}

/* ---- what a frame binds ---- */

static void write_local(struct writing *w, int64_t depth, PyObject *name, PyObject *value)
{
    struct crash_row row = {.depth = depth, .lineno = RING_NULL_INTEGER};
    _cleanup_unref_ PyObject *owner = NULL;

    safe_repr(&w->repr, &w->reader->raised, value);
    if (!text_of(name, &row.name, &owner))
        return;
    row.value = safe_repr_text(&w->repr);
    w->bytes += row.name.size + row.value.size;
    append(w, "local", row);
}

/* Whether the import system set it: as the daemon's remote/frames/locals.c. */
static bool is_of_module(PyObject *name)
{
    static const char *const names[] = {"__name__",   "__doc__",      "__package__",
                                        "__loader__", "__spec__",     "__file__",
                                        "__cached__", "__builtins__", "__annotations__"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return true;
    return false;
}

static void write_more(struct writing *w, int64_t depth, Py_ssize_t count)
{
    char words[64];

    if (count <= 0)
        return;
    snprintf(words, sizeof words, "... (%zd more)", count);
    append(
        w, "local",
        (struct crash_row){.depth = depth, .lineno = RING_NULL_INTEGER, .value = literal(words)});
}

/* The variables of a frame as an exact dict, which may be that of a module; new. NULL: it has
 * another mapping, of the program's, perhaps. */
static PyObject *variables(PyObject *frame)
{
    PyObject *locals = PyObject_GetAttrString(frame, "f_locals");

    if (locals && !is_exactly(locals, &PyDict_Type)) {
        void *proxy = looked_up.PyFrameLocalsProxy_Type; /* since 3.13 */
        PyObject *copy = Py_TYPE(locals) == proxy ? PyObject_CallMethod(locals, "copy", NULL)
                                                  : NULL;
        Py_DecRef(locals);
        locals = copy;
    }
    PyErr_Clear();
    return locals;
}

static void write_locals(struct writing *w, int64_t depth, PyObject *frame)
{
    _cleanup_unref_ PyObject *locals = w->bytes < CRASH_BYTES_MAX ? variables(frame) : NULL;
    PyObject *name, *value;
    Py_ssize_t at = 0, n = 0;

    while (locals && PyDict_Next(locals, &at, &name, &value)) {
        if (!is_exactly(name, &PyUnicode_Type) || is_of_module(name) || n++ >= CRASH_NAMES_MAX)
            continue;
        Py_IncRef(name);
        Py_IncRef(value);
        write_local(w, depth, name, value);
        Py_DecRef(name);
        Py_DecRef(value);
    }
    write_more(w, depth, n - CRASH_NAMES_MAX);
}

/* ---- frames ---- */

/* The entries of a traceback that are shown. */
struct entries {
    PyObject *inner[CRASH_FRAMES_INNER]; /* references, by depth modulo */
    PyObject *outer[CRASH_FRAMES_OUTER]; /* from the outermost one */
    size_t inner_max, outer_max, n;
};

static void entries_deinit(struct entries *entries)
{
    for (size_t i = 0; i < entries->inner_max; i++)
        python_clear(&entries->inner[i]);
    for (size_t i = 0; i < entries->outer_max; i++)
        python_clear(&entries->outer[i]);
}

static PyObject *next_entry(PyObject *entry)
{
    PyObject *next = PyObject_GetAttrString(entry, "tb_next");

    PyErr_Clear();
    if (next && !is_exactly(next, Py_TYPE(entry)))
        python_clear(&next); /* None */
    return next;
}

/* Takes a traceback apart, outermost entry first. */
static void collect(struct entries *entries, PyObject *traceback)
{
    Py_IncRef(traceback);
    for (PyObject *entry = traceback; entry; entries->n++) {
        PyObject *next = entries->n < CRASH_TRACEBACK_MAX ? next_entry(entry) : NULL;
        PyObject **slot =
            entries->n < entries->outer_max
                ? &entries->outer[entries->n]
                : &entries->inner[(entries->n - entries->outer_max) % entries->inner_max];
        Py_DecRef(*slot);
        *slot = entry;
        entry = next;
    }
}

/* The entry at a depth, 0 = innermost; NULL: it is left out. */
static PyObject *entry_at(const struct entries *entries, size_t depth)
{
    size_t i = entries->n - 1 - depth;

    if (i < entries->outer_max)
        return entries->outer[i];
    return depth < entries->inner_max
               ? entries->inner[(i - entries->outer_max) % entries->inner_max]
               : NULL;
}

static int64_t line_of(PyObject *entry)
{
    _cleanup_unref_ PyObject *number = PyObject_GetAttrString(entry, "tb_lineno");
    long line = number && number != Py_None ? PyLong_AsLong(number) : -1;

    PyErr_Clear();
    return line > 0 ? line : RING_NULL_INTEGER;
}

/* Where an entry of a traceback is. */
struct entry_place {
    PyObject *frame, *func, *file; /* new; NULL: not to be had */
    struct ring_text func_text, file_text;
    PyObject *func_owner, *file_owner;
    int64_t line;
};

static void entry_place_deinit(struct entry_place *at)
{
    PyObject *all[] = {at->frame, at->func, at->file, at->func_owner, at->file_owner};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        Py_DecRef(all[i]);
}

static void entry_place_find(struct entry_place *at, PyObject *entry)
{
    const char *qualified = python.version >= 0x030b ? "co_qualname" : "co_name";

    at->line = line_of(entry);
    at->frame = PyObject_GetAttrString(entry, "tb_frame");
    _cleanup_unref_ PyObject *code =
        at->frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)at->frame) : NULL;
    at->func = code ? PyObject_GetAttrString(code, qualified) : NULL;
    at->file = code ? PyObject_GetAttrString(code, "co_filename") : NULL;
    PyErr_Clear();
    text_of(at->func, &at->func_text, &at->func_owner);
    text_of(at->file, &at->file_text, &at->file_owner);
}

/* The row of a frame; locals: and those of what it binds. */
static void write_frame(struct writing *w, const char *kind, int64_t depth, PyObject *entry,
                        bool locals)
{
    _cleanup_(entry_place_deinit) struct entry_place at = {0};

    entry_place_find(&at, entry);
    append(w, kind,
           (struct crash_row){
               .depth = depth, .func = at.func_text, .file = at.file_text, .lineno = at.line});
    if (locals && at.frame)
        write_locals(w, depth, at.frame);
}

static void write_frames(struct writing *w, const char *kind, const struct entries *entries,
                         bool locals)
{
    for (size_t depth = 0; depth < entries->n; depth++) {
        PyObject *entry = entry_at(entries, depth);
        if (entry)
            write_frame(w, kind, (int64_t)depth, entry, locals);
    }
}

/* ---- exceptions ---- */

/* Writes the row of an exception, with where it was raised. */
static void write_exception(struct writing *w, const char *kind, PyObject *exception,
                            const struct entries *entries)
{
    _cleanup_(entry_place_deinit) struct entry_place at = {.line = RING_NULL_INTEGER};
    const struct exception_type *type = exception_text_type(&w->reader->raised, exception);
    _cleanup_unref_ PyObject *owner = NULL;

    if (entries->n)
        entry_place_find(&at, entry_at(entries, 0));
    struct crash_row row = {.depth = RING_NULL_INTEGER,
                            .func = at.func_text,
                            .file = at.file_text,
                            .lineno = at.line,
                            .name = type->name};
    exception_text_message(&w->reader->raised, type, exception, &row.value, &owner);
    append(w, kind, row);
}

static void write_earlier(struct writing *w, const char *kind, PyObject *exception)
{
    _cleanup_(entries_deinit) struct entries entries = {.inner_max = CRASH_CHAIN_FRAMES,
                                                        .outer_max = CRASH_CHAIN_FRAMES};
    _cleanup_unref_ PyObject *traceback = PyException_GetTraceback(exception);

    if (traceback)
        collect(&entries, traceback);
    write_exception(w, kind, exception, &entries);
    write_frames(w, "earlier", &entries, false);
}

/* The exception that Python shows before this one; new. *kind: why. NULL: there is none. */
static PyObject *before(const struct writing *w, PyObject *exception, const char **kind)
{
    PyObject *cause = PyException_GetCause(exception);
    _cleanup_unref_ PyObject *suppressed = attribute_of(&w->reader->suppress_context, exception);

    *kind = cause ? "cause" : "context";
    return cause || suppressed == Py_True ? cause : PyException_GetContext(exception);
}

static void write_chain(struct writing *w, PyObject *exception)
{
    const char *kind;
    PyObject *each = before(w, exception, &kind);

    for (unsigned n = 0; each && n < CRASH_CHAIN_MAX; n++) {
        write_earlier(w, kind, each);
        PyObject *next = before(w, each, &kind);
        Py_DecRef(each);
        each = next;
    }
    Py_DecRef(each);
}

/* The exceptions in a group, those of groups in it behind it. */
static void write_members(struct writing *w, PyObject *exception, unsigned depth, unsigned *left)
{
    const struct attribute *members = &w->reader->members;
    _cleanup_unref_ PyObject *tuple = members->get ? attribute_of(members, exception) : NULL;

    if (!tuple || !is_exactly(tuple, &PyTuple_Type) || depth == CRASH_GROUPS_MAX)
        return;
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuple) && *left; i++) {
        PyObject *member = PyTuple_GetItem(tuple, i); /* borrowed from what can't change */
        if (!PyObject_TypeCheck(member, (PyTypeObject *)PyExc_BaseException))
            continue;
        (*left)--;
        write_earlier(w, "member", member);
        write_members(w, member, depth + 1, left);
    }
}

void crash_rows_write(struct crash_reader *reader, int64_t number, PyObject *exception,
                      PyObject *traceback)
{
    _cleanup_(entries_deinit) struct entries entries = {.inner_max = CRASH_FRAMES_INNER,
                                                        .outer_max = CRASH_FRAMES_OUTER};
    struct writing w = {.reader = reader, .number = number, .tid = gettid(), .ts = realtime_s()};
    unsigned members = CRASH_CHAIN_MAX;

    if (traceback)
        collect(&entries, traceback);
    write_exception(&w, "exception", exception, &entries);
    write_frames(&w, "frame", &entries, true);
    write_chain(&w, exception);
    write_members(&w, exception, 0, &members);
    channel_tell_happened();
}
