#include "agent/breakpoint/newcomers.h"

#include "agent/base/clock.h"
#include "agent/breakpoint/places.h"
#include "agent/breakpoint/set.h"
#include "agent/interpreter/interpreter.h"

#define PERIOD_NS 200000000ull
#define TRIES 25 /* how often one that can't be entered, or isn't ready, is looked at */

static const PyInterpreterState *newest; /* of the last time */
static unsigned tries;
static uint64_t next_ns; /* CLOCK_MONOTONIC: not before that */

static void arm(struct interpreter *interpreter, void *arg)
{
    static struct place_report reports[PROTO_BREAKPOINTS_MAX];
    const struct breakpoint_set *set = breakpoint_set();
    char words[PROTO_WORDS_MAX] = "";

    if (places_here(interpreter))
        return;
    int r = places_arm(interpreter, set->all, set->count, reports, words);
    PyErr_Clear();
    for (unsigned i = 0; i < set->count && r == 0; i++)
        if (reports[i].places)
            breakpoints_found(set->all[i], &reports[i]);
}

uint64_t newcomers_look(void)
{
    struct interpreter *interpreter;
    uint64_t now_ns = monotonic_ns();

    if (!breakpoint_set()->count)
        return 0;
    if (now_ns < next_ns)
        return next_ns - now_ns;
    next_ns = now_ns + PERIOD_NS;
    const PyInterpreterState *now = python.interpreter_head();
    if (now == newest || interpreter_enter(0, 0, &interpreter) < 0)
        return PERIOD_NS;
    if (interpreter_each_there(arm, NULL) || ++tries == TRIES) {
        newest = now;
        tries = 0;
    }
    interpreter_leave(interpreter);
    return PERIOD_NS;
}
