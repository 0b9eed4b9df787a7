#include "agent/crash/uncaught.h"

#include "agent/cpython/look_up.h"
#include "agent/cpython/text.h"

#include <errno.h>

#define RAW_THREAD "Exception ignored in thread started by" /* Modules/_threadmodule.c */

static const struct crash_sink *sink; /* set before a hook stands */

/* ---- what CPython calls ---- */

/* Calls what stood there before: self is (capsule, that). */
static PyObject *chain(PyObject *self, PyObject *args)
{
    PyObject *next = PyTuple_GetItem(self, 1);

    if (!next)
        return NULL;
    Py_IncRef(next); /* a program that sets the hook again may let go of us */
    PyObject *result = PyObject_Call(next, args, NULL);
    Py_DecRef(next);
    return result;
}

/* exception and traceback: as the hook was given them; NULL, or anything else:
 * then nothing is told. */
static PyObject *tell(PyObject *self, PyObject *args, PyObject *exception, PyObject *traceback)
{
    struct interpreter *interpreter = guest_owner(PyTuple_GetItem(self, 0));
    bool told = false;

    if (interpreter && exception &&
        PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_BaseException))
        told = sink->uncaught(interpreter, exception,
                              traceback && is_exactly(traceback, &PyTraceBack_Type) ? traceback
                                                                                    : NULL);
    PyErr_Clear();
    PyObject *result = chain(self, args);
    if (told)
        sink->told(exception);
    return result;
}

/* The one argument of the hooks that have one: a structure that is a tuple; NULL: it isn't. */
static PyObject *only(PyObject *args, Py_ssize_t least)
{
    PyObject *only = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
    return only && PyObject_TypeCheck(only, &PyTuple_Type) && PyTuple_Size(only) >= least ? only
                                                                                          : NULL;
}

static PyObject *in_main(PyObject *self, PyObject *args)
{
    if (PyTuple_Size(args) != 3)
        return chain(self, args);
    return tell(self, args, PyTuple_GetItem(args, 1), PyTuple_GetItem(args, 2));
}

static PyObject *in_thread(PyObject *self, PyObject *args)
{
    PyObject *raised = only(args, 3);
    return raised ? tell(self, args, PyTuple_GetItem(raised, 1), PyTuple_GetItem(raised, 2))
                  : chain(self, args);
}

static bool begins_with(PyObject *text, const char *words)
{
    _cleanup_unref_ PyObject *begin = PyUnicode_FromString(words);
    bool so = begin && is_exactly(text, &PyUnicode_Type) &&
              PyUnicode_Tailmatch(text, begin, 0, PyUnicode_GetLength(text), -1) == 1;
    PyErr_Clear();
    return so;
}

/* sys.unraisablehook. It is called for much that ends nothing. */
static PyObject *in_raw_thread(PyObject *self, PyObject *args)
{
    PyObject *raised = only(args, 4);

    if (!raised || !begins_with(PyTuple_GetItem(raised, 3), RAW_THREAD))
        return chain(self, args);
    return tell(self, args, PyTuple_GetItem(raised, 1), PyTuple_GetItem(raised, 2));
}

/* ---- where they stand ---- */

static PyMethodDef main_def = {"excepthook", in_main, METH_VARARGS, NULL};
static PyMethodDef thread_def = {"excepthook", in_thread, METH_VARARGS, NULL};
static PyMethodDef raw_def = {"unraisablehook", in_raw_thread, METH_VARARGS, NULL};

/* The hooks that we replace. A threading that is not imported yet will find ours in _thread, and
 * keep it in two places. */
static const struct hook {
    const char *module, *name;
    PyMethodDef *ours;
    enum { PLACE_ALWAYS, PLACE_BEFORE_THREADING, PLACE_COPY } when;
} places[] = {
    {"sys", "excepthook", &main_def, PLACE_ALWAYS},
    {"sys", "unraisablehook", &raw_def, PLACE_ALWAYS},
    {"threading", "excepthook", &thread_def, PLACE_ALWAYS},
    {"threading", "__excepthook__", &thread_def, PLACE_COPY},
    {"_thread", "_excepthook", &thread_def, PLACE_BEFORE_THREADING},
};

static bool is_ours(const struct hook *place, PyObject *function)
{
    return is_exactly(function, &PyCFunction_Type) &&
           PyCFunction_GetFunction(function) == place->ours->ml_meth;
}

/* The dict of a module that the program has imported, borrowed from it; NULL: it
 * hasn't. Leaves no exception. */
static PyObject *dict_of(const char *module_name)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString(module_name);
    _cleanup_unref_ PyObject *module = name ? PyImport_GetModule(name) : NULL;

    PyErr_Clear();
    return module && PyObject_TypeCheck(module, &PyModule_Type) ? PyModule_GetDict(module) : NULL;
}

static bool is_due(const struct hook *place)
{
    return place->when == PLACE_ALWAYS ||
           (place->when == PLACE_BEFORE_THREADING && !dict_of("threading"));
}

static int put_in_front(struct interpreter *interpreter, const struct hook *place, PyObject *dict)
{
    PyObject *there = PyDict_GetItemString(dict, place->name); /* borrowed */

    if (!there || there == Py_None || is_ours(place, there))
        return 0;
    _cleanup_unref_ PyObject *ours = guest_function_with(&interpreter->guest, place->ours, there);
    return ours && PyDict_SetItemString(dict, place->name, ours) == 0 ? 0 : -EIO;
}

static void take_out(const struct hook *place, PyObject *dict)
{
    PyObject *there = PyDict_GetItemString(dict, place->name);

    if (!there || !is_ours(place, there))
        return;
    _cleanup_unref_ PyObject *before = PyTuple_GetItem(PyCFunction_GetSelf(there), 1);
    Py_IncRef(before);
    if (before)
        PyDict_SetItemString(dict, place->name, before);
}

static int put_all_in_front(struct interpreter *interpreter)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(places) && r == 0; i++) {
        PyObject *dict = is_due(&places[i]) ? dict_of(places[i].module) : NULL;
        r = dict ? put_in_front(interpreter, &places[i], dict) : 0;
    }
    return r;
}

/* ---- seeing them change ---- */

typedef int watch_callback(int event, PyObject *dict, PyObject *key, PyObject *value);

static int watcher = -1; /* of the main interpreter */
static unsigned pending;

bool uncaught_pending(void) { return __atomic_load_n(&pending, __ATOMIC_ACQUIRE) > 0; }

/* The main thread, between two of its instructions. */
static int put_back(void *unused)
{
    struct interpreter *main_interpreter = interpreter_main();

    if (watcher >= 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        put_all_in_front(main_interpreter);
        PyErr_Restore(type, value, traceback);
    }
    __atomic_sub_fetch(&pending, 1, __ATOMIC_RELEASE);
    return 0;
}

static int on_change(int event, PyObject *dict, PyObject *key, PyObject *value)
{
    for (size_t i = 0; value && i < ARRAY_SIZE(places); i++) {
        if (places[i].when != PLACE_ALWAYS || !is_exactly(key, &PyUnicode_Type) ||
            PyUnicode_CompareWithASCIIString(key, places[i].name) || value == Py_None ||
            is_ours(&places[i], value) || uncaught_pending())
            continue;
        __atomic_add_fetch(&pending, 1, __ATOMIC_ACQ_REL);
        if (Py_AddPendingCall(put_back, NULL) < 0)
            __atomic_sub_fetch(&pending, 1, __ATOMIC_RELEASE);
        return 0;
    }
    return 0;
}

static void watch(void)
{
    int (*add)(watch_callback *) = looked_up.PyDict_AddWatcher; /* since 3.12 */
    int (*begin)(int, PyObject *) = looked_up.PyDict_Watch;

    if (!add || !begin)
        return;
    if (watcher < 0)
        watcher = add(on_change);
    for (size_t i = 0; watcher >= 0 && i < ARRAY_SIZE(places); i++) {
        PyObject *dict = dict_of(places[i].module);
        if (dict)
            begin(watcher, dict);
    }
    PyErr_Clear();
}

static void unwatch(void)
{
    int (*clear)(int) = looked_up.PyDict_ClearWatcher;
    int (*end)(int, PyObject *) = looked_up.PyDict_Unwatch;

    for (size_t i = 0; watcher >= 0 && end && i < ARRAY_SIZE(places); i++) {
        PyObject *dict = dict_of(places[i].module);
        if (dict)
            end(watcher, dict);
    }
    if (watcher >= 0 && clear)
        clear(watcher);
    watcher = -1;
    PyErr_Clear();
}

/* ---- on and off ---- */

static bool is_main(const struct interpreter *interpreter)
{
    return interpreter_is_main(interpreter);
}

int uncaught_on(struct interpreter *interpreter, const struct crash_sink *whom)
{
    sink = whom;
    int r = put_all_in_front(interpreter);

    if (r < 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        uncaught_off(interpreter);
        PyErr_Restore(type, value, traceback);
    } else if (is_main(interpreter)) {
        watch();
    }
    return r;
}

void uncaught_off(struct interpreter *interpreter)
{
    if (is_main(interpreter))
        unwatch();
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        PyObject *dict = dict_of(places[i].module);
        if (dict)
            take_out(&places[i], dict);
    }
    PyErr_Clear();
}
