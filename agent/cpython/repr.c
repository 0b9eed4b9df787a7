#include "agent/cpython/repr.h"

#include "agent/cpython/text.h"

#include <string.h>

#define DEPTH_MAX 8 /* of lists in lists */
#define END_ROOM 20 /* what ends an object: `, "...": null}` */
#define CUT "..."

/* Where the text of one value goes. */
struct signal_stack {
    char *text;
    size_t size, room;
    bool json; /* escaped as a part of a JSON string */
    bool full;
    int depth;
};

/* ---- bytes ---- */

static bool put(struct signal_stack *writer, const char *bytes, size_t size)
{
    if (writer->full || size > writer->room - writer->size) {
        writer->full = true;
        return false;
    }
    memcpy(writer->text + writer->size, bytes, size);
    writer->size += size;
    return true;
}

static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

static bool put_text(struct signal_stack *writer, const char *bytes, size_t size)
{
    char out[8];

    for (size_t at = 0, length; at < size; at += length) {
        length = 0;
        while (at + length < size && is_plain((unsigned char)bytes[at + length]))
            length++;
        size_t room = writer->room - writer->size;
        if (length > room) { /* as much as there is room for */
            put(writer, bytes + at, room);
            writer->full = true;
            return false;
        }
        if (length) {
            if (!put(writer, bytes + at, length))
                return false;
            continue;
        }
        size_t escaped = text_json_character(bytes + at, size - at, out, &length);
        if (!put(writer, writer->json ? out : bytes + at, writer->json ? escaped : length))
            return false;
    }
    return true;
}

static bool put_string(struct signal_stack *writer, const char *text)
{
    return put_text(writer, text, strlen(text));
}

/* ---- values ---- */

/* False: an exception is set. That there is no more room is no failure. */
static bool put_value(struct signal_stack *writer, PyObject *value);

/* What somebody's repr() returned. */
static bool put_repr(struct signal_stack *writer, PyObject *value)
{
    _cleanup_unref_ PyObject *repr = PyObject_Repr(value), *owner = NULL;
    struct ring_text text;

    if (!repr)
        return false;
    _cleanup_unref_ PyObject *plain = PyUnicode_FromObject(repr); /* of a subclass */
    if (plain && text_of(plain, &text, &owner))
        put_text(writer, text.bytes, text.size);
    return plain;
}

/* A long str or bytes: no more of it is shown than there is room for. */
static bool put_begin(struct signal_stack *writer, PyObject *value, Py_ssize_t length)
{
    if (length <= (Py_ssize_t)RING_TEXT_MAX)
        return put_repr(writer, value);
    _cleanup_unref_ PyObject *begin = PySequence_GetSlice(value, 0, RING_TEXT_MAX);
    writer->full = !begin || !put_repr(writer, begin) || writer->full;
    return begin;
}

/* Items are held: what repr() runs may take them out. */
static bool put_item(struct signal_stack *writer, bool first, PyObject *key, PyObject *value)
{
    bool fine = true;

    if (!first)
        put_string(writer, ", ");
    if (key) {
        fine = put_value(writer, key);
        put_string(writer, ": ");
    }
    return fine && put_value(writer, value);
}

static bool put_sequence(struct signal_stack *writer, PyObject *value)
{
    bool is_list = PyList_CheckExact(value), fine = true;
    Py_ssize_t i;

    put_string(writer, is_list ? "[" : "(");
    for (i = 0; fine && !writer->full && i < PySequence_Size(value); i++) {
        PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
        Py_IncRef(item);
        fine = item && put_item(writer, i == 0, NULL, item);
        Py_DecRef(item);
    }
    put_string(writer, is_list ? "]" : i == 1 ? ",)" : ")");
    return fine;
}

static bool put_dict(struct signal_stack *writer, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, size = PyDict_Size(dict);
    bool fine = true;

    put_string(writer, "{");
    for (bool first = true;
         fine && !writer->full && PyDict_Size(dict) == size && PyDict_Next(dict, &at, &key, &value);
         first = false) {
        Py_IncRef(key);
        Py_IncRef(value);
        fine = put_item(writer, first, key, value);
        Py_DecRef(key);
        Py_DecRef(value);
    }
    put_string(writer, "}");
    return fine;
}

static bool put_set(struct signal_stack *writer, PyObject *set)
{
    bool frozen = PyFrozenSet_CheckExact(set), fine = true;
    _cleanup_unref_ PyObject *iterator = PyObject_GetIter(set);
    PyObject *item;

    if (!iterator)
        return false;
    if (PySet_Size(set) == 0)
        return put_repr(writer, set);
    put_string(writer, frozen ? "frozenset({" : "{");
    for (bool first = true; fine && !writer->full && (item = PyIter_Next(iterator));
         first = false) {
        fine = put_item(writer, first, NULL, item);
        Py_DecRef(item);
    }
    put_string(writer, frozen ? "})" : "}");
    return fine && !PyErr_Occurred();
}

static bool put_container(struct signal_stack *writer, PyObject *value)
{
    if (writer->depth == DEPTH_MAX)
        return put_string(writer, CUT) || true;
    if (Py_EnterRecursiveCall(" while a value is shown"))
        return false;
    writer->depth++;
    bool fine = PyDict_CheckExact(value) ? put_dict(writer, value)
                : PyList_CheckExact(value) || PyTuple_CheckExact(value)
                    ? put_sequence(writer, value)
                    : put_set(writer, value);
    writer->depth--;
    Py_LeaveRecursiveCall();
    return fine;
}

static bool put_value(struct signal_stack *writer, PyObject *value)
{
    if (writer->full)
        return true;
    if (PyUnicode_CheckExact(value))
        return put_begin(writer, value, PyUnicode_GetLength(value));
    if (PyBytes_CheckExact(value) || PyByteArray_CheckExact(value))
        return put_begin(writer, value, PySequence_Size(value));
    if (PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value) ||
        Py_TYPE(value) == &PySet_Type || PyFrozenSet_CheckExact(value))
        return put_container(writer, value);
    return put_repr(writer, value);
}

/* ---- for rows ---- */

bool repr_value(PyObject *value, char out[RING_TEXT_MAX], size_t *size)
{
    struct signal_stack writer = {.text = out, .room = RING_TEXT_MAX - sizeof CUT};

    *size = 0;
    if (!put_value(&writer, value))
        return false;
    if (writer.full) {
        memcpy(out + writer.size, CUT, sizeof CUT - 1);
        writer.size += sizeof CUT - 1;
    }
    *size = writer.size;
    return true;
}

void repr_begin(struct repr *captured)
{
    captured->text[0] = '{';
    captured->size = 1;
    captured->values = 0;
    captured->full = false;
}

/* Undoes what was written since. */
static bool leave_out(struct repr *captured, size_t size)
{
    captured->size = size;
    captured->full = true;
    return true;
}

/* value, or, NULL, these bytes of its text; both NULL: null. */
static bool add(struct repr *captured, const char *name, PyObject *value, const char *bytes,
                size_t size)
{
    struct signal_stack writer = {.text = captured->text,
                                  .size = captured->size,
                                  .room = RING_TEXT_MAX - END_ROOM,
                                  .json = true};
    size_t before = captured->size;
    bool fine = true;

    if (captured->full)
        return true;
    put(&writer, ", \"", captured->values ? 3 : 0);
    put(&writer, "\"", captured->values ? 0 : 1);
    put_string(&writer, name);
    put(&writer, "\": \"", 4);
    size_t begin = writer.size;
    if (writer.full || writer.room - begin < 8)
        return leave_out(captured, before);
    writer.room -= 4; /* `..."` */
    if (value)
        fine = put_value(&writer, value);
    else
        put_text(&writer, bytes, size);
    writer.room += 4;
    if ((!value && !bytes) || !fine) {
        memcpy(captured->text + begin - 1, "null", 4);
        writer.size = begin + 3;
    } else {
        bool cut = writer.full;
        writer.full = false;
        put(&writer, CUT, cut ? 3 : 0);
        put(&writer, "\"", 1);
    }
    captured->size = writer.size;
    captured->values++;
    return fine;
}

bool repr_add(struct repr *captured, const char *name, PyObject *value)
{
    return add(captured, name, value, NULL, 0);
}

void repr_add_text(struct repr *captured, const char *name, const struct ring_text *text)
{
    add(captured, name, NULL, text->bytes, text->size);
}

void repr_end(struct repr *captured)
{
    static const char cut[] = ", \"...\": null}";
    size_t skip = captured->values ? 0 : 2;

    if (captured->full) {
        memcpy(captured->text + captured->size, cut + skip, sizeof cut - 1 - skip);
        captured->size += sizeof cut - 1 - skip;
    } else {
        captured->text[captured->size++] = '}';
    }
}
