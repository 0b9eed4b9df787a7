/* Texts of Python's objects for rows, without running anything of the program's. */
#pragma once

#include "agent/cpython/python.h"
#include "agent/wire/ring_format.h"

/* UTF-8 of an object that is exactly a str, a lone surrogate as the text \udcff; cut soon after
 * what a row holds. *owner: a new reference to what the bytes are part of. False, with both
 * emptied: it is something else, or there is no memory. No exception is set afterwards. */
bool text_of(PyObject *str, struct ring_text *out, PyObject **owner);

/* The character at the start of some UTF-8 as a JSON string has it. *used: the bytes it is; returns
 * how many there are in out. */
size_t text_json_character(const char *bytes, size_t left, char out[8], size_t *used);

static inline bool is_exactly(PyObject *object, PyTypeObject *type)
{
    return Py_TYPE(object) == type;
}

/* An attribute as one of CPython's own types defines it, which no class of the
 * program can override. */
struct attribute {
    PyObject *descriptor; /* NULL: there is none */
    descrgetfunc get;
};

/* Finds an attribute in a type's own dictionary. No exception is set afterwards. Whether it is
 * there. */
bool attribute_find(PyObject *type, const char *name, struct attribute *out);
/* The attribute's value for an object; new. NULL: there is none. No exception is set afterwards. */
static inline PyObject *attribute_of(const struct attribute *attribute, PyObject *object)
{
    PyObject *value = attribute->get(attribute->descriptor, object, NULL);
    if (__builtin_expect(!value, 0))
        PyErr_Clear();
    return value;
}
void attribute_clear(struct attribute *attribute);
