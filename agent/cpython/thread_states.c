#include "agent/cpython/thread_states.h"

#include "agent/base/clock.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/struct_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_US 1000000 /* for the lock */
#define PAUSE_US 100    /* between two tries */
#define LOCKED 1        /* of PyMutex: _Py_LOCKED of CPython's pycore_lock.h */

static struct {
    size_t lock; /* where in _PyRuntime; 0: not known */
    /* PyMutex_Unlock, since 3.13; before, the lock is a PyThread_type_lock */
    void (*mutex_unlock)(void *mutex);
} api;

/* ---- the lock ---- */

/* Whether it is a PyMutex; before 3.13 it is a PyThread_type_lock. */
static bool is_mutex(void) { return python.version >= 0x030d; }

/* Finds the lock: what comes before `head` and `main` in `struct pyinterpreters` of
 * pycore_runtime.h (from 3.14 on pycore_runtime_structs.h), whose place is known; CPython's own
 * answers must stand there. */
static int find_lock(void)
{
    struct offsets table;

    if (api.lock)
        return 0;
    if (!python.runtime || !struct_layout_table(&table))
        return -EOPNOTSUPP;
    size_t head = (size_t)table.rt_interpreters_head;
    PyInterpreterState *const *words = (PyInterpreterState *const *)(python.runtime + head);
    api.mutex_unlock = (void (*)(void *))looked_up.PyMutex_Unlock;
    if (head < sizeof(void *) || head + 2 * sizeof(void *) > python.runtime_size ||
        words[0] != python.interpreter_head() || words[1] != python.interpreter_main() ||
        (is_mutex() && !api.mutex_unlock))
        return -EOPNOTSUPP;
    api.lock = head - sizeof(void *);
    return 0;
}

/* The lock; in a child after fork it is another one: _PyRuntimeState_ReInitThread(). */
static void *lock_now(void) { return (void *)(python.runtime + api.lock); }

/* A PyMutex, whose other bits say who waits for it. PyMutex_Lock() would give the GIL up. */
static bool try_mutex(void)
{
    uint8_t *bits = lock_now();
    uint8_t seen = __atomic_load_n(bits, __ATOMIC_RELAXED);

    return !(seen & LOCKED) && __atomic_compare_exchange_n(bits, &seen, seen | LOCKED, false,
                                                           __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static bool wait_mutex(long for_us)
{
    bool got = try_mutex();
    for (long waited = 0; !got && waited < for_us; waited += PAUSE_US) {
        nap_ns(PAUSE_US * 1000);
        got = try_mutex();
    }
    return got;
}

static int take_lock(long for_us)
{
    int r = find_lock();
    if (r < 0)
        return r;
    if (python.finalizing())
        return -ESHUTDOWN;
    bool got = is_mutex() ? wait_mutex(for_us)
                          : PyThread_acquire_lock_timed(*(PyThread_type_lock *)lock_now(), for_us,
                                                        0) == PY_LOCK_ACQUIRED;
    return got ? 0 : -EBUSY;
}

int thread_states_lock(void) { return take_lock(WAIT_US); }

void thread_states_unlock(void)
{
    if (is_mutex())
        api.mutex_unlock(lock_now());
    else
        PyThread_release_lock(*(PyThread_type_lock *)lock_now());
}

const char *thread_states_words(int error)
{
    switch (error) {
    case -EBUSY: return "the list of threads is being changed all the time; try again";
    case -ESHUTDOWN: return "the interpreter is ending";
    case -ENOMEM: return "no memory";
    default: return "this build of CPython keeps its list of threads where it was not found";
    }
}

/* ---- visiting them ---- */

static int visit_all(PyInterpreterState *interpreter, long for_us,
                     bool (*visit)(PyThreadState *, void *), void *arg)
{
    bool go_on = true;

    bool collects = python_keep_collector();
    int r = take_lock(for_us);
    if (r == 0) {
        PyThreadState *state = python.thread_first(interpreter);
        for (unsigned i = 0; state && i < THREAD_STATES_MAX && go_on;
             i++, state = python.thread_next(state))
            go_on = visit(state, arg);
        thread_states_unlock();
    }
    python_let_collector(collects);
    return r;
}

int thread_states_each(PyInterpreterState *interpreter,
                       bool (*visit)(PyThreadState *state, void *arg), void *arg)
{
    return visit_all(interpreter, WAIT_US, visit, arg);
}

int thread_states_each_now(PyInterpreterState *interpreter,
                           bool (*visit)(PyThreadState *state, void *arg), void *arg)
{
    return visit_all(interpreter, 0, visit, arg);
}

/* ---- pictures of them ---- */

static uint64_t ident_of(const PyThreadState *state, int64_t at)
{
    unsigned long ident = 0;

    if (at >= 0)
        memcpy(&ident, (const char *)state + at, sizeof ident);
    return ident;
}

struct seen {
    struct thread_seen *all;
    size_t count, room;
    int64_t ident_at; /* of a thread state's pthread_t; -1: not known */
    bool full;
};

static bool note(PyThreadState *state, void *arg)
{
    struct seen *seen = arg;

    if (seen->count == seen->room) {
        size_t room = seen->room ? 2 * seen->room : 64;
        struct thread_seen *all = realloc(seen->all, room * sizeof *all);
        seen->full = !all;
        if (!all)
            return false;
        seen->all = all;
        seen->room = room;
    }
    seen->all[seen->count++] = (struct thread_seen){.id = PyThreadState_GetID(state),
                                                    .state = state,
                                                    .ident = ident_of(state, seen->ident_at),
                                                    .frame = PyThreadState_GetFrame(state)};
    return true;
}

int thread_states_all(PyInterpreterState *interpreter, struct thread_seen **out, size_t *count)
{
    struct seen seen = {0};
    struct offsets table;

    seen.ident_at = struct_layout_table(&table) ? table.tstate_thread_id : -1;
    int r = thread_states_each(interpreter, note, &seen);
    if (r == 0 && seen.full)
        r = -ENOMEM;
    if (r < 0) {
        thread_states_drop(seen.all, seen.count);
        return r;
    }
    *out = seen.all;
    *count = seen.count;
    return 0;
}

void thread_states_drop(struct thread_seen *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        Py_DecRef((PyObject *)all[i].frame);
    free(all);
}

/* ---- one of them ---- */

struct sought {
    const PyThreadState *state;
    struct thread_seen *out;
    bool found;
};

static bool take_if_sought(PyThreadState *state, void *arg)
{
    struct sought *sought = arg;

    sought->found = state == sought->state;
    if (sought->found)
        *sought->out = (struct thread_seen){.id = PyThreadState_GetID(state),
                                            .state = state,
                                            .frame = PyThreadState_GetFrame(state)};
    return !sought->found;
}

int thread_states_find(PyInterpreterState *interpreter, const PyThreadState *state,
                       struct thread_seen *out)
{
    struct sought sought = {.state = state, .out = out};

    int r = thread_states_each(interpreter, take_if_sought, &sought);
    return r < 0 ? r : sought.found ? 0 : -ESRCH;
}

struct sought_number {
    const PyThreadState *state;
    int32_t tid;
    bool found;
};

static bool has_number(const PyThreadState *state, int32_t tid)
{
    const struct offsets *table = struct_layout();
    unsigned long number;

    if (!table || table->tstate_native_thread_id < 0)
        return true;
    memcpy(&number, (const char *)state + table->tstate_native_thread_id, sizeof number);
    return number == (unsigned long)tid;
}

static bool is_not_it(PyThreadState *state, void *arg)
{
    struct sought_number *sought = arg;

    if (state != sought->state)
        return true;
    sought->found = has_number(state, sought->tid);
    return false;
}

bool thread_states_is(PyInterpreterState *interpreter, const PyThreadState *state, int32_t tid)
{
    struct sought_number sought = {.state = state, .tid = tid};

    return thread_states_each(interpreter, is_not_it, &sought) == 0 && sought.found;
}

struct sought_id {
    uint64_t id;
    bool found;
};

static bool is_other(PyThreadState *state, void *arg)
{
    struct sought_id *sought = arg;

    sought->found = PyThreadState_GetID(state) == sought->id;
    return !sought->found;
}

bool thread_states_has(PyInterpreterState *interpreter, uint64_t id)
{
    struct sought_id sought = {.id = id};

    return thread_states_each(interpreter, is_other, &sought) < 0 || sought.found;
}
