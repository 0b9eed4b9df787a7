/* What clients want of breakpoints, and the grammar of the file. */
#pragma once

#include "contrib/dap/session.h"

request_run breakpoints_of_source, breakpoints_of_functions, breakpoints_of_data,
    breakpoints_of_exceptions, breakpoints_data_info;
/* Has the program's own breakpoint() stop, as long as the session lasts; says why, if it can't. */
void breakpoints_of_program(struct session *session);
