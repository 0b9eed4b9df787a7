/* How much memory the program may still take. */
#pragma once

#include <stdint.h>

/* Bytes that this process could take before the kernel ends it, or another one: the least
 * of what the machine has available and what its control groups (version 1 and 2) are
 * below their limits, page cache counted as free. Swap is not counted. 0: it can't be
 * found out. Any thread; about 100 us. */
uint64_t memory_left(void);
