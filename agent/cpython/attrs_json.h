/* The keyword arguments of a span or an event as a JSON object.
 *
 * Numbers, strings, booleans, None, and lists, tuples and dicts of them are written as
 * they are; anything else as a string "<TYPE>". Nothing of the program is called: no
 * __repr__, no __str__, no __class__. */
#pragma once

#include "agent/cpython/python.h"
#include "agent/wire/ring_format.h"

#define ATTRS_JSON_MAX RING_TEXT_MAX

/* Writes what was called by keyword (METH_FASTCALL | METH_KEYWORDS): names is a tuple, with as
 * many values. What is too much is left out, and "..." stands in its place. Returns the size.
 * No exception is set after it. */
size_t attrs_json_write(PyObject *names, PyObject *const *values, char out[ATTRS_JSON_MAX]);

/* What bytes hold; NULL: no text. */
struct ring_text attrs_json_bytes(PyObject *bytes);
