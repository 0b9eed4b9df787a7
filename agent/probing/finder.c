#include "agent/probing/finder.h"

#define NAME "probing"
#define FINDER "<probefs>"        /* contrib/probing.py looks for it */
#define FALLBACK "_probefs_agent" /* its variable: the module, or None */

/* ---- the functions of importlib's protocol: the finder is its own loader ---- */

/* find_spec(name, path=None, target=None) */
static PyObject *find_spec(PyObject *capsule, PyObject *const *args, Py_ssize_t count,
                           PyObject *names)
{
    struct probing *probing = probing_of(capsule);

    if (!probing || count < 1 || !PyUnicode_Check(args[0]) || !probing->finder ||
        PyUnicode_CompareWithASCIIString(args[0], NAME) != 0) {
        PyErr_Clear();
        Py_IncRef(Py_None);
        return Py_None;
    }
    _cleanup_unref_ PyObject *bootstrap = PyImport_ImportModule("_frozen_importlib");
    _cleanup_unref_ PyObject *origin = PyUnicode_FromString("probefs");
    PyObject *spec = bootstrap && origin
                         ? PyObject_CallMethod(bootstrap, "ModuleSpec", "sO", NAME, probing->finder)
                         : NULL;
    if (spec && PyObject_SetAttrString(spec, "origin", origin) < 0)
        python_clear(&spec);
    return spec;
}

static PyObject *create_module(PyObject *capsule, PyObject *spec)
{
    struct probing *probing = probing_of(capsule);
    return probing ? probing_module(probing) : NULL;
}

static PyObject *exec_module(PyObject *capsule, PyObject *module)
{
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef functions[] = {
    {"find_spec", (PyCFunction)(void (*)(void))find_spec, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"create_module", create_module, METH_O, NULL},
    {"exec_module", exec_module, METH_O, NULL},
    {NULL},
};

static PyObject *make_finder(PyObject *capsule)
{
    PyObject *finder = PyModule_New(FINDER);

    for (PyMethodDef *def = functions; finder && def->ml_name; def++) {
        _cleanup_unref_ PyObject *function = PyCFunction_NewEx(def, capsule, NULL);
        if (!function || PyObject_SetAttrString(finder, def->ml_name, function) < 0)
            python_clear(&finder);
    }
    return finder;
}

/* ---- sys.meta_path ---- */

/* Borrowed; NULL: the program has made something else of it. */
static PyObject *meta_path(void)
{
    PyObject *list = PySys_GetObject("meta_path");
    return list && PyList_Check(list) ? list : NULL;
}

/* -1: it isn't there. */
static Py_ssize_t find_finder(PyObject *list, PyObject *finder)
{
    Py_ssize_t at = list ? PyList_Size(list) - 1 : -1;
    while (at >= 0 && PyList_GetItem(list, at) != finder)
        at--;
    return at;
}

/* ---- contrib/probing.py ---- */

/* Sets its variable to `value` where it is `from`, in every copy that is loaded;
 * from NULL: where it is None. */
static int connect_fallbacks(PyObject *from, PyObject *value)
{
    PyObject *modules = PyImport_GetModuleDict(), *name, *module; /* borrowed */
    _cleanup_unref_ PyObject *key = PyUnicode_FromString(FALLBACK);
    Py_ssize_t at = 0;

    if (!key || !PyDict_Check(modules))
        return key ? 0 : -1;
    while (PyDict_Next(modules, &at, &name, &module)) {
        PyObject *dict = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        PyObject *now = dict ? PyDict_GetItemWithError(dict, key) : NULL;
        if (now && now == (from ? from : Py_None) && PyDict_SetItem(dict, key, value) < 0)
            return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- */

int finder_install(struct probing *probing)
{
    if (!probing->finder)
        probing->finder = make_finder(probing->capsule);
    _cleanup_unref_ PyObject *module = probing->finder ? probing_module(probing) : NULL;
    PyObject *list = meta_path();

    if (!module)
        return -1;
    if (list && find_finder(list, probing->finder) < 0 && PyList_Append(list, probing->finder) < 0)
        return -1;
    return connect_fallbacks(NULL, module);
}

void finder_remove(struct probing *probing)
{
    PyObject *list = meta_path();
    Py_ssize_t at = probing->finder ? find_finder(list, probing->finder) : -1;

    if (at >= 0)
        PyList_SetSlice(list, at, at + 1, NULL);
    PyErr_Clear();
    _cleanup_unref_ PyObject *module = probing->module ? PyObject_CallNoArgs(probing->module)
                                                       : NULL;
    if (module && module != Py_None)
        connect_fallbacks(module, Py_None);
    PyErr_Clear();
    python_clear(&probing->finder);
}
