/* What the environment asks for from the start of a run, where the program brings the agent along:
 * PROBING_ON_CRASH=record, or stop[:DURATION], as `on-crash` in ctl; IPDB_DEBUG=1 is stop, and
 * IPDB_MODE says by what it is looked at: web, the files; socket and console, a pdb in the process
 * (contrib/probing.py). */
#pragma once

#include "agent/interpreter/interpreter.h"

/* Whether it asks for anything. */
bool asked_anything(void);
/* Does it, once the agent runs; says on standard error why not, if it can't. With the GIL of the
 * main interpreter, whose guest is made; leaves no exception. */
void asked_begin(struct interpreter *interpreter);
