#include "agent/cpython/repr.h"

#include "agent/cpython/text.h"

#include <string.h>

#define DEPTH_MAX 8 /* of lists in lists */
#define END_ROOM 20 /* what ends an object: `, "...": null}` */
#define CUT "..."

/* Where the text of one value goes. */
struct repr_out {
    char *text;
    size_t size, room;
    bool json; /* escaped as a part of a JSON string */
    bool full;
    int depth;
};

/* ---- bytes ---- */

static bool put(struct repr_out *out, const char *bytes, size_t size)
{
    if (out->full || size > out->room - out->size) {
        out->full = true;
        return false;
    }
    memcpy(out->text + out->size, bytes, size);
    out->size += size;
    return true;
}

static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

static bool put_text(struct repr_out *out, const char *bytes, size_t size)
{
    char json[8];

    for (size_t at = 0, length; at < size; at += length) {
        length = 0;
        while (at + length < size && is_plain((unsigned char)bytes[at + length]))
            length++;
        size_t room = out->room - out->size;
        if (length > room) { /* as much as there is room for */
            put(out, bytes + at, room);
            out->full = true;
            return false;
        }
        if (length) {
            if (!put(out, bytes + at, length))
                return false;
            continue;
        }
        size_t escaped = text_json_character(bytes + at, size - at, json, &length);
        if (!put(out, out->json ? json : bytes + at, out->json ? escaped : length))
            return false;
    }
    return true;
}

static bool put_string(struct repr_out *out, const char *text)
{
    return put_text(out, text, strlen(text));
}

/* ---- values ---- */

/* False: an exception is set. That there is no more room is no failure. */
static bool put_value(struct repr_out *out, PyObject *value);

/* What somebody's repr() returned. */
static bool put_repr(struct repr_out *out, PyObject *value)
{
    _cleanup_unref_ PyObject *repr = PyObject_Repr(value), *plain = NULL, *owner = NULL;
    PyObject *str = repr;
    struct ring_text text;

    if (!repr)
        return false;
    if (!is_exactly(repr, &PyUnicode_Type))
        str = plain = PyUnicode_FromObject(repr); /* of a subclass */
    if (str && text_of(str, &text, &owner))
        put_text(out, text.bytes, text.size);
    return str;
}

/* A long str or bytes: no more of it is shown than there is room for. */
static bool put_begin(struct repr_out *out, PyObject *value, Py_ssize_t length)
{
    if (length <= (Py_ssize_t)RING_TEXT_MAX)
        return put_repr(out, value);
    _cleanup_unref_ PyObject *begin = PySequence_GetSlice(value, 0, RING_TEXT_MAX);
    out->full = !begin || !put_repr(out, begin) || out->full;
    return begin;
}

/* Items are held: what repr() runs may take them out. */
static bool put_item(struct repr_out *out, bool first, PyObject *key, PyObject *value)
{
    bool fine = true;

    if (!first)
        put_string(out, ", ");
    if (key) {
        fine = put_value(out, key);
        put_string(out, ": ");
    }
    return fine && put_value(out, value);
}

static bool put_sequence(struct repr_out *out, PyObject *value)
{
    bool is_list = PyList_CheckExact(value), fine = true;
    Py_ssize_t i;

    put_string(out, is_list ? "[" : "(");
    for (i = 0; fine && !out->full && i < PySequence_Size(value); i++) {
        PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
        Py_IncRef(item);
        fine = item && put_item(out, i == 0, NULL, item);
        Py_DecRef(item);
    }
    put_string(out, is_list ? "]" : i == 1 ? ",)" : ")");
    return fine;
}

static bool put_dict(struct repr_out *out, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, size = PyDict_Size(dict);
    bool fine = true;

    put_string(out, "{");
    for (bool first = true;
         fine && !out->full && PyDict_Size(dict) == size && PyDict_Next(dict, &at, &key, &value);
         first = false) {
        Py_IncRef(key);
        Py_IncRef(value);
        fine = put_item(out, first, key, value);
        Py_DecRef(key);
        Py_DecRef(value);
    }
    put_string(out, "}");
    return fine;
}

static bool put_set(struct repr_out *out, PyObject *set)
{
    bool frozen = PyFrozenSet_CheckExact(set), fine = true;
    _cleanup_unref_ PyObject *iterator = PyObject_GetIter(set);
    PyObject *item;

    if (!iterator)
        return false;
    if (PySet_Size(set) == 0)
        return put_repr(out, set);
    put_string(out, frozen ? "frozenset({" : "{");
    for (bool first = true; fine && !out->full && (item = PyIter_Next(iterator)); first = false) {
        fine = put_item(out, first, NULL, item);
        Py_DecRef(item);
    }
    put_string(out, frozen ? "})" : "}");
    return fine && !PyErr_Occurred();
}

static bool put_container(struct repr_out *out, PyObject *value)
{
    if (out->depth == DEPTH_MAX)
        return put_string(out, CUT) || true;
    if (Py_EnterRecursiveCall(" while a value is shown"))
        return false;
    out->depth++;
    bool fine = PyDict_CheckExact(value)                                ? put_dict(out, value)
                : PyList_CheckExact(value) || PyTuple_CheckExact(value) ? put_sequence(out, value)
                                                                        : put_set(out, value);
    out->depth--;
    Py_LeaveRecursiveCall();
    return fine;
}

static bool put_value(struct repr_out *out, PyObject *value)
{
    if (out->full)
        return true;
    if (PyUnicode_CheckExact(value))
        return put_begin(out, value, PyUnicode_GetLength(value));
    if (PyBytes_CheckExact(value) || PyByteArray_CheckExact(value))
        return put_begin(out, value, PySequence_Size(value));
    if (PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value) ||
        Py_TYPE(value) == &PySet_Type || PyFrozenSet_CheckExact(value))
        return put_container(out, value);
    return put_repr(out, value);
}

/* ---- for rows ---- */

bool repr_value(PyObject *value, char text[RING_TEXT_MAX], size_t *size)
{
    struct repr_out out = {.text = text, .room = RING_TEXT_MAX - sizeof CUT};

    *size = 0;
    if (!put_value(&out, value))
        return false;
    if (out.full) {
        memcpy(text + out.size, CUT, sizeof CUT - 1);
        out.size += sizeof CUT - 1;
    }
    *size = out.size;
    return true;
}

void repr_begin(struct repr *repr)
{
    repr->text[0] = '{';
    repr->size = 1;
    repr->values = 0;
    repr->full = false;
}

/* Undoes what was written since. */
static bool leave_out(struct repr *repr, size_t size)
{
    repr->size = size;
    repr->full = true;
    return true;
}

/* value, or, NULL, these bytes of its text; both NULL: null. */
static bool add(struct repr *repr, const char *name, PyObject *value, const char *bytes,
                size_t size)
{
    struct repr_out out = {
        .text = repr->text, .size = repr->size, .room = RING_TEXT_MAX - END_ROOM, .json = true};
    size_t before = repr->size;
    bool fine = true;

    if (repr->full)
        return true;
    if (repr->values)
        put(&out, ", ", 2);
    put(&out, "\"", 1);
    put_string(&out, name);
    put(&out, "\": \"", 4);
    size_t begin = out.size;
    if (out.full || out.room - begin < 8)
        return leave_out(repr, before);
    out.room -= 4; /* `..."` */
    if (value)
        fine = put_value(&out, value);
    else
        put_text(&out, bytes, size);
    out.room += 4;
    if ((!value && !bytes) || !fine) {
        memcpy(repr->text + begin - 1, "null", 4);
        out.size = begin + 3;
    } else {
        bool cut = out.full;
        out.full = false;
        if (cut)
            put(&out, CUT, 3);
        put(&out, "\"", 1);
    }
    repr->size = out.size;
    repr->values++;
    return fine;
}

bool repr_add(struct repr *repr, const char *name, PyObject *value)
{
    return add(repr, name, value, NULL, 0);
}

void repr_add_text(struct repr *repr, const char *name, const struct ring_text *text)
{
    add(repr, name, NULL, text->bytes, text->size);
}

void repr_end(struct repr *repr)
{
    static const char cut[] = ", \"...\": null}";
    size_t skip = repr->values ? 0 : 2;

    if (repr->full) {
        memcpy(repr->text + repr->size, cut + skip, sizeof cut - 1 - skip);
        repr->size += sizeof cut - 1 - skip;
    } else {
        repr->text[repr->size++] = '}';
    }
}
