/* A simple expression in the code of a frame, `lock` or `self.shelf.lock`: a variable, and
 * attributes of it. */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/frames/instructions.h"
#include "fs/remote/objects/object.h"

#define EXPRESSION_ATTRIBUTES_MAX 4

struct expression {
    enum { VARIABLE_NONE, VARIABLE_FAST, VARIABLE_DEREF, VARIABLE_GLOBAL, VARIABLE_NAME } variable;
    uint32_t number; /* the argument of the instruction that loads it */
    uint32_t attributes[EXPRESSION_ATTRIBUTES_MAX]; /* indices in co_names */
    uint32_t n;
};

/* Goes on over the next instruction: afterwards *e is what it has left on top of the evaluation
 * stack, or VARIABLE_NONE where that is no such expression. Start with VARIABLE_NONE. */
void expression_follow(struct expression *e, const struct instruction *instruction);
bool expression_equals(const struct expression *a, const struct expression *b);
/* Whether the instruction may bind another object to a part of it. */
bool expression_is_changed(const struct expression *e, const struct instruction *instruction);
/* What it stands for in the frame now; 0: not known. A property's value isn't. */
uint64_t expression_object(struct view *view, const struct offsets *offsets,
                           const struct raw_frame *frame, const struct expression *e);
