/* The slots of a Python frame: its local variables, cells and free variables, and behind them its
 * evaluation stack. */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/objects/object.h"

struct frame_slots {
    uint32_t locals; /* local variables, cells and free variables, of slots 0 to locals - 1 */
    uint32_t n;      /* with the evaluation stack; what of that is in use isn't known */
    uint64_t addr;   /* of slot 0 */
};

/* -EFAULT: not readable, or it makes no sense. */
int frame_slots_find(struct view *view, const struct offsets *offsets,
                     const struct raw_frame *frame, struct frame_slots *out);
/* The object that a slot refers to, or 0: none, an int without an object, or not readable. */
uint64_t frame_slot(struct view *view, const struct offsets *offsets,
                    const struct frame_slots *slots, uint32_t i);
/* The value of a local variable, cell or free variable: what is in the cell where there is one. 0:
 * there is no such variable, or it has no value. */
uint64_t frame_variable(struct view *view, const struct offsets *offsets,
                        const struct frame_slots *slots, uint32_t i);
