/* The end of the agent: a DETACH. What is Python's is given up by Python's thread, in two passes:
 * first all parts are disarmed, in all interpreters, then, when no thread is inside of what they
 * armed, they are given up. */
#pragma once

#include <stdbool.h>

struct request;

/* Carries out a DETACH, for good, and frees it. Python's thread, without the GIL, which it needn't
 * have entered. False: cancelled before there was the GIL. */
bool ending_detach(struct request *request);
/* What that came to, once Python's thread has ended: nothing refers to the library any more, and no
 * thread is writing rows with the GIL. */
bool ending_is_unloadable(void);
bool ending_nobody_writes(void);
