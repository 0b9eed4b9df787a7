/* Where objects keep references to others: an entry of a dict, an attribute of an instance, an item
 * of a list. By the layout of this interpreter; compared with what CPython itself says is there. */
#pragma once

#include "agent/watch/trap.h"

/* Each: whether it was found. With the GIL; no exception after it. */
bool slot_of_dict(PyObject *dict, PyObject *key, struct trap_memory *out);
/* Among the values that an instance has itself, without a dict. */
bool slot_of_instance(PyObject *object, PyObject *name, struct trap_memory *out);
bool slot_of_list(PyObject *list, Py_ssize_t index, struct trap_memory *out);
/* What a descriptor of __slots__ stands for. */
bool slot_of_member(PyObject *object, PyObject *member, struct trap_memory *out);
