/* What a held thread is told to do, but for `continue`, which needs no Python
 * (hold.h); and `pause`. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"

/* Carries out a THREAD: in the thread that is held, a PAUSE on Python's. With the GIL of the
 * interpreter; leaves no exception. 0, or -errno with words. */
int order_run(struct interpreter *interpreter, const struct proto_thread *order,
              char words[PROTO_WORDS_MAX]);
