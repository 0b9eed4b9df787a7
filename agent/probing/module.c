/* `import probing` of the installed extension: the agent by the program's own wish, without
 * ptrace. Also how a script of the daemon starts it (fs/inject/script/load.py), which makes
 * the module without executing it.
 *
 * The import never fails because of the agent: where it can't start, the program's spans are just
 * not recorded, and start() says why. */
#include "agent/probing/other_copies.h"
#include "agent/probing/probing.h"
#include "agent/probing/start.h"

#include <errno.h>

static PyObject *start_by_script(PyObject *self, PyObject *unused)
{
    int r = start_agent(ORIGIN_REMOTE_EXEC);

    if (r < 0) {
        errno = -r;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    probing_install();
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef functions[] = {
    {"_start_by_script", start_by_script, METH_NOARGS, NULL},
    {NULL},
};

/* Whether another copy of this library, which a daemon has put in, is the agent: then its module is
 * the one to be imported, which importlib takes from sys.modules. */
static bool give_way(PyObject *module)
{
    _cleanup_unref_ PyObject *other = other_copies_module();
    _cleanup_unref_ PyObject *name = other ? PyModule_GetNameObject(module) : NULL;
    bool gave = name && PyObject_SetItem(PyImport_GetModuleDict(), name, other) == 0;
    PyErr_Clear();
    return gave;
}

static int execute(PyObject *module)
{
    _cleanup_unref_ PyObject *capsule = NULL;

    if (give_way(module))
        return 0;
    struct probing *probing = probing_here(&capsule);
    if (!probing || probing_fill(probing, module) < 0 || probing_drop_at_exit(probing) < 0)
        return -1;
    (void)start_agent(start_origin());
    return 0;
}

#ifndef Py_mod_multiple_interpreters /* since 3.12 */
#define Py_mod_multiple_interpreters 3
#define Py_MOD_PER_INTERPRETER_GIL_SUPPORTED ((void *)2)
#endif

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL}, /* from 3.12 on the next one */
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "probing",
    .m_doc = "Tells probefs what the program does; importing it starts the agent.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_probing(void);
PyMODINIT_FUNC PyInit_probing(void)
{
    int r = python_bind();
    if (r == 0 && python.free_threaded) { /* our module and its spans have the layout with a GIL */
        PyErr_SetString(PyExc_ImportError,
                        "probing.so needs an interpreter with a GIL; probing.py, which "
                        "then records nothing, can be put in its place");
        return NULL;
    }
    if (r == 0 && python.version >= 0x030c)
        slots[1] =
            (PyModuleDef_Slot){Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED};
    return PyModuleDef_Init(&definition);
}

/* Our module, for a copy of this library that is imported while this one is the agent. */
__attribute__((visibility("default"))) PyObject *probe_agent_module(void)
{
    _cleanup_unref_ PyObject *capsule = NULL;
    struct probing *probing = probing_here(&capsule);
    return probing ? probing_module(probing) : NULL;
}
