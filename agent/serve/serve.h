/* The channel's thread, "probe-agent": it serves one daemon after the other until it is detached.
 * It never touches Python, so that it answers whatever the interpreter does. */
#pragma once

#include "agent/wire/proto.h"

/* Opens the channel and starts the thread. With the lock. 0, or -errno: nothing has begun. */
int serve_begin(enum proto_origin origin);
/* What READY says. Any thread; takes the lock. */
void serve_describe(struct proto_ready *out);
