/* How far the groups of torch.distributed have come: collectives.c. */
#pragma once

#include <stdint.h>

/* Writes down how many collectives have begun in each group, if that is recorded; only then this
 * takes the GIL. Returns after how many nanoseconds to look again; 0: it isn't recorded. Python's
 * thread, without the GIL, which has a thread state. */
uint64_t collectives_look(void);
