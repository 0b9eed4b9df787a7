#include "agent/exceptions.h"

#include "agent/agent.h"
#include "agent/exceptions_trace.h"
#include "agent/monitoring.h"
#include "agent/recorder.h"
#include "agent/spawn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- where exceptions end ---- */

/* Whether what leaves this code ends a thread or a task: nothing awaits a coroutine that is run by a loop. */
static bool leaves(struct exceptions *self, PyObject *code, PyObject *back)
{
    return !back || (site_kind(&self->sites, code) & SITE_COROUTINE &&
                     !(site_kind(&self->sites, back) & SITE_AWAITS));
}

/* ---- rows ---- */

/* An exception, and where it was raised. */
struct raise {
    const struct raised_type *type;
    PyObject *exception, *code;
    long lasti;
};

/* The oldest entry of a traceback says it: code that isn't Python's may have made several. */
static void find_origin(const struct exceptions *self, PyObject *traceback, struct raise *raise)
{
    long lasti;
    PyObject *code = sighting_origin(&self->sightings, traceback, &lasti);

    if (code) {
        raise->code = code;
        raise->lasti = lasti;
    }
}

static void record(struct exceptions *self, const struct raise *raise, int64_t handled, struct ring_ticket *ticket)
{
    struct ring *ring = recorder_ring(RECORDED_EXCEPTIONS);
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text message;
    struct site site;

    if (!ring)
        return;
    raised_message(&self->raised, raise->type, raise->exception, &message, &owner);
    site_find(&self->sites, raise->code, (int)raise->lasti, &site);
    const struct exceptions_row row = {
        .ts = recorder_now(),
        .tid = thread_tid(),
        .type = raise->type->name,
        .message = message,
        .file = site.file,
        .lineno = site.line,
        .func = site.func,
        .handled = handled,
    };
    exceptions_append(ring, &row, ticket);
}

static void set_fate(struct sighting *sighting, enum sighting_fate fate)
{
    struct ring *ring = recorder_ring(RECORDED_EXCEPTIONS);

    if (ring && ring == sighting->ring)
        exceptions_patch_handled(ring, &sighting->ticket, fate == FATE_HANDLED);
    sighting->fate = fate;
}

/* ---- what happens to an exception ---- */

/* A `for` tells of an iterator's end as if it had been raised there. */
static bool is_elsewhere(struct exceptions *self, const struct raised_type *type, PyObject *code, PyObject *traceback)
{
    return type->ends == ENDS_LIKE_ITERATION &&
           (!traceback || !sighting_is_of(&self->sightings, traceback, code));
}

/* What has come up to those that catch all has left its thread, task or callback. */
static void come_up(struct exceptions *self, PyObject *code, struct sighting *sighting)
{
    if (sighting->fate != FATE_LEFT && site_kind(&self->sites, code) & SITE_ENDS)
        set_fate(sighting, FATE_LEFT);
}

void exceptions_raised(struct exceptions *self, PyObject *code, PyObject *exception, PyObject *traceback)
{
    long lasti = traceback ? sighting_lasti(&self->sightings, traceback) : -1;
    struct raise raise = {raised_type(&self->raised, exception), exception, code, lasti};
    struct sighting *sighting = sighting_find(&self->sightings, exception);

    if (is_elsewhere(self, raise.type, code, traceback))
        return;
    PyObject *older = traceback ? sighting_older(&self->sightings, traceback) : NULL;
    bool again = older && sighting && sighting_is(&self->sightings, sighting, older);
    sighting_own(&self->sightings, traceback, exception);
    if (again) {
        sighting_note(sighting, traceback, code, lasti);
        come_up(self, code, sighting);
        return;
    }
    if (raise.type->ends == ENDS_ITERATION || raise.type->ends == ENDS_GENERATOR) {
        if (sighting)
            sighting->fate = FATE_GONE;
        return;
    }
    sighting = sighting_add(&self->sightings, exception, sighting);
    sighting->ring = recorder_ring(RECORDED_EXCEPTIONS);
    sighting_note(sighting, traceback, code, lasti);
    if (older)
        find_origin(self, older, &raise);
    record(self, &raise, RING_NULL_INTEGER, &sighting->ticket);
}

void exceptions_handled(struct exceptions *self, PyObject *code, PyObject *exception)
{
    struct sighting *sighting = sighting_find(&self->sightings, exception);

    if (!sighting || sighting->fate == FATE_HANDLED || sighting->fate == FATE_GONE ||
        (sighting->fate == FATE_LEFT && site_kind(&self->sites, code) & SITE_ENDS))
        return;
    set_fate(sighting, FATE_HANDLED);
}

void exceptions_left(struct exceptions *self, PyObject *code, PyObject *back, PyObject *exception)
{
    struct sighting *sighting = sighting_find(&self->sightings, exception);

    if (sighting && sighting->fate != FATE_GONE) {
        if (sighting->fate != FATE_LEFT && leaves(self, code, back))
            set_fate(sighting, FATE_LEFT);
        return;
    }
    struct raise raise = {raised_type(&self->raised, exception), exception, code, -1};
    if (raise.type->ends != ENDS_ITERATION || back)
        return;
    _cleanup_unref_ PyObject *traceback = PyException_GetTraceback(exception);
    if (traceback)
        find_origin(self, traceback, &raise);
    record(self, &raise, 0, NULL);
}

/* ---- sys.monitoring ---- */

static struct exceptions *states[INTERPRETERS_MAX]; /* by interpreter; it may be left of one that has ended */

/* That of an interpreter; NULL: none. */
static struct exceptions *state_at(size_t i)
{
    const struct interpreter *interpreter = &agent.interpreters[i];
    bool ended = i > 0 && interpreter->closed; /* the main one's end is worth recording */
    return interpreter->recorded[RECORDED_EXCEPTIONS] && !ended ? states[i] : NULL;
}

/* Whose callback this is; NULL: nobody's any more, or nothing is recorded. */
static struct exceptions *find_state(PyObject *function)
{
    if (!recorder_ring(RECORDED_EXCEPTIONS))
        return NULL;
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        for (size_t j = 0; j < 3 && state_at(i); j++)
            if (states[i]->functions[j] == function)
                return states[i];
    return NULL;
}

struct exceptions *exceptions_here(void)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (state_at(i) && agent.interpreters[i].state == here)
            return states[i];
    return NULL;
}

static PyObject *on_raise(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    struct exceptions *self = find_state(function);

    if (self) {
        PyObject *traceback = PyException_GetTraceback(args[2]);
        exceptions_raised(self, args[0], args[2], traceback);
        Py_DecRef(traceback);
    }
    return monitoring_nothing();
}

static PyObject *on_handled(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    struct exceptions *self = find_state(function);

    if (self)
        exceptions_handled(self, args[0], args[2]);
    return monitoring_nothing();
}

static PyObject *on_unwind(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    struct exceptions *self = find_state(function);
    if (self) {
        PyFrameObject *frame = PyEval_GetFrame();
        _cleanup_unref_ PyObject *back = frame ? (PyObject *)python.frame_back(frame) : NULL;
        PyObject *code = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;
        PyErr_Clear();
        exceptions_left(self, args[0], code, args[2]);
        Py_DecRef(code);
    }
    return monitoring_nothing();
}

static const struct {
    const char *name;
    monitoring_function *call;
} events[] = {
    {"RAISE", on_raise},
    {"EXCEPTION_HANDLED", on_handled},
    {"PY_UNWIND", on_unwind},
};

/* ---- on and off ---- */

static int init(struct exceptions *self, const struct interpreter *interpreter)
{
    self->owner = interpreter;
    int r = site_bind() ? sightings_init(&self->sightings) : -EOPNOTSUPP;
    return r < 0 ? r : raised_init(&self->raised);
}

/* Runs what the program's destructors do, perhaps. */
static void deinit(struct exceptions *self)
{
    sightings_clear(&self->sightings);
    raised_clear(&self->raised);
    sites_clear(&self->sites);
    free(self);
}

static int say(int r, char words[PROTO_WORDS_MAX])
{
    if (r == -EBUSY)
        snprintf(words, PROTO_WORDS_MAX,
                 "other tools have all ids of sys.monitoring (see sys.monitoring.get_tool)");
    else if (r == -EOPNOTSUPP)
        snprintf(words, PROTO_WORDS_MAX, "this interpreter lacks what it takes to see exceptions, or forbids it");
    return r;
}

static void stop(struct interpreter *interpreter, struct exceptions *self)
{
    if (python.version < 0x030c)
        exceptions_untrace(interpreter);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        monitoring_remove(&interpreter->monitoring, events[i].name, events[i].call);
}

/* Again, where it has been done: the program may have taken the tool's id away, and there are new threads. */
static int start(struct interpreter *interpreter, struct exceptions *self, char words[PROTO_WORDS_MAX])
{
    if (python.version < 0x030c)
        return exceptions_trace(interpreter, words);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
        monitoring_remove(&interpreter->monitoring, events[i].name, events[i].call);
        int r = monitoring_add(&interpreter->monitoring, events[i].name, events[i].call, 0, &self->functions[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

static void give_up(struct interpreter *interpreter)
{
    size_t slot = (size_t)(interpreter - agent.interpreters);
    struct exceptions *self = states[slot];
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (self) {
        stop(interpreter, self);
        states[slot] = NULL;
        deinit(self);
    }
    PyErr_Restore(type, value, traceback);
}

/* What was there before is of an interpreter that ended, and all that it held with it. */
static int make(struct interpreter *interpreter)
{
    size_t slot = (size_t)(interpreter - agent.interpreters);

    free(states[slot]);
    states[slot] = calloc(1, sizeof *states[slot]);
    int r = states[slot] ? init(states[slot], interpreter) : -ENOMEM;
    if (r == 0)
        Py_IncRef(interpreter->recorded[RECORDED_EXCEPTIONS] = Py_True);
    return r;
}

static int on(struct interpreter *interpreter, const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    size_t slot = (size_t)(interpreter - agent.interpreters);

    int r = interpreter->recorded[RECORDED_EXCEPTIONS] ? 0 : make(interpreter);
    if (r == 0) {
        sightings_forget(&states[slot]->sightings); /* their rows may be in another ring now */
        r = start(interpreter, states[slot], words);
    }
    if (r < 0) {
        give_up(interpreter);
        python_clear(&interpreter->recorded[RECORDED_EXCEPTIONS]);
        return say(r, words);
    }
    return 0;
}

static void off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]) { give_up(interpreter); }

const struct recorder exceptions_recorder = {.on = on, .off = off, .python = true};
