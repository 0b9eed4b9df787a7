/* Values that are compared at each line: variables of functions, at the lines of their code only,
 * and whatever else has no place that could be watched, at all lines.
 *
 * What a line did is seen at the next event: as the next line begins, or a function is entered or
 * left. Who wrote is where the frame, or, of what may be changed from anywhere, the thread was
 * behind the event before: at that line, or, once a function was left, at the line of its caller
 * that goes on. That is certain only if nobody else ran in between: no other thread had the GIL,
 * and nothing was evaluated in a held thread. Else the row says between which lines it was. */
#include "agent/cpython/look_up.h"
#include "agent/cpython/struct_layout.h"
#include "agent/monitor/hear.h"
#include "agent/stop/hold.h"
#include "agent/watch/watched.h"

#include <stdio.h>

#define UNPROVEN_MAX 1000
#define PLACES 32 /* frames, or threads, that are followed at a time */
#define EVERYWHERE "it is evaluated at each line of all code, which slows the program"

/* What else may have run besides the thread that is asked. */
struct others {
    bool known;             /* else other threads may have */
    unsigned long switches; /* struct_layout_gil_switches() */
    unsigned jobs;          /* hold_jobs_run() */
};

/* The place where a frame, or a thread, was last. */
struct line_place {
    uintptr_t owner;           /* the frame, or PyThreadState_GetID(); 0: free */
    const struct watch *watch; /* of a frame */
    PyObject *value;           /* in that frame; NULL: unbound */
    PyObject *code;            /* NULL: not known */
    int line;
    struct others others; /* then */
};

static struct line_place places[PLACES];
static unsigned next_place; /* the one that is taken where none is free */
static PyObject *(*get_variable)(PyFrameObject *, PyObject *); /* PyFrame_GetVar, 3.12 on */

/* ---- places ---- */

static void place_clear(struct line_place *place)
{
    struct line_place old = *place;

    *place = (struct line_place){0};
    Py_DecRef(old.value);
    Py_DecRef(old.code);
}

/* *fresh: it is new. */
static struct line_place *place_of(uintptr_t owner, const struct watch *watch, bool *fresh)
{
    struct line_place *place = NULL;

    *fresh = false;
    for (unsigned i = 0; i < PLACES; i++) {
        if (places[i].owner == owner && places[i].watch == watch)
            return &places[i];
        if (!places[i].owner)
            place = &places[i];
    }
    if (!place)
        place_clear(place = &places[next_place++ % PLACES]);
    *fresh = true;
    place->owner = owner;
    place->watch = watch;
    return place;
}

static void place_move(struct line_place *place, PyObject *code, int line)
{
    PyObject *old = place->code;

    place->line = line;
    if (old == code)
        return;
    Py_IncRef(place->code = code);
    Py_DecRef(old);
}

static bool is_left(const struct heard *heard)
{
    return heard->event == HEAR_RETURN || heard->event == HEAR_YIELD || heard->event == HEAR_UNWIND;
}

static int line_of(const struct heard *heard)
{
    return heard->line ? heard->line : PyFrame_GetLineNumber(heard->frame);
}

/* Notes where the thread is behind an event. */
static void place_follow(struct line_place *place, const struct heard *heard)
{
    if (!is_left(heard)) {
        place_move(place, heard->code, line_of(heard));
        return;
    }
    PyFrameObject *back = python.frame_back(heard->frame);
    _cleanup_unref_ PyObject *code = back ? (PyObject *)PyFrame_GetCode(back) : NULL;
    place_move(place, code, back ? PyFrame_GetLineNumber(back) : 0);
    Py_DecRef((PyObject *)back);
}

/* ---- who else ran ---- */

static struct others others_now(const struct interpreter *interpreter)
{
    struct others now = {.jobs = hold_jobs_run()};

    now.switches = struct_layout_gil_switches(interpreter->state, &now.known);
    return now;
}

/* ---- what is there ---- */

static PyObject *variable(struct interpreter *interpreter, struct watch *watch,
                          PyFrameObject *frame)
{
    if (!get_variable)
        return watch_value(interpreter, watch, frame);
    PyObject *value = get_variable(frame, watch->storage.key);
    PyErr_Clear();
    return value;
}

static const char *text_in(PyObject *code, const char *attribute, PyObject **owner)
{
    *owner = code ? PyObject_GetAttrString(code, attribute) : NULL;
    const char *text = *owner ? PyUnicode_AsUTF8AndSize(*owner, NULL) : NULL;
    PyErr_Clear();
    return text;
}

/* Says between which lines it was written, where the writer isn't certain. file: of the line
 * before; NULL: not known. */
static void say_between(const char *file, int64_t line, const struct heard *heard, bool alone,
                        char out[UNPROVEN_MAX])
{
    _cleanup_unref_ PyObject *owner = NULL;
    const char *here = text_in(heard->code, "co_filename", &owner);
    size_t size = 0;

    if (file && line > 0)
        size = (size_t)snprintf(out, UNPROVEN_MAX, "written between %.400s:%ld and ", file,
                                (long)line);
    else
        size = (size_t)snprintf(out, UNPROVEN_MAX, "written before ");
    size += (size_t)snprintf(out + size, UNPROVEN_MAX - size, "%.400s:%d", here ? here : "?",
                             line_of(heard));
    if (!alone)
        snprintf(out + size, UNPROVEN_MAX - size, ", or in another thread");
}

/* Compares a value that may have changed since the line that `place` is at. */
static bool compare(struct interpreter *interpreter, struct watch *watch, PyObject **last,
                    PyObject *value, const struct line_place *place, const struct heard *heard)
{
    struct change change = {.address = (uint64_t)RING_NULL_INTEGER, .line = RING_NULL_INTEGER};
    _cleanup_unref_ PyObject *held = NULL, *file = NULL, *func = NULL;
    char unproven[UNPROVEN_MAX];

    if (*last == value) /* nothing that could be changed in place: of that it is a copy */
        return true;
    const struct others now = others_now(interpreter);
    bool local = watch->storage.kind == STORAGE_LOCAL,
         alone = local || (now.known && place->others.switches == now.switches),
         proven = alone && place->others.jobs == now.jobs && place->code && place->line > 0 &&
                  !(local && watch->shared);
    Py_IncRef(held = place->code);
    change.file = text_in(held, "co_filename", &file);
    change.func = text_in(held, python.version >= 0x030b ? "co_qualname" : "co_name", &func);
    change.line = place->line > 0 ? place->line : RING_NULL_INTEGER;
    if (!proven) {
        say_between(change.file, change.line, heard, alone, unproven);
        change.unproven = unproven;
    }
    return watch_seen(interpreter, watch, last, value, &change, heard, line_of(heard));
}

static bool is_start(const struct heard *heard)
{
    return heard->event == HEAR_START || heard->event == HEAR_RESUME || heard->event == HEAR_THROW;
}

/* A variable of one frame alone, whose value is known since the watch was set. */
static bool at_frame(struct interpreter *interpreter, struct watch *watch,
                     const struct heard *heard)
{
    bool fresh;
    const struct others now = others_now(interpreter);
    _cleanup_unref_ PyObject *value = variable(interpreter, watch, heard->frame);
    if (watch->by != BY_LINE) /* it has been removed meanwhile */
        return true;
    struct line_place *place = place_of((uintptr_t)heard->frame, watch, &fresh);

    bool well = compare(interpreter, watch, &watch->value, value, place, heard);
    if (place->owner == (uintptr_t)heard->frame && place->watch == watch) {
        /* it wasn't taken meanwhile */
        place->others = now;
        place_move(place, heard->code, line_of(heard));
    }
    return well;
}

static bool at_local(struct interpreter *interpreter, struct watch *watch,
                     const struct heard *heard)
{
    bool fresh, well = true;
    const struct others now = others_now(interpreter);
    _cleanup_unref_ PyObject *value = variable(interpreter, watch, heard->frame),
                             *copy = watch_copy(interpreter, value);
    if (watch->by != BY_LINE) /* it has been removed meanwhile */
        return true;
    struct line_place *place = place_of((uintptr_t)heard->frame, watch, &fresh);

    if (fresh || is_start(heard)) {
        PyObject *before = place->value;
        place->value = steal_pointer(copy);
        copy = before; /* given up at the end, when nothing hangs on it any more */
    } else {
        /* comparing is Python, and another thread's frame may take the place meanwhile */
        PyObject *last = place->value;
        Py_IncRef(last);
        well = compare(interpreter, watch, &last, value, place, heard);
        Py_DecRef(copy);
        copy = last;
        if (place->owner == (uintptr_t)heard->frame && place->watch == watch) {
            copy = place->value;
            place->value = last;
        }
    }
    if (place->owner == (uintptr_t)heard->frame && place->watch == watch) {
        /* it wasn't taken meanwhile */
        place->others = now;
        if (is_left(heard))
            place_clear(place);
        else
            place_move(place, heard->code, line_of(heard));
    }
    return well;
}

/* Reading may be Python: where another thread has seen a change meanwhile, what was read may be
 * older than that. The next line reads again. */
static bool at_any(struct interpreter *interpreter, struct watch *watch,
                   const struct line_place *place, const struct heard *heard)
{
    unsigned replaced = watch->replaced;
    _cleanup_unref_ PyObject *value = watch_value(interpreter, watch, NULL);

    if (replaced != watch->replaced)
        return true;
    return compare(interpreter, watch, &watch->value, value, place, heard);
}

/* Whether what a watch is of may be a variable of the frame in which something happens. */
static bool is_of(const struct watch *watch, const struct heard *heard)
{
    return watch->storage.owner == heard->code && (!watch->frame || watch->frame == heard->frame);
}

static bool at(struct interpreter *interpreter, const struct heard *heard)
{
    struct watch *held[WATCHES_MAX];
    size_t count = 0;
    bool well = true, fresh, any = false;

    for (struct watch *watch = watches; watch; watch = watch->next)
        if (watch->by == BY_LINE && (watch->storage.kind != STORAGE_LOCAL || is_of(watch, heard)))
            held[count++] = watch_hold(watch);
    uintptr_t thread = PyThreadState_GetID(PyThreadState_Get());
    const struct others now = others_now(interpreter);
    for (size_t i = 0; i < count; i++) {
        bool local = held[i]->storage.kind == STORAGE_LOCAL;
        any = any || !local;
        if (well && held[i]->by == BY_LINE)
            well = local && held[i]->frame ? at_frame(interpreter, held[i], heard)
                   : local                 ? at_local(interpreter, held[i], heard)
                           : at_any(interpreter, held[i], place_of(thread, NULL, &fresh), heard);
        watch_drop(held[i]);
    }
    if (any) {
        struct line_place *place = place_of(thread, NULL, &fresh);
        place->others = now;
        place_follow(place, heard);
    }
    return well;
}

/* ---- hearing of it ---- */

static bool is_any_of(const PyFrameObject *frame)
{
    const struct watch *watch = watches;
    while (watch && watch->frame != frame)
        watch = watch->next;
    return watch;
}

/* A frame is left for good: the watches of what was in it end, when what they have seen is told. */
static void leave(struct interpreter *interpreter, const PyFrameObject *frame)
{
    if (is_any_of(frame))
        watch_thread_wait();
    struct watch *watch = watches;
    while (watch) {
        bool is = watch->frame == frame;
        if (is)
            watch_frame_left(interpreter, watch, WATCH_RETURNED);
        watch = is ? watches : watch->next;
    }
}

static bool is_everywhere(void)
{
    for (const struct watch *watch = watches; watch; watch = watch->next)
        if (watch->by == BY_LINE && watch->storage.kind != STORAGE_LOCAL)
            return true;
    return false;
}

/* Whether a watch is of code, and hears of its lines, or of its return alone. */
static bool is_at_lines(const struct watch *watch, const PyObject *code)
{
    return watch->by == BY_LINE && watch->storage.kind == STORAGE_LOCAL &&
           watch->storage.owner == code;
}

static bool is_at_code(const struct watch *watch, const PyObject *code)
{
    return is_at_lines(watch, code) || (watch->frame && watch->frame_code == code);
}

static bool is_at_any(const PyObject *code)
{
    const struct watch *watch = watches;
    while (watch && !is_at_code(watch, code))
        watch = watch->next;
    return watch;
}

static enum hear_answer hear(struct interpreter *interpreter, const struct heard *heard)
{
    struct heard here = *heard;

    if (!is_everywhere() && !is_at_any(heard->code))
        return HEAR_ON;
    here.frame = heard_frame(heard);
    if (!here.frame)
        return HEAR_ON;
    Py_IncRef((PyObject *)here.frame);
    Py_IncRef(here.code);
    bool well = at(interpreter, &here);
    if (here.event == HEAR_RETURN || here.event == HEAR_UNWIND)
        leave(interpreter, here.frame);
    Py_DecRef(here.code);
    Py_DecRef((PyObject *)here.frame);
    return well ? HEAR_ON : HEAR_RAISED;
}

static enum hear_interest wants(struct interpreter *interpreter, PyThreadState *state,
                                PyObject *code)
{
    return is_at_any(code) ? HEAR_NOW : HEAR_NEVER;
}

#define LOCAL                                                                                \
 (HEAR_BIT(HEAR_START) | HEAR_BIT(HEAR_RESUME) | HEAR_BIT(HEAR_LINE) | HEAR_BIT(HEAR_JUMP) | \
  HEAR_BIT(HEAR_RETURN) | HEAR_BIT(HEAR_YIELD))
#define EVENTS (LOCAL | HEAR_BIT(HEAR_THROW) | HEAR_BIT(HEAR_UNWIND))
static const struct hearer hearer = {
    .id = HEARER_WATCHES,
    .purpose = "compare values at lines",
    .on =
        {
            [HEAR_START] = hear,
            [HEAR_RESUME] = hear,
            [HEAR_THROW] = hear,
            [HEAR_LINE] = hear,
            [HEAR_JUMP] = hear,
            [HEAR_RETURN] = hear,
            [HEAR_YIELD] = hear,
            [HEAR_UNWIND] = hear,
        },
    .wants = wants,
};

static bool is_any(void)
{
    const struct watch *watch = watches;
    while (watch && watch->by != BY_LINE && !watch->frame)
        watch = watch->next;
    return watch;
}

static bool is_any_framed(void)
{
    const struct watch *watch = watches;
    while (watch && !watch->frame)
        watch = watch->next;
    return watch;
}

/* Has the events told that any watch wants of code. */
static int listen_to(struct interpreter *interpreter, PyObject *code)
{
    unsigned events = 0;

    for (const struct watch *watch = watches; watch; watch = watch->next)
        events |= is_at_lines(watch, code)  ? LOCAL
                  : is_at_code(watch, code) ? HEAR_BIT(HEAR_RETURN)
                                            : 0;
    return hear_code(interpreter, &hearer, code, events);
}

static int listen(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    bool everywhere = is_everywhere();
    /* before 3.12 it is told of wherever code is */
    unsigned unwinds = is_any_framed() && hear_tells_of_unwinds() ? HEAR_BIT(HEAR_UNWIND) : 0;

    if (!is_any()) {
        hear_end(interpreter, &hearer);
        return 0;
    }
    int r = hear_begin(interpreter, &hearer, everywhere ? EVENTS : unwinds, everywhere ? 0 : LOCAL,
                       words);
    for (const struct watch *watch = watches; watch && r >= 0 && !everywhere; watch = watch->next) {
        if (watch->by == BY_LINE)
            r = listen_to(interpreter, watch->storage.owner);
        if (watch->frame && r >= 0)
            r = listen_to(interpreter, watch->frame_code);
    }
    if (r >= 0) {
        hear_again(interpreter);
        return 0;
    }
    PyErr_Clear();
    hear_end(interpreter, &hearer);
    return r;
}

/* ---- on and off ---- */

static bool has_name(const struct watch *watch, const char *names)
{
    _cleanup_unref_ PyObject *all = PyObject_GetAttrString(watch->storage.owner, names);
    bool has = all && watch->storage.key && PySequence_Contains(all, watch->storage.key) > 0;
    PyErr_Clear();
    return has;
}

int by_line_begin(struct interpreter *interpreter, struct watch *watch, char words[PROTO_WORDS_MAX])
{
    char said[PROTO_WORDS_MAX] = "";

    bool fresh;

    get_variable = (PyObject * (*)(PyFrameObject *, PyObject *)) looked_up.PyFrame_GetVar;
    watch->by = BY_LINE;
    watch->shared = watch->storage.kind == STORAGE_LOCAL &&
                    (has_name(watch, "co_cellvars") || has_name(watch, "co_freevars"));
    int r = listen(interpreter, said);
    if (r == 0) {
        const char *note = said[0] ? said : watch->storage.kind != STORAGE_LOCAL ? EVERYWHERE : "";
        snprintf(watch->how, sizeof watch->how, "%s", note);
        if (watch->frame && watch->storage.kind == STORAGE_LOCAL) {
            struct line_place *place = place_of((uintptr_t)watch->frame, watch, &fresh);
            place->others = others_now(interpreter);
            place_move(place, watch->frame_code, PyFrame_GetLineNumber(watch->frame));
        }
        return 0;
    }
    by_line_end(interpreter, watch);
    snprintf(words, PROTO_WORDS_MAX, "%s", said[0] ? said : "lines can't be followed here");
    return r;
}

void by_line_end(struct interpreter *interpreter, struct watch *watch)
{
    char words[PROTO_WORDS_MAX];

    if (watch->by == BY_LINE && watch->storage.kind == STORAGE_LOCAL)
        hear_code(interpreter, &hearer, watch->storage.owner, 0);
    watch->by = BY_NOTHING;
    for (unsigned i = 0; i < PLACES; i++)
        if (places[i].watch == watch || !is_any())
            place_clear(&places[i]);
    PyErr_Clear();
    listen(interpreter, words);
}

int by_line_await(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    char said[PROTO_WORDS_MAX] = "";

    int r = listen(interpreter, said);
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "%s", said[0] ? said : "no return can be told of here");
    return r;
}

void by_line_leave(struct interpreter *interpreter, PyObject *code)
{
    char words[PROTO_WORDS_MAX];

    listen_to(interpreter, code);
    PyErr_Clear();
    listen(interpreter, words);
}
