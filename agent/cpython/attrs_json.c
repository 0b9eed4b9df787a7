#include "agent/cpython/attrs_json.h"

#include "agent/cpython/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 4       /* of lists in lists */
#define CLOSING 13        /* room that each open container keeps: `,"...":null}` */
#define STRING_LEAST 16   /* of a string that must be cut, so much at least is shown */
#define INTEGER_BITS 1024 /* a longer one is not written in full: that takes long */

/* What is written. Whatever says no has written nothing. */
struct json {
    char *text;
    size_t size, room; /* room: how large it may become */
    unsigned depth;
};

static bool put(struct json *json, const char *bytes, size_t size)
{
    if (size > json->room - json->size)
        return false;
    memcpy(json->text + json->size, bytes, size);
    json->size += size;
    return true;
}

static bool put_text(struct json *json, const char *text) { return put(json, text, strlen(text)); }

/* ---- strings ---- */

/* Adds a string, as much of it as there is room for. */
static bool put_escaped(struct json *json, const char *bytes, size_t size, bool whole)
{
    static const char end[] = "...\"";
    size_t begin = json->size, at = 0, cut = 0, used;
    char escaped[8];

    if (!put(json, "\"", 1))
        return false;
    while (at < size) {
        size_t length = text_json_character(bytes + at, size - at, escaped, &used);
        if (json->room - json->size >= sizeof end - 1)
            cut = json->size; /* here it could end */
        if (!put(json, escaped, length))
            break;
        at += used;
    }
    if (at == size && whole && put(json, "\"", 1))
        return true;
    if (at == size && json->room - json->size >= sizeof end - 1)
        cut = json->size;
    json->size = cut;
    if (cut >= begin + STRING_LEAST && put(json, end, sizeof end - 1))
        return true;
    json->size = begin;
    return false;
}

/* PyUnicode_Check(), also of a subclass, whose own methods aren't asked. */
static bool put_string(struct json *json, PyObject *string)
{
    bool whole = PyUnicode_GetLength(string) <= (Py_ssize_t)ATTRS_JSON_MAX;
    _cleanup_unref_ PyObject *owner = NULL,
                             *plain = whole ? PyUnicode_FromObject(string)
                                            : PyUnicode_Substring(string, 0, ATTRS_JSON_MAX);
    struct ring_text text;

    PyErr_Clear();
    if (text_of(plain, &text, &owner))
        return put_escaped(json, text.bytes, text.size, whole);
    return put_text(json, "\"<str>\"");
}

/* ---- what can't be shown ---- */

/* An attribute of a type by type's own descriptor: asking for it could run a metaclass's code. */
static PyObject *type_attribute(PyTypeObject *type, const char *name)
{
    struct attribute attribute;
    PyObject *value = attribute_find((PyObject *)&PyType_Type, name, &attribute)
                          ? attribute_of(&attribute, (PyObject *)type)
                          : NULL;
    attribute_clear(&attribute);
    return value;
}

static bool put_type(struct json *json, PyObject *value)
{
    _cleanup_unref_ PyObject *name = type_attribute(Py_TYPE(value), "__name__");
    _cleanup_unref_ PyObject *shown = name ? PyUnicode_FromFormat("<%U>", name) : NULL;
    if (!shown)
        PyErr_Clear();
    return shown ? put_string(json, shown) : put_text(json, "\"<?>\"");
}

/* ---- numbers ---- */

static bool put_long_integer(struct json *json, PyObject *value)
{
    _cleanup_unref_ PyObject *bits =
        PyObject_CallMethod((PyObject *)&PyLong_Type, "bit_length", "O", value);
    long count = bits ? PyLong_AsLong(bits) : -1;
    _cleanup_unref_ PyObject *digits =
        count > 0 && count <= INTEGER_BITS ? PyNumber_ToBase(value, 10) : NULL;
    Py_ssize_t size;
    const char *text = digits ? PyUnicode_AsUTF8AndSize(digits, &size) : NULL;
    char words[64];

    PyErr_Clear();
    if (text)
        return put(json, text, (size_t)size);
    snprintf(words, sizeof words, "\"<int of %ld bits>\"", count);
    return put_text(json, words);
}

/* PyLong_Check(). */
static bool put_integer(struct json *json, PyObject *value)
{
    int overflow;
    char digits[32];
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);

    if (overflow)
        return put_long_integer(json, value);
    snprintf(digits, sizeof digits, "%lld", number);
    return put_text(json, digits);
}

static bool put_real(struct json *json, double number)
{
    if (isnan(number))
        return put_text(json, "\"NaN\"");
    if (isinf(number))
        return put_text(json, number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    char *digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (!digits) {
        PyErr_Clear();
        return put_text(json, "null");
    }
    bool fits = put_text(json, digits);
    PyMem_Free(digits);
    return fits;
}

/* Whether it is one of numpy's own scalars, which convert themselves in C. A static
 * type: no program makes those. */
static bool is_numpy(PyTypeObject *type)
{
    if (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE)
        return false;
    _cleanup_unref_ PyObject *module = type_attribute(type, "__module__");
    bool is = module && PyUnicode_Check(module) &&
              PyUnicode_CompareWithASCIIString(module, "numpy") == 0;
    PyErr_Clear();
    return is;
}

/* A float32 or an int64, say, is a number too; arrays and whatever else aren't. */
static bool put_other(struct json *json, PyObject *value)
{
    if (!is_numpy(Py_TYPE(value)))
        return put_type(json, value);
    _cleanup_unref_ PyObject *name = type_attribute(Py_TYPE(value), "__name__");
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : "";
    bool is_real = text && (strcmp(text, "float32") == 0 || strcmp(text, "float16") == 0);
    bool is_integer = text && (strncmp(text, "int", 3) == 0 || strncmp(text, "uint", 4) == 0);
    _cleanup_unref_ PyObject *number = is_real      ? PyNumber_Float(value)
                                       : is_integer ? PyNumber_Index(value)
                                                    : NULL;
    PyErr_Clear();
    if (!number)
        return put_type(json, value);
    return is_real ? put_real(json, PyFloat_AsDouble(number)) : put_integer(json, number);
}

/* ---- containers ---- */

static bool put_value(struct json *json, PyObject *value);

static bool open_container(struct json *json, char bracket)
{
    if (json->depth == DEPTH_MAX || json->room - json->size < 1 + CLOSING)
        return false;
    json->text[json->size++] = bracket;
    json->room -= CLOSING;
    json->depth++;
    return true;
}

/* more: not all of it is there. */
static void close_container(struct json *json, char bracket, bool more)
{
    json->room += CLOSING;
    json->depth--;
    if (more && json->text[json->size - 1] != '{' && json->text[json->size - 1] != '[')
        json->text[json->size++] = ',';
    if (more)
        put_text(json, bracket == '}' ? "\"...\":null" : "\"...\"");
    json->text[json->size++] = bracket;
}

/* Adds one item, with the comma in front of it; key NULL: of a list. Key and value are the caller's
 * own references, so that what runs meanwhile, if anything, can't free them. */
static bool put_item(struct json *json, bool first, PyObject *key, PyObject *value)
{
    size_t begin = json->size;

    bool fits = first || put(json, ",", 1);
    if (fits && key) {
        fits = PyUnicode_Check(key) ? put_string(json, key) : put_type(json, key);
        fits = fits && put(json, ":", 1);
    }
    if (fits && put_value(json, value))
        return true;
    json->size = begin;
    return false;
}

/* A list or a tuple. */
static bool put_sequence(struct json *json, PyObject *sequence)
{
    bool is_list = PyList_CheckExact(sequence), more = false;

    if (!open_container(json, '['))
        return put_type(json, sequence);
    for (Py_ssize_t i = 0; !more && i < (is_list ? PyList_Size(sequence) : PyTuple_Size(sequence));
         i++) {
        PyObject *item = is_list ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i);
        Py_IncRef(item);
        more = !put_item(json, i == 0, NULL, item);
        Py_DecRef(item);
    }
    close_container(json, ']', more);
    return true;
}

static bool put_dict(struct json *json, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool more = false;

    if (!open_container(json, '{'))
        return put_type(json, dict);
    for (bool first = true; !more && PyDict_Next(dict, &at, &key, &value); first = false) {
        Py_IncRef(key);
        Py_IncRef(value);
        more = !put_item(json, first, key, value);
        Py_DecRef(key);
        Py_DecRef(value);
    }
    close_container(json, '}', more);
    return true;
}

static bool put_value(struct json *json, PyObject *value)
{
    if (value == Py_None)
        return put_text(json, "null");
    if (value == Py_True || value == Py_False)
        return put_text(json, value == Py_True ? "true" : "false");
    if (PyUnicode_Check(value))
        return put_string(json, value);
    if (PyLong_Check(value))
        return put_integer(json, value);
    if (PyFloat_Check(value))
        return put_real(json, PyFloat_AsDouble(value));
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value))
        return put_sequence(json, value);
    return PyDict_CheckExact(value) ? put_dict(json, value) : put_other(json, value);
}

size_t attrs_json_write(PyObject *names, PyObject *const *values, char out[ATTRS_JSON_MAX])
{
    struct json json = {.text = out, .room = ATTRS_JSON_MAX};
    Py_ssize_t count = PyTuple_Size(names);
    bool more = false;

    open_container(&json, '{');
    for (Py_ssize_t i = 0; i < count && !more; i++)
        more = !put_item(&json, i == 0, PyTuple_GetItem(names, i), values[i]);
    close_container(&json, '}', more);
    return json.size;
}

struct ring_text attrs_json_bytes(PyObject *bytes)
{
    char *data;
    Py_ssize_t size;

    if (!bytes || PyBytes_AsStringAndSize(bytes, &data, &size) < 0)
        return (struct ring_text){0};
    return (struct ring_text){data, (size_t)size};
}
