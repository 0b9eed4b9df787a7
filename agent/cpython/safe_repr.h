/* A Python object as text, inside the target: what repr() would say, as far as that can be
 * known without running any code of the program. Looks as fs/remote/objects/values.h says,
 * which does the same from outside.
 *
 * With the GIL; no exception is set before and after. */
#pragma once

#include "agent/cpython/exception_text.h"

#define SHOW_STRING_MAX 200 /* code points or bytes shown of one string */
#define SHOW_ITEMS_MAX 16   /* items shown of one container, attributes of one instance */
#define SHOW_DEPTH_MAX 5    /* containers in containers whose items are shown */
#define SHOW_NODES_MAX 320  /* objects shown of one value: each item gets an equal share */
/* Of ints of more bits the number of bits is shown. */
#define SHOW_BITS_MAX 14000

struct shown {
    const struct exception_text *raised; /* how types are called */
    unsigned nodes;                      /* objects that may still be shown */
    bool attributes;                     /* of the object itself are shown */
    PyObject *path[SHOW_DEPTH_MAX]; /* what holds the object at hand, outermost first; borrowed */
    size_t size;
    char bytes[RING_TEXT_MAX];
};

/* Makes *out the text of a value. */
void show(struct shown *out, const struct exception_text *raised, PyObject *value);
/* The same without an object's attributes, looking for which may make a dict for them. */
void show_parts(struct shown *out, const struct exception_text *raised, PyObject *value);
/* The text, good for as long as *shown is. */
static inline struct ring_text show_text(const struct shown *shown)
{
    return (struct ring_text){shown->bytes, shown->size};
}
