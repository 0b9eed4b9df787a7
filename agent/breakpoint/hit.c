#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/breakpoint/capture.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/exception_words.h"
#include "agent/cpython/thread_states.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/recorder.h"
#include "agent/stop/hold.h"
#include "agent/stop/step.h"
#include "agent/stop/stop_row.h"
#include "agent/wire/channel.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static unsigned inside[INTERPRETERS_MAX]; /* hits in each interpreter; changed with its GIL */
static __thread unsigned *busy; /* that of a hit: what is run there hits nothing. NULL: in none */

/* What was compiled in an interpreter, under its GIL. */
static struct {
    int64_t id; /* of that interpreter: what is left of another one, that ended, isn't touched */
    struct expressions *expressions;
} compiled[INTERPRETERS_MAX];

static struct expressions **compiled_in(const struct interpreter *interpreter)
{
    __auto_type own = &compiled[interpreter_index(interpreter)];

    if (own->id != interpreter->id)
        own->expressions = NULL;
    own->id = interpreter->id;
    return &own->expressions;
}

static struct ring_text text_or_null(const char *text)
{
    return text ? (struct ring_text){text, strlen(text)} : (struct ring_text){0};
}

/* ---- holding ---- */

/* str() of an exception, which runs code of the program. */
static struct ring_text message_of(struct hit *hit, PyObject *exception,
                                   char message[HITS_MESSAGE_MAX])
{
    _cleanup_unref_ PyObject *text = hit->escapes ? NULL : PyObject_Str(exception);

    if (!text) {
        if (!hit->escapes)
            capture_note_error(hit);
        return (struct ring_text){0};
    }
    words_copy(text, message, HITS_MESSAGE_MAX);
    return text_or_null(message);
}

/* Holds this thread, and writes the row of its stop: that is the hit's own, but for a watchpoint,
 * whose hit is where the value was written, and seen only afterwards. */
static void hold(struct hit *hit, struct hits_row *row)
{
    const struct reached *reached = hit->reached;
    PyFrameObject *frame = reached->held ? reached->held : reached->frame;
    char type[HITS_EXCEPTION_MAX], message[HITS_MESSAGE_MAX];
    struct hold hold = {
        .why = reached->why,
        .id = hit->breakpoint->id,
        .for_ns = hit->breakpoint->stop_ns,
        .frame = frame,
        .line = reached->held ? PyFrame_GetLineNumber(frame) : reached->line,
        .value = reached->value,
        .event = reached->event,
        .removed = &hit->breakpoint->removed,
        .here = hit->breakpoint->here,
        .returned = hit->breakpoint->kind == BREAKPOINT_RETURN ? reached->value : NULL,
    };

    if (hit->breakpoint->kind == BREAKPOINT_RAISE && reached->value) {
        exception_type_copy(reached->value, type, sizeof type);
        hold.exception = text_or_null(type);
        hold.message = message_of(hit, reached->value, message);
    }

    /* those that can't be paused run on */
    if (hit->breakpoint->all && !breakpoint_is_removed(hit->breakpoint))
        step_pause_others(hit->interpreter, hit->breakpoint->id, hit->breakpoint->stop_ns,
                          hit->breakpoint->here);
    bool fine = reached->change
                    ? stop_hold(hit->interpreter, &hold, reached->frame, reached->code, NULL)
                    : stop_hold_hit(hit->interpreter, &hold, row);
    if (reached->holds)
        *reached->holds |= row->stopped == 1;
    if (!fine)
        hit->escapes = true;
}

/* Another thread wrote, and has gone on since: it is to stop at its next line. */
static void hold_writer(struct hit *hit)
{
    const struct breakpoint *breakpoint = hit->breakpoint;
    const PyThreadState *state = hit->reached->change->writer;
    struct thread_seen writer = {0};

    if (state)
        thread_states_find(hit->interpreter->state, state, &writer);
    if (writer.frame && breakpoint->all)
        step_pause_others(hit->interpreter, breakpoint->id, breakpoint->stop_ns, breakpoint->here);
    if (writer.frame)
        step_stop_soon(hit->interpreter, writer.id, writer.frame, breakpoint->id,
                       breakpoint->stop_ns, breakpoint->here);
    Py_DecRef((PyObject *)writer.frame);
}

/* ---- rows ---- */

/* Whether one more row may be written now. */
static bool has_room(struct breakpoint *breakpoint, double now)
{
    uint64_t second = (uint64_t)now & 0xffffffff,
             rows = __atomic_load_n(&breakpoint->rows, __ATOMIC_RELAXED);

    rows = rows >> 32 == second ? rows + 1 : second << 32 | 1;
    __atomic_store_n(&breakpoint->rows, rows, __ATOMIC_RELAXED);
    return (uint32_t)rows <= HIT_ROWS;
}

/* The innermost frame of a stack, which ends at the end of `stack`, is at another line. */
static struct ring_text with_line(struct ring_text text, char stack[RING_TEXT_MAX], int64_t line)
{
    char tail[24];
    size_t size = (size_t)snprintf(tail, sizeof tail, "%ld)", (long)line), keep = text.size;

    while (keep && text.bytes[keep - 1] != ':')
        keep--;
    if (!keep || keep + size > RING_TEXT_MAX)
        return text;
    char *start = stack + RING_TEXT_MAX - keep - size;
    memmove(start, text.bytes, keep);
    memcpy(start + keep, tail, size);
    return (struct ring_text){start, keep + size};
}

/* Fills in where the hit was; the row's texts are good while the GIL is held. */
static void fill_place(struct interpreter *interpreter, const struct reached *reached,
                       struct hits_row *row, char stack[RING_TEXT_MAX])
{
    const struct change *change = reached->change;

    row->lineno = reached->line > 0 ? reached->line : RING_NULL_INTEGER;
    if (reached->frame)
        stop_row_place(interpreter, reached->frame, reached->code, row, stack);
    if (change && change->unproven) {
        row->func = row->file = (struct ring_text){0};
        row->lineno = RING_NULL_INTEGER;
    } else if (change && change->file) {
        bool within = row->stack.bytes && change->func && row->func.size == strlen(change->func) &&
                      memcmp(row->func.bytes, change->func, row->func.size) == 0;
        if (within && !change->stack && change->line > 0)
            row->stack = with_line(row->stack, stack, change->line);
        row->func = text_or_null(change->func);
        row->file = text_or_null(change->file);
        row->lineno = change->line;
    }
    if (change && change->stack)
        row->stack = text_or_null(change->stack);
}

static struct ring_text show(struct hit *hit, PyObject *value, char out[RING_TEXT_MAX])
{
    size_t size;

    if (!value || hit->escapes)
        return (struct ring_text){0};
    if (!repr_value(value, out, &size)) {
        capture_note_error(hit);
        return (struct ring_text){0};
    }
    return (struct ring_text){out, size};
}

/* The row's error: what failed, and what isn't known of the writer; NULL: nothing failed, and all
 * is known. */
static const char *what_failed(const struct hit *hit, char out[RING_TEXT_MAX])
{
    const struct change *change = hit->reached->change;
    const char *unproven = change ? change->unproven : NULL;

    if (!hit->error[0] && !unproven)
        return NULL;
    snprintf(out, RING_TEXT_MAX, "%s%s%s", hit->error, hit->error[0] && unproven ? "; " : "",
             unproven ? unproven : "");
    return out;
}

/* The number of a hit; 0: the breakpoint has had as many as it is to have. */
static uint64_t count_hit(struct breakpoint *breakpoint)
{
    uint64_t number = __atomic_add_fetch(&breakpoint->hits, 1, __ATOMIC_RELAXED);

    if (!breakpoint->count || number <= breakpoint->count)
        return number;
    __atomic_sub_fetch(&breakpoint->hits, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Updates the numbers of the set, before a row says so. */
static void tell_count(struct hit *hit)
{
    struct breakpoint *breakpoint = hit->breakpoint;

    if (hit->error[0])
        __atomic_fetch_add(&breakpoint->errors, 1, __ATOMIC_RELAXED);
    if (hit->number == breakpoint->count)
        breakpoints_done(breakpoint);
    else
        breakpoints_count(breakpoint);
}

static void write_row(struct hit *hit, double now)
{
    const struct change *change = hit->reached->change;
    char old_value[RING_TEXT_MAX], new_value[RING_TEXT_MAX], stack[RING_TEXT_MAX];
    char error[RING_TEXT_MAX];
    struct hits_row row = {
        .ts = change && change->ts > 0 ? change->ts : now,
        .id = hit->breakpoint->id,
        .hit = hit->number ? (int64_t)hit->number : RING_NULL_INTEGER,
        .tid = change && change->tid ? change->tid : thread_tid(),
        .captured = {hit->captured.text, hit->captured.size},
        .address = change ? (int64_t)change->address : RING_NULL_INTEGER,
        .resumed = NAN,
        .stop = RING_NULL_INTEGER,
    };

    if (change) {
        row.old_value = show(hit, change->old_value, old_value);
        row.new_value = show(hit, change->new_value, new_value);
    }
    row.error = text_or_null(what_failed(hit, error));
    if (hit->number)
        tell_count(hit);
    /* the id of one that is removed is another one's */
    if (hit->escapes || hit->breakpoint->removed)
        return;
    fill_place(hit->interpreter, hit->reached, &row, stack);
    bool stops = hit->number && hit->breakpoint->action == BREAKPOINT_STOP;
    struct ring *ring = stops && !change ? NULL : recorder_first_use(RECORDED_HITS);
    if (ring)
        hits_append(ring, &row, NULL);
    if (ring && change) /* telling takes as long as ten lines that are logged: they are found */
        channel_tell_happened();
    if (stops && hit->reached->frame)
        hold(hit, &row);
    else if (stops)
        hold_writer(hit);
}

/* ---- a hit ---- */

/* A breakpoint's condition holds once more. Whether this time counts (`after`, `every`). */
static bool passes(struct breakpoint *breakpoint)
{
    if (!breakpoint->after && !breakpoint->every)
        return true;
    uint64_t number = __atomic_add_fetch(&breakpoint->passed, 1, __ATOMIC_RELAXED);

    return number > breakpoint->after &&
           (!breakpoint->every || (number - breakpoint->after) % breakpoint->every == 0);
}

/* A breakpoint's condition raised. A row says so once where the thread was to stop, which goes on,
 * and else at each hit. Whether it is a hit. */
static bool raised(struct hit *hit)
{
    struct breakpoint *breakpoint = hit->breakpoint;

    bool first = breakpoints_raised(breakpoint, hit->error);
    if (breakpoint->action != BREAKPOINT_STOP)
        return true;
    __atomic_fetch_add(&breakpoint->errors, 1, __ATOMIC_RELAXED);
    breakpoints_count(breakpoint);
    if (first) {
        capture_values(hit);
        write_row(hit, realtime_s());
    }
    return false;
}

static void reach(struct hit *hit)
{
    struct breakpoint *breakpoint = hit->breakpoint;

    capture_set_scope(hit);
    bool holds = capture_is_true(hit);
    if ((!holds && !hit->error[0]) || hit->escapes || breakpoint_is_over(breakpoint) ||
        !(holds ? passes(breakpoint) : raised(hit)))
        return;
    hit->number = count_hit(breakpoint);
    if (!hit->number)
        return;
    double now = realtime_s();
    if (breakpoint->action == BREAKPOINT_STOP || has_room(breakpoint, now)) {
        capture_values(hit);
        write_row(hit, now);
    } else {
        __atomic_fetch_add(&breakpoint->dropped, 1, __ATOMIC_RELAXED);
        tell_count(hit);
    }
}

/* With the GIL, so that no two threads do it at once: an addition that is atomic costs more. */
static void count(unsigned *hits, int more)
{
    __atomic_store_n(hits, *hits + (unsigned)more, __ATOMIC_RELEASE);
}

bool hit_reached(struct interpreter *interpreter, struct breakpoint *breakpoint,
                 const struct reached *reached)
{
    unsigned *hits = &inside[interpreter_index(interpreter)];
    unsigned **own = &busy; /* one look: each at such a variable is a call */
    struct hit hit;

    if (*own || breakpoint_is_over(breakpoint))
        return true;
    *own = hits;
    count(hits, 1);
    hit.interpreter = interpreter;
    hit.breakpoint = breakpoint;
    hit.reached = reached;
    hit.compiled = compiled_in(interpreter);
    hit.escapes = false;
    hit.number = 0;
    hit.error[0] = '\0';
    reach(&hit);
    count(hits, -1);
    *own = NULL;
    return !hit.escapes;
}

static bool is_inside(void)
{
    unsigned hits = 0;

    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        hits += __atomic_load_n(&inside[i], __ATOMIC_ACQUIRE);
    return hits;
}

bool hit_list_begin(struct hit_list *list, unsigned room)
{
    list->count = 0;
    list->all = room <= HIT_AT_ONCE ? list->few : malloc(room * sizeof *list->all);
    return list->all;
}

void hit_list_end(struct hit_list *list)
{
    if (list->all != list->few)
        free(list->all);
}

bool hit_list_run(struct hit_list *list, struct interpreter *interpreter, struct reached *reached)
{
    bool fine = true;

    if (list->count && reached->line == 0)
        reached->line = PyFrame_GetLineNumber(reached->frame);
    for (unsigned i = 0; i < list->count; i++) {
        fine = fine && hit_reached(interpreter, list->all[i], reached);
        breakpoint_unref(list->all[i]);
    }
    hit_list_end(list);
    return fine;
}

bool hit_wait(void)
{
    uint64_t end = monotonic_ns() + HIT_LEAVE_NS;

    while (is_inside() && monotonic_ns() < end)
        nap_ns(1000000);
    return !is_inside();
}

void hit_forget_removed(struct interpreter *interpreter)
{
    expressions_forget(compiled_in(interpreter));
}

void hit_leave(struct interpreter *interpreter)
{
    if (!is_inside())
        expressions_free(compiled_in(interpreter));
}

void hit_forget(void)
{
    memset(inside, 0, sizeof inside);
    if (busy)
        *busy = 1;
}
