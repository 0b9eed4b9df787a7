/* What frames bind. Names and values are read from outside; what the user types, and only that,
 * runs in the process. */
#pragma once

#include "contrib/dap/session.h"

request_run values_scopes, values_variables, values_set, values_set_expression, values_evaluate,
    values_complete;

/* The expression in a frame for a value's child of that name, or for a variable of the frame;
 * NULL: there is none. number: of the place. The caller's. */
char *values_path(struct session *session, json_int_t number, const char *name);
/* The frame in which that expression is to be looked up as long as the frame is there. False: it
 * means the same in all of the process, or the place isn't known any more. */
bool values_frame(struct session *session, json_int_t number, pid_t *tid, int *depth);
