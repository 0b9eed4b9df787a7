/* Values that are compared at each line: variables of functions, at the lines of their code only,
 * and whatever else has no place that could be watched, at all lines.
 *
 * What a line did is seen when the next one begins, or the function returns. So the line before, in
 * that frame or, of what may be changed from anywhere, in that thread, is the one that wrote. */
#include "agent/monitor/hear.h"
#include "agent/watch/watched.h"

#include <dlfcn.h>
#include <stdio.h>

#define PLACES 32 /* frames, or threads, that are followed at a time */
#define EVERYWHERE "it is evaluated at each line of all code, which slows the program"

/* Where a frame, or a thread, was last. */
struct line_place {
    const void *owner;         /* NULL: free */
    const struct watch *watch; /* of a frame */
    PyObject *value;           /* in that frame; NULL: unbound */
    PyObject *code;
    int line;
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
static struct line_place *place_of(const void *owner, const struct watch *watch, bool *fresh)
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
    *owner = PyObject_GetAttrString(code, attribute);
    const char *text = *owner ? PyUnicode_AsUTF8AndSize(*owner, NULL) : NULL;
    PyErr_Clear();
    return text;
}

/* Something may be another value, since the line that `place` is at. */
static bool compare(struct interpreter *interpreter, struct watch *watch, PyObject **last,
                    PyObject *value, const struct line_place *place, const struct heard *heard)
{
    struct change change = {.address = (uint64_t)RING_NULL_INTEGER, .line = RING_NULL_INTEGER};
    _cleanup_unref_ PyObject *held = NULL, *file = NULL, *func = NULL;

    if (*last == value) /* nothing that could be changed in place: of that it is a copy */
        return true;
    Py_IncRef(held = place->code);
    if (held) {
        change.file = text_in(held, "co_filename", &file);
        change.func = text_in(held, python.version >= 0x030b ? "co_qualname" : "co_name", &func);
        change.line = place->line > 0 ? place->line : RING_NULL_INTEGER;
    }
    int line = heard->line ? heard->line : PyFrame_GetLineNumber(heard->frame);
    return watch_seen(interpreter, watch, last, value, &change, heard->frame, heard->code, line);
}

static bool is_start(const struct heard *heard)
{
    return heard->event == HEAR_START || heard->event == HEAR_RESUME;
}

static bool at_local(struct interpreter *interpreter, struct watch *watch,
                     const struct heard *heard)
{
    bool fresh, well = true;
    _cleanup_unref_ PyObject *value = variable(interpreter, watch, heard->frame),
                             *copy = watch_copy(interpreter, value);
    if (watch->by != BY_LINE) /* it has been removed meanwhile */
        return true;
    struct line_place *place = place_of(heard->frame, watch, &fresh);

    if (fresh || is_start(heard)) {
        PyObject *before = place->value;
        place->value = steal_pointer(copy);
        copy = before; /* given up at the end, when nothing hangs on it any more */
    } else {
        well = compare(interpreter, watch, &place->value, value, place, heard);
    }
    if (place->owner == heard->frame && place->watch == watch) { /* it wasn't taken meanwhile */
        if (is_start(heard) || heard->event == HEAR_LINE)
            place_move(place, heard->code, heard->line ? heard->line : place->line);
        else
            place_clear(place);
    }
    return well;
}

static bool at_any(struct interpreter *interpreter, struct watch *watch,
                   const struct line_place *place, const struct heard *heard)
{
    _cleanup_unref_ PyObject *value = watch_value(interpreter, watch, NULL);

    return compare(interpreter, watch, &watch->value, value, place, heard);
}

static bool at(struct interpreter *interpreter, const struct heard *heard)
{
    struct watch *held[WATCHES_MAX];
    size_t count = 0;
    bool well = true, fresh, any = false;

    for (struct watch *watch = watches; watch; watch = watch->next)
        if (watch->by == BY_LINE &&
            (watch->storage.kind != STORAGE_LOCAL || watch->storage.owner == heard->code))
            held[count++] = watch_hold(watch);
    const PyThreadState *state = PyThreadState_Get();
    for (size_t i = 0; i < count; i++) {
        bool local = held[i]->storage.kind == STORAGE_LOCAL;
        any = any || !local;
        if (well && held[i]->by == BY_LINE)
            well = local ? at_local(interpreter, held[i], heard)
                         : at_any(interpreter, held[i], place_of(state, NULL, &fresh), heard);
        watch_drop(held[i]);
    }
    if (any && heard->event == HEAR_LINE)
        place_move(place_of(state, NULL, &fresh), heard->code, heard->line);
    return well;
}

/* ---- hearing of it ---- */

static enum hear_answer hear(struct interpreter *interpreter, const struct heard *heard)
{
    struct heard here = *heard;

    here.frame = heard_frame(heard);
    if (!here.frame)
        return HEAR_ON;
    Py_IncRef((PyObject *)here.frame);
    Py_IncRef(here.code);
    bool well = at(interpreter, &here);
    Py_DecRef(here.code);
    Py_DecRef((PyObject *)here.frame);
    return well ? HEAR_ON : HEAR_RAISED;
}

static enum hear_interest wants(struct interpreter *interpreter, PyThreadState *state,
                                PyObject *code)
{
    const struct watch *watch = watches;
    while (watch && !(watch->by == BY_LINE && watch->storage.owner == code))
        watch = watch->next;
    return watch ? HEAR_NOW : HEAR_NEVER;
}

#define EVENTS (HEAR_BIT(HEAR_START) | HEAR_BIT(HEAR_LINE) | HEAR_BIT(HEAR_RETURN))
static const struct hearer hearer = {
    .id = HEARER_WATCHES,
    .purpose = "compare values at lines",
    .on =
        {
            [HEAR_START] = hear,
            [HEAR_RESUME] = hear,
            [HEAR_LINE] = hear,
            [HEAR_RETURN] = hear,
            [HEAR_YIELD] = hear,
            [HEAR_UNWIND] = hear,
        },
    .wants = wants,
};

static bool is_everywhere(void)
{
    for (const struct watch *watch = watches; watch; watch = watch->next)
        if (watch->by == BY_LINE && watch->storage.kind != STORAGE_LOCAL)
            return true;
    return false;
}

static bool is_any(void)
{
    const struct watch *watch = watches;
    while (watch && watch->by != BY_LINE)
        watch = watch->next;
    return watch;
}

static int listen(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    bool everywhere = is_everywhere();

    if (!is_any()) {
        hear_end(interpreter, &hearer);
        return 0;
    }
    int r =
        hear_begin(interpreter, &hearer, everywhere ? EVENTS : 0, everywhere ? 0 : EVENTS, words);
    for (const struct watch *watch = watches; watch && r >= 0 && !everywhere; watch = watch->next)
        if (watch->by == BY_LINE)
            r = hear_code(interpreter, &hearer, watch->storage.owner, EVENTS);
    if (r >= 0) {
        hear_again(interpreter);
        return 0;
    }
    PyErr_Clear();
    hear_end(interpreter, &hearer);
    return r;
}

/* ---- on and off ---- */

int line_watch_begin(struct interpreter *interpreter, struct watch *watch,
                     char words[PROTO_WORDS_MAX])
{
    char said[PROTO_WORDS_MAX] = "";

    get_variable = (PyObject * (*)(PyFrameObject *, PyObject *))
        dlsym(RTLD_DEFAULT, "PyFrame_GetVar");
    watch->by = BY_LINE;
    int r = listen(interpreter, said);
    if (r == 0) {
        const char *note = said[0] ? said : watch->storage.kind != STORAGE_LOCAL ? EVERYWHERE : "";
        snprintf(watch->how, sizeof watch->how, "%s", note);
        return 0;
    }
    line_watch_end(interpreter, watch);
    snprintf(words, PROTO_WORDS_MAX, "%s", said[0] ? said : "lines can't be followed here");
    return r;
}

void line_watch_end(struct interpreter *interpreter, struct watch *watch)
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
