/* Loops of asyncio that are blocked: nobody else gets a turn because one task or callback, or
 * very many, take too long.
 *
 * A loop says itself when it goes round: BaseEventLoop.run_forever() looks up self._run_once again
 * and again, and that looks up self._process_events as soon as the selector has let it go
 * (Lib/asyncio/base_events.py, the same from 3.10 to 3.15). Where the classes have these functions
 * we put descriptors, which take the time and give what was there: so nothing of ours is on the
 * loop's stack, neither while it waits nor while it works. At its end, and when its debug mode is
 * changed, it looks up self._set_coroutine_origin_tracking.
 *
 * Who blocks it is seen by a look at its thread's stack from Python's thread, once half of the
 * limit is over and again when all of it is. That waits for the GIL: where C code keeps it, the
 * loop's thread gives it up behind that very call. */
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/cpython/current_task.h"
#include "agent/cpython/stack_text.h"
#include "agent/cpython/thread_states.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_S 0.1
#define LIMIT_MAX_S 3600
#define LOOPS_MAX 32 /* that run at once in an interpreter; of others nothing is recorded */
#define HOOKS 3
/* so often it is seen whether a loop is blocked */
#define PERIOD_MIN_NS 2500000ull
#define PERIOD_MAX_NS 100000000ull

/* What was seen of a loop that is blocked. */
struct blocked_at {
    struct ring_text task, coro, func, file, stack; /* in the buffers, or NULL */
    int64_t line;
    char texts[5][RING_TEXT_MAX];
};

/* A loop that runs. With the GIL. */
struct running {
    PyObject *loop; /* an address and no more; NULL: the entry is free */
    PyObject *weak; /* a reference to it; NULL: there was none yet */
    PyThreadState *thread;
    int32_t tid;
    bool round;               /* it has looked up _run_once, and not _process_events since */
    struct blocked_at *place; /* NULL: none was needed yet */
    uint64_t placed;          /* of the block that began then ... */
    uint64_t told;            /* ... and which one has a row, there: */
    struct ring *ring;
    struct ring_ticket ticket;
};

/* What is kept of an interpreter from when recording is switched on until it is off. With its GIL.
 */
struct loops {
    struct running running[LOOPS_MAX];
    size_t last; /* which one was asked for last */
    struct current_task tasks;
    struct code_sites sites;
};

static struct loops *states[INTERPRETERS_MAX];
/* Since when a loop has been out of its selector: CLOCK_MONOTONIC; 0: it is in there. Written by
 * its thread, and read by ours without the GIL. */
static uint64_t busy[INTERPRETERS_MAX][LOOPS_MAX];
static uint64_t limit_ns;
static uint64_t hints[INTERPRETERS_MAX]; /* for gil_take() */

static uint64_t busy_since(size_t slot, size_t i)
{
    return __atomic_load_n(&busy[slot][i], __ATOMIC_RELAXED);
}

static void set_busy(size_t slot, size_t i, uint64_t ns)
{
    __atomic_store_n(&busy[slot][i], ns, __ATOMIC_RELAXED);
}

/* ---- rows ---- */

/* duration: [s], NAN while it lasts. */
static void write_row(struct running *running, uint64_t since, double duration)
{
    const struct blocked_at *place = running->placed == since ? running->place : NULL;
    struct ring *ring = recorder_ring(RECORDED_LOOP);
    struct loop_row row = {
        .ts = realtime_s() - (double)(monotonic_ns() - since) * 1e-9,
        .tid = running->tid,
        .duration = duration,
        .lineno = RING_NULL_INTEGER,
    };

    if (!ring)
        return;
    if (place) {
        row.task = place->task;
        row.coro = place->coro;
        row.func = place->func;
        row.file = place->file;
        row.lineno = place->line;
        row.stack = place->stack;
    }
    running->told = since;
    running->ring = loop_append(ring, &row, &running->ticket) ? ring : NULL;
}

/* A loop goes round: the block that it was in, if any, gets its row. */
static void finish(size_t slot, size_t i)
{
    struct running *running = &states[slot]->running[i];
    uint64_t since = busy_since(slot, i);
    struct ring *ring = recorder_ring(RECORDED_LOOP);

    if (!since)
        return;
    uint64_t took = monotonic_ns() - since;
    set_busy(slot, i, 0);
    if (running->told != since) {
        if (took >= limit_ns)
            write_row(running, since, (double)took * 1e-9);
    } else if (ring && ring == running->ring) {
        loop_patch_duration(ring, &running->ticket, (double)took * 1e-9);
    }
}

/* ---- what the loops look up ---- */

/* The entry of a loop, or LOOPS_MAX. */
static size_t find(struct loops *self, const PyObject *loop)
{
    size_t i = self->last;

    if (self->running[i].loop == loop)
        return i;
    for (i = 0; i < LOOPS_MAX; i++)
        if (self->running[i].loop == loop)
            return self->last = i;
    return LOOPS_MAX;
}

/* Frees an entry, but for its buffers. */
static void leave(struct running *running)
{
    python_clear(&running->weak);
    *running = (struct running){.place = running->place};
}

/* The loop of an entry, a new reference; NULL: it is no more. */
static PyObject *take_loop(const struct running *running)
{
    PyObject *loop = running->weak ? PyObject_CallNoArgs(running->weak) : NULL;

    PyErr_Clear();
    if (loop == Py_None) {
        Py_DecRef(loop);
        return NULL;
    }
    return loop;
}

/* Whether this thread runs it (Lib/asyncio/base_events.py, _thread_id: set before the first round,
 * threading.get_ident()). Who turns a loop round himself, as a window's timer may, looks up the
 * same. */
static bool runs_here(PyObject *loop)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString("_thread_id");
    _cleanup_unref_ PyObject *ident = name ? PyObject_GenericGetAttr(loop, name) : NULL;
    bool here = ident && PyLong_AsUnsignedLong(ident) == (unsigned long)pthread_self();

    PyErr_Clear();
    return here;
}

/* Makes an entry for a loop. LOOPS_MAX: it doesn't run here, or too many do. No exception is set.
 */
static size_t add(size_t slot, PyObject *loop)
{
    struct loops *self = states[slot];
    bool collects = python_keep_collector();
    size_t i = runs_here(loop) ? find(self, NULL) : LOOPS_MAX + 1;

    if (i == LOOPS_MAX)
        for (i = 0; i < LOOPS_MAX; i++) {
            PyObject *there = take_loop(&self->running[i]);
            Py_DecRef(there);
            if (!there)
                break;
        }
    if (i < LOOPS_MAX) {
        struct running *running = &self->running[i];
        leave(running);
        set_busy(slot, i, 0);
        running->weak = PyWeakref_NewRef(loop, NULL);
        running->loop = running->weak ? loop : NULL;
        running->thread = PyThreadState_Get();
        running->tid = thread_tid();
    }
    PyErr_Clear();
    python_let_collector(collects);
    return i < LOOPS_MAX && self->running[i].loop ? i : LOOPS_MAX;
}

static void goes_round(size_t slot, PyObject *loop)
{
    struct loops *self = states[slot];
    size_t i = find(self, loop);

    if (i < LOOPS_MAX && self->running[i].thread != PyThreadState_Get()) {
        if (!runs_here(loop))
            return; /* somebody else looks at it */
        leave(&self->running[i]);
        i = LOOPS_MAX;
    }
    if (i == LOOPS_MAX)
        i = add(slot, loop);
    if (i == LOOPS_MAX)
        return;
    finish(slot, i);
    self->running[i].round = true;
}

/* A loop that we haven't heard of may have been in its selector when this was switched on: if what
 * it looks up next is ours, that makes the entry. */
static size_t find_or_hear(struct loops *self, PyObject *loop)
{
    size_t i = find(self, loop);

    if (i == LOOPS_MAX) {
        _cleanup_unref_ PyObject *name = PyUnicode_FromString("_run_once");
        if (name)
            Py_DecRef(PyObject_GenericGetAttr(loop, name));
        PyErr_Clear();
        i = find(self, loop);
    }
    return i;
}

/* A loop begins to work only if it goes round: else nobody hears when it waits again. */
static void begins_to_work(size_t slot, PyObject *loop)
{
    struct loops *self = states[slot];
    size_t i = find_or_hear(self, loop);

    if (i == LOOPS_MAX || !self->running[i].round || self->running[i].thread != PyThreadState_Get())
        return;
    self->running[i].round = false;
    set_busy(slot, i, monotonic_ns());
}

static void ends(size_t slot, PyObject *loop)
{
    size_t i = find(states[slot], loop);

    if (i == LOOPS_MAX || states[slot]->running[i].thread != PyThreadState_Get())
        return;
    finish(slot, i);
    leave(&states[slot]->running[i]);
}

/* A descriptor's __get__(self, object, type): more[1] is what was there before. */
static PyObject *get(PyObject *more, PyObject *const *args, Py_ssize_t n,
                     void (*heard)(size_t slot, PyObject *loop))
{
    PyObject *original = PyTuple_GetItem(more, 1);

    if (n != 3)
        return PyErr_Format(PyExc_TypeError, "__get__() takes 3 arguments");
    PyObject *object = args[1] == Py_None ? NULL : args[1];
    if (object && recorder_ring(RECORDED_LOOP)) {
        struct interpreter *interpreter = guest_owner(PyTuple_GetItem(more, 0));
        size_t slot = interpreter ? interpreter_index(interpreter) : 0;
        if (interpreter && states[slot])
            heard(slot, object);
    }
    descrgetfunc bind = (descrgetfunc)PyType_GetSlot(Py_TYPE(original), Py_tp_descr_get);
    if (bind)
        return bind(original, object, args[2]);
    Py_IncRef(original);
    return original;
}

static PyObject *get_run_once(PyObject *more, PyObject *const *args, Py_ssize_t n)
{
    return get(more, args, n, goes_round);
}

static PyObject *get_process_events(PyObject *more, PyObject *const *args, Py_ssize_t n)
{
    return get(more, args, n, begins_to_work);
}

static PyObject *get_tracking(PyObject *more, PyObject *const *args, Py_ssize_t n)
{
    return get(more, args, n, ends);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type" /* how CPython has it for METH_FASTCALL */
static struct hook {
    const char *module, *class, *name;
    PyMethodDef get;
} hooks[HOOKS] = {
    {"asyncio.base_events",
     "BaseEventLoop",
     "_run_once",
     {"probefs_run_once", (PyCFunction)get_run_once, METH_FASTCALL, NULL}},
    {"asyncio.selector_events",
     "BaseSelectorEventLoop",
     "_process_events",
     {"probefs_process_events", (PyCFunction)get_process_events, METH_FASTCALL, NULL}},
    {"asyncio.base_events",
     "BaseEventLoop",
     "_set_coroutine_origin_tracking",
     {"probefs_tracking", (PyCFunction)get_tracking, METH_FASTCALL, NULL}},
};
#pragma GCC diagnostic pop

/* ---- in and out of the classes ---- */

/* What a class itself has under a name; a new reference. NULL: with an exception set. */
static PyObject *own_attribute(PyObject *class, const char *name)
{
    _cleanup_unref_ PyObject *dict = PyObject_GetAttrString(class, "__dict__");
    return dict ? PyMapping_GetItemString(dict, name) : NULL;
}

/* An object of a class of its own with that __get__. */
static PyObject *make_descriptor(const struct guest *guest, struct hook *hook, PyObject *original)
{
    _cleanup_unref_ PyObject *function = guest_function_with(guest, &hook->get, original);
    _cleanup_unref_ PyObject *class =
        function ? PyObject_CallFunction((PyObject *)&PyType_Type, "s(){sOs(s)}", "probefs_loop",
                                         "__get__", function, "__slots__", "__weakref__")
                 : NULL;
    return class ? PyObject_CallNoArgs(class) : NULL;
}

/* Puts a descriptor into its class. What unhook() needs, a new reference; NULL: with an exception
 * set. */
static PyObject *put_hook(const struct guest *guest, struct hook *hook)
{
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), hook->module);
    _cleanup_unref_ PyObject *class = module ? PyObject_GetAttrString(module, hook->class) : NULL;
    _cleanup_unref_ PyObject *original = class ? own_attribute(class, hook->name) : NULL;
    _cleanup_unref_ PyObject *descriptor = original ? make_descriptor(guest, hook, original) : NULL;
    _cleanup_unref_ PyObject *put =
        descriptor ? Py_BuildValue("(OsOO)", class, hook->name, descriptor, original) : NULL;

    if (!put || PyObject_SetAttrString(class, hook->name, descriptor) < 0)
        return NULL;
    return steal_pointer(put);
}

/* Whether nobody but the caller had a reference to an object, which is dropped. */
static bool drop_last(PyObject *object)
{
    _cleanup_unref_ PyObject *weak = PyWeakref_NewRef(object, NULL);
    Py_DecRef(object);
    _cleanup_unref_ PyObject *left = weak ? PyObject_CallNoArgs(weak) : NULL;
    return left == Py_None;
}

/* Takes a descriptor out again, unless the program has put something else there. A class is garbage
 * that only the cyclic collector finds: so it loses our function now, where no descriptor of it is
 * kept by the program, which may still put that back. */
static void take_hook(PyObject *put)
{
    PyObject *class = PyTuple_GetItem(put, 0), *name = PyTuple_GetItem(put, 1);
    PyObject *descriptor = PyTuple_GetItem(put, 2), *original = PyTuple_GetItem(put, 3);
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    _cleanup_unref_ PyObject *type = (PyObject *)Py_TYPE(descriptor);
    PyObject *now = text ? own_attribute(class, text) : NULL;

    if (now == descriptor)
        PyObject_SetAttr(class, name, original);
    Py_DecRef(now);
    Py_IncRef(type);
    Py_IncRef(descriptor);
    Py_DecRef(put);
    if (drop_last(descriptor))
        PyObject_DelAttrString(type, "__get__");
    PyErr_Clear();
}

static void unhook(PyObject *hooked)
{
    for (Py_ssize_t i = PyList_Size(hooked); i-- > 0;) {
        PyObject *put = PyList_GetItem(hooked, i);
        Py_IncRef(put);
        PyList_SetSlice(hooked, i, i + 1, NULL);
        take_hook(put);
    }
}

/* Puts all descriptors. A list of them; NULL: with an exception set, and none was left. */
static PyObject *hook_all(const struct guest *guest)
{
    _cleanup_unref_ PyObject *hooked = PyList_New(0);

    for (size_t i = 0; hooked && i < HOOKS; i++) {
        _cleanup_unref_ PyObject *put = put_hook(guest, &hooks[i]);
        if (!put || PyList_Append(hooked, put) < 0) {
            PyObject *type, *value, *traceback;
            PyErr_Fetch(&type, &value, &traceback);
            unhook(hooked);
            PyErr_Restore(type, value, traceback);
            return NULL;
        }
    }
    return steal_pointer(hooked);
}

/* ---- on and off ---- */

static void drop(size_t slot)
{
    struct loops *self = states[slot];

    if (!self)
        return;
    __atomic_store_n(&states[slot], NULL, __ATOMIC_RELAXED);
    for (size_t i = 0; i < LOOPS_MAX; i++) {
        set_busy(slot, i, 0);
        python_clear(&self->running[i].weak);
        free(self->running[i].place);
    }
    current_task_clear(&self->tasks);
    code_sites_clear(&self->sites);
    free(self);
}

static int make(size_t slot, char words[PROTO_WORDS_MAX])
{
    struct loops *self = calloc(1, sizeof *self);

    if (!self)
        return -ENOMEM;
    if (!code_site_bind() || !current_task_init(&self->tasks)) {
        free(self);
        snprintf(words, PROTO_WORDS_MAX,
                 "the program hasn't imported asyncio; once it has, write it again");
        return -ENOENT;
    }
    __atomic_store_n(&states[slot], self, __ATOMIC_RELAXED);
    return 0;
}

static int on(struct interpreter *interpreter, const struct proto_record *record,
              char words[PROTO_WORDS_MAX])
{
    PyObject **kept = recorder_kept(interpreter, RECORDED_LOOP);
    size_t slot = interpreter_index(interpreter);

    if (*kept)
        unhook(*kept);
    python_clear(kept);
    int r = states[slot] ? 0 : make(slot, words);
    if (r < 0)
        return r;
    hints[slot] = record->gil_interval;
    __atomic_store_n(&limit_ns, (uint64_t)(record->rate * 1e9), __ATOMIC_RELAXED);
    *kept = hook_all(&interpreter->guest);
    if (*kept)
        return 0;
    drop(slot);
    return -EIO;
}

static void off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    unhook(*recorder_kept(interpreter, RECORDED_LOOP));
    drop(interpreter_index(interpreter));
}

static void forget(void)
{
    memset(busy, 0, sizeof busy);
    for (size_t slot = 0; slot < INTERPRETERS_MAX; slot++)
        for (size_t i = 0; states[slot] && i < LOOPS_MAX; i++) {
            struct running *running = &states[slot]->running[i];
            *running = (struct running){.weak = running->weak, .place = running->place};
        }
}

/* ---- who blocks ---- */

static void copy_text(struct ring_text *to, char buffer[RING_TEXT_MAX],
                      const struct ring_text *from)
{
    uint32_t size = ring_text_size(from);

    *to = (struct ring_text){from->bytes ? memcpy(buffer, from->bytes, size) : NULL, size};
}

/* The task that a loop runs. */
static void see_task(struct loops *self, PyObject *loop, struct blocked_at *place)
{
    _cleanup_unref_ PyObject *task = current_task_find(&self->tasks, loop);
    _cleanup_unref_ PyObject *name = task ? current_task_name(&self->tasks, task) : NULL;
    _cleanup_unref_ PyObject *coro = task ? current_task_coro(&self->tasks, task) : NULL;
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text text = {0};

    if (name)
        text = (struct ring_text){PyBytes_AsString(name), (size_t)PyBytes_Size(name)};
    copy_text(&place->task, place->texts[0], &text);
    text_of(coro, &text, &owner);
    copy_text(&place->coro, place->texts[1], &text);
    PyErr_Clear();
}

static void see_frames(struct loops *self, PyFrameObject *frame, struct blocked_at *place)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    struct code_site site;

    stack_text_site(&self->sites, frame, code, &site);
    copy_text(&place->func, place->texts[2], &site.func);
    copy_text(&place->file, place->texts[3], &site.file);
    place->line = site.line;
    place->stack = stack_text(&self->sites, frame, &site, STACK_FRAMES_MAX, place->texts[4]);
}

/* Looks at the thread of a loop that has been blocked since then. */
static void see(struct interpreter *interpreter, size_t i, uint64_t since)
{
    size_t slot = interpreter_index(interpreter);
    struct loops *self = states[slot];
    struct running *running = &self->running[i];
    struct thread_seen seen;

    if (!running->place)
        running->place = malloc(sizeof *running->place);
    if (!running->place)
        return;
    _cleanup_unref_ PyObject *loop = take_loop(running);
    if (!loop) {
        leave(running);
        set_busy(slot, i, 0);
        return;
    }
    if (thread_states_find(interpreter->state, running->thread, &seen) < 0)
        return;
    running->placed = 0;
    if (seen.frame) {
        see_frames(self, seen.frame, running->place);
        see_task(self, loop, running->place);
        if (busy_since(slot, i) == since)
            running->placed = since;
    }
    Py_DecRef((PyObject *)seen.frame);
}

/* The last blocks that were looked at when half of the limit was over, and when all was. Python's
 * thread's. */
static struct {
    uint64_t half, whole;
} looked[INTERPRETERS_MAX][LOOPS_MAX];

/* Whether it is time for a look. */
static bool is_due(size_t slot, size_t i, uint64_t limit)
{
    uint64_t since = busy_since(slot, i), now = monotonic_ns();

    if (!since || now < since || now - since < limit / 2)
        return false;
    return looked[slot][i].half != since ||
           (now - since >= limit && looked[slot][i].whole != since);
}

static void look_at(struct interpreter *interpreter, size_t i, uint64_t limit)
{
    size_t slot = interpreter_index(interpreter);

    if (!recorder_ring(RECORDED_LOOP) || !states[slot] || !is_due(slot, i, limit))
        return;
    uint64_t since = busy_since(slot, i);
    looked[slot][i].half = since;
    bool collects = python_keep_collector();
    see(interpreter, i, since);
    python_let_collector(collects);
    PyErr_Clear();
    if (busy_since(slot, i) != since || monotonic_ns() - since < limit)
        return;
    looked[slot][i].whole = since;
    if (states[slot]->running[i].told != since)
        write_row(&states[slot]->running[i], since, NAN);
}

static void look_into(struct interpreter *interpreter, uint64_t limit)
{
    struct interpreter *entered;

    if (interpreter_enter(interpreter->id, hints[interpreter_index(interpreter)], &entered) < 0)
        return;
    if (entered == interpreter)
        for (size_t i = 0; i < LOOPS_MAX; i++)
            look_at(interpreter, i, limit);
    interpreter_leave(entered);
}

/* Looks where the loops are that have been blocked for long, if there are any: only then this takes
 * the GIL. */
static uint64_t look(void)
{
    uint64_t limit = __atomic_load_n(&limit_ns, __ATOMIC_RELAXED), period = limit / 4;
    bool any = false;

    if (!recorder_ring(RECORDED_LOOP)) /* it is over, or a fork left it behind */
        return 0;
    for (size_t slot = 0; slot < INTERPRETERS_MAX; slot++) {
        bool due = false;
        if (!__atomic_load_n(&states[slot], __ATOMIC_RELAXED))
            continue;
        any = true;
        for (size_t i = 0; i < LOOPS_MAX && !due; i++)
            due = is_due(slot, i, limit);
        if (due)
            look_into(&interpreters[slot], limit);
    }
    if (!any)
        return 0;
    return period < PERIOD_MIN_NS ? PERIOD_MIN_NS : period > PERIOD_MAX_NS ? PERIOD_MAX_NS : period;
}

const struct recorder loop_recorder = {
    .on = on,
    .off = off,
    .forget = forget,
    .look = look,
    .python = true,
    .rate = LIMIT_S,
    .rate_max = LIMIT_MAX_S,
};
