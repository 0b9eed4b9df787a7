#include "agent/probing/probing.h"

#include "agent/base/lock.h"
#include "agent/probing/event.h"
#include "agent/probing/finder.h"
#include "agent/probing/holder.h"
#include "agent/probing/python_part.h"
#include "agent/probing/span.h"
#include "agent/probing/span_context.h"
#include "agent/probing/start.h"

#define CAPSULE "probefs probing"

static struct probing *probings; /* with agent_lock */

/* ---- one for each interpreter ---- */

static void capsule_freed(PyObject *capsule)
{
    struct probing *probing = PyCapsule_GetPointer(capsule, CAPSULE);

    Py_DecRef(probing->module); /* nothing else can be there: it would keep the capsule */
    {
        _guard_agent_;
        struct probing **link = &probings;
        while (*link != probing)
            link = &(*link)->next;
        *link = probing->next;
    }
    free(probing);
}

static struct probing *find(int64_t interpreter)
{
    _guard_agent_;
    struct probing *probing = probings;
    while (probing && probing->interpreter != interpreter)
        probing = probing->next;
    return probing;
}

static PyObject *make(int64_t interpreter)
{
    struct probing *probing = calloc(1, sizeof *probing);
    PyObject *capsule = probing ? PyCapsule_New(probing, CAPSULE, NULL) : PyErr_NoMemory();

    if (!capsule) {
        free(probing);
        return NULL;
    }
    probing->interpreter = interpreter;
    probing->capsule = capsule;
    PyCapsule_SetDestructor(capsule, capsule_freed);
    _guard_agent_;
    probing->next = probings;
    probings = probing;
    return capsule;
}

struct probing *probing_here(PyObject **capsule)
{
    int64_t interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());

    if (!python.version && python_bind() < 0) {
        PyErr_SetString(PyExc_ImportError, "no CPython of a supported version");
        return NULL;
    }
    struct probing *probing = find(interpreter);
    if (probing)
        Py_IncRef(probing->capsule);
    *capsule = probing ? probing->capsule : make(interpreter);
    return *capsule ? probing_of(*capsule) : NULL;
}

struct probing *probing_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, CAPSULE); }

bool probing_remains(void)
{
    _guard_agent_;
    return probings != NULL;
}

static void set_installed(struct probing *probing, bool installed)
{
    _guard_agent_;
    probing->installed = installed;
}

void probing_install(void)
{
    _cleanup_unref_ PyObject *capsule = NULL;
    struct probing *probing = probing_here(&capsule);

    if (probing)
        set_installed(probing, true);
    if (!probing || finder_install(probing) < 0)
        PyErr_Clear();
}

bool probing_installed(void)
{
    _guard_agent_;
    struct probing *probing = probings;
    while (probing && !probing->installed)
        probing = probing->next;
    return probing != NULL;
}

void probing_drop(void)
{
    struct probing *probing = find(PyInterpreterState_GetID(PyInterpreterState_Get()));

    if (!probing)
        return;
    _cleanup_unref_ PyObject *capsule = probing->capsule;
    Py_IncRef(capsule);
    finder_remove(probing);
    span_context_forget_all(probing);
    python_clear(&probing->span_type);
    python_clear(&probing->python);
    PyErr_Clear();
    set_installed(probing, false);
}

static PyObject *drop(PyObject *capsule, PyObject *unused)
{
    probing_drop();
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef drop_def = {"probefs_probing_exit", drop, METH_NOARGS, NULL};

int probing_drop_at_exit(struct probing *probing)
{
    if (probing->interpreter == 0)
        return 0;
    _cleanup_unref_ PyObject *function = PyCFunction_NewEx(&drop_def, probing->capsule, NULL);
    _cleanup_unref_ PyObject *atexit = PyImport_ImportModule("atexit");
    _cleanup_unref_ PyObject *done =
        function && atexit ? PyObject_CallMethod(atexit, "register", "O", function) : NULL;
    return done ? 0 : -1;
}

/* ---- the module ---- */

/* Holds this thread at an exception, for contrib/probing.py. */
static PyObject *hold(PyObject *capsule, PyObject *exception)
{
    return PyBool_FromLong(PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_BaseException) &&
                           crash_holder.hold(exception));
}

static PyMethodDef functions[] = {
    {"span", (PyCFunction)(void (*)(void))span_function, METH_FASTCALL | METH_KEYWORDS,
     "span($module, name, /, **attrs)\n--\n\n"
     "Says what the program does: `with span(\"step\", loss=0.1):` or `@span(\"step\")`.\n\n"
     "Each time is a row of the table spans, while somebody records it."},
    {"event", (PyCFunction)(void (*)(void))event_function, METH_FASTCALL | METH_KEYWORDS,
     "event($module, name, /, **attrs)\n--\n\n"
     "Says that something happened: `event(\"saved\", path=\"a.pt\")`, a row of the table events."},
    {"start", start_function, METH_NOARGS,
     "start($module)\n--\n\n"
     "Starts the agent if it does not run: in a child after fork, or after it was detached."},
    {"_hold", hold, METH_O, NULL},
    {"__getattr__", python_part_attribute, METH_O, NULL},
    {NULL},
};

int probing_fill(struct probing *probing, PyObject *module)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString("probing");
    int r = name ? PyModule_AddStringConstant(module, "__version__", AGENT_VERSION) : -1;

    for (PyMethodDef *def = functions; r == 0 && def->ml_name; def++) {
        _cleanup_unref_ PyObject *function = PyCFunction_NewEx(def, probing->capsule, name);
        r = function ? PyObject_SetAttrString(module, def->ml_name, function) : -1;
    }
    PyObject *known = r == 0 ? PyWeakref_NewRef(module, NULL) : NULL;
    if (!known)
        return -1;
    Py_DecRef(probing->module);
    probing->module = known;
    return 0;
}

PyObject *probing_module(struct probing *probing)
{
    PyObject *module = probing->module ? PyObject_CallNoArgs(probing->module) : NULL;

    if (module && module != Py_None)
        return module;
    Py_DecRef(module);
    PyErr_Clear();
    module = PyModule_New("probing");
    if (!module || PyModule_SetDocString(module, "Tells probefs what the program does.") < 0 ||
        probing_fill(probing, module) < 0)
        python_clear(&module);
    return module;
}
