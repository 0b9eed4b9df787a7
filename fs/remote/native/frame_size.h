/* How large a function's frame is at some point of it, measured by following the machine code from
 * the function's entry.
 *
 * Needed where call frame information counts from a frame pointer whose value is not known, which
 * is so for the outer frames of a sleeping thread in programs built with frame pointers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FRAME_SIZE_CODE_MAX (64u << 10) /* bytes of a function that are looked at */

/* code[0..size) is the function at `start`, from its entry on. *out: bytes from the stack pointer
 * just before the instruction at pc to the canonical frame address, the same on every way that
 * leads there. -ENOENT: no way that can be followed does; -EDOM: they differ; -ENOMEM. */
int frame_size(const uint8_t *code, size_t size, uint64_t start, uint64_t pc, int64_t *out);
