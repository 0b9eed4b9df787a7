/* `import probing`: the agent by the program's own wish, without ptrace. Also how a script of the daemon
 * starts it (fs/trace/remote_load.py), which makes the module without executing it. */
#include "agent/agent.h"
#include "agent/loaded.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

/* The .pth file imports it at start-up where PROBING=1 is in the environment. */
static enum proto_origin asked_origin(void)
{
    const char *asked = getenv("PROBING");
    return asked && strcmp(asked, "1") == 0 ? ORIGIN_STARTUP : ORIGIN_IMPORTED;
}

/* Starts the agent, unless a daemon has put one in, which is another copy of this library. */
static int start_agent(enum proto_origin origin)
{
    struct agent_boot boot = {.origin = origin};

    /* Where Yama lets only ancestors attach, a daemon of the same user could not take the channel. */
    if (origin != ORIGIN_REMOTE_EXEC)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    int r = loaded_elsewhere() ? 0 : probe_agent_start(&boot);

    if (r == 0)
        return 0;
    errno = -r;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static PyObject *start_as(enum proto_origin origin)
{
    if (start_agent(origin) < 0)
        return NULL;
    Py_IncRef(Py_None);
    return Py_None;
}

static PyObject *start(PyObject *self, PyObject *unused) { return start_as(asked_origin()); }

static PyObject *start_by_script(PyObject *self, PyObject *unused)
{
    return start_as(ORIGIN_REMOTE_EXEC);
}

static PyMethodDef functions[] = {
    {"start", start, METH_NOARGS,
     "start()\n\nStarts the agent if it does not run: in a child after fork, or after it was detached."},
    {"_start_by_script", start_by_script, METH_NOARGS, NULL},
    {NULL},
};

static int execute(PyObject *module)
{
    if (PyModule_AddStringConstant(module, "__version__", AGENT_VERSION) < 0)
        return -1;
    return start_agent(asked_origin());
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "probing",
    .m_doc = "Shows this process to probefs: importing it starts the agent.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_probing(void);
PyMODINIT_FUNC PyInit_probing(void) { return PyModuleDef_Init(&definition); }
