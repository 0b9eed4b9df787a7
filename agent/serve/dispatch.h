/* What the frames of the daemon mean: on the channel's thread, without Python. */
#pragma once

#include "agent/wire/wire.h"

#include <stdbool.h>

/* Does what a well-formed frame asks. -EPROTO: it breaks the protocol; -EPIPE:
 * the daemon is gone. */
int dispatch(const struct wire_frame *frame);

/* Interrupts the running request of that id, if it still runs; 0: nothing to do. */
void dispatch_interrupt(uint64_t id);

/* Has Python's thread tidy up, if there is something (requests_untidy()). */
void dispatch_tidy(void);

/* After the channel's end: whether a DETACH was carried out. Then its DONE is sent, and Python's
 * thread has ended. */
bool dispatch_detached(void);
