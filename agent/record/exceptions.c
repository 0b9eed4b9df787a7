/* The recorder of exceptions: what it does with what it hears of (monitor/hear.h).
 *
 * Nothing here lets go of the GIL: no code of the program's is run, no reference is given up that
 * could be the last one to something, and the cyclic collector doesn't run. So whoever has the GIL
 * of an interpreter knows that nobody is inside. */
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/cpython/code_site.h"
#include "agent/cpython/exception_text.h"
#include "agent/cpython/frame_variables.h"
#include "agent/cpython/repr.h"
#include "agent/cpython/safe_repr.h"
#include "agent/cpython/stack_text.h"
#include "agent/monitor/hear.h"
#include "agent/record/exceptions_seen.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <stdio.h>

#define STACK_FRAMES 10 /* innermost ones of a row */
#define LIMITS_A_SECOND 10
#define STACKS_MAX (1000 / LIMITS_A_SECOND)
#define LOCALS_MAX (100 / LIMITS_A_SECOND)

/* How many rows, at most, may have something costly in each part of a second. */
struct limit {
    int64_t part;
    unsigned taken;
    uint64_t left_out; /* since the last one */
};

/* What is kept of an interpreter from when recording is switched on until it is off. */
struct exceptions {
    struct exceptions_seen all_seen;
    struct code_sites sites;
    struct exception_text raised;
    bool wants_locals;
    struct limit stacks, locals;
    char stack[RING_TEXT_MAX]; /* of the row at hand, as the two that follow */
    struct repr variables;
    struct safe_repr repr;
};

/* ---- where exceptions end ---- */

/* Whether what leaves this code ends a thread or a task: nothing awaits a
 * coroutine that is run by a loop. */
static bool leaves(struct exceptions *self, PyObject *code, PyObject *back)
{
    return !back || (code_site_kind(&self->sites, code) & CODE_SITE_COROUTINE &&
                     !(code_site_kind(&self->sites, back) & CODE_SITE_AWAITS));
}

/* ---- rows ---- */

/* An exception, and where it was raised. */
struct raise {
    const struct exception_type *type;
    PyObject *exception, *code;
    long lasti;
    PyFrameObject *frame; /* that it was seen in, which runs; NULL: not known */
    bool elsewhere;       /* it was raised in a frame that has ended */
};

/* ---- stacks and variables ---- */

static bool takes(struct limit *limit, double now, unsigned max)
{
    int64_t part = (int64_t)(now * LIMITS_A_SECOND);

    if (part != limit->part) {
        limit->part = part;
        limit->taken = 0;
    }
    if (limit->taken == max) {
        limit->left_out++;
        return false;
    }
    limit->taken++;
    return true;
}

/* How many rows a limit has left out since this was last asked. */
static int64_t count_left_out(struct limit *limit)
{
    uint64_t count = limit->left_out;

    limit->left_out = 0;
    return (int64_t)count;
}

static bool add_variable(void *arg, PyObject *name, PyObject *value)
{
    struct exceptions *self = arg;
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text text;
    char key[256];

    if (!text_of(name, &text, &owner) || text.size >= sizeof key || text.bytes[0] == '.' ||
        !strncmp(text.bytes, "__", 2))
        return true;
    memcpy(key, text.bytes, text.size);
    key[text.size] = 0;
    Py_IncRef(value);
    safe_repr_parts(&self->repr, &self->raised, value);
    text = safe_repr_text(&self->repr);
    repr_add_text(&self->variables, key, &text);
    Py_DecRef(value);
    return !self->variables.full;
}

/* Adds stack and variables to a row, as far as the limits allow. */
static void add_scene(struct exceptions *self, const struct raise *raise,
                      struct exceptions_row *row)
{
    bool locals = self->wants_locals && !raise->elsewhere;

    if (!raise->frame)
        return;
    if (!takes(&self->stacks, row->ts, STACKS_MAX)) {
        self->locals.left_out += locals;
        return;
    }
    row->stack = stack_text(&self->sites, raise->frame, NULL, STACK_FRAMES, self->stack);
    row->left_out = count_left_out(&self->stacks);
    if (!locals || !takes(&self->locals, row->ts, LOCALS_MAX))
        return;
    repr_begin(&self->variables);
    frame_variables(raise->frame, raise->code, add_variable, self);
    repr_end(&self->variables);
    row->locals = (struct ring_text){self->variables.text, self->variables.size};
    row->left_out = count_left_out(&self->locals);
}

/* The oldest entry of a traceback says it: code that isn't Python's may have made several. */
static void find_origin(const struct exceptions *self, PyObject *traceback, struct raise *raise)
{
    long lasti;
    PyObject *code = exceptions_seen_origin(&self->all_seen, traceback, &lasti);

    if (code) {
        raise->code = code;
        raise->lasti = lasti;
    }
}

static void record(struct exceptions *self, const struct raise *raise, int64_t handled,
                   struct ring_ticket *ticket)
{
    struct ring *ring = recorder_ring(RECORDED_EXCEPTIONS);
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text message;
    struct code_site site;

    if (!ring)
        return;
    exception_text_message(&self->raised, raise->type, raise->exception, &message, &owner);
    code_site_find(&self->sites, raise->code, (int)raise->lasti, &site);
    struct exceptions_row row = {
        .ts = realtime_s(),
        .tid = thread_tid(),
        .type = raise->type->name,
        .message = message,
        .file = site.file,
        .lineno = site.line,
        .func = site.func,
        .handled = handled,
        .left_out = RING_NULL_INTEGER,
    };
    add_scene(self, raise, &row);
    exceptions_append(ring, &row, ticket);
}

static void set_fate(struct seen_exception *seen, enum exception_fate fate)
{
    struct ring *ring = recorder_ring(RECORDED_EXCEPTIONS);

    if (ring && ring == seen->ring)
        exceptions_patch_handled(ring, &seen->ticket, fate == FATE_HANDLED);
    seen->fate = fate;
}

/* ---- what happens to an exception ---- */

/* A `for` tells of an iterator's end as if it had been raised there. */
static bool is_elsewhere(struct exceptions *self, const struct exception_type *type, PyObject *code,
                         PyObject *traceback)
{
    return type->ends == ENDS_LIKE_ITERATION &&
           (!traceback || !exceptions_seen_is_of(&self->all_seen, traceback, code));
}

/* What has come up to those that catch all has left its thread, task or callback. */
static void come_up(struct exceptions *self, PyObject *code, struct seen_exception *seen)
{
    if (seen->fate != FATE_LEFT && code_site_kind(&self->sites, code) & CODE_SITE_ENDS)
        set_fate(seen, FATE_LEFT);
}

/* An exception is in a frame of this code: raised there, or come up to there. */
static void raised(struct exceptions *self, const struct heard *heard)
{
    PyObject *code = heard->code, *exception = heard->value, *traceback = heard->traceback;
    long lasti = traceback ? exceptions_seen_lasti(&self->all_seen, traceback) : -1;
    struct raise raise = {
        .type = exception_text_type(&self->raised, exception),
        .exception = exception,
        .code = code,
        .lasti = lasti,
    };
    struct seen_exception *seen = exceptions_seen_find(&self->all_seen, exception);

    if (is_elsewhere(self, raise.type, code, traceback))
        return;
    PyObject *older = traceback ? exceptions_seen_older(&self->all_seen, traceback) : NULL;
    bool again = older && seen && seen_exception_is(&self->all_seen, seen, older);
    exceptions_seen_own(&self->all_seen, traceback, exception);
    if (again) {
        seen_exception_note(seen, traceback, code, lasti);
        come_up(self, code, seen);
        return;
    }
    if (raise.type->ends == ENDS_ITERATION || raise.type->ends == ENDS_GENERATOR) {
        if (seen)
            seen->fate = FATE_GONE;
        return;
    }
    seen = exceptions_seen_add(&self->all_seen, exception, seen);
    seen->ring = recorder_ring(RECORDED_EXCEPTIONS);
    seen_exception_note(seen, traceback, code, lasti);
    raise.frame = heard_frame(heard);
    PyErr_Clear(); /* without memory there is none */
    raise.elsewhere = older != NULL;
    if (older)
        find_origin(self, older, &raise);
    record(self, &raise, RING_NULL_INTEGER, &seen->ticket);
}

/* A handler begins in a frame of this code. */
static void handled(struct exceptions *self, PyObject *code, PyObject *exception)
{
    struct seen_exception *seen = exceptions_seen_find(&self->all_seen, exception);

    if (!seen || seen->fate == FATE_HANDLED || seen->fate == FATE_GONE ||
        (seen->fate == FATE_LEFT && code_site_kind(&self->sites, code) & CODE_SITE_ENDS))
        return;
    set_fate(seen, FATE_HANDLED);
}

/* An exception leaves a frame of this code. back: the caller's frame; NULL: there is none. */
static void left(struct exceptions *self, PyObject *code, PyObject *back, PyObject *exception)
{
    struct seen_exception *seen = exceptions_seen_find(&self->all_seen, exception);

    if (seen && seen->fate != FATE_GONE) {
        if (seen->fate != FATE_LEFT && leaves(self, code, back))
            set_fate(seen, FATE_LEFT);
        return;
    }
    struct raise raise = {
        .type = exception_text_type(&self->raised, exception),
        .exception = exception,
        .code = code,
        .lasti = -1,
    };
    if (raise.type->ends != ENDS_ITERATION || back)
        return;
    _cleanup_unref_ PyObject *traceback = PyException_GetTraceback(exception);
    if (traceback)
        find_origin(self, traceback, &raise);
    record(self, &raise, 0, NULL);
}

/* ---- what is heard ---- */

/* by interpreter; it may be left of one that has ended */
static struct exceptions *states[INTERPRETERS_MAX];

/* NULL: nothing is recorded there. */
static struct exceptions *state_of(const struct interpreter *interpreter)
{
    /* the main one's end is worth recording */
    bool ended = interpreter->closed && !interpreter_is_main(interpreter);
    bool is_on = recorder_ring(RECORDED_EXCEPTIONS) &&
                 *recorder_kept(interpreter, RECORDED_EXCEPTIONS);

    return is_on && !ended ? states[interpreter_index(interpreter)] : NULL;
}

static void note_left(struct exceptions *self, const struct heard *heard)
{
    PyFrameObject *frame = heard_frame(heard);
    _cleanup_unref_ PyObject *back = frame ? (PyObject *)python.frame_back(frame) : NULL;
    _cleanup_unref_ PyObject *code = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back)
                                          : NULL;

    PyErr_Clear();
    left(self, heard->code, code, heard->value);
}

static enum hear_answer hear(struct interpreter *interpreter, const struct heard *heard)
{
    struct exceptions *self = state_of(interpreter);

    if (!self || !heard->value)
        return HEAR_ON;
    bool collects = python_keep_collector();
    if (heard->event == HEAR_RAISE)
        raised(self, heard);
    else if (heard->event == HEAR_HANDLED)
        handled(self, heard->code, heard->value);
    else
        note_left(self, heard);
    python_let_collector(collects);
    return HEAR_ON;
}

static const struct hearer hearer = {
    .id = HEARER_EXCEPTIONS,
    .purpose = "see exceptions",
    .on = {[HEAR_RAISE] = hear, [HEAR_HANDLED] = hear, [HEAR_UNWIND] = hear},
};

/* ---- on and off ---- */

static int init(struct exceptions *self)
{
    int r = code_site_bind() ? frame_variables_bind() : -EOPNOTSUPP;
    if (r == 0)
        r = exceptions_seen_init(&self->all_seen);
    return r < 0 ? r : exception_text_init(&self->raised);
}

/* May run destructors of the program. */
static void deinit(struct exceptions *self)
{
    exceptions_seen_clear(&self->all_seen);
    exception_text_clear(&self->raised);
    code_sites_clear(&self->sites);
    free(self);
}

static void give_up(struct interpreter *interpreter)
{
    size_t slot = interpreter_index(interpreter);
    struct exceptions *self = states[slot];
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (self) {
        hear_end(interpreter, &hearer);
        states[slot] = NULL;
        deinit(self);
    }
    PyErr_Restore(type, value, traceback);
}

/* A state that is there already is of an interpreter that ended: what it refers to is gone. */
static int make(struct interpreter *interpreter)
{
    size_t slot = interpreter_index(interpreter);

    free(states[slot]);
    states[slot] = calloc(1, sizeof *states[slot]);
    int r = states[slot] ? init(states[slot]) : -ENOMEM;
    if (r == 0)
        Py_IncRef(*recorder_kept(interpreter, RECORDED_EXCEPTIONS) = Py_True);
    return r;
}

static int on(struct interpreter *interpreter, const struct proto_record *record,
              char words[PROTO_WORDS_MAX])
{
    size_t slot = interpreter_index(interpreter);

    int r = *recorder_kept(interpreter, RECORDED_EXCEPTIONS) ? 0 : make(interpreter);
    if (r == -EOPNOTSUPP)
        snprintf(words, PROTO_WORDS_MAX, "this interpreter lacks what it takes to see exceptions");
    if (r == 0) {
        states[slot]->wants_locals = record->flags & RECORD_LOCALS;
        exceptions_seen_forget(&states[slot]->all_seen); /* their rows may be in another ring now */
        r = hear_begin(interpreter, &hearer,
                       HEAR_BIT(HEAR_RAISE) | HEAR_BIT(HEAR_HANDLED) | HEAR_BIT(HEAR_UNWIND), 0,
                       words);
    }
    if (r < 0) {
        give_up(interpreter);
        python_clear(recorder_kept(interpreter, RECORDED_EXCEPTIONS));
    }
    return r;
}

static void off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    give_up(interpreter);
}

const struct recorder exceptions_recorder = {.on = on, .off = off, .python = true};
