/* Breakpoints at the first thing in a model of PyTorch that isn't finite. What looks for it is
 * Python (nan.py), in a namespace of its own, which stays until the agent goes; here it becomes a
 * hit.
 *
 * All is the main interpreter's, under its GIL. Code of the program runs in a hit, and the GIL is
 * given up. */
#include "agent/watch/nan.h"

#include "agent/breakpoint/change.h"
#include "agent/breakpoint/expression.h"
#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/codes.h"
#include "agent/cpython/embedded.h"
#include "agent/cpython/exception_words.h"
#include "agent/cpython/own_code.h"
#include "agent/nan_sources.h"
#include "agent/watch/storage.h"
#include "agent/wire/refuse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct embedded sources[] = {
    {"<probefs nan imported>", source_imported},
    {"<probefs nan modules>", source_modules},
    {"<probefs nan optimizers>", source_optimizers},
    {"<probefs nan>", source_nan},
    {NULL, NULL},
};

/* What expressions may name, in the order in which nan.py says it. */
static const char *const names[] = {"model", "name", "stage", "nan", "inf", "shape", "tensor"};
_Static_assert(ARRAY_SIZE(names) <= EXPRESSION_EXTRAS, "room for all");
#define SHOWN 6 /* of these, where a breakpoint doesn't say what it captures */

struct nan {
    struct nan *next;
    unsigned number; /* by which nan.py knows it: ids are used again */
    struct breakpoint *breakpoint;
};

static struct nan *all;
static unsigned numbers;
static PyObject *namespace;

/* ---- the list ---- */

static void drop(struct nan **link)
{
    struct nan *nan = *link;

    *link = nan->next;
    breakpoint_unref(nan->breakpoint);
    free(nan);
}

static struct nan **find(const struct breakpoint *breakpoint)
{
    struct nan **link = &all;

    while (*link && (*link)->breakpoint != breakpoint)
        link = &(*link)->next;
    return link;
}

static struct nan **find_number(unsigned long number)
{
    struct nan **link = &all;

    while (*link && (*link)->number != number)
        link = &(*link)->next;
    return link;
}

/* ---- a hit ---- */

/* Borrowed; NULL: there is none, or no namespace any more. */
static PyObject *function(const char *name)
{
    return namespace ? PyDict_GetItemString(namespace, name) : NULL;
}

/* Has nan.py forget one. No exception is set before and after. */
static void forget(unsigned long number)
{
    PyObject *remove = function("remove");

    if (remove)
        Py_DecRef(PyObject_CallFunction(remove, "k", number));
    PyErr_Clear();
}

/* Whether code is of PyTorch, or ours. */
static bool is_passed_over(PyObject *code)
{
    _cleanup_unref_ PyObject *file = codes_get(code, CODE_FILE);
    const char *text = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8AndSize(file, NULL) : NULL;

    PyErr_Clear();
    return own_code_is_agents(code) || (text && strstr(text, "/torch/"));
}

static bool reach(struct interpreter *interpreter, struct breakpoint *breakpoint, PyObject *said)
{
    struct expression_extra extras[ARRAY_SIZE(names)];
    _cleanup_unref_ PyObject *innermost = (PyObject *)PyEval_GetFrame();

    Py_IncRef(innermost);
    if (!innermost)
        return true;
    /* in a thread of autograd's there may be none of the program's */
    _cleanup_unref_ PyObject *frame =
        (PyObject *)own_code_frame((PyFrameObject *)innermost, is_passed_over);
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        extras[i] = (struct expression_extra){names[i], PyTuple_GetItem(said, (Py_ssize_t)i)};
    const struct reached reached = {
        .frame = (PyFrameObject *)frame,
        .code = code,
        .line = PyFrame_GetLineNumber((PyFrameObject *)frame),
        .held = (PyFrameObject *)innermost,
        .extras = extras,
        .nextras = ARRAY_SIZE(names),
        .nshown = SHOWN,
        .why = STOP_BREAKPOINT,
        .event = HEAR_EVENTS,
    };
    return hit_reached(interpreter, breakpoint, &reached);
}

/* What was found for one breakpoint: (number, (model, name, stage, nan, inf, shape, tensor)).
 * False: an exception is set that is the program's. */
static bool hit(struct interpreter *interpreter, PyObject *finding)
{
    PyObject *said;
    unsigned long number;

    if (!PyArg_ParseTuple(finding, "kO!", &number, &PyTuple_Type, &said) ||
        PyTuple_Size(said) != ARRAY_SIZE(names)) {
        PyErr_Clear();
        return true;
    }
    struct nan *nan = *find_number(number);
    if (!nan) { /* in a child after fork, for one */
        forget(number);
        return true;
    }
    struct breakpoint *breakpoint = breakpoint_ref(nan->breakpoint);
    bool fine = reach(interpreter, breakpoint, said);
    struct nan **link = find_number(number); /* it may be gone */
    if (fine && breakpoint_is_over(breakpoint) && *link) {
        drop(link);
        forget(number);
    }
    breakpoint_unref(breakpoint);
    return fine;
}

/* A hook, which keeps a function of nan.py: that looks, and what it has found becomes a hit once
 * none of our Python runs any more, for a thread may be held there. */
static PyObject *hook(PyObject *self, PyObject *args)
{
    struct interpreter *interpreter = guest_owner(PyTuple_GetItem(self, 0));
    PyObject *look = PyTuple_GetItem(self, 1);
    _cleanup_unref_ PyObject *found = PyObject_CallObject(look, args);

    if (!found)
        return NULL;
    Py_ssize_t count = PyList_CheckExact(found) ? PyList_Size(found) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!hit(interpreter, PyList_GetItem(found, i)))
            return NULL;
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef hook_def = {"probefs_hook", hook, METH_VARARGS, NULL};

/* hook(function): a hook that has it called. */
static PyObject *make_hook(PyObject *capsule, PyObject *look)
{
    return guest_function_with(&guest_owner(capsule)->guest, &hook_def, look);
}

/* failed(words): it has ended by itself. */
static PyObject *failed(PyObject *capsule, PyObject *words)
{
    char note[PROTO_WORDS_MAX];

    words_copy(words, note, sizeof note);
    while (all) {
        if (!breakpoint_is_over(all->breakpoint))
            breakpoints_publish(all->breakpoint, "pending", note);
        drop(&all);
    }
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef definitions[] = {
    {"hook", make_hook, METH_O, NULL},
    {"failed", failed, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- on and off ---- */

static PyObject *make_namespace(const struct guest *guest)
{
    _cleanup_unref_ PyObject *probe = guest_module(guest, definitions);
    return probe ? embedded_namespace(sources, probe) : NULL;
}

/* What `where` names, new; None: all there are. NULL with words. */
static PyObject *model_of(struct interpreter *interpreter, const struct breakpoint *breakpoint,
                          char words[PROTO_WORDS_MAX])
{
    char what[PROTO_WORDS_MAX - 40];

    if (!breakpoint->where[0]) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    _cleanup_unref_ PyObject *watched = guest_watching(&interpreter->guest) == 0
                                            ? storage_watched(interpreter, breakpoint->where, NULL)
                                            : NULL;
    PyObject *model = watched ? PyObject_CallMethod(watched, "value", "O", Py_None) : NULL;
    if (!model) {
        exception_words(what, sizeof what);
        refuse(EINVAL, words, "it has no value now: %s", what);
    }
    return model;
}

/* 0 or -errno with words. */
static int begin(struct nan *nan, PyObject *model, char words[PROTO_WORDS_MAX])
{
    PyObject *add = function("add"), *text;
    int error;

    _cleanup_unref_ PyObject *said = add ? PyObject_CallFunction(add, "IO", nan->number, model)
                                         : NULL;
    if (!said || !PyArg_ParseTuple(said, "iO", &error, &text)) {
        exception_words(words, PROTO_WORDS_MAX);
        return -EIO;
    }
    words_copy(text, words, PROTO_WORDS_MAX);
    return -error;
}

static int nan_add(struct interpreter *interpreter, struct breakpoint *breakpoint,
                   const char **state, char words[PROTO_WORDS_MAX])
{
    words[0] = '\0';
    if (!namespace)
    namespace = make_namespace(&interpreter->guest);
    if (!namespace)
        return exception_words(words, PROTO_WORDS_MAX), -EIO;
    _cleanup_unref_ PyObject *model = model_of(interpreter, breakpoint, words);
    struct nan *nan = model ? calloc(1, sizeof *nan) : NULL;
    if (!nan)
        return model ? refuse(ENOMEM, words, "no memory") : -EINVAL;
    *nan = (struct nan){all, ++numbers, breakpoint_ref(breakpoint)};
    all = nan;
    int r = begin(nan, model, words);
    PyErr_Clear();
    if (r < 0) {
        drop(find(breakpoint));
        return r;
    }
    *state = "armed";
    return 0;
}

static void nan_remove(struct interpreter *interpreter, struct breakpoint *breakpoint)
{
    PyObject *type, *value, *traceback;
    struct nan **link = find(breakpoint);

    if (!*link)
        return;
    unsigned number = (*link)->number;
    drop(link);
    PyErr_Fetch(&type, &value, &traceback);
    forget(number);
    PyErr_Restore(type, value, traceback);
}

const struct armer nan_armer = {.add = nan_add, .remove = nan_remove};

/* Hooks go before anything else: a thread that waits in one is held by what comes later. */
void nan_disarm(struct interpreter *interpreter)
{
    if (!interpreter_is_main(interpreter) || !namespace)
        return;
    while (all)
        drop(&all);
    PyObject *stop = function("stop");
    if (stop)
        Py_DecRef(PyObject_CallFunctionObjArgs(stop, NULL));
    PyErr_Clear();
}

/* A thread that may still be in our code needs the namespace: the garbage collector has it then,
 * and until it has run the library stays. */
void nan_leave(struct interpreter *interpreter)
{
    if (!interpreter_is_main(interpreter) || !namespace)
        return;
    PyObject *off = function("off");
    _cleanup_unref_ PyObject *left = off ? PyObject_CallFunctionObjArgs(off, NULL) : NULL;
    PyErr_Clear();
    if (left == Py_True)
        embedded_drop(&namespace);
    else
        python_clear(&namespace);
}

/* The hooks are in the child, too, and find nobody: it goes on without us. */
void nan_forget(void) { all = NULL; }
