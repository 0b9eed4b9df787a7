/* Threads, and where they are. */
#pragma once

#include "contrib/dap/session.h"

request_run stack_threads, stack_trace, stack_exception, stack_source;
/* Reads the stack of a thread that is held. */
request_after stack_prepare;
