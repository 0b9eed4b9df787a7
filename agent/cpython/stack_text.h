/* The Python stack of a thread as one text, for a row. */
#pragma once

#include "agent/cpython/code_site.h"

#define STACK_FRAMES_MAX 1000

/* Writes `func (file:line)` of `frame` and of the frames outside it, `frames` of them at most, the
 * outermost first, joined by semicolons. Where the text gets too long, outer frames are left out
 * and "..." stands for them. innermost: what stack_text_site() found of `frame`; NULL: it wasn't
 * asked. The text lies in `buffer`. Runs no code of the program; no exception is set before and
 * after. Needs code_site_bind(). */
struct ring_text stack_text(struct code_sites *sites, PyFrameObject *frame,
                            const struct code_site *innermost, unsigned frames,
                            char buffer[RING_TEXT_MAX]);
/* File, function and current line of a frame. */
void stack_text_site(struct code_sites *sites, PyFrameObject *frame, PyObject *code,
                     struct code_site *out);
