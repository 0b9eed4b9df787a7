#include "agent/monitor/monitoring.h"

#include "agent/cpython/look_up.h"

#include <errno.h>
#include <string.h>

#define TOOL "probefs"

/* The tool ids to ask for: those that have no meaning first; debuggers, coverage and profilers ask
 * for 0, 1 and 2. CPython calls the higher ones first, so steps are told of last, if that can be
 * had. */
#define IDS 6
static const int preferred[IDS] = {4, 5, 3, 2, 1, 0}, preferred_last[IDS] = {3, 2, 1, 0, 4, 5};

enum { RECORD, STEP, WATCH, TOOLS };
static const unsigned tool_numbers[HEARERS] = {
    [HEARER_EXCEPTIONS] = RECORD,
    [HEARER_BREAKPOINTS] = RECORD,
    [HEARER_WATCHES] = WATCH,
    [HEARER_STEPS] = STEP,
};

static const char *const names[HEAR_EVENTS] = {
    [HEAR_START] = "PY_START", [HEAR_RESUME] = "PY_RESUME",
    [HEAR_THROW] = "PY_THROW", [HEAR_LINE] = "LINE",
    [HEAR_JUMP] = "JUMP",      [HEAR_RETURN] = "PY_RETURN",
    [HEAR_YIELD] = "PY_YIELD", [HEAR_UNWIND] = "PY_UNWIND",
    [HEAR_RAISE] = "RAISE",    [HEAR_HANDLED] = "EXCEPTION_HANDLED",
};
/* Events that can't be told of some code only. */
#define NEVER_LOCAL \
 (HEAR_BIT(HEAR_THROW) | HEAR_BIT(HEAR_UNWIND) | HEAR_BIT(HEAR_RAISE) | HEAR_BIT(HEAR_HANDLED))

typedef PyObject *vectorcall(PyObject *function, PyObject *const *args, size_t count,
                             PyObject *names);
enum code_event { CODE_CREATED, CODE_DESTROYED }; /* PyCodeEvent of CPython's cpython/code.h */

static struct {
    void (*set_vectorcall)(PyObject *, vectorcall *);         /* PyFunction_SetVectorcall */
    vectorcall *(*vectorcall)(PyObject *);                    /* PyVectorcall_Function */
    int (*add_watcher)(int (*)(enum code_event, PyObject *)); /* PyCode_AddWatcher */
    int (*clear_watcher)(int);                                /* PyCode_ClearWatcher */
    vectorcall *plain;                                        /* of a function that isn't ours */
    long masks[HEAR_EVENTS];                                  /* in sys.monitoring.events */
    PyObject *disable; /* sys.monitoring.DISABLE: held for good, the same in all interpreters */
} api;

/* One tool of an interpreter. All zeros: nobody hears. */
struct tool {
    PyObject *functions[HEAR_EVENTS]; /* NULL: nobody hears of it */
    const struct hearer *hearers[HEARERS];
    unsigned everywhere[HEARERS], local[HEARERS]; /* what they asked for */
    unsigned asked[HEAR_EVENTS];                  /* who, one bit each, asked for either */
    bool taken;
    int id;        /* if taken */
    unsigned turn; /* how often one was taken: then what was said of code is lost */
};

/* The tools of each interpreter, under its GIL. */
static struct monitoring {
    int64_t interpreter; /* its id: an entry of interpreters[] may become another one's */
    struct tool tools[TOOLS];
    int watcher; /* of code objects: id + 1; 0: there is none */
} all[INTERPRETERS_MAX];

static struct monitoring *monitoring_of(const struct interpreter *interpreter)
{
    struct monitoring *self = &all[interpreter_index(interpreter)];

    if (self->interpreter != interpreter->id)
        *self = (struct monitoring){.interpreter = interpreter->id};
    return self;
}

static struct tool *tool_of(const struct interpreter *interpreter, const struct hearer *hearer)
{
    return &monitoring_of(interpreter)->tools[tool_numbers[hearer->id]];
}

/* ---- sys.monitoring ---- */

/* sys.monitoring, borrowed; NULL with an exception set. */
static PyObject *module(void)
{
    PyObject *monitoring = PySys_GetObject("monitoring");
    return monitoring ? monitoring : PyErr_Format(PyExc_RuntimeError, "sys.monitoring is gone");
}

static int find_masks(void)
{
    PyObject *monitoring = module();
    _cleanup_unref_ PyObject *events = monitoring ? PyObject_GetAttrString(monitoring, "events")
                                                  : NULL;

    for (enum hear_event event = 0; event < HEAR_EVENTS; event++) {
        _cleanup_unref_ PyObject *mask = events ? PyObject_GetAttrString(events, names[event])
                                                : NULL;
        api.masks[event] = mask ? PyLong_AsLong(mask) : -1;
        if (api.masks[event] < 0)
            return -EIO;
    }
    api.disable = PyObject_GetAttrString(monitoring, "DISABLE");
    return api.disable ? 0 : -EIO;
}

static int bind(void)
{
    api.set_vectorcall = (void (*)(PyObject *, vectorcall *))looked_up.PyFunction_SetVectorcall;
    api.vectorcall = (vectorcall * (*)(PyObject *)) looked_up.PyVectorcall_Function;
    api.add_watcher = (int (*)(int (*)(enum code_event, PyObject *)))looked_up.PyCode_AddWatcher;
    api.clear_watcher = (int (*)(int))looked_up.PyCode_ClearWatcher;
    if (!api.set_vectorcall || !api.vectorcall || !api.add_watcher || !api.clear_watcher)
        return -EOPNOTSUPP;
    return api.disable ? 0 : find_masks();
}

/* Whether the id is still ours, which the program may have freed. */
static bool is_ours(int id)
{
    PyObject *monitoring = module();
    _cleanup_unref_ PyObject *name =
        monitoring ? PyObject_CallMethod(monitoring, "get_tool", "i", id) : NULL;
    bool ours = name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, TOOL) == 0;
    PyErr_Clear();
    return ours;
}

/* 0, or -EBUSY: it has an owner. */
static int take(PyObject *monitoring, int id)
{
    _cleanup_unref_ PyObject *done = PyObject_CallMethod(monitoring, "use_tool_id", "is", id, TOOL);
    PyErr_Clear();
    return done ? 0 : -EBUSY;
}

static int take_any(struct tool *self, bool last)
{
    const int *ids = last ? preferred_last : preferred;
    PyObject *monitoring = module();

    self->taken = false;
    if (!monitoring)
        return -EIO;
    for (size_t i = 0; i < IDS; i++)
        if (take(monitoring, ids[i]) == 0) {
            self->id = ids[i];
            self->taken = true;
            self->turn++;
            return 0;
        }
    return -EBUSY;
}

static void give_back(struct tool *self)
{
    PyObject *monitoring = module();
    if (monitoring && is_ours(self->id))
        Py_DecRef(PyObject_CallMethod(monitoring, "free_tool_id", "i", self->id));
    PyErr_Clear();
    self->taken = false;
}

static int set_events(const struct tool *self, unsigned events)
{
    PyObject *monitoring = module();
    long mask = 0;

    for (enum hear_event event = 0; event < HEAR_EVENTS; event++)
        mask |= events & HEAR_BIT(event) ? api.masks[event] : 0;
    _cleanup_unref_ PyObject *done =
        monitoring ? PyObject_CallMethod(monitoring, "set_events", "il", self->id, mask) : NULL;
    return done ? 0 : -EIO;
}

static int set_local(const struct tool *self, PyObject *code, long mask)
{
    PyObject *monitoring = module();
    _cleanup_unref_ PyObject *done =
        monitoring
            ? PyObject_CallMethod(monitoring, "set_local_events", "iOl", self->id, code, mask)
            : NULL;
    return done ? 0 : -EIO;
}

static int register_callback(const struct tool *self, enum hear_event event, PyObject *function)
{
    PyObject *monitoring = module();
    if (!monitoring)
        return -EIO;
    _cleanup_unref_ PyObject *before = PyObject_CallMethod(monitoring, "register_callback", "ilO",
                                                           self->id, api.masks[event], function);
    return before ? 0 : -EIO;
}

/* ---- what is told ---- */

/* The interpreter, the tool and the event of a function of ours; NULL: it is nobody's any more. */
static struct interpreter *find(const PyObject *function, struct tool **tool,
                                enum hear_event *event)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        for (size_t k = 0; k < TOOLS && interpreters[i].used; k++)
            for (enum hear_event at = 0; at < HEAR_EVENTS; at++)
                if (all[i].tools[k].functions[at] == function) {
                    *tool = &all[i].tools[k];
                    *event = at;
                    return &interpreters[i];
                }
    return NULL;
}

/* What the arguments of an event say (Doc/library/sys.monitoring.rst). */
static struct heard read_event(enum hear_event event, PyObject *const *args)
{
    struct heard heard = {.event = event, .code = args[0]};

    if (event == HEAR_LINE) {
        heard.line = (int)PyLong_AsLong(args[1]);
    } else if (event == HEAR_JUMP) {
        heard.from = (int)PyLong_AsLong(args[1]);
        heard.to = (int)PyLong_AsLong(args[2]);
    } else if (event != HEAR_START && event != HEAR_RESUME) {
        heard.value = args[2];
        heard.traceback = event == HEAR_RAISE ? PyException_GetTraceback(args[2]) : NULL;
    }
    return heard;
}

/* A hearer may take itself and any other out. */
static enum hear_answer tell_of(struct interpreter *interpreter, const struct tool *self,
                                const struct heard *heard)
{
    enum hear_answer answer = HEAR_ON;

    for (unsigned left = self->asked[heard->event]; left && answer != HEAR_RAISED;) {
        enum hearer_id id = (enum hearer_id)__builtin_ctz(left);
        answer = self->hearers[id]->on[heard->event](interpreter, heard);
        left = self->asked[heard->event] & ~((2u << id) - 1);
    }
    return answer;
}

static PyObject *tell(PyObject *function, PyObject *const *args, size_t count, PyObject *unused)
{
    struct tool *tool;
    enum hear_event event;
    struct interpreter *interpreter = find(function, &tool, &event);
    enum hear_answer answer = HEAR_ON;

    if (interpreter) {
        struct heard heard = read_event(event, args);
        Py_IncRef(function);
        answer = tell_of(interpreter, tool, &heard);
        Py_DecRef(function);
        Py_DecRef(heard.traceback);
    }
    if (answer == HEAR_RAISED)
        return NULL;
    PyObject *result = answer == HEAR_DISABLE ? api.disable : Py_None;
    Py_IncRef(result);
    return result;
}

static int tell_code(enum code_event event, PyObject *code)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
        if (!all[i].watcher || interpreters[i].state != here)
            continue;
        for (enum hearer_id id = 0; id < HEARERS; id++) {
            const struct hearer *hearer = all[i].tools[tool_numbers[id]].hearers[id];
            if (event == CODE_CREATED && hearer && hearer->code_made)
                hearer->code_made(&interpreters[i], code, false);
            else if (event == CODE_DESTROYED && hearer && hearer->code_gone)
                hearer->code_gone(&interpreters[i], code);
        }
    }
    return 0;
}

/* ---- on and off ---- */

/* A function object that does nothing. */
static PyObject *make_function(void)
{
    _cleanup_unref_ PyObject *code =
        Py_CompileString("def probefs(*_): pass", "<probefs>", Py_file_input);
    _cleanup_unref_ PyObject *globals = PyDict_New();
    _cleanup_unref_ PyObject *done = code && globals ? PyEval_EvalCode(code, globals, globals)
                                                     : NULL;
    PyObject *function = done ? PyDict_GetItemString(globals, "probefs") : NULL;

    if (!function)
        return NULL;
    Py_IncRef(function);
    PyDict_Clear(globals); /* which it knows */
    return function;
}

static int add(struct tool *self, enum hear_event event)
{
    PyObject *function = make_function();

    if (!function)
        return -EIO;
    api.plain = api.vectorcall(function);
    api.set_vectorcall(function, tell);
    self->functions[event] = function;
    return register_callback(self, event, function);
}

/* Nobody hears of it any more. */
static void drop(struct tool *self, enum hear_event event)
{
    if (is_ours(self->id))
        register_callback(self, event, Py_None);
    PyErr_Clear();
    api.set_vectorcall(self->functions[event], api.plain);
    python_clear(&self->functions[event]);
}

/* The events of all code that any hearer asked for; *in_all: those of some code as well. */
static unsigned wanted(const struct tool *self, unsigned *in_all)
{
    unsigned everywhere = 0, local = 0;

    for (size_t i = 0; i < HEARERS; i++) {
        everywhere |= self->everywhere[i];
        local |= self->local[i];
    }
    *in_all = everywhere | local;
    return everywhere | (local & NEVER_LOCAL);
}

/* Has a tool id, again where the program has freed it. */
static int have_tool(struct tool *self, bool last)
{
    if (self->taken && is_ours(self->id))
        return 0;
    int r = take_any(self, last);
    for (enum hear_event event = 0; event < HEAR_EVENTS && r == 0; event++)
        if (self->functions[event])
            r = register_callback(self, event, self->functions[event]);
    return r;
}

static int turn_on(struct tool *self)
{
    unsigned in_all, everywhere = wanted(self, &in_all);
    int r = 0;

    for (enum hear_event event = 0; event < HEAR_EVENTS && r == 0; event++)
        if (in_all & HEAR_BIT(event) && !self->functions[event])
            r = add(self, event);
    return r < 0 ? r : set_events(self, everywhere);
}

static void turn_off(struct tool *self)
{
    unsigned in_all, everywhere = wanted(self, &in_all);

    if (self->taken && is_ours(self->id))
        set_events(self, everywhere);
    PyErr_Clear();
    for (enum hear_event event = 0; event < HEAR_EVENTS; event++)
        if (!(in_all & HEAR_BIT(event)) && self->functions[event])
            drop(self, event);
    if (self->taken && !in_all)
        give_back(self);
}

static int watch_code(struct monitoring *self)
{
    if (!self->watcher)
        self->watcher = api.add_watcher(tell_code) + 1;
    return self->watcher ? 0 : -EIO;
}

/* Notes what a hearer asks for now. */
static void ask(struct tool *self, enum hearer_id id, unsigned everywhere, unsigned local)
{
    self->everywhere[id] = everywhere;
    self->local[id] = local;
    for (enum hear_event event = 0; event < HEAR_EVENTS; event++) {
        self->asked[event] &= ~(1u << id);
        self->asked[event] |= (everywhere | local) & HEAR_BIT(event) ? 1u << id : 0;
    }
}

int monitoring_begin(struct interpreter *interpreter, const struct hearer *hearer,
                     unsigned everywhere, unsigned local)
{
    struct tool *self = tool_of(interpreter, hearer);
    unsigned before = self->turn;

    int r = bind();
    if (r == 0)
        r = have_tool(self, hearer->id == HEARER_STEPS);
    if (r < 0)
        return r;
    self->hearers[hearer->id] = hearer;
    ask(self, hearer->id, everywhere, local);
    r = turn_on(self);
    if (r == 0)
        turn_off(self); /* what isn't asked for any more */
    if (r == 0 && hearer->code_made)
        r = watch_code(monitoring_of(interpreter));
    return r < 0 ? r : before != self->turn;
}

/* Lines that were said to be of no interest any more (DISABLE) are looked at anew only where all
 * events of the code were given up in between. */
int monitoring_code(struct interpreter *interpreter, const struct hearer *hearer, PyObject *code,
                    unsigned events)
{
    const struct tool *self = tool_of(interpreter, hearer);
    long mask = 0;

    if (!self->taken)
        return 0;
    events &= self->local[hearer->id] & ~NEVER_LOCAL;
    for (enum hear_event event = 0; event < HEAR_EVENTS; event++)
        mask |= events & HEAR_BIT(event) ? api.masks[event] : 0;
    if (set_local(self, code, 0) < 0)
        return -EIO;
    return mask ? set_local(self, code, mask) : 0;
}

void monitoring_end(struct interpreter *interpreter, const struct hearer *hearer)
{
    struct monitoring *self = monitoring_of(interpreter);
    struct tool *tool = tool_of(interpreter, hearer);

    if (!tool->hearers[hearer->id])
        return;
    if (hearer->code_made && self->watcher)
        api.clear_watcher(self->watcher - 1);
    if (hearer->code_made)
        self->watcher = 0;
    tool->hearers[hearer->id] = NULL;
    ask(tool, hearer->id, 0, 0);
    turn_off(tool);
}
