/* The GIL of a program's thread that sleeps outside Python and keeps it, lent to Python's thread.
 */
#pragma once

#include "agent/wire/proto.h"

/* What such a thread is made to call (struct probe_lend). It gives the GIL up until nothing of what
 * the daemon asked for is left to be done, or nobody takes it, or PROTO_LEND_NS are over, and comes
 * back with it. Nothing else of its thread is touched: neither its Python signal handlers nor what
 * is pending for it runs, and a system call that the kernel goes on with by itself still does. */
void lend_enter(struct probe_lend *lend);
