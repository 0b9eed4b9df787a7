/* The thread that makes hits of traps: it sleeps until there are any, and looks now and then
 * whether what is watched is still where it was, and whether it is written so often that it has
 * to be left alone for a while. */
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/cpython/struct_layout.h"
#include "agent/cpython/thread_states.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/recorder.h"
#include "agent/watch/trap_queue.h"
#include "agent/watch/watched.h"

#include <stdio.h>
#include <string.h>

#define LOOK_NS 250000000ull
#define BATCH 64            /* hits for which the GIL is held at a time */
#define TRAPS_MAX 20000     /* a second, of one watchpoint: a tenth of a processor, roughly */
#define RATE_NS 50000000ull /* for at least as long as this */
#define MUTED_NS 1000000000ull
#define JOIN_NS 1000000000ull
#define WAIT_NS 100000000ull
#define WAIT_STEP_NS 20000ull

static struct {
    bool exists, stop;
    pthread_t thread;
} taker;

/* ---- one hit ---- */

/* A part of the writer's stack, as a string of its own. */
static void copy_part(const struct signal_stack *writer, unsigned at, unsigned size, char *out,
                      size_t room)
{
    size_t length = size < room ? size : room - 1;
    memcpy(out, writer->stack + at, length);
    out[length] = '\0';
}

static struct watch *watch_of(const struct trap_hit *hit)
{
    struct watch *watch = watches;

    while (watch &&
           !(hit->slot == TRAP_NO_SLOT ? watch->serial == hit->change
                                       : watch->by == BY_TRAP && watch->slot == hit->slot &&
                                             watch->change == hit->change))
        watch = watch->next;
    return watch;
}

static PyObject *value_of(struct interpreter *interpreter, const struct watch *watch,
                          const struct trap_hit *hit)
{
    if (hit->slot == TRAP_NO_SLOT) {
        Py_IncRef(hit->object);
        return hit->object;
    }
    if (watch->storage.memory.object) {
        if (hit->lost)
            return storage_object(&watch->storage);
        return trap_value_object(&hit->value,
                                 trap_is_last(hit) && trap_is_there(&watch->storage.memory));
    }
    return storage_number(interpreter, &watch->storage, hit->new_bytes, hit);
}

static void take(struct interpreter *interpreter, const struct trap_hit *hit)
{
    char func[512], file[1024], stack[RING_TEXT_MAX + 1];
    struct watch *watch = watch_of(hit);
    const struct signal_stack *writer = &hit->writer;

    if (!watch || (hit->lost && !trap_is_there(&watch->storage.memory)))
        return; /* what was there is somewhere else: looking will find it */
    watch_hold(watch);
    _cleanup_unref_ PyObject *value = value_of(interpreter, watch, hit);
    if (PyErr_Occurred())
        PyErr_Clear();
    bool known = writer->start < RING_TEXT_MAX;
    copy_part(writer, writer->func, writer->func_size, func, sizeof func);
    copy_part(writer, writer->file, writer->file_size, file, sizeof file);
    copy_part(writer, writer->start, (unsigned)(RING_TEXT_MAX - writer->start), stack,
              sizeof stack);
    struct change change = {
        .unknown = !value && watch->storage.memory.object && hit->new_bytes,
        .address = hit->address,
        .func = known ? func : NULL,
        .file = known ? file : NULL,
        .line = writer->line > 0 ? writer->line : RING_NULL_INTEGER,
        .stack = known ? stack : NULL,
        .tid = hit->tid,
        .ts = hit->ts,
        .writer = hit->state && thread_states_is(interpreter->state, hit->state, hit->tid)
                      ? hit->state
                      : NULL,
    };
    watch_seen(interpreter, watch, &watch->value, value, &change, NULL, 0);
    PyErr_Clear();
    watch_drop(watch);
}

static bool take_batch(struct interpreter *interpreter)
{
    struct trap_hit hit;

    for (unsigned i = 0; i < BATCH; i++) {
        if (!trap_take(&hit))
            return false;
        take(interpreter, &hit);
        Py_DecRef(hit.object);
    }
    return true;
}

/* ---- looking ---- */

/* Tells of a change that nobody saw being made. */
static void compare(struct interpreter *interpreter, struct watch *watch)
{
    struct change change = {.address = (uint64_t)RING_NULL_INTEGER, .line = RING_NULL_INTEGER};
    _cleanup_unref_ PyObject *value = watch_stored(interpreter, watch);

    watch_seen(interpreter, watch, &watch->value, value, &change, NULL, 0);
    PyErr_Clear();
}

/* Watches a value in the place where it is now. */
static void again(struct interpreter *interpreter, struct watch *watch)
{
    char words[PROTO_WORDS_MAX] = "";

    if (watch->removed)
        return;
    if (watch_begin(interpreter, watch, words) < 0)
        snprintf(watch->how, sizeof watch->how, "%s", words);
    PyErr_Clear();
    watch_publish(watch);
    compare(interpreter, watch);
}

/* The expression has no value now. As long as its place is there it is watched on. */
static void lose(struct interpreter *interpreter, struct watch *watch)
{
    const struct storage *storage = &watch->storage;

    if (watch->gone || (storage->kind == STORAGE_MEMORY && trap_is_there(&storage->memory)) ||
        storage->kind == STORAGE_DICT)
        return;
    watch_end_one(interpreter, watch);
    watch->gone = true;
    watch_publish(watch);
    compare(interpreter, watch);
}

/* Follows a value that is kept elsewhere now. */
static void follow(struct interpreter *interpreter, struct watch *watch)
{
    bool memory = watch->breakpoint->route != ROUTE_ANY;
    struct storage there;

    if (!watch->watched || !watch->plain)
        return;
    if (storage_find(interpreter, watch->watched, memory, &there) < 0) {
        PyErr_Clear();
        lose(interpreter, watch);
        return;
    }
    if (watch->removed ||
        (!watch->gone && (watch->by == BY_NOTHING || storage_is_same(&watch->storage, &there)))) {
        storage_clear(&there);
        return;
    }
    watch_end_one(interpreter, watch);
    storage_clear(&watch->storage);
    watch->storage = there;
    watch->gone = false;
    watch->moves++;
    again(interpreter, watch);
}

static void mute(struct watch *watch, uint64_t now, uint64_t rate)
{
    trap_clear(watch->slot);
    watch->muted_until_ns = now + MUTED_NS;
    watch->muted_rate = rate;
    watch_publish(watch);
}

/* Leaves a watchpoint that is written too often alone for a while. */
static void check_rate(struct interpreter *interpreter, struct watch *watch)
{
    uint64_t now = monotonic_ns(), dropped, traps = trap_count(watch->slot, &dropped);
    uint64_t since = now - watch->rate_ns;

    if (watch->muted_until_ns) {
        if (now < watch->muted_until_ns)
            return;
        watch->muted_until_ns = 0;
        watch->by = BY_NOTHING;
        again(interpreter, watch);
        return;
    }
    __atomic_add_fetch(&watch->breakpoint->dropped, dropped - watch->dropped, __ATOMIC_RELAXED);
    watch->dropped = dropped;
    if (watch->rate_ns && since < RATE_NS)
        return;
    uint64_t rate = watch->rate_ns ? (traps - watch->rate_traps) * 1000000000 / since : 0;
    watch->rate_ns = now;
    watch->rate_traps = traps;
    if (rate > TRAPS_MAX)
        mute(watch, now, rate);
}

/* A return that nobody was told of: of a generator that was given up, of a thread that C ended. */
static void check_frame(struct interpreter *interpreter, struct watch *watch)
{
    const char *gone =
        watch->frame ? storage_frame_gone(interpreter, watch->breakpoint, watch->watched) : NULL;
    if (gone)
        watch_frame_left(interpreter, watch, gone);
}

static void look(struct interpreter *interpreter)
{
    struct watch *held[WATCHES_MAX];
    size_t count = 0;

    for (struct watch *watch = watches; watch; watch = watch->next)
        held[count++] = watch_hold(watch);
    for (size_t i = 0; i < count; i++) {
        check_frame(interpreter, held[i]);
        if (held[i]->by == BY_TRAP)
            check_rate(interpreter, held[i]);
        if (held[i]->by != BY_LINE && !held[i]->muted_until_ns)
            follow(interpreter, held[i]);
        watch_drop(held[i]);
    }
    trap_check();
}

static bool is_stopped(void) { return __atomic_load_n(&taker.stop, __ATOMIC_ACQUIRE); }

static void *taker_main(void *arg)
{
    struct interpreter *interpreter = interpreter_main();
    uint64_t looked = monotonic_ns();

    thread_name("probe-watch");
    while (!is_stopped()) {
        trap_wait(LOOK_NS);
        bool due = monotonic_ns() - looked >= LOOK_NS;
        if (is_stopped() || !(due || trap_pending()))
            continue;
        trap_asking(true);
        PyThreadState *state =
            interpreter_visit(interpreter, struct_layout_gil_interval(interpreter->state));
        trap_asking(false);
        if (!state)
            break; /* it ends */
        while (take_batch(interpreter) && !is_stopped()) {
            PyEval_SaveThread(); /* whoever waits for the GIL */
            PyEval_RestoreThread(state);
        }
        if (due)
            look(interpreter);
        interpreter_visit_end(interpreter, state);
        looked = due ? monotonic_ns() : looked;
    }
    return NULL;
}

int watch_thread_begin(char words[PROTO_WORDS_MAX])
{
    if (taker.exists)
        return 0;
    taker.stop = false;
    int r = thread_spawn(0, true, taker_main, NULL, &taker.thread);
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "no thread could be made: %s", strerrordesc_np(-r));
    taker.exists = r == 0;
    return r;
}

void watch_thread_wait(void)
{
    if (!taker.exists || !trap_pending())
        return;
    PyThreadState *state = PyEval_SaveThread();
    for (uint64_t end = monotonic_ns() + WAIT_NS; trap_pending() && monotonic_ns() < end;) {
        trap_wake();
        nap_ns(WAIT_STEP_NS);
    }
    PyEval_RestoreThread(state);
}

bool watch_thread_end(void)
{
    if (!taker.exists)
        return true;
    __atomic_store_n(&taker.stop, true, __ATOMIC_RELEASE);
    trap_wake();
    struct timespec until = timespec_of(monotonic_ns() + JOIN_NS);
    taker.exists = pthread_clockjoin_np(taker.thread, NULL, CLOCK_MONOTONIC, &until) != 0;
    return !taker.exists;
}

void watch_thread_forget(void) { taker.exists = false; }
