#include "agent/monitoring.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define TOOL "probefs"

/* Those that have no meaning first; debuggers, coverage and profilers ask for 0, 1 and 2. */
static const int preferred[] = {3, 4, 5, 2, 1, 0};

static struct {
    void (*set_vectorcall)(PyObject *, monitoring_function *); /* PyFunction_SetVectorcall */
    monitoring_function *(*vectorcall)(PyObject *);            /* PyVectorcall_Function */
} api;

bool monitoring_available(void)
{
    api.set_vectorcall = (void (*)(PyObject *, monitoring_function *))
        dlsym(RTLD_DEFAULT, "PyFunction_SetVectorcall");
    api.vectorcall = (monitoring_function *(*)(PyObject *))
        dlsym(RTLD_DEFAULT, "PyVectorcall_Function");
    return python.version >= 0x030c && api.set_vectorcall && api.vectorcall;
}

/* sys.monitoring, borrowed; NULL with an exception set. */
static PyObject *module(void)
{
    PyObject *monitoring = PySys_GetObject("monitoring");
    return monitoring ? monitoring : PyErr_Format(PyExc_RuntimeError, "sys.monitoring is gone");
}

/* Whether the id is still ours, which the program may have freed. */
static bool is_ours(int tool)
{
    PyObject *monitoring = module();
    _cleanup_unref_ PyObject *name =
        monitoring ? PyObject_CallMethod(monitoring, "get_tool", "i", tool) : NULL;
    bool ours = name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, TOOL) == 0;
    PyErr_Clear();
    return ours;
}

/* 0, or -EBUSY: it has an owner. */
static int take(PyObject *monitoring, int tool)
{
    _cleanup_unref_ PyObject *done = PyObject_CallMethod(monitoring, "use_tool_id", "is", tool, TOOL);
    PyErr_Clear();
    return done ? 0 : -EBUSY;
}

static int take_any(struct monitoring *self)
{
    PyObject *monitoring = module();
    if (!monitoring)
        return -EIO;
    for (size_t i = 0; i < ARRAY_SIZE(preferred); i++)
        if (take(monitoring, preferred[i]) == 0) {
            self->tool = preferred[i];
            self->taken = true;
            return 0;
        }
    return -EBUSY;
}

static void give_back(struct monitoring *self)
{
    PyObject *monitoring = module();
    if (monitoring && is_ours(self->tool))
        Py_DecRef(PyObject_CallMethod(monitoring, "free_tool_id", "i", self->tool));
    PyErr_Clear();
    self->taken = false;
}

/* A function object that does nothing. */
static PyObject *make_function(void)
{
    _cleanup_unref_ PyObject *code =
        Py_CompileString("def probefs(*_): pass", "<probefs>", Py_file_input);
    _cleanup_unref_ PyObject *globals = PyDict_New();
    _cleanup_unref_ PyObject *done = code && globals ? PyEval_EvalCode(code, globals, globals) : NULL;
    PyObject *function = done ? PyDict_GetItemString(globals, "probefs") : NULL;

    if (!function)
        return NULL;
    Py_IncRef(function);
    PyDict_Clear(globals); /* which it knows */
    return function;
}

static long event_mask(const char *name)
{
    PyObject *monitoring = module();
    _cleanup_unref_ PyObject *events = monitoring ? PyObject_GetAttrString(monitoring, "events") : NULL;
    _cleanup_unref_ PyObject *mask = events ? PyObject_GetAttrString(events, name) : NULL;
    return mask ? PyLong_AsLong(mask) : -1;
}

/* All events that are wanted, and no others. */
static int set_events(const struct monitoring *self)
{
    PyObject *monitoring = module();
    long mask = 0;

    for (size_t i = 0; i < MONITORING_EVENTS; i++)
        mask |= self->events[i].name ? self->events[i].mask : 0;
    _cleanup_unref_ PyObject *done =
        monitoring ? PyObject_CallMethod(monitoring, "set_events", "il", self->tool, mask) : NULL;
    return done ? 0 : -EIO;
}

static int register_callback(const struct monitoring *self, long mask, PyObject *function)
{
    PyObject *monitoring = module();
    if (!monitoring)
        return -EIO;
    _cleanup_unref_ PyObject *before =
        PyObject_CallMethod(monitoring, "register_callback", "ilO", self->tool, mask, function);
    return before ? 0 : -EIO;
}

static struct monitoring_event *find(struct monitoring *self, const char *name)
{
    for (size_t i = 0; i < MONITORING_EVENTS; i++)
        if (self->events[i].name ? name && strcmp(self->events[i].name, name) == 0 : !name)
            return &self->events[i];
    return NULL;
}

static int fill(struct monitoring_event *event, const char *name, monitoring_function *call)
{
    *event = (struct monitoring_event){.mask = event_mask(name), .function = make_function()};
    if (event->mask < 0 || !event->function)
        return -EIO;
    event->plain = api.vectorcall(event->function);
    api.set_vectorcall(event->function, call);
    event->name = name;
    return 0;
}

static void empty(struct monitoring_event *event)
{
    if (event->function && event->plain)
        api.set_vectorcall(event->function, event->plain);
    event->name = NULL;
    python_clear(&event->function);
}

int monitoring_add(struct monitoring *self, const char *name, monitoring_function *call, PyObject **out)
{
    if (!monitoring_available())
        return -EOPNOTSUPP;
    if (find(self, name))
        return -EALREADY;
    struct monitoring_event *event = find(self, NULL);
    int r = !event ? -EBUSY : self->taken ? 0 : take_any(self);
    if (r < 0)
        return r;
    r = fill(event, name, call);
    if (r == 0 && (register_callback(self, event->mask, event->function) < 0 || set_events(self) < 0))
        r = -EIO;
    if (r == 0) {
        *out = event->function;
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    event->name = name;
    monitoring_remove(self, name);
    PyErr_Restore(type, value, traceback);
    return r;
}

static bool is_idle(const struct monitoring *self)
{
    for (size_t i = 0; i < MONITORING_EVENTS; i++)
        if (self->events[i].name)
            return false;
    return true;
}

void monitoring_remove(struct monitoring *self, const char *name)
{
    struct monitoring_event *event = find(self, name);
    if (!event)
        return;
    event->name = NULL;
    if (is_ours(self->tool)) {
        set_events(self);
        PyErr_Clear();
        register_callback(self, event->mask, Py_None);
        PyErr_Clear();
    }
    empty(event);
    if (is_idle(self))
        give_back(self);
}
