#include "agent/watch/watch.h"

#include "agent/base/clock.h"
#include "agent/breakpoint/change.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/exception_words.h"
#include "agent/record/recorder.h"
#include "agent/watch/stale_registers.h"
#include "agent/watch/watched.h"
#include "agent/wire/refuse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CLEAR_NS 1000000000ull /* for what a daemon that is gone has left armed */

struct watch *watches;
static struct watch *forgotten; /* those that this process had before it was forked */
static uint32_t serials;
static bool orphaned; /* a tracer that is gone has left registers armed */

/* ---- one of them ---- */

void watch_drop(struct watch *watch)
{
    if (--watch->refs)
        return;
    storage_clear(&watch->storage);
    python_clear(&watch->frame_code);
    python_clear(&watch->watched);
    python_clear(&watch->value);
    breakpoint_unref(watch->breakpoint);
    free(watch);
}

static struct watch *find(const struct breakpoint *breakpoint)
{
    struct watch *watch = watches;
    while (watch && watch->breakpoint != breakpoint)
        watch = watch->next;
    return watch;
}

/* Whether it was there. */
static bool unlink_watch(struct watch *watch)
{
    struct watch **link = &watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (!*link)
        return false;
    *link = watch->next;
    return true;
}

/* Lets go of a frame: what it binds is to live no longer than without us. */
static void leave_frame(struct interpreter *interpreter, struct watch *watch)
{
    if (!watch->frame)
        return;
    watch->frame = NULL;
    by_line_leave(interpreter, watch->frame_code);
    Py_DecRef(PyObject_CallMethod(watch->watched, "leave", NULL));
    PyErr_Clear();
}

/* Ends a watch that was removed, or has had its last hit. An exception that is set stays. */
static void finish(struct interpreter *interpreter, struct watch *watch)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (unlink_watch(watch)) {
        watch->removed = true;
        watch_end_one(interpreter, watch);
        leave_frame(interpreter, watch);
        watch_drop(watch);
    }
    PyErr_Restore(type, value, traceback);
}

void watch_frame_left(struct interpreter *interpreter, struct watch *watch, const char *words)
{
    watch_hold(watch);
    breakpoints_over(watch->breakpoint, words);
    finish(interpreter, watch);
    watch_drop(watch);
}

/* Puts a copy of the new value in the last one's place, unless it is the same. Comparing and
 * copying are Python, and so other threads run meanwhile: what they have put there is compared
 * anew; or, where the value was read by this thread, it may be newer than that, and stays. The
 * caller owns *old and *now. */
static bool take_place(struct interpreter *interpreter, const struct change *change, bool read,
                       PyObject **last, PyObject *new_value, PyObject **old, PyObject **now)
{
    do {
        python_clear(old);
        python_clear(now);
        Py_IncRef(*old = *last);
        if (!change->unknown && storage_is_same_value(interpreter, *old, new_value))
            return false;
        *now = watch_copy(interpreter, new_value);
        if (read && *old != *last)
            return false;
    } while (*old != *last);
    Py_DecRef(*last); /* not its last one */
    Py_IncRef(*last = *now);
    return true;
}

bool watch_seen(struct interpreter *interpreter, struct watch *watch, PyObject **last,
                PyObject *new_value, struct change *change, const struct heard *heard, int line)
{
    _cleanup_unref_ PyObject *old = NULL, *now = NULL;
    bool well = true;

    watch_hold(watch);
    bool taken = take_place(interpreter, change, heard, last, new_value, &old, &now);
    watch->replaced += taken;
    if (taken && !breakpoint_is_over(watch->breakpoint)) {
        change->old_value = old;
        change->new_value = now;
        struct reached reached = {.line = line, .change = change, .why = STOP_WATCH};
        if (heard) {
            reached.frame = heard->frame;
            reached.code = heard->code;
            reached.event = heard->event;
        }
        well = hit_reached(interpreter, watch->breakpoint, &reached);
        if (breakpoint_is_over(watch->breakpoint))
            finish(interpreter, watch);
    }
    watch_drop(watch);
    return well;
}

/* ---- how it is watched ---- */

static const char *state_of(const struct watch *watch)
{
    static const char *const states[] = {"pending", "hw", "dict", "line"}; /* by enum watch_by */
    return states[watch->gone ? BY_NOTHING : watch->by];
}

__attribute__((format(printf, 2, 3))) static void add_note(char note[PROTO_WORDS_MAX],
                                                           const char *format, ...)
{
    size_t used = strlen(note);
    va_list args;

    if (used)
        used += (size_t)snprintf(note + used, PROTO_WORDS_MAX - used, "; ");
    if (used >= PROTO_WORDS_MAX)
        return;
    va_start(args, format);
    vsnprintf(note + used, PROTO_WORDS_MAX - used, format, args);
    va_end(args);
}

void watch_describe(const struct watch *watch, char note[PROTO_WORDS_MAX])
{
    note[0] = '\0';
    if (watch->gone)
        add_note(note, "it has no value now");
    if (watch->how[0])
        add_note(note, "%s", watch->how);
    if (watch->whole &&
        (watch->by == BY_DICT || (watch->by == BY_TRAP && watch->storage.memory.object)))
        add_note(note, "tells that it is another one, not of changes inside it: watch an element");
    if (watch->storage.memory.version)
        add_note(note, "by its version: each change in place by an operator of PyTorch");
    if (watch->moves)
        add_note(note, "its storage has moved %u time%s", watch->moves,
                 watch->moves > 1 ? "s" : "");
    if (watch->muted_rate)
        add_note(note, "left alone for a second at a time, when it was written %lu times in one",
                 (unsigned long)watch->muted_rate);
}

void watch_publish(struct watch *watch)
{
    char note[PROTO_WORDS_MAX];

    if (breakpoint_is_over(watch->breakpoint))
        return;
    watch_describe(watch, note);
    breakpoints_publish(watch->breakpoint, state_of(watch), note[0] ? note : NULL);
}

/* Says who has the debug registers. */
static int find_slot(unsigned *slot, char words[PROTO_WORDS_MAX])
{
    char ids[64] = "";

    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) {
        const struct watch *watch = watches;
        while (watch && !(watch->by == BY_TRAP && watch->slot == i))
            watch = watch->next;
        if (!watch) {
            *slot = i;
            return 0;
        }
        size_t used = strlen(ids);
        snprintf(ids + used, sizeof ids - used, "%s%u", used ? ", " : "", watch->breakpoint->id);
    }
    return refuse(EBUSY, words, "all %u debug registers are in use, by %s; remove one of them",
                  PROTO_WATCHES_MAX, ids);
}

static int begin_trap(struct interpreter *interpreter, struct watch *watch,
                      char words[PROTO_WORDS_MAX])
{
    const struct breakpoint *breakpoint = watch->breakpoint;
    unsigned slot = 0;

    int r = find_slot(&slot, words);
    r = r < 0 ? r : trap_begin(words);
    r = r < 0 ? r : watch_thread_begin(words);
    if (r < 0)
        return r;
    watch->slot = slot;
    watch->by = BY_TRAP;
    watch->rate_ns = watch->rate_traps = watch->dropped = 0;
    watch->change = trap_set(slot, breakpoint->id, breakpoint->route,
                             breakpoint->action == BREAKPOINT_STOP, &watch->storage.memory);
    return 0;
}

static void end_trap(struct interpreter *interpreter, struct watch *watch)
{
    trap_clear(watch->slot);
}

static int begin_dict(struct interpreter *interpreter, struct watch *watch,
                      char words[PROTO_WORDS_MAX])
{
    return by_dict_begin(interpreter, watch);
}

/* The ways to watch, each of which ends in watch_seen(). begin: -EOPNOTSUPP where there is no such
 * way. */
static const struct watch_way {
    int (*begin)(struct interpreter *interpreter, struct watch *watch, char words[PROTO_WORDS_MAX]);
    void (*end)(struct interpreter *interpreter, struct watch *watch);
} ways[] = {
    [BY_TRAP] = {begin_trap, end_trap},
    [BY_DICT] = {begin_dict, by_dict_end},
    [BY_LINE] = {by_line_begin, by_line_end},
};

/* The best way to watch what is stored as it is. */
static const struct watch_way *way_for(const struct watch *watch)
{
    if (watch->lines)
        return &ways[BY_LINE];
    switch (watch->storage.kind) {
    case STORAGE_MEMORY: return &ways[BY_TRAP];
    case STORAGE_DICT: return &ways[BY_DICT];
    default: return &ways[BY_LINE];
    }
}

int watch_begin(struct interpreter *interpreter, struct watch *watch, char words[PROTO_WORDS_MAX])
{
    const struct watch_way *way = way_for(watch), *lines = &ways[BY_LINE];

    if (watch->removed)
        return -ENOENT;
    int r = way->begin(interpreter, watch, words);
    return r == -EOPNOTSUPP && way != lines ? lines->begin(interpreter, watch, words) : r;
}

void watch_end_one(struct interpreter *interpreter, struct watch *watch)
{
    if (watch->by != BY_NOTHING)
        ways[watch->by].end(interpreter, watch);
    watch->by = BY_NOTHING;
}

/* ---- adding ---- */

static int describe_failure(int error, char words[PROTO_WORDS_MAX])
{
    char what[PROTO_WORDS_MAX - 40];

    exception_words(what, sizeof what);
    return refuse(error, words, "it has no value now: %s", what);
}

/* Finds the frame that a watch is to be of, and has its expression compiled for that. */
static int find_frame(struct interpreter *interpreter, struct watch *watch,
                      char words[PROTO_WORDS_MAX])
{
    struct breakpoint *breakpoint = watch->breakpoint;
    int r = 0;

    _cleanup_unref_ PyObject *frame = (PyObject *)storage_frame(interpreter, breakpoint, words, &r);
    if (breakpoint->same_frame && frame != breakpoint->frame) {
        breakpoints_over(breakpoint, WATCH_RETURNED);
        return -ENOENT;
    }
    if (!frame)
        return r;
    watch->watched = storage_watched(interpreter, breakpoint->where, (PyFrameObject *)frame);
    if (!watch->watched)
        return describe_failure(EINVAL, words);
    breakpoint->frame = watch->frame = (PyFrameObject *)frame;
    watch->frame_code = (PyObject *)PyFrame_GetCode(watch->frame);
    return 0;
}

static int find_storage(struct interpreter *interpreter, struct watch *watch,
                        char words[PROTO_WORDS_MAX])
{
    const struct breakpoint *breakpoint = watch->breakpoint;

    if (breakpoint->kind == BREAKPOINT_WATCH_ADDRESS) {
        int r = storage_at(breakpoint->address, breakpoint->length, &watch->storage);
        if (r == -EINVAL)
            return refuse(EINVAL, words,
                          "the length must be 1, 2, 4 or 8, and the address a multiple of it");
        return r < 0 ? refuse(EFAULT, words, "there is no memory at 0x%lx",
                              (unsigned long)breakpoint->address)
                     : 0;
    }
    if (breakpoint->thread) {
        int r = find_frame(interpreter, watch, words);
        if (r < 0)
            return r;
    } else {
        watch->watched = storage_watched(interpreter, breakpoint->where, NULL);
    }
    if (!watch->watched || storage_find(interpreter, watch->watched, breakpoint->route != ROUTE_ANY,
                                        &watch->storage) < 0)
        return describe_failure(EINVAL, words);
    if (breakpoint->route != ROUTE_ANY && watch->storage.kind != STORAGE_MEMORY)
        return refuse(
            EOPNOTSUPP, words,
            "what holds this value has no address that stays; without hw= it is compared at lines");
    _cleanup_unref_ PyObject *plain = PyObject_GetAttrString(watch->watched, "plain");
    watch->plain = plain == Py_True;
    return 0;
}

/* Has it told when the frame returns: at once, or, should that be missed, by looking. */
static int await_frame(struct interpreter *interpreter, const struct watch *watch,
                       char words[PROTO_WORDS_MAX])
{
    if (!watch->frame)
        return 0;
    int r = watch_thread_begin(words);
    return r < 0 || watch->by == BY_LINE ? r : by_line_await(interpreter, words);
}

static int add(struct interpreter *interpreter, struct watch *watch, char words[PROTO_WORDS_MAX])
{
    int r = find_storage(interpreter, watch, words);

    if (r < 0) {
        leave_frame(interpreter, watch);
        return r;
    }
    _cleanup_unref_ PyObject *value = watch_stored(interpreter, watch);
    watch->value = watch_copy(interpreter, value);
    watch->whole = watch_is_changeable(interpreter, value);
    watch->next = watches;
    watches = watch_hold(watch);
    r = watch_begin(interpreter, watch, words);
    r = r < 0 ? r : await_frame(interpreter, watch, words);
    if (r < 0) {
        finish(interpreter, watch);
        return r;
    }
    watch->breakpoint->places = 1;
    return 0;
}

/* Gives up the watches that a child had from its parent: right after the fork it couldn't. */
static void drop_forgotten(struct interpreter *interpreter)
{
    while (forgotten) {
        struct watch *watch = forgotten;
        forgotten = watch->next;
        if (watch->by != BY_TRAP)
            watch_end_one(interpreter, watch);
        leave_frame(interpreter, watch);
        watch_drop(watch);
    }
    PyErr_Clear();
}

static int watch_add(struct interpreter *interpreter, struct breakpoint *breakpoint,
                     const char **state, char words[PROTO_WORDS_MAX])
{
    unsigned count = 0;

    words[0] = '\0';
    drop_forgotten(interpreter);
    if (guest_watching(&interpreter->guest) < 0)
        return exception_words(words, PROTO_WORDS_MAX), -EIO;
    for (const struct watch *other = watches; other; other = other->next)
        if (++count == WATCHES_MAX)
            return refuse(EBUSY, words, "there are %u watchpoints already", WATCHES_MAX);
    struct watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return refuse(ENOMEM, words, "no memory");
    watch->refs = 1;
    watch->serial = ++serials;
    watch->breakpoint = breakpoint_ref(breakpoint);
    int r = add(interpreter, watch, words);
    if (r == 0) {
        *state = state_of(watch);
        watch_describe(watch, words);
    }
    PyErr_Clear();
    watch_drop(watch);
    return r;
}

static void watch_remove(struct interpreter *interpreter, struct breakpoint *breakpoint)
{
    struct watch *watch = find(breakpoint);
    if (watch)
        finish(interpreter, watch);
}

const struct armer watch_armer = {.add = watch_add, .remove = watch_remove};

/* ---- what the daemon says ---- */

int watch_armed(struct interpreter *interpreter, const struct proto_armed *armed,
                char words[PROTO_WORDS_MAX])
{
    struct watch *watch = watches;

    while (watch &&
           !(watch->by == BY_TRAP && watch->slot == armed->slot && watch->change == armed->change))
        watch = watch->next;
    if (!watch)
        return 0; /* it has been removed since, or is disarmed */
    if (!armed->error) {
        size_t size = strnlen(armed->words, sizeof armed->words);
        snprintf(watch->how, sizeof watch->how, "by %s%s%.*s",
                 armed->route == ROUTE_PTRACE ? "ptrace" : "perf", size ? ", " : "",
                 (int)(size < sizeof watch->how - 12 ? size : sizeof watch->how - 12),
                 armed->words);
        watch_publish(watch);
        return 0;
    }
    watch_end_one(interpreter, watch);
    watch->lines = true;
    int r = by_line_begin(interpreter, watch, words);
    snprintf(watch->how, sizeof watch->how, "no debug register: %.*s", (int)sizeof watch->how - 24,
             strnlen(armed->words, sizeof armed->words) ? armed->words
                                                        : strerrordesc_np(armed->error));
    watch_publish(watch);
    PyErr_Clear();
    return r;
}

/* ---- the end ---- */

void watch_daemon_gone(void)
{
    if (!orphaned && !trap_may_be_traced())
        return;
    trap_set_traced(false);
    orphaned = stale_registers_clear(monotonic_ns() + CLEAR_NS) < 0;
}

void watch_leave(struct interpreter *interpreter)
{
    if (!interpreter_is_main(interpreter))
        return;
    while (watches)
        finish(interpreter, watches);
    PyThreadState *state = PyEval_SaveThread();
    bool ended = watch_thread_end();
    PyEval_RestoreThread(state);
    /* the handler stays, and with it the library, for good */
    if (!ended || orphaned || !trap_end())
        Py_IncRef(interpreter->guest.capsule);
}

void watch_forget(void)
{
    forgotten = forgotten ? forgotten : watches;
    watches = NULL;
    trap_forget();
    watch_thread_forget();
}
