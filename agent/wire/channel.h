/* The channel to the daemon: a pair of sockets, of which a daemon takes the other end. */
#pragma once

#include "agent/wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The daemon that doesn't read for as long is given up. */
#define CHANNEL_SEND_NS 2000000000ull

/* Makes the pair and publishes its spare end in the record. With the lock held, or before there is
 * another thread. 0 or -errno. */
int channel_open(void);
/* Closes what is open, without the lock: when no other thread can be there (start failed, fork). */
void channel_close(void);
/* In a child after fork: closes both ends, and nobody sends. */
void channel_forget(void);
/* Closes our copy of the end that a daemon has taken. */
void channel_taken(void);

/* Whether a daemon has said HELLO by this channel. With the lock; the channel's thread, which
 * alone changes it, also without. */
bool channel_is_greeted(void);
/* A daemon has said its first HELLO: it has taken its end. With the lock. */
void channel_greet(uint64_t nonce);
/* The nonce of the HELLO. With the lock. */
uint64_t channel_nonce(void);

/* Sends a frame to the daemon of that generation; any thread, never with the GIL held unless
 * deadline_ns is 0. A daemon that doesn't make room in time is given up. -EPIPE: it is gone;
 * -EAGAIN: no room, with deadline 0; -EMSGSIZE. */
int channel_send(uint64_t generation, uint16_t op, uint64_t id, const void *body, size_t size,
                 const void *more, size_t more_size, uint64_t deadline_ns);

/* Says RINGS to a daemon that has said HELLO, if there is room at once. Any
 * thread, with the GIL too. */
void channel_tell_rings(void);
/* Says WATCHES to a daemon that has said HELLO, since probe_agent_record.watches has changed, if
 * there is room at once. Any thread, with the GIL too. */
void channel_tell_watches(void);
/* Says HAPPENED to a daemon that has said HELLO, if it wasn't said just before: there are rows that
 * readers of events wait for. Any thread, with the GIL too. */
void channel_tell_happened(void);
/* Tells it of a fatal signal, in the handler. Whether it was told. */
bool channel_tell_crashed(const struct proto_crashed *crashed);

/* Wakes the channel's thread, which finds agent_life.detached. */
void channel_wake(void);

/* For the channel's thread alone. */

/* Waits for a frame. -EPIPE: the channel is over; others as wire_receive(). */
int channel_receive(struct wire_frame *out);
/* The daemon that said HELLO has gone. With the lock. */
void channel_daemon_gone(void);
/* Ends this channel, and waits until nobody sends by it any more. */
void channel_end(void);
