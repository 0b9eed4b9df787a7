/* Samples of processor time, taken where it is spent: the daemon has the kernel send SIGTRAP to a
 * thread whose quantum has ended (perf_event_open(2), sigtrap), in user mode only, so that no
 * system call is interrupted. The handler (watch/trap.h) writes down what Python functions the
 * thread is in, and the daemon reads that from outside (wire/trap_samples.h).
 *
 * It takes no memory, no lock, no reference, and stops nobody. The daemon opens the events, and the
 * kernel closes them when that is killed: what is left then is a handler that nobody calls. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"

/* Makes all ready for samples; the events are the daemon's. `interpreter` is the main one, and its
 * GIL is held. 0, or -errno with words. */
int sample_begin(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
/* The daemon has closed its events. Any thread, without the GIL. */
void sample_end(void);

/* The daemon has gone, and its events with it, or in a moment. */
void sample_daemon_gone(void);
/* The main interpreter's end begins: from then on no frames are looked at, for thread states are
 * about to be freed. Any thread. */
void sample_let_go(const struct interpreter *interpreter);
/* Detach, before watch_leave(): whoever asks for it has closed its events. */
void sample_leave(struct interpreter *interpreter);
void sample_forget(void); /* in a child after fork */
