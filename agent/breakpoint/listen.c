/* From CPython 3.12 on a line at which there is nothing is told of once: HEAR_DISABLE switches it
 * off. What runs code of the program, and gives the GIL up, is hit_reached(). */
#include "agent/breakpoint/listen.h"

#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/raise.h"
#include "agent/cpython/code_flags.h"
#include "agent/cpython/codes.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/statement.h"
#include "agent/monitor/hear.h"

#define STARTED 64 /* a power of two */

static const unsigned events[] = {
    [PLACE_LINE] = HEAR_BIT(HEAR_LINE) | HEAR_BIT(HEAR_JUMP),
    [PLACE_START] = HEAR_BIT(HEAR_START) | HEAR_BIT(HEAR_JUMP),
    [PLACE_RETURN] = HEAR_BIT(HEAR_RETURN),
};
#define EVENTS \
 (HEAR_BIT(HEAR_LINE) | HEAR_BIT(HEAR_JUMP) | HEAR_BIT(HEAR_START) | HEAR_BIT(HEAR_RETURN))

/* Frames that were heard to start, with their code: no more than numbers. Of all interpreters. */
static uintptr_t started[STARTED];

static int (*get_lasti)(PyFrameObject *); /* PyFrame_GetLasti, since 3.11 */

/* ---- what is heard ---- */

/* The offset of the instruction that a frame is at, in bytes; -1: it is before the first one. */
static int offset_in(PyFrameObject *frame)
{
    if (get_lasti)
        return get_lasti(frame);
    _cleanup_unref_ PyObject *lasti = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    long at = lasti ? PyLong_AsLong(lasti) : -1;
    PyErr_Clear();
    return (int)at;
}

static uintptr_t *started_at(const PyFrameObject *frame)
{
    return &started[(uintptr_t)frame / 16 % STARTED];
}

static uintptr_t start_of(const PyFrameObject *frame, const PyObject *code)
{
    return (uintptr_t)frame ^ ((uintptr_t)code << 8);
}

static void note_start(const PyFrameObject *frame, const PyObject *code)
{
    __atomic_store_n(started_at(frame), start_of(frame, code), __ATOMIC_RELAXED);
}

static bool has_started(const PyFrameObject *frame, const PyObject *code)
{
    return __atomic_load_n(started_at(frame), __ATOMIC_RELAXED) == start_of(frame, code);
}

static bool is_meant(const struct breakpoint *breakpoint, bool lines)
{
    return !breakpoint_is_over(breakpoint) && (!lines || breakpoint->kind == BREAKPOINT_LINE);
}

/* Lists the breakpoints at a place, NULL: none, that aren't over; lines: only those of kind LINE.
 * Whether there are any, which hit_list_run() is to be called for. */
static bool list_at(const struct code_place *place, bool lines, struct hit_list *list)
{
    unsigned room = 0;

    for (const struct code_place *at = place; at; at = at->next)
        room++;
    if (!room || !hit_list_begin(list, room))
        return false;
    for (const struct code_place *at = place; at; at = at->next)
        if (is_meant(at->breakpoint, lines))
            list->all[list->count++] = breakpoint_ref(at->breakpoint);
    if (!list->count)
        hit_list_end(list);
    return list->count;
}

static enum hear_answer hit_again(struct interpreter *interpreter, const struct heard *heard,
                                  const struct code_place *place, int line)
{
    if (!place)
        return HEAR_DISABLE;
    struct reached reached = {
        heard_frame(heard), heard->code, line, NULL, NULL, STOP_BREAKPOINT, heard->event,
    };
    struct hit_list list;

    if (!reached.frame)
        return HEAR_DISABLE;
    if (place->event == PLACE_START && has_started(reached.frame, heard->code))
        return HEAR_ON;
    if (!list_at(place, true, &list))
        return HEAR_DISABLE;
    return hit_list_run(&list, interpreter, &reached) ? HEAR_ON : HEAR_RAISED;
}

/* A generator expression that stands on one line begins that again at each turn. It was hit as it
 * started; but not if it runs already. */
static const struct code_place *generator_at(const struct places *places, PyObject *code, int line)
{
    const struct code_place *place = places_at(places, code, PLACE_START, 0);
    bool is = place && line == codes_number(code, CODE_FIRST_LINE) &&
              codes_number(code, CODE_FLAGS) & (CO_GENERATOR | CO_ASYNC_GENERATOR);
    return is ? place : NULL;
}

static enum hear_answer get_to(struct interpreter *interpreter, const struct heard *heard)
{
    enum place_event event = heard->event == HEAR_LINE    ? PLACE_LINE
                             : heard->event == HEAR_START ? PLACE_START
                                                          : PLACE_RETURN;
    const struct places *places = places_here(interpreter);
    const struct code_place *place = places ? places_at(places, heard->code, event, heard->line)
                                            : NULL;

    if (places && !place && event == PLACE_LINE && !hear_tells_of_jumps())
        return hit_again(interpreter, heard, generator_at(places, heard->code, heard->line),
                         heard->line);
    if (!place)
        return HEAR_DISABLE;
    struct reached reached = {
        heard_frame(heard), heard->code,  heard->line, heard->value, NULL,
        STOP_BREAKPOINT,    heard->event,
    };
    struct hit_list list;
    if (!reached.frame || (place->again && places_again(places, place, offset_in(reached.frame))) ||
        !list_at(place, false, &list))
        return HEAR_DISABLE;
    if (event == PLACE_START)
        note_start(reached.frame, heard->code);
    return hit_list_run(&list, interpreter, &reached) ? HEAR_ON : HEAR_RAISED;
}

/* A loop on one line begins it again. */
static enum hear_answer get_back(struct interpreter *interpreter, const struct heard *heard)
{
    const struct places *places = places_here(interpreter);
    int line = places ? statement_jump(heard->code, heard->from, heard->to) : 0;
    const struct code_place *place = line ? places_at(places, heard->code, PLACE_LINE, line) : NULL;

    if (!place && line)
        place = generator_at(places, heard->code, line);
    return hit_again(interpreter, heard, place, line);
}

/* The end of an iterator in a `for` is told as if it had been raised there, without a traceback. */
static enum hear_answer get_to_raise(struct interpreter *interpreter, const struct heard *heard)
{
    _cleanup_unref_ PyObject *frame = heard->traceback ? (PyObject *)heard_frame(heard) : NULL;

    PyErr_Clear();
    if (!frame)
        return HEAR_ON;
    Py_IncRef(frame);
    return raise_seen(interpreter, (PyFrameObject *)frame, heard->value, heard->traceback)
               ? HEAR_ON
               : HEAR_RAISED;
}

/* An exception leaves a frame. */
static enum hear_answer get_out(struct interpreter *interpreter, const struct heard *heard)
{
    _cleanup_unref_ PyObject *frame = heard->value ? (PyObject *)heard_frame(heard) : NULL;

    PyErr_Clear();
    if (!frame)
        return HEAR_ON;
    Py_IncRef(frame);
    return raise_left(interpreter, (PyFrameObject *)frame, heard->value) ? HEAR_ON : HEAR_RAISED;
}

static enum hear_interest wants(struct interpreter *interpreter, PyThreadState *state,
                                PyObject *code)
{
    const struct places *places = places_here(interpreter);
    return places && places_in(places, code) ? HEAR_NOW : HEAR_NEVER;
}

static const struct hearer hearer = {
    .id = HEARER_BREAKPOINTS,
    .purpose = "stop at code",
    .on =
        {
            [HEAR_LINE] = get_to,
            [HEAR_JUMP] = get_back,
            [HEAR_START] = get_to,
            [HEAR_RETURN] = get_to,
            [HEAR_RAISE] = get_to_raise,
            [HEAR_UNWIND] = get_out,
        },
    .wants = wants,
    .code_made = places_code_made,
    .code_gone = places_code_gone,
};

/* ---- on and off ---- */

int listen_code(struct interpreter *interpreter, PyObject *code, unsigned wanted)
{
    unsigned bits = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(events); i++)
        bits |= wanted & 1u << i ? events[i] : 0;
    return hear_code(interpreter, &hearer, code, bits);
}

static void name_again(void *arg, PyObject *code, unsigned wanted)
{
    listen_code(arg, code, wanted);
    PyErr_Clear();
}

int listen_begin(struct interpreter *interpreter, unsigned everywhere, char words[PROTO_WORDS_MAX])
{
    get_lasti = (int (*)(PyFrameObject *))looked_up.PyFrame_GetLasti;
    int r = hear_begin(interpreter, &hearer, everywhere, EVENTS, words);
    if (r > 0)
        places_each(interpreter, name_again, interpreter);
    return r < 0 ? r : 0;
}

static void forget(void *arg, PyObject *code, unsigned unused)
{
    listen_code(arg, code, 0);
    PyErr_Clear();
}

void listen_end(struct interpreter *interpreter)
{
    PyErr_Clear();
    places_each(interpreter, forget, interpreter);
    hear_end(interpreter, &hearer);
}
