#include "agent/cpython/frame_variables.h"

#include "agent/cpython/code_flags.h"
#include "agent/cpython/codes.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/struct_layout.h"
#include "agent/cpython/text.h"

#include <errno.h>

#define FAST_CELL_OR_FREE 0xc0 /* of co_localspluskinds: Include/internal/pycore_code.h */

static PyObject *(*get_variable)(PyFrameObject *, PyObject *); /* PyFrame_GetVar, 3.12 on: new */
static void *cell_type;

int frame_variables_bind(void)
{
    get_variable = (PyObject * (*)(PyFrameObject *, PyObject *)) looked_up.PyFrame_GetVar;
    cell_type = looked_up.PyCell_Type;
    return codes_bind() && (get_variable || cell_type) ? 0 : -EOPNOTSUPP;
}

/* ---- 3.12 on ---- */

static bool visit_named(PyFrameObject *frame, PyObject *code, const char *kind, const char *but,
                        variable_visit *visit, void *arg)
{
    _cleanup_unref_ PyObject *names = PyObject_GetAttrString(code, kind);
    _cleanup_unref_ PyObject *others = but ? PyObject_GetAttrString(code, but) : NULL;
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    bool more = true;

    for (Py_ssize_t i = 0; i < count && more; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (others && PySequence_Contains(others, name) > 0)
            continue; /* an argument may be a cell as well */
        _cleanup_unref_ PyObject *value = get_variable(frame, name);
        PyErr_Clear();
        if (value)
            more = visit(arg, name, value);
    }
    PyErr_Clear();
    return more;
}

/* ---- 3.10 and 3.11 ---- */

static const void *slot(const char *frame, const struct offsets *o, Py_ssize_t i)
{
    return struct_layout_pointer(frame, o->frame_localsplus + 8 * i);
}

/* What a slot holds, or the cell in it. */
static PyObject *content(const void *value, bool may_be_cell)
{
    PyObject *object = (PyObject *)(uintptr_t)value;

    if (object && may_be_cell && (void *)Py_TYPE(object) == cell_type)
        return (PyObject *)(uintptr_t)struct_layout_pointer(object, struct_layout()->cell_ref);
    return object;
}

static void visit_slots(const char *frame, PyObject *code, variable_visit *visit, void *arg)
{
    const struct offsets *o = struct_layout();
    const int32_t old[] = {o->code_varnames, o->code_cellvars, o->code_freevars};
    const int32_t *fields = o->code_localsplusnames >= 0 ? &o->code_localsplusnames : old;
    const char *kinds =
        o->code_localsplusnames < 0
            ? NULL
            : PyBytes_AsString(
                  (PyObject *)(uintptr_t)struct_layout_pointer(code, o->code_localspluskinds));
    Py_ssize_t at = 0;
    bool more = true;

    for (int k = 0; k < (kinds ? 1 : 3) && more; k++) {
        PyObject *names = (PyObject *)(uintptr_t)struct_layout_pointer(code, fields[k]);
        Py_ssize_t n = PyTuple_Size(names);
        for (Py_ssize_t i = 0; i < n && more; i++, at++) {
            bool may_be_cell = kinds ? kinds[i] & FAST_CELL_OR_FREE : k > 0;
            PyObject *value = content(slot(frame, o, at), may_be_cell);
            if (value)
                more = visit(arg, PyTuple_GetItem(names, i), value);
        }
    }
}

/* ---- all versions ---- */

/* Whether asking for f_locals sets items of the namespace of a class's body, which the program may
 * have made: up to 3.12 its cells are put there (Objects/frameobject.c, PyFrame_FastToLocals). */
static bool sets_items(PyObject *code)
{
    if (python.version >= 0x030d)
        return false;
    _cleanup_unref_ PyObject *cells = PyObject_GetAttrString(code, "co_cellvars");
    PyErr_Clear();
    return !cells || PyTuple_Size(cells) != 0;
}

static void visit_dict(PyFrameObject *frame, PyObject *code, variable_visit *visit, void *arg)
{
    if (sets_items(code))
        return;
    _cleanup_unref_ PyObject *dict = PyObject_GetAttrString((PyObject *)frame, "f_locals");
    PyObject *name, *value;
    Py_ssize_t at = 0;

    PyErr_Clear();
    if (dict && is_exactly(dict, &PyDict_Type))
        while (PyDict_Next(dict, &at, &name, &value) && visit(arg, name, value))
            ;
}

void frame_variables(PyFrameObject *frame, PyObject *code, variable_visit *visit, void *arg)
{
    int offset;

    if (!(codes_number(code, CODE_FLAGS) & CO_OPTIMIZED)) {
        visit_dict(frame, code, visit, arg);
    } else if (get_variable) {
        if (visit_named(frame, code, "co_varnames", NULL, visit, arg) &&
            visit_named(frame, code, "co_cellvars", "co_varnames", visit, arg))
            visit_named(frame, code, "co_freevars", NULL, visit, arg);
    } else if (struct_layout_find()) {
        const char *inner = struct_layout_frame(PyThreadState_Get());
        while (inner && struct_layout_frame_code(inner, &offset) != code)
            inner = struct_layout_frame_back(inner);
        if (inner)
            visit_slots(inner, code, visit, arg);
    }
    PyErr_Clear();
}
