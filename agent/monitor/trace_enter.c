#include "agent/monitor/trace_enter.h"

#include "agent/cpython/code_flags.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/trace_fields.h"
#include "agent/interpreter/own_threads.h"

#include <errno.h>
#include <pthread.h>

#define WORDS_MAX 8        /* of a frame, in which its code is looked for */
#define ROOM (256u * 1024) /* bytes of a stack that are left alone */
#define STACKS 64u         /* a power of two */
#define UNWANTED 1024u     /* a power of two */

/* What calls its last function has nothing on the stack any more: the library
 * may be unloaded under it. */
#if defined(__clang__)
#define LEAVES
#define LAST_CALL __attribute__((musttail))
#else
#define LEAVES __attribute__((optimize("optimize-sibling-calls")))
#define LAST_CALL
#endif

/* CPython's _PyFrameEvalFunction; the frame is a PyFrameObject, or from 3.11 on
 * what is behind one. */
typedef PyObject *evaluate_function(PyThreadState *state, void *frame, int throwing);

static struct {
    evaluate_function *run;                          /* _PyEval_EvalFrameDefault */
    evaluate_function *(*get)(PyInterpreterState *); /* _PyInterpreterState_GetEvalFrameFunc */
    /* _PyInterpreterState_SetEvalFrameFunc */
    void (*set)(PyInterpreterState *, evaluate_function *);
    size_t code;       /* which word of a frame its code is; 0: not known */
    size_t flags;      /* where in a code object co_flags is, bytes */
    uint8_t optimized; /* CO_OPTIMIZED; 0: it is not known where */
} api;

static unsigned inside; /* calls of `apart` that have not returned, in all threads */
static trace_fields_called
    *resting;            /* of threads that nothing is traced in; of the last interpreter */
static unsigned left_in; /* interpreters in which another one has been put before ours */

/* ---- room on the stack ---- */

/* From 3.11 on Python's calls need no stack of C, unless there is such a function: a recursion that
 * a program is right to do would end it. */
static struct stack {
    const PyThreadState *state;
    pthread_t thread;
    uintptr_t low, size; /* from where on there is room; 0: not known */
} stacks[STACKS], last;

static void measure(struct stack *stack)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;

    if (pthread_getattr_np(pthread_self(), &attributes))
        return;
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
        size_t room = size / 2 < ROOM ? size / 2 : ROOM;
        stack->low = (uintptr_t)low + room;
        stack->size = size - room;
    }
    pthread_attr_destroy(&attributes);
}

/* A thread other than the last one, or one whose room is used up. */
static __attribute__((noinline)) bool is_short_now(const PyThreadState *state, uintptr_t here)
{
    struct stack *stack = &stacks[((uintptr_t)state >> 4) * 0x9e3779b97f4a7c15 >> 58];

    if (stack->state != state || stack->thread != pthread_self() ||
        here - stack->low >= stack->size) {
        *stack = (struct stack){.state = state, .thread = pthread_self()};
        measure(stack);
    }
    last = *stack;
    if (python.version < 0x030b) /* it needs as much as ever */
        last.low = 0, last.size = UINTPTR_MAX;
    return here - last.low >= last.size;
}

static inline bool has_room(const PyThreadState *state)
{
    return last.state == state && (uintptr_t)__builtin_frame_address(0) - last.low < last.size;
}

static bool is_short(const PyThreadState *state)
{
    return !has_room(state) && is_short_now(state, (uintptr_t)__builtin_frame_address(0));
}

/* ---- code that is not wanted ---- */

/* At that trace_turn. */
static struct unwanted {
    const PyObject *code;
    unsigned turn;
} unwanted[UNWANTED];

static inline struct unwanted *unwanted_at(const PyObject *code)
{
    return &unwanted[((uintptr_t)code >> 4) * 0x9e3779b97f4a7c15 >> 32 & (UNWANTED - 1)];
}

/* Whether it is a function's: others come and go, and what defines functions
 * that come later is among them. */
static inline bool is_function(const PyObject *code)
{
    return *((const uint8_t *)code + api.flags) & api.optimized;
}

static inline bool is_unwanted(const PyObject *code)
{
    const struct unwanted *known = unwanted_at(code);
    return known->code == code && known->turn == trace_turn && is_function(code);
}

int trace_enter_flags(PyObject *code)
{
    if (api.optimized)
        return *(const int *)((const char *)code + api.flags);
    _cleanup_unref_ PyObject *flags = PyObject_GetAttrString(code, "co_flags");
    int known = flags ? (int)PyLong_AsLong(flags) : 0;
    PyErr_Clear();
    return known;
}

enum hear_interest trace_enter_wanted(struct trace *self, PyThreadState *state, PyObject *code)
{
    if (is_unwanted(code))
        return HEAR_NEVER;
    enum hear_interest interest = trace_wanted(self, state, code, true);
    if (interest == HEAR_NEVER)
        *unwanted_at(code) = (struct unwanted){code, trace_turn};
    return interest;
}

/* ---- entering a frame ---- */

static struct trace *find(PyThreadState *state)
{
    const PyInterpreterState *here = PyThreadState_GetInterpreter(state);

    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (traces[i].entered && traces[i].interpreter->state == here)
            return &traces[i];
    return NULL;
}

static void turn(const struct trace *self, PyThreadState *state, bool on)
{
    if (on)
        trace_fields_on(state);
    else
        trace_fields_rest(state, self->raises);
}

/* Runs it with tracing on or off, whatever its caller is. */
static __attribute__((noinline)) PyObject *apart(struct trace *self, PyThreadState *state,
                                                 void *frame, int throwing, bool on)
{
    unsigned before = trace_turn;

    inside++;
    turn(self, state, on);
    PyObject *result = api.run(state, frame, throwing);
    inside--;
    /* its caller finds out if it is not wanted */
    turn(self, state, before == trace_turn ? !on : trace_is_heard(self));
    return result;
}

/* Whether the frame that the thread is in has to stay traced. */
static bool stays(struct trace *self, PyThreadState *state)
{
    PyFrameObject *frame = PyThreadState_GetFrame(state);
    bool raised = frame && frame == trace_raised;

    if (raised)
        Py_DecRef((PyObject *)frame);
    return raised || trace_keeps(self, state, frame);
}

/* Whether a frame is to be run apart; else it is run with tracing on or off as that is now. */
static __attribute__((noinline)) bool is_apart(struct trace *self, PyThreadState *state,
                                               bool wanted)
{
    bool on = trace_fields_is_on(state);

    if (trace_fields_is_others(state) || own_thread_is(state))
        return false;
    if (on ? !wanted && stays(self, state) : wanted && (inside || self->raises))
        return true;
    turn(self, state, wanted);
    return false;
}

/* is_apart() of a frame that may be entered with an exception set, which is thrown into a
 * generator. */
static __attribute__((noinline)) bool is_apart_with(struct trace *self, PyThreadState *state,
                                                    PyObject *code, bool *wanted)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    *wanted = trace_enter_wanted(self, state, code) == HEAR_NOW;
    bool is = is_apart(self, state, *wanted);
    PyErr_Restore(type, value, traceback);
    return is;
}

/* How a frame is to be run. */
enum way { WAY_AS_IT_IS, WAY_APART_OFF, WAY_APART_ON };

static __attribute__((noinline)) enum way way_of(struct trace *self, PyThreadState *state,
                                                 PyObject *code)
{
    bool wanted;

    if (!self)
        return WAY_AS_IT_IS;
    if (is_short(state)) {
        self->deep = true;
        trace_arrange(self);
        return WAY_AS_IT_IS;
    }
    bool is = is_apart_with(self, state, code, &wanted);
    resting = self->raises ? trace_fields.ours : NULL;
    return !is ? WAY_AS_IT_IS : wanted ? WAY_APART_ON : WAY_APART_OFF;
}

static PyObject *code_of(void *frame) { return ((PyObject **)frame)[api.code]; }

static __attribute__((noinline)) LEAVES PyObject *enter_slowly(PyThreadState *state, void *frame,
                                                               int throwing)
{
    struct trace *self = find(state);
    enum way way = way_of(self, state, code_of(frame));

    if (way != WAY_AS_IT_IS)
        return apart(self, state, frame, throwing, way == WAY_APART_ON);
    LAST_CALL return api.run(state, frame, throwing);
}

/* Whether nothing is to be done for a thread. */
static inline bool is_resting(const PyThreadState *state)
{
    return *trace_fields_function(state) == resting && !*trace_fields_use(state);
}

static LEAVES PyObject *enter(PyThreadState *state, void *frame, int throwing)
{
    if (__builtin_expect(is_unwanted(code_of(frame)) && is_resting(state) && has_room(state), 1))
        LAST_CALL return api.run(state, frame, throwing);
    LAST_CALL return enter_slowly(state, frame, throwing);
}

/* ---- getting there ---- */

static PyObject *sought; /* a code object, while a frame of it is waited for */

static LEAVES PyObject *look(PyThreadState *state, void *frame, int throwing)
{
    PyObject **words = frame;

    for (size_t i = 1; i < WORDS_MAX && !api.code; i++)
        if (words[i] == sought)
            api.code = i;
    LAST_CALL return api.run(state, frame, throwing);
}

/* Runs a frame to find where its code is. */
static int find_code(PyInterpreterState *interpreter)
{
    _cleanup_unref_ PyObject *globals = PyDict_New();

    sought = Py_CompileString("None", "<probefs>", Py_eval_input);
    api.set(interpreter, look);
    if (sought && globals)
        Py_DecRef(PyEval_EvalCode(sought, globals, globals));
    api.set(interpreter, api.run);
    python_clear(&sought);
    PyErr_Clear();
    return api.code ? 0 : -EOPNOTSUPP;
}

/* Finds where co_flags is in a code object, by CPython's code.h, if that proves right. */
static bool find_flags(void)
{
    size_t at = python.version < 0x030b ? 36 : 48;
    _cleanup_unref_ PyObject *module =
        Py_CompileString("lambda *_, **__: (yield)", "<probefs>", Py_eval_input);
    _cleanup_unref_ PyObject *constants = module ? PyObject_GetAttrString(module, "co_consts")
                                                 : NULL;
    PyObject *code = constants ? PyTuple_GetItem(constants, 0) : NULL; /* borrowed */
    _cleanup_unref_ PyObject *flags = code ? PyObject_GetAttrString(code, "co_flags") : NULL;
    long known = flags ? PyLong_AsLong(flags) : -1;

    PyErr_Clear();
    if (known < 0 || *(int *)((char *)code + at) != known || !(known & CO_OPTIMIZED))
        return false;
    api.flags = at;
    api.optimized = CO_OPTIMIZED;
    return true;
}

static bool bind(void)
{
    api.run = (evaluate_function *)looked_up._PyEval_EvalFrameDefault;
    api.get = (evaluate_function * (*)(PyInterpreterState *))
                  looked_up._PyInterpreterState_GetEvalFrameFunc;
    api.set = (void (*)(PyInterpreterState *,
                        evaluate_function *))looked_up._PyInterpreterState_SetEvalFrameFunc;
    return api.run && api.get && api.set && (api.optimized || find_flags());
}

/* Greenlets switch stacks, and take along whether frames are traced in a way of their own. */
static bool has_greenlets(void)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString("greenlet");
    _cleanup_unref_ PyObject *module = name ? PyImport_GetModule(name) : NULL;
    PyErr_Clear();
    return module;
}

int trace_enter_begin(struct trace *self)
{
    PyInterpreterState *interpreter = self->interpreter->state;

    if (!bind() || has_greenlets())
        return -EOPNOTSUPP;
    self->entered = api.get(interpreter) == enter;
    if (self->entered)
        return 0;
    if (api.get(interpreter) != api.run || (!api.code && find_code(interpreter) < 0))
        return -EOPNOTSUPP; /* somebody else's */
    self->entered = true;
    api.set(interpreter, enter);
    return 0;
}

void trace_enter_end(struct trace *self)
{
    if (!self->entered)
        return;
    self->entered = false;
    if (api.get(self->interpreter->state) == enter)
        api.set(self->interpreter->state, api.run);
    else
        left_in++;
}

bool trace_enter_remains(void) { return inside || left_in; }
