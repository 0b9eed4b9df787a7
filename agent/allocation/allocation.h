/* Samples what the program allocates through CPython's allocators for objects and memory
 * (PYMEM_DOMAIN_OBJ and PYMEM_DOMAIN_MEM), by site.
 *
 * Our functions stand in front of those that are there, which are saved before, and leave their
 * context as it is: every mix of old and new fields of the structure that another interpreter's
 * thread may see works. They are installed once, with the GIL, and armed by a flag; a detach takes
 * them out where they still are on top, else they stay, and the library with them. The domain RAW,
 * which is called without the GIL, is left alone.
 *
 * An allocation costs a subtraction, and giving back a load; one in some hundred KiB is sampled.
 * That allocates nothing, takes no lock that another thread could keep, and changes no reference
 * count. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"

/* Begins or ends sampling. `interpreter` is the main one, and its GIL is held. 0, or -errno with
 * words, which there may be on success, too. */
int allocation_switch(struct interpreter *interpreter, const struct proto_allocations *order,
                      char words[PROTO_WORDS_MAX]);

/* Takes our functions out, if they can be; with the GIL of an interpreter, and nothing but for the
 * main one. */
void allocation_leave(struct interpreter *interpreter);
/* Whether they are still there. */
bool allocation_remains(void);
/* In a child after fork: samples nothing. */
void allocation_forget(void);
