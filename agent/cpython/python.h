/* CPython, all versions: what one library for 3.10 to 3.15 may use of it.
 *
 * Everything is of the limited API of 3.10, in functions only: references are counted by Py_IncRef
 * and Py_DecRef, never by macros that know the layout of an object. What is beyond it is
 * looked_up (look_up.h says since when and until when it is there). */
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef" /* CPython's own headers */
#include <Python.h>
#pragma GCC diagnostic pop

#include "agent/base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

struct python {
    unsigned version;   /* 0x030c for 3.12 */
    bool free_threaded; /* built so that it needs no GIL; it may have one all the same */
    size_t type_at;     /* bytes from an object's start to its type */
    /* all versions */
    PyInterpreterState *(*interpreter_main)(void);
    PyInterpreterState *(*interpreter_head)(void);
    PyInterpreterState *(*interpreter_next)(PyInterpreterState *);
    PyInterpreterState *(*interpreter_find)(int64_t id); /* sets an exception if there is none */
    void (*state_delete_current)(void);
    PyThreadState *(*thread_first)(PyInterpreterState *); /* the newest one */
    PyThreadState *(*thread_next)(PyThreadState *);
    int (*finalizing)(void);                /* Py_IsFinalizing (3.13), _Py_IsFinalizing (before) */
    void (*enter_tracing)(PyThreadState *); /* since 3.11: no trace function or monitoring tool */
    void (*leave_tracing)(PyThreadState *); /* sees what this thread runs; else NULL */
    /* PyContextVar_New, and ... */
    PyObject *(*context_new)(const char *name, PyObject *default_value);
    int (*context_get)(PyObject *variable, PyObject *default_value, PyObject **value);
    PyObject *(*context_set)(PyObject *variable, PyObject *value);
    void (*locals_to_fast)(PyObject *frame, int clear); /* needed until 3.12 */
    PyFrameObject *(*frame_back)(PyFrameObject *);      /* PyFrame_GetBack: new; NULL: none */
    const char *runtime;                                /* _PyRuntime and its size */
    size_t runtime_size;
};

extern struct python python;

/* The type of an object. The headers' own is that of a build with a GIL: in a free-threaded one
 * more stands before it (struct _object of Include/object.h). Their macros that ask for a type's
 * kind are made of these. */
static inline PyTypeObject *python_type_of(const void *object)
{
    return *(PyTypeObject *const *)((const char *)object + python.type_at);
}
#undef Py_TYPE
#define Py_TYPE(object) python_type_of(object)
#undef Py_IS_TYPE
#define Py_IS_TYPE(object, type) (Py_TYPE(object) == (type))
#undef PyObject_TypeCheck
#define PyObject_TypeCheck(object, type) \
 (Py_IS_TYPE(object, type) || PyType_IsSubtype(Py_TYPE(object), type))
#undef PyType_Check
#define PyType_Check(object) PyType_FastSubclass(Py_TYPE(object), Py_TPFLAGS_TYPE_SUBCLASS)

/* Looks up the above; without the GIL. -EOPNOTSUPP: this is no CPython that we know. */
int python_bind(void);

static inline void python_unref(PyObject **object) { Py_DecRef(*object); }
/* Gives up a reference at the end of the scope; NULL is fine. */
#define _cleanup_unref_ _cleanup_(python_unref)

/* Drops a reference that a variable holds. */
static inline void python_clear(PyObject **object)
{
    PyObject *old = *object;
    *object = NULL;
    Py_DecRef(old);
}

/* Before 3.12 whoever makes an object may have to run the cyclic collector, and that runs anything:
 * this keeps it from that. What it returns is for python_let_collector(). */
static inline bool python_keep_collector(void) { return python.version < 0x030c && PyGC_Disable(); }
static inline void python_let_collector(bool again)
{
    if (again)
        PyGC_Enable();
}
