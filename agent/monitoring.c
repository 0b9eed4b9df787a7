#include "agent/agent.h"
#include "agent/monitoring.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define TOOL "probefs"

/* Those that have no meaning first; debuggers, coverage and profilers ask for 0, 1 and 2. CPython calls the higher ones
 * first. */
#define TOOLS 6
static const int preferred[TOOLS] = {4, 5, 3, 2, 1, 0}, preferred_last[TOOLS] = {3, 2, 1, 0, 4, 5};

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
    const int *tools = self->last ? preferred_last : preferred;
    PyObject *monitoring = module();
    if (!monitoring)
        return -EIO;
    for (size_t i = 0; i < TOOLS; i++)
        if (take(monitoring, tools[i]) == 0) {
            self->tool = tools[i];
            self->taken = true;
            self->turn++;
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
        mask |= self->events[i].name && !self->events[i].local ? self->events[i].mask : 0;
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

/* ---- several that want to hear of one event ---- */

static const struct monitoring_event *find_in(const struct monitoring *self, const PyObject *function)
{
    for (size_t i = 0; i < MONITORING_EVENTS; i++)
        if (self->events[i].name && self->events[i].function == function)
            return &self->events[i];
    return NULL;
}

static const struct monitoring_event *find_by_function(const PyObject *function)
{
    const struct monitoring_event *found = NULL;

    for (size_t i = 0; i < INTERPRETERS_MAX && !found; i++) {
        const struct interpreter *interpreter = &agent.interpreters[i];
        if (!interpreter->used)
            continue;
        found = find_in(&interpreter->monitoring, function);
        found = found ? found : find_in(&interpreter->stepping, function);
    }
    return found;
}

/* Each of them may take any of them out. */
static PyObject *tell_all(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    const struct monitoring_event *event = find_by_function(function);
    monitoring_function *hearers[MONITORING_HEARERS] = {0};
    PyObject *result = monitoring_nothing();

    if (event)
        memcpy(hearers, event->hearers, sizeof hearers);
    Py_IncRef(function);
    for (size_t i = 0; i < MONITORING_HEARERS && hearers[i] && result; i++) {
        Py_DecRef(result);
        result = hearers[i](function, args, count, names);
    }
    Py_DecRef(function);
    return result;
}

static void set_callee(struct monitoring_event *event)
{
    api.set_vectorcall(event->function, event->hearers[1] ? tell_all : event->hearers[0]);
}

/* Where a hearer is; MONITORING_HEARERS: nowhere. NULL: the first free place. */
static size_t place_of(const struct monitoring_event *event, monitoring_function *call)
{
    size_t i = 0;

    while (i < MONITORING_HEARERS && event->hearers[i] != call)
        i++;
    return i;
}

static int hear(struct monitoring_event *event, monitoring_function *call, enum monitoring_flags flags)
{
    size_t end = place_of(event, NULL), at = flags & MONITORING_RUNS_CODE ? end : 0;

    if (event->local != (bool)(flags & MONITORING_LOCAL) || place_of(event, call) < MONITORING_HEARERS)
        return -EALREADY;
    if (end == MONITORING_HEARERS)
        return -EBUSY;
    memmove(&event->hearers[at + 1], &event->hearers[at], (end - at) * sizeof event->hearers[0]);
    event->hearers[at] = call;
    set_callee(event);
    return 0;
}

static void hear_no_more(struct monitoring_event *event, size_t at)
{
    for (; at + 1 < MONITORING_HEARERS; at++)
        event->hearers[at] = event->hearers[at + 1];
    event->hearers[at] = NULL;
    if (event->hearers[0])
        set_callee(event);
}

/* ---- on and off ---- */

static int fill(struct monitoring_event *event, const char *name, enum monitoring_flags flags)
{
    *event = (struct monitoring_event){.mask = event_mask(name), .function = make_function(),
                                       .local = flags & MONITORING_LOCAL};
    if (event->mask < 0 || !event->function)
        return -EIO;
    event->plain = api.vectorcall(event->function);
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

static bool is_idle(const struct monitoring *self)
{
    for (size_t i = 0; i < MONITORING_EVENTS; i++)
        if (self->events[i].name)
            return false;
    return true;
}

/* Has a tool id, again where the program has freed it. */
static int have_tool(struct monitoring *self)
{
    if (self->taken && is_ours(self->tool))
        return 0;
    int r = take_any(self);
    for (size_t i = 0; i < MONITORING_EVENTS && r == 0; i++)
        if (self->events[i].name)
            r = register_callback(self, self->events[i].mask, self->events[i].function);
    return r == 0 && !is_idle(self) ? set_events(self) : r;
}

/* Nobody hears of it any more. */
static void drop(struct monitoring *self, struct monitoring_event *event)
{
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

static int add(struct monitoring *self, const char *name, monitoring_function *call, enum monitoring_flags flags,
               PyObject **out)
{
    struct monitoring_event *event = find(self, NULL);
    int r = event ? fill(event, name, flags) : -EBUSY;

    if (r == 0)
        r = hear(event, call, flags);
    if (r == 0 && (register_callback(self, event->mask, event->function) < 0 || set_events(self) < 0))
        r = -EIO;
    if (r == 0) {
        *out = event->function;
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (event)
        drop(self, event);
    PyErr_Restore(type, value, traceback);
    return r;
}

int monitoring_add(struct monitoring *self, const char *name, monitoring_function *call, enum monitoring_flags flags,
                   PyObject **out)
{
    if (!monitoring_available())
        return -EOPNOTSUPP;
    int r = have_tool(self);
    if (r < 0)
        return r;
    struct monitoring_event *event = find(self, name);
    if (!event)
        return add(self, name, call, flags, out);
    r = hear(event, call, flags);
    if (r == 0)
        *out = event->function;
    return r;
}

void monitoring_remove(struct monitoring *self, const char *name, monitoring_function *call)
{
    struct monitoring_event *event = find(self, name);
    size_t at = event ? place_of(event, call) : MONITORING_HEARERS;

    if (at == MONITORING_HEARERS)
        return;
    hear_no_more(event, at);
    if (!event->hearers[0])
        drop(self, event);
}

long monitoring_mask(const struct monitoring *self, const char *name)
{
    const struct monitoring_event *event = find((struct monitoring *)self, name);
    return event ? event->mask : 0;
}

static int set_local(const struct monitoring *self, PyObject *code, long mask)
{
    PyObject *monitoring = module();
    _cleanup_unref_ PyObject *done =
        monitoring ? PyObject_CallMethod(monitoring, "set_local_events", "iOl", self->tool, code, mask) : NULL;
    return done ? 0 : -EIO;
}

/* Only what is new is looked at anew. */
int monitoring_watch(const struct monitoring *self, PyObject *code, long mask)
{
    if (set_local(self, code, 0) < 0)
        return -EIO;
    return mask ? set_local(self, code, mask) : 0;
}

PyObject *monitoring_disable(void)
{
    PyObject *monitoring = module();
    return monitoring ? PyObject_GetAttrString(monitoring, "DISABLE") : NULL;
}
