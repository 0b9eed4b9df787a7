/* A Python object as text, inside the target: what repr() would say, as far as that can be
 * known without running any code of the program. Looks as fs/remote/objects/values.h says,
 * which does the same from outside.
 *
 * With the GIL; no exception is set before and after. */
#pragma once

#include "agent/cpython/exception_text.h"

#define SAFE_REPR_STRING_MAX 200 /* code points or bytes shown of one string */
#define SAFE_REPR_ITEMS_MAX 16   /* items shown of one container, attributes of one instance */
#define SAFE_REPR_DEPTH_MAX 5    /* containers in containers whose items are shown */
#define SAFE_REPR_NODES_MAX 320  /* objects shown of one value: each item gets an equal share */
/* Of an int of more bits the number of bits is shown. */
#define SAFE_REPR_BITS_MAX 14000

struct safe_repr {
    const struct exception_text *raised; /* how types are called */
    unsigned nodes;                      /* objects that may still be shown */
    bool attributes;                     /* of the object itself are shown */
    PyObject
        *path[SAFE_REPR_DEPTH_MAX]; /* what holds the object at hand, outermost first; borrowed */
    size_t size;
    char bytes[RING_TEXT_MAX];
};

/* Makes *out the text of a value. */
void safe_repr(struct safe_repr *out, const struct exception_text *raised, PyObject *value);
/* Makes *out the text of a value without an object's attributes: looking for these may make a dict
 * for them. */
void safe_repr_parts(struct safe_repr *out, const struct exception_text *raised, PyObject *value);
/* The text, good for as long as *repr is. */
static inline struct ring_text safe_repr_text(const struct safe_repr *repr)
{
    return (struct ring_text){repr->bytes, repr->size};
}
