#include "agent/breakpoint/hook.h"

#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/places.h"
#include "agent/cpython/own_code.h"
#include "agent/cpython/text.h"

#include <errno.h>

#define NAME "breakpointhook"

/* What stood there before is being called: it may have ours called again, which it has kept. */
static __thread bool chaining;

/* Calls what the call says it wants where no thread is held (otherwise=), or what stood there
 * before: self is (capsule, that). */
static PyObject *chain(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *otherwise = keywords ? PyDict_GetItemString(keywords, "otherwise") : NULL;
    PyObject *next = otherwise ? otherwise : PyTuple_GetItem(self, 1);
    bool outer = chaining;

    if (!next)
        return NULL;
    Py_IncRef(next); /* a program that sets the hook again may let go of us */
    chaining = true;
    PyObject *result = otherwise ? PyObject_CallObject(next, NULL)
                                 : PyObject_Call(next, args, keywords);
    chaining = outer;
    Py_DecRef(next);
    return result;
}

/* Hits what is set, in this thread. *held: one of them has held it. False: an exception is set that
 * the program is to see. */
static bool reach(struct interpreter *interpreter, bool *held)
{
    const struct places *places = places_here(interpreter);
    struct hit_list list;
    unsigned count = 0;
    struct breakpoint *const *all = places ? places_hooks(places, &count) : NULL;
    _cleanup_unref_ PyObject *innermost = (PyObject *)PyEval_GetFrame();

    Py_IncRef(innermost);
    if (!count || !innermost || !hit_list_begin(&list, count))
        return true;
    for (unsigned i = 0; i < count; i++)
        list.all[list.count++] = breakpoint_ref(all[i]);
    _cleanup_unref_ PyObject *frame =
        (PyObject *)own_code_frame((PyFrameObject *)innermost, own_code_is_agents);
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    struct reached reached = {
        .frame = (PyFrameObject *)frame,
        .code = code,
        .line = PyFrame_GetLineNumber((PyFrameObject *)frame),
        .held = (PyFrameObject *)innermost,
        .why = STOP_BREAKPOINT,
        .event = HEAR_EVENTS,
        .holds = held,
    };
    return hit_list_run(&list, interpreter, &reached);
}

static PyObject *hook(PyObject *self, PyObject *args, PyObject *keywords)
{
    struct interpreter *interpreter = guest_owner(PyTuple_GetItem(self, 0));
    bool held = false;

    if (interpreter && !chaining && !reach(interpreter, &held))
        return NULL;
    if (!held)
        return chain(self, args, keywords);
    Py_IncRef(Py_None);
    return Py_None;
}

/* contrib/probing.py knows it by its name. */
static PyMethodDef definition = {"probefs_" NAME, (PyCFunction)(void (*)(void))hook,
                                 METH_VARARGS | METH_KEYWORDS, NULL};

static bool is_ours(PyObject *function)
{
    return is_exactly(function, &PyCFunction_Type) &&
           PyCFunction_GetFunction(function) == definition.ml_meth;
}

bool hook_stands(void)
{
    PyObject *there = PySys_GetObject(NAME);
    return there && is_ours(there);
}

int hook_begin(struct interpreter *interpreter)
{
    PyObject *there = PySys_GetObject(NAME);

    if (!there || is_ours(there))
        return 0; /* without one, breakpoint() raises */
    if (guest_make(&interpreter->guest, interpreter) < 0)
        return -EIO;
    _cleanup_unref_ PyObject *ours = guest_function_with(&interpreter->guest, &definition, there);
    return ours && PySys_SetObject(NAME, ours) == 0 ? 0 : -EIO;
}

void hook_end(void)
{
    PyObject *there = PySys_GetObject(NAME);

    if (there && is_ours(there)) {
        _cleanup_unref_ PyObject *before = PyTuple_GetItem(PyCFunction_GetSelf(there), 1);
        Py_IncRef(before);
        PySys_SetObject(NAME, before);
    }
    PyErr_Clear();
}
