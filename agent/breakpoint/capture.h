/* One hit while it is made, for hit.c, which counts it and writes its row, and
 * capture.c, which evaluates. */
#pragma once

#include "agent/breakpoint/expression.h"
#include "agent/breakpoint/hit.h"
#include "agent/cpython/repr.h"
#include "agent/interpreter/interpreter.h"

/* What becomes of one hit. */
struct hit {
    struct interpreter *interpreter;
    struct breakpoint *breakpoint;
    const struct reached *reached;
    struct expressions **compiled; /* in that interpreter, under its GIL */
    struct expression_scope scope;
    uint64_t number;
    bool escapes;                /* an exception is set that is the program's */
    char error[PROTO_WORDS_MAX]; /* "": none */
    struct repr captured;
};

/* All run code of the program. */
/* Before any of these: what expressions may name. */
void capture_set_scope(struct hit *hit);
/* Whether the condition holds; one that raises doesn't, and is the hit's error. */
bool capture_is_true(struct hit *hit);
/* Makes the text of what is captured. */
void capture_values(struct hit *hit);
/* An expression or a repr() has failed: the first failure is what the row says. */
void capture_note_error(struct hit *hit);
