#include "agent/breakpoint/newcomers.h"

#include "agent/breakpoint/places.h"
#include "agent/breakpoint/set.h"
#include "agent/interpreter/interpreter.h"

#define TRIES 25 /* how often one that can't be entered, or isn't ready, is looked at */

static const PyInterpreterState *newest; /* of the last time */
static unsigned tries;

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

bool newcomers_look(void)
{
    struct interpreter *interpreter;

    if (!breakpoint_set()->count)
        return false;
    const PyInterpreterState *now = python.interpreter_head();
    if (now == newest || interpreter_enter(0, 0, &interpreter) < 0)
        return true;
    if (interpreter_each_there(arm, NULL) || ++tries == TRIES) {
        newest = now;
        tries = 0;
    }
    interpreter_leave(interpreter);
    return true;
}
