/* Values as repr() shows them, for rows: a JSON object of names and such texts, and single ones.
 *
 * Lists, tuples, dicts and sets are shown item by item, so that of a long one no more is made than
 * there is room for. Any other object is asked for its repr(), which runs code of the program and
 * may raise.
 *
 * This is for who asked for a value: `{EXPR}` of a breakpoint. Where nobody did, after a crash and
 * at each exception, no code of the program may run: safe_repr.h. Those are two writers, and not
 * one with a switch, since they agree in little. That one can't fail, shows an equal share of each
 * item, the depth and the number of what it left out, and types in place of a repr(), as the daemon
 * shows values from outside; this one shows what Python shows, up to a number of bytes. What both
 * need is in text.h. */
#pragma once

#include "agent/cpython/python.h"
#include "agent/wire/ring_format.h"

struct repr {
    char text[RING_TEXT_MAX];
    size_t size, values;
    bool full; /* something was left out */
};

/* Begins an object, adds a name and its value (NULL: null), ends it. False: an exception is set, of
 * a repr(): then the value is null. */
void repr_begin(struct repr *repr);
bool repr_add(struct repr *repr, const char *name, PyObject *value);
void repr_end(struct repr *repr);
/* Adds a name and a text that is there already. */
void repr_add_text(struct repr *repr, const char *name, const struct ring_text *text);
/* One value alone, as plain text. False as above, with nothing shown. */
bool repr_value(PyObject *value, char text[RING_TEXT_MAX], size_t *size);
