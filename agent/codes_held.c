#include "agent/codes_held.h"

#define DEPTH_MAX 6 /* from what a module has on: class, dict, descriptor, wrapper, closure, cell */

#define OWN_MAX 1000  /* that CPython 3.12 forgets by itself as it starts */

struct search {
    PyTypeObject *function;
    int (*visit)(PyObject *, void *);
    void *arg;
    unsigned depth;
    bool in_class;           /* what is looked at is a class's */
};

bool codes_are_frozen(void)
{
    _cleanup_unref_ PyObject *gc = PyImport_ImportModule("gc");
    _cleanup_unref_ PyObject *count = gc ? PyObject_CallMethod(gc, "get_freeze_count", NULL) : NULL;
    bool are = count && PyLong_Check(count) && PyLong_AsLong(count) > OWN_MAX;

    PyErr_Clear();
    return are;
}

/* Data is not looked into: only what holds functions for themselves, or for classes. */
static bool leads_on(const struct search *search, PyObject *object)
{
    return search->depth < DEPTH_MAX && PyObject_GC_IsTracked(object) && !PyModule_Check(object) &&
           !PyList_CheckExact(object) && !PyAnySet_CheckExact(object) && (search->in_class || !PyDict_CheckExact(object));
}

static int look(PyObject *object, void *arg)
{
    struct search *search = arg;
    bool in_class = search->in_class;

    if (Py_TYPE(object) == search->function)
        search->visit(object, search->arg);
    traverseproc traverse = leads_on(search, object) ? (traverseproc)PyType_GetSlot(Py_TYPE(object), Py_tp_traverse) : NULL;
    if (!traverse)
        return 0;
    search->depth++;
    search->in_class = PyType_Check(object);
    traverse(object, look, search);
    search->in_class = in_class;
    search->depth--;
    return 0;
}

void codes_each_held(PyTypeObject *function, int (*visit)(PyObject *, void *), void *arg)
{
    struct search search = {.function = function, .visit = visit, .arg = arg};
    PyObject *modules = PyImport_GetModuleDict(), *module, *value; /* all borrowed */
    Py_ssize_t at = 0, of = 0;

    while (modules && PyDict_Next(modules, &at, NULL, &module)) {
        PyObject *dict = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        for (of = 0; dict && PyDict_Next(dict, &of, NULL, &value);)
            look(value, &search);
    }
}
