#include "agent/probing/span_context.h"

#include "agent/base/fork_count.h"
#include "agent/probing/span.h"

#define THREAD "probefs spans of a thread"
/* So deep spans nest in a context: each there keeps the one around it, and they
 * may all end at once. */
#define DEPTH_MAX 1000

/* ---- a thread's list ---- */

static void unlink_span(struct span *span)
{
    if (span->inner)
        span->inner->outer = span->outer;
    else
        span->thread->innermost = span->outer;
    if (span->outer)
        span->outer->inner = span->inner;
    span->outer = span->inner = NULL;
    span->thread = NULL;
}

/* Frees the spans of a thread whose state is cleared, or which were taken out of there. */
static void thread_freed(PyObject *object)
{
    struct thread_spans *thread = PyCapsule_GetPointer(object, THREAD);
    PyObject *capsule = thread->capsule;

    while (thread->innermost)
        unlink_span(thread->innermost);
    if (thread->probing->last == thread)
        thread->probing->last = NULL;
    *thread->link = thread->next;
    if (thread->next)
        thread->next->link = thread->link;
    free(thread);
    Py_DecRef(capsule);
}

static void put_first(struct thread_spans *thread, struct probing *probing)
{
    thread->next = probing->threads;
    thread->link = &probing->threads;
    if (thread->next)
        thread->next->link = &thread->next;
    probing->threads = thread;
}

/* Makes the list of spans of a thread that has none; its thread state owns it. */
static struct thread_spans *add_thread(struct probing *probing, PyThreadState *state,
                                       PyObject *dict)
{
    struct thread_spans *thread = calloc(1, sizeof *thread);
    PyObject *object = thread ? PyCapsule_New(thread, THREAD, NULL) : NULL;

    if (!object || PyDict_SetItem(dict, probing->capsule, object) < 0) {
        free(thread);
        Py_DecRef(object);
        return NULL;
    }
    *thread = (struct thread_spans){
        .probing = probing,
        .capsule = probing->capsule,
        .state = state,
        .dict = dict,
        .forks = fork_count(),
        .tid = gettid(),
    };
    Py_IncRef(probing->capsule);
    put_first(thread, probing);
    PyCapsule_SetDestructor(object, thread_freed);
    Py_DecRef(object);
    return thread;
}

static struct thread_spans *look_up_thread(struct probing *probing, PyThreadState *state)
{
    PyObject *dict = PyThreadState_GetDict(); /* borrowed, as are its values */
    PyObject *object = dict ? PyDict_GetItemWithError(dict, probing->capsule) : NULL;

    if (object)
        return PyCapsule_GetPointer(object, THREAD);
    return dict && !PyErr_Occurred() ? add_thread(probing, state, dict) : NULL;
}

static struct thread_spans *this_thread(struct probing *probing)
{
    PyThreadState *state = PyThreadState_Get();
    struct thread_spans *thread = probing->last;

    if (!thread || thread->state != state)
        thread = look_up_thread(probing, state);
    if (thread && thread->forks != fork_count()) {
        thread->forks = fork_count();
        thread->tid = gettid();
    }
    probing->last = thread;
    return thread;
}

/* ---- a context's variable ---- */

/* The value of the context variable, a new reference; NULL: none. */
static struct span *span_of_context(struct probing *probing)
{
    PyObject *value = NULL;

    if (!probing->variable || python.context_get(probing->variable, NULL, &value) < 0 || !value)
        return NULL;
    if (Py_TYPE(value) == (PyTypeObject *)probing->span_type)
        return (struct span *)value;
    Py_DecRef(value);
    return NULL;
}

/* value: owned by the caller; NULL: none. */
static bool set_context(struct probing *probing, PyObject *value)
{
    if (!probing->variable && python.context_new)
        probing->variable = python.context_new("probing.span", NULL);
    if (!probing->variable)
        return false;
    PyObject *token = python.context_set(probing->variable, value ? value : Py_None);
    Py_DecRef(token);
    return token != NULL;
}

static void enter_context(struct span *span)
{
    struct span *before = span_of_context(span->probing);

    span->depth = before ? before->depth + 1 : 0;
    span->in_context = span->depth < DEPTH_MAX && set_context(span->probing, (PyObject *)span);
    if (span->in_context)
        span->before = (PyObject *)before;
    else
        Py_DecRef((PyObject *)before);
}

/* Whether it is the innermost one there. */
static bool is_in_context(struct span *span)
{
    struct span *now = span_of_context(span->probing);
    Py_DecRef((PyObject *)now);
    return now == span;
}

static void leave_context(struct span *span)
{
    span->in_context = false;
    if (is_in_context(span))
        set_context(span->probing, span->before);
    else
        span->lost = true; /* some context has it, or will: it says where it was itself */
    python_clear(&span->before);
}

/* ---- tasks ---- */

/* Sees what the program has imported, if that has changed: a span costs less
 * than looking for a name. */
static void look_at_modules(struct probing *probing)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    Py_ssize_t count = PyDict_Check(modules) ? PyDict_Size(modules) : probing->modules;

    if (count == probing->modules)
        return;
    probing->modules = count;
    if (!probing->tasks.running_loop)
        current_task_init(&probing->tasks);
    probing->switches = PyDict_GetItemString(modules, "greenlet") ||
                        PyDict_GetItemString(modules, "trio");
}

static void find_task(struct probing *probing, struct span_context *out)
{
    look_at_modules(probing);
    out->by_context = probing->switches;
    if (!probing->tasks.running_loop)
        return;
    _cleanup_unref_ PyObject *loop = PyObject_CallNoArgs(probing->tasks.running_loop);
    if (!loop || loop == Py_None)
        return;
    out->by_context = true;
    _cleanup_unref_ PyObject *task = current_task_find(&probing->tasks, loop);
    if (task && probing->tasks.name)
        out->task = current_task_name(&probing->tasks, task);
}

/* ---- the place ---- */

static int64_t innermost_id(struct probing *probing, const struct span_context *place)
{
    const struct span *of_thread = place->thread->innermost;

    if (of_thread && !place->by_context)
        return of_thread->id;
    struct span *span = span_of_context(probing);
    if (!span)
        return of_thread ? of_thread->id : RING_NULL_INTEGER;
    int64_t id = span->lost ? span->parent : span->id;
    Py_DecRef((PyObject *)span);
    return id;
}

bool span_context_find(struct probing *probing, struct span_context *out)
{
    *out = (struct span_context){.thread = this_thread(probing)};
    if (out->thread)
        find_task(probing, out);
    if (out->by_context)
        out->thread = this_thread(probing); /* other threads may have had their turn */
    if (out->thread)
        out->span = innermost_id(probing, out);
    PyErr_Clear();
    return out->thread != NULL;
}

void span_context_end(struct span_context *place) { python_clear(&place->task); }

void span_context_enter(const struct span_context *place, struct span *span)
{
    if (place->by_context) {
        enter_context(span);
        PyErr_Clear();
        return;
    }
    span->thread = place->thread;
    span->outer = place->thread->innermost;
    if (span->outer)
        span->outer->inner = span;
    place->thread->innermost = span;
}

void span_context_dropped(struct span *span)
{
    if (span->thread)
        unlink_span(span);
    python_clear(&span->before);
}

void span_context_leave(struct span *span)
{
    if (span->thread)
        unlink_span(span);
    if (span->in_context) {
        leave_context(span);
        PyErr_Clear();
    }
}

bool span_context_is_innermost(struct span *span)
{
    if (span->thread)
        return !span->inner && span->thread->state == PyThreadState_Get();
    bool is = span->in_context && is_in_context(span);
    PyErr_Clear();
    return is;
}

void span_context_forget_all(struct probing *probing)
{
    while (probing->threads) {
        struct thread_spans *thread = probing->threads;
        if (PyDict_DelItem(thread->dict, probing->capsule) < 0)
            break;
    }
    PyErr_Clear();
    python_clear(&probing->variable);
    probing->modules = 0;
    current_task_clear(&probing->tasks);
}
