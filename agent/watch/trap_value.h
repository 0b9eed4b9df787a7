/* What object is in memory that is watched, from inside a handler of SIGTRAP.
 *
 * No reference can be taken there: what was interrupted may be in the midst of counting
 * those of the same object, and would write its own count over ours. So numbers are copied,
 * and of others only the address is taken down: as long as nothing else is written to its
 * place, the object is there. */
#pragma once

#include "agent/cpython/python.h"

struct trap_value {
    uint64_t address;   /* of the object; 0: unbound */
    const void *type;   /* &PyFloat_Type or &PyLong_Type: it is copied; else NULL */
    uint64_t size;      /* of an int: how many digits, and its sign; of a float: the number */
    uint32_t digits[2]; /* of an int */
};

/* Copies the value of the object at an address, in a thread that holds the GIL, where there is such
 * an object. */
void trap_value_copy(uint64_t address, struct trap_value *out);
/* The object: new. is_there: nothing else has been written to its place. NULL: unbound, or it is
 * not known any more; no exception is set. With the GIL. */
PyObject *trap_value_object(const struct trap_value *value, bool is_there);
