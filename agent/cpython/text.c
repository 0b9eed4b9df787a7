#include "agent/cpython/text.h"

#include <stdio.h>
#include <string.h>

bool text_of(PyObject *str, struct ring_text *out, PyObject **owner)
{
    Py_ssize_t size;

    *out = (struct ring_text){0};
    *owner = NULL;
    if (!str || !is_exactly(str, &PyUnicode_Type))
        return false;
    if (PyUnicode_GetLength(str) > (Py_ssize_t)RING_TEXT_MAX + 1)
        *owner =
            PyUnicode_Substring(str, 0,
                                RING_TEXT_MAX + 1); /* the bytes of a long one would stay with it */
    else
        Py_IncRef(*owner = str);
    const char *bytes = *owner ? PyUnicode_AsUTF8AndSize(*owner, &size) : NULL;
    if (!bytes && *owner) {
        PyErr_Clear();
        PyObject *encoded = PyUnicode_AsEncodedString(*owner, "utf-8", "backslashreplace");
        Py_DecRef(*owner);
        *owner = encoded;
        bytes = encoded ? PyBytes_AsString(encoded) : NULL;
        size = encoded ? PyBytes_Size(encoded) : 0;
    }
    if (!bytes) {
        PyErr_Clear();
        return false;
    }
    *out = (struct ring_text){bytes, (size_t)size};
    return true;
}

size_t text_json_character(const char *bytes, size_t left, char out[8], size_t *used)
{
    unsigned char c = (unsigned char)*bytes;
    size_t size = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    *used = size <= left ? size : left;
    if (c == '"' || c == '\\')
        return (size_t)snprintf(out, 8, "\\%c", c);
    if (c < 0x20 || c == 0x7f)
        return (size_t)snprintf(out, 8, "\\u%04x", c);
    memcpy(out, bytes, *used);
    return *used;
}

bool attribute_find(PyObject *type, const char *name, struct attribute *out)
{
    _cleanup_unref_ PyObject *dict = PyObject_GetAttrString(type, "__dict__");
    PyObject *found = dict ? PyMapping_GetItemString(dict, name) : NULL;

    PyErr_Clear();
    *out = (struct attribute){found,
                              found ? (descrgetfunc)PyType_GetSlot(Py_TYPE(found), Py_tp_descr_get)
                                    : NULL};
    return out->get;
}

void attribute_clear(struct attribute *attribute) { python_clear(&attribute->descriptor); }
