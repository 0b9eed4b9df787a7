#include "agent/breakpoint/reach.h"

static bool is_meant(const struct breakpoint *breakpoint, bool lines)
{
    return !breakpoint_is_over(breakpoint) && (!lines || breakpoint->kind == BREAKPOINT_LINE);
}

bool reach_take(struct reach *reach, const struct code_place *place, bool lines)
{
    unsigned count = 0;

    for (const struct code_place *at = place; at; at = at->next)
        count += is_meant(at->breakpoint, lines);
    reach->count = 0;
    reach->all = count <= REACH_AT_ONCE ? reach->few : malloc(count * sizeof *reach->all);
    for (const struct code_place *at = place; at && reach->all; at = at->next)
        if (is_meant(at->breakpoint, lines))
            reach->all[reach->count++] = breakpoint_ref(at->breakpoint);
    return reach->count > 0;
}

bool reach_hit(struct reach *reach, struct interpreter *interpreter, struct reached *reached)
{
    bool fine = true;

    Py_IncRef((PyObject *)reached->frame);
    if (reached->line == 0)
        reached->line = PyFrame_GetLineNumber(reached->frame);
    for (unsigned i = 0; i < reach->count; i++) {
        fine = fine && hit_reached(interpreter, reach->all[i], reached);
        breakpoint_unref(reach->all[i]);
    }
    Py_DecRef((PyObject *)reached->frame);
    if (reach->all != reach->few)
        free(reach->all);
    return fine;
}
