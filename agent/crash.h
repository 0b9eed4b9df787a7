/* `on-crash`: what is left of an exception that nobody caught, and of a fatal signal. */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"

/* Carries out an ON_CRASH, in the main interpreter and all others, with the main one's GIL. 0, or -errno with words. */
int crash_switch(struct interpreter *interpreter, const struct proto_on_crash *order, char words[PROTO_WORDS_MAX]);
/* The daemon has taken down what there is to see of the fatal signal. Channel's thread. */
void crash_seen(void);
void crash_leave(struct interpreter *interpreter);
void crash_end(void);    /* detached: our handlers are taken out */
void crash_forget(void); /* in a child after fork */
