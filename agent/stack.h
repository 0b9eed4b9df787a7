/* Who called whom, as one text for a row. */
#pragma once

#include "agent/site.h"

#define STACK_FRAMES_MAX 1000

/* `func (file:line)` of each frame from this one on outwards, the outermost first, joined by semicolons. What there is no
 * room for is left out at the outer end, where "..." stands then. The text is part of `buffer`. Runs nothing of the program's;
 * no exception is set before and after. site_bind() has been called. */
struct ring_text stack_text(struct sites *sites, PyFrameObject *frame, char buffer[RING_TEXT_MAX]);
/* The place of a frame. */
void stack_site(struct sites *sites, PyFrameObject *frame, PyObject *code, struct site *out);
