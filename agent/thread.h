/* The thread that runs Python code: "probe-python". */
#pragma once

#include <stdint.h>

/* Makes it, unless it is there. Channel's thread only. 0 or -errno. */
int python_thread_need(void);
/* Waits for its end; channel's thread only. */
void python_thread_join(void);
/* Bytes of its stack that are in memory; 0: there is no such thread. */
uint64_t python_thread_memory(void);
