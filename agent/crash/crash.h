/* `on-crash`: writes rows of the table `crash` for an exception that nobody caught (uncaught.c) and
 * for a fatal signal (fatal.c). With `stop`, the thread is held at its exception; no frame or
 * object is kept alive otherwise. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"

/* Carries out an ON_CRASH in all interpreters. `interpreter` is the main one, and its GIL is held.
 * 0, or -errno with words; without words an exception is set. */
int crash_switch(struct interpreter *interpreter, const struct proto_on_crash *order,
                 char words[PROTO_WORDS_MAX]);

/* crash_switch() from the start of a run, as the environment asks: a thread is held with or without
 * a daemon, and standard error says what holds it; by_pdb: contrib/probing.py has pdb look at the
 * exception in place of that. */
int crash_begin(struct interpreter *interpreter, const struct proto_on_crash *order, bool by_pdb,
                char words[PROTO_WORDS_MAX]);

/* An open file is closed: what was ordered for as long is over, and a thread that is held for no
 * other reason goes on. True: crash_tidy() is to follow. Any thread, without the GIL. */
bool crash_release(uint64_t here);
/* Takes out what nobody wants any more. In the main interpreter, with its GIL, which is given up
 * meanwhile; leaves no exception. */
void crash_tidy(struct interpreter *interpreter);
/* The daemon has gone. Channel's thread, without the GIL. */
void crash_daemon_gone(void);

/* Gives up what is in an interpreter, with its GIL; leaves no exception. */
void crash_leave(struct interpreter *interpreter);
/* Takes the signal handlers out. The last step of a detach, by Python's thread. */
void crash_end(void);
/* Whether something may still call into the library: a signal handler of the program that calls
 * ours. */
bool crash_remains(void);
/* In a child after fork: forgets all orders. */
void crash_forget(void);
