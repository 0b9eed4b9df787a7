/* The addresses at which containers keep references: an entry of a dict, an attribute of an
 * instance, an item of a list. They are computed from this interpreter's layout, and an address is
 * given only if the reference there is the one that CPython itself finds. */
#pragma once

#include "agent/watch/trap.h"

/* Each returns whether the address was found. With the GIL; leaves no exception. */

/* The value of a key of a dict. */
bool storage_address_of_dict(PyObject *dict, PyObject *key, struct trap_memory *out);
/* An attribute of an instance that keeps its values inline, without a dict. */
bool storage_address_of_instance(PyObject *object, PyObject *name, struct trap_memory *out);
/* An item of a list. */
bool storage_address_of_list(PyObject *list, Py_ssize_t index, struct trap_memory *out);
/* The attribute for which `member`, a descriptor of __slots__, stands. */
bool storage_address_of_member(PyObject *object, PyObject *member, struct trap_memory *out);
