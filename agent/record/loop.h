/* Where the loops of asyncio are that don't come back to their selector in time: loop.c. */
#pragma once

#include <stdint.h>

/* Looks where the loops are that have been blocked for long, if there are any; only then this takes
 * the GIL. Returns after how many nanoseconds to look again; 0: nothing is recorded. Python's
 * thread, without the GIL, which has a thread state. */
uint64_t loop_look(void);
