#include "agent/stop/stop_row.h"

#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/cpython/code_site.h"
#include "agent/cpython/repr.h"
#include "agent/cpython/stack_text.h"
#include "agent/record/recorder.h"
#include "agent/wire/channel.h"

#include <math.h>
#include <string.h>

/* The rows of the threads that are held, by interpreter, under its GIL. */
static struct {
    int64_t id; /* of that interpreter: what is left of another one, that ended, isn't touched */
    struct code_sites *sites;
} known[INTERPRETERS_MAX];

/* NULL: there is no memory. */
static struct code_sites *sites_of(const struct interpreter *interpreter)
{
    size_t i = interpreter_index(interpreter);

    if (known[i].id != interpreter->id)
        known[i].sites = NULL;
    known[i].id = interpreter->id;
    if (!known[i].sites && code_site_bind())
        known[i].sites = calloc(1, sizeof *known[i].sites);
    return known[i].sites;
}

void stop_row_leave(struct interpreter *interpreter)
{
    size_t i = interpreter_index(interpreter);
    struct code_sites *sites = known[i].id == interpreter->id ? known[i].sites : NULL;

    known[i].sites = NULL;
    if (sites)
        code_sites_clear(sites);
    free(sites);
}

void stop_row_place(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code,
                    struct hits_row *row, char stack[RING_TEXT_MAX])
{
    struct code_sites *sites = sites_of(interpreter);
    struct code_site site;

    if (!sites)
        return;
    stack_text_site(sites, frame, code, &site);
    row->func = site.func;
    row->file = site.file;
    row->stack = stack_text(sites, frame, &site, STACK_FRAMES_MAX, stack);
}

/* ---- why ---- */

static const char *reason_of(const struct hold *hold)
{
    switch (hold->why) {
    case STOP_WATCH: return "watch";
    case STOP_STEP: return "step";
    case STOP_RETURN: return "return";
    case STOP_PAUSE: return "pause";
    case STOP_CRASH: return "crash";
    default:
        return hold->event == HEAR_RAISE || hold->event == HEAR_UNWIND ? "raise"
               : hold->event == HEAR_RETURN                            ? "return"
                                                                       : "breakpoint";
    }
}

/* As much of a text as its column takes, in whole characters. */
static struct ring_text within(struct ring_text text, size_t most)
{
    if (text.size > most)
        for (text.size = most; text.size && ((unsigned char)text.bytes[text.size] & 0xc0) == 0x80;)
            text.size--;
    return text;
}

/* repr() of a value, which runs code of the program; leaves no exception. */
static struct ring_text value_text(PyObject *value, char text[RING_TEXT_MAX])
{
    size_t size;

    if (!value)
        return (struct ring_text){0};
    if (repr_value(value, text, &size))
        return within((struct ring_text){text, size}, HITS_RETURNED_MAX);
    PyErr_Clear();
    return (struct ring_text){0};
}

/* A thread's row, while it is held. */
struct stop {
    const struct hold *hold;
    struct hits_row *row;
    struct ring_ticket ticket;
    bool noted;
};

/* number: of the stop; 0: it isn't held. */
static void note(struct stop *stop, uint32_t number)
{
    struct ring *ring = recorder_first_use(RECORDED_HITS);
    const char *reason = reason_of(stop->hold);

    stop->row->stopped = number > 0;
    stop->row->stop = number ? number : RING_NULL_INTEGER;
    if (number)
        stop->row->reason = (struct ring_text){reason, strlen(reason)};
    stop->row->resumed = NAN;
    stop->noted = ring && hits_append(ring, stop->row, &stop->ticket);
    channel_tell_happened();
}

static void begun(void *arg, uint32_t number) { note(arg, number); }

static bool hold(struct interpreter *interpreter, const struct hold *hold, struct stop *stop,
                 double *resumed)
{
    char returned[RING_TEXT_MAX];

    stop->row->exception = within(hold->exception, HITS_EXCEPTION_MAX);
    stop->row->message = within(hold->message, HITS_MESSAGE_MAX);
    stop->row->returned = value_text(hold->returned, returned);
    /* where it goes on is told: whoever reads of the next stop has found that ring; and where the
     * program ends then, a daemon could not find a new one */
    recorder_first_use(RECORDED_EVENTS);
    bool fine = hold_thread(interpreter, hold, begun, stop, resumed);
    struct ring *ring = stop->noted && *resumed > 0 ? recorder_ring(RECORDED_HITS) : NULL;
    if (ring)
        hits_patch_resumed(ring, &stop->ticket, *resumed);
    return fine;
}

bool stop_hold_hit(struct interpreter *interpreter, const struct hold *at, struct hits_row *row)
{
    struct stop stop = {.hold = at, .row = row};
    double resumed;

    bool fine = hold(interpreter, at, &stop, &resumed);
    if (resumed == 0)
        note(&stop, 0);
    return fine;
}

bool stop_hold(struct interpreter *interpreter, const struct hold *at, PyFrameObject *frame,
               PyObject *code, PyObject *value)
{
    char stack[RING_TEXT_MAX];
    struct repr captured;
    struct hits_row row = {
        .ts = realtime_s(),
        .id = at->id ? at->id : RING_NULL_INTEGER,
        .hit = RING_NULL_INTEGER,
        .tid = thread_tid(),
        .lineno = at->line > 0 ? at->line : RING_NULL_INTEGER,
        .address = RING_NULL_INTEGER,
    };
    struct stop stop = {.hold = at, .row = &row};
    double resumed;

    if (value) {
        repr_begin(&captured);
        if (!repr_add(&captured, "return", value))
            PyErr_Clear();
        repr_end(&captured);
        row.captured = (struct ring_text){captured.text, captured.size};
    }
    if (frame)
        stop_row_place(interpreter, frame, code, &row, stack);
    return hold(interpreter, at, &stop, &resumed);
}
