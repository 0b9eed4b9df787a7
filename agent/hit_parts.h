/* One hit while it is made, for hit.c, which counts it and writes its row, and hit_capture.c, which evaluates. */
#pragma once

#include "agent/captured.h"
#include "agent/expression.h"
#include "agent/hit.h"
#include "agent/interpreter.h"
#include "agent/site.h"

struct hits {
    struct sites sites;
    struct expressions *expressions;
};

/* What becomes of one hit. */
struct hit {
    struct interpreter *interpreter;
    struct breakpoint *breakpoint;
    const struct reached *reached;
    struct expression_scope scope;
    uint64_t number;
    bool escapes;             /* an exception is set that is the program's */
    char error[PROTO_WORDS_MAX]; /* "": none */
    struct captured captured;
};

/* What there is of an interpreter. NULL: there is no memory. */
struct hits *hits_of(struct interpreter *interpreter);

/* All run code of the program. */
/* Before any of these: what expressions may name. */
void hit_set_scope(struct hit *hit);
/* Whether the condition holds; one that fails does. */
bool hit_is_true(struct hit *hit);
/* Makes the text of what is captured. */
void hit_capture(struct hit *hit);
/* An expression or a repr() has failed: the first failure is what the row says. */
void hit_note_error(struct hit *hit);
