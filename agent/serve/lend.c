#include "agent/serve/lend.h"

#include "agent/arch/arch.h"
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/cpython/look_up.h"
#include "agent/cpython/struct_layout.h"
#include "agent/cpython/thread_states.h"
#include "agent/eval/requests.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define NAP_NS 100000
#define UNWANTED_NS \
 5000000u /* nobody has taken it for so long: what is asked for doesn't need it */

/* ppoll() leaves the thread's restart block alone, by which an interrupted sleep goes on. */
static void nap(void)
{
    struct timespec t = {.tv_nsec = NAP_NS};
    arch_call(SYS_ppoll, 0, 0, (long)(uintptr_t)&t, 0, 8);
}

/* ---- whether it may be lent ---- */

/* The kernel's number of the thread that a state was made for. */
static int32_t number_of(const struct offsets *o, const PyThreadState *state)
{
    unsigned long number;

    memcpy(&number, (const char *)state + o->tstate_native_thread_id, sizeof number);
    return (int32_t)number;
}

/* Whether Python has no other threads than this one and the agent's. Another one would have a turn
 * meanwhile, and might wait for a lock of the program's that this one has. */
static bool is_alone(const struct offsets *o)
{
    bool alone = thread_states_lock() == 0;

    if (!alone)
        return false;
    for (PyInterpreterState *interpreter = python.interpreter_head(); interpreter;
         interpreter = python.interpreter_next(interpreter))
        for (PyThreadState *state = python.thread_first(interpreter); state && alone;
             state = python.thread_next(state)) {
            int32_t tid = number_of(o, state);
            alone = tid == gettid() || threads_own_has(tid);
        }
    thread_states_unlock();
    return alone;
}

/* The thread state that is attached to this thread. Up to CPython 3.11 there is one such for all
 * threads: whoever has the GIL has it, and the daemon knows that this is the only thread which can.
 */
static PyThreadState *attached(void)
{
    PyThreadState *(*get)(void) = looked_up.PyThreadState_GetUnchecked;
    if (!get)
        get = looked_up._PyThreadState_UncheckedGet;
    return get ? get() : NULL;
}

static bool is_taken(const struct offsets *o, const char *gil)
{
    return __atomic_load_n((const int *)(gil + o->gil_locked), __ATOMIC_RELAXED) > 0;
}

/* The state of this thread if it has the main interpreter's GIL and may lend it; else NULL. */
static PyThreadState *find_lender(const struct offsets *o, const char *gil)
{
    PyThreadState *state = attached();

    return state && gil && is_taken(o, gil) &&
                   struct_layout_pointer(gil, o->gil_last_holder) == state &&
                   number_of(o, state) == gettid() && is_alone(o)
               ? state
               : NULL;
}

/* ---- lending it ---- */

static void wait_for_others(const struct offsets *o, const char *gil)
{
    uint64_t now = monotonic_ns(), end = now + PROTO_LEND_NS, taken = now;

    for (; requests_undone() && now < end && now - taken < UNWANTED_NS; now = monotonic_ns()) {
        if (is_taken(o, gil))
            taken = now;
        nap();
    }
}

static enum lend_result lend_it(void)
{
    struct offsets o;

    if (!python.version)
        return LEND_UNDONE; /* Python's thread is not that far */
    if (!struct_layout_table(&o) || o.tstate_native_thread_id < 0 || python.finalizing())
        return LEND_REFUSED;
    uint64_t at = struct_layout_gil_interval_by(&o, python.interpreter_main());
    const char *gil = (const char *)(uintptr_t)at; /* the interval is what it begins with */
    PyThreadState *state = find_lender(&o, gil);
    if (!state)
        return LEND_REFUSED;
    PyEval_SaveThread();
    wait_for_others(&o, gil);
    PyEval_RestoreThread(state);
    return requests_undone() ? LEND_UNDONE : LEND_DONE;
}

void lend_enter(struct probe_lend *lend)
{
    int error = errno;
    sigset_t all, before;

    sigfillset(&all); /* the one, too, by which the daemon stops the thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lend->result = (int32_t)lend_it();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
}
