#include "agent/cpython/gil.h"

#include "agent/cpython/struct_layout.h"

/* A thread that gives the GIL up of its own accord wakes a waiter, whose interval begins anew. If
 * the thread has taken the GIL again before the waiter runs, and gives it up again within the
 * interval, nobody ever tells it to leave the GIL to others. So the interval is made shorter than
 * most such turns; a shorter one gains nothing, as a timer comes 50 us late. */
#define SHORT_US 20
#define USUAL_US 5000
#define SANE_US 1000000 /* an interval beyond is none, or somebody's decision */

/* The interval that is shortened, and what it was; NULL: none is. */
static unsigned long *shortened;
static unsigned long before_us;

/* Whether it can be the interval of a GIL: those of the main interpreter, and of all that
 * share it, lie in _PyRuntime. */
static unsigned long *check_hint(uint64_t hint)
{
    uintptr_t start = (uintptr_t)python.runtime;

    if (!python.runtime || hint % sizeof(long) || hint < start ||
        hint - start > python.runtime_size - sizeof(long))
        return NULL;
    return (unsigned long *)(uintptr_t)hint;
}

/* The address of the main interpreter's switch interval, by the layout of this version; 0: that
 * isn't known, or the program has chosen an interval. */
static uint64_t usual_interval(void)
{
    struct offsets o;
    const PyInterpreterState *main = python.interpreter_main();

    if (!main || !python.runtime || !struct_layout_table(&o))
        return 0;
    uint64_t hint = struct_layout_gil_interval_by(&o, main);
    const unsigned long *interval = check_hint(hint);
    return interval && __atomic_load_n(interval, __ATOMIC_RELAXED) == USUAL_US ? hint : 0;
}

/* The interval that is short from now on, and *us what it was; NULL: none. */
static unsigned long *shorten(uint64_t hint, unsigned long *us)
{
    unsigned long *interval = check_hint(hint);
    if (!interval)
        return NULL;
    *us = __atomic_load_n(interval, __ATOMIC_RELAXED);
    if (*us <= SHORT_US || *us > SANE_US)
        return NULL;
    before_us = *us;
    /* before it is: fork comes any time */
    __atomic_store_n(&shortened, interval, __ATOMIC_RELEASE);
    __atomic_store_n(interval, SHORT_US, __ATOMIC_RELEASE);
    return interval;
}

/* Unless the program has set another one meanwhile. */
static void restore(unsigned long *interval, unsigned long us)
{
    unsigned long ours = SHORT_US;
    __atomic_compare_exchange_n(interval, &ours, us, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void gil_restore_interval(void)
{
    unsigned long *interval = __atomic_exchange_n(&shortened, NULL, __ATOMIC_ACQ_REL);
    if (interval)
        restore(interval, before_us);
}

void gil_take(PyThreadState *state, uint64_t hint)
{
    unsigned long us;
    unsigned long *interval = shorten(hint == GIL_USUAL ? usual_interval() : hint, &us);

    PyEval_RestoreThread(state);
    if (interval) {
        restore(interval, us);
        __atomic_store_n(&shortened, NULL, __ATOMIC_RELEASE);
    }
}
