/* The channel to the daemon, and the thread that serves it. */
#pragma once

#include "agent/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the pair and publishes its spare end in the record. With the lock held, or before there is
 * another thread. 0 or -errno. */
int channel_open(void);
/* Closes what is open, without the lock: when no other thread can be there (start failed, fork). */
void channel_close(void);
/* Closes our copy of the end that a daemon has taken. */
void channel_taken(void);

/* Sends a frame to the daemon of that generation; any thread, never with the GIL held unless
 * deadline_ns is 0. A daemon that doesn't make room in time is given up. -EPIPE: it is gone; -EAGAIN:
 * no room, with deadline 0; -EMSGSIZE. */
int channel_send(uint64_t generation, uint16_t op, uint64_t id, const void *body, size_t size,
                 const void *more, size_t more_size, uint64_t deadline_ns);

/* Says RINGS to a daemon that has said HELLO, if there is room at once. Any thread, with the GIL too. */
void channel_tell_rings(void);
/* The same of probe_agent_record.watches. */
void channel_tell_watches(void);
/* Tells it of a fatal signal, in the handler. Whether it was told. */
bool channel_tell_crashed(const struct proto_crashed *crashed);

/* Wakes the channel's thread, which finds agent.detached. */
void channel_wake(void);

/* The thread: "probe-agent". */
void *channel_main(void *arg);
