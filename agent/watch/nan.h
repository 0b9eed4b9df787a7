/* Breakpoints at what isn't finite in a model of PyTorch: what the parts of the agent have to do
 * with them (interpreter/part.h). */
#pragma once

#include "agent/interpreter/interpreter.h"

void nan_disarm(struct interpreter *interpreter);
void nan_leave(struct interpreter *interpreter);
void nan_forget(void);
