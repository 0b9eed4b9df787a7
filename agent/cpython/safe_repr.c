/* Types are compared, never asked: `isinstance`, an attribute or a method of an object may be the
 * program's. What belongs to a container is held while it is shown, since an allocation may run the
 * collector, and that destructors. */
#include "agent/cpython/safe_repr.h"

#include "agent/cpython/look_up.h"

#include <stdarg.h>
#include <stdio.h>

#define CUT "..."
#define OBJECT_CUT "<...>"

static bool is_full(const struct safe_repr *out)
{
    return out->size + sizeof CUT > sizeof out->bytes;
}

/* What doesn't fit is cut at a whole character, and there "..." stands. */
static void put_bytes(struct safe_repr *out, const char *bytes, size_t size)
{
    size_t room = sizeof out->bytes - sizeof CUT - out->size;

    if (is_full(out))
        return;
    if (size <= room) {
        memcpy(out->bytes + out->size, bytes, size);
        out->size += size;
        return;
    }
    while (room && ((unsigned char)bytes[room] & 0xc0) == 0x80)
        room--;
    memcpy(out->bytes + out->size, bytes, room);
    memcpy(out->bytes + out->size + room, CUT, sizeof CUT - 1);
    out->size = sizeof out->bytes;
}

static void put(struct safe_repr *out, const char *text) { put_bytes(out, text, strlen(text)); }

__attribute__((format(printf, 2, 3))) static void put_format(struct safe_repr *out,
                                                             const char *format, ...)
{
    char text[128];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(out, text);
}

/* Takes over the str; NULL, with an exception: it could not be made. */
static void put_str(struct safe_repr *out, PyObject *str)
{
    struct ring_text text;
    _cleanup_unref_ PyObject *owner = NULL;

    PyErr_Clear();
    if (text_of(str, &text, &owner))
        put_bytes(out, text.bytes, text.size);
    else
        put(out, "<unreadable>");
    Py_DecRef(str);
}

static void show_value(struct safe_repr *out, PyObject *value, unsigned depth);

/* ---- names ---- */

static void put_type(struct safe_repr *out, PyObject *type)
{
    _cleanup_unref_ PyObject *module = attribute_of(&out->raised->module, type);
    PyObject *name = attribute_of(&out->raised->qualname, type);

    if (module && is_exactly(module, &PyUnicode_Type) &&
        PyUnicode_CompareWithASCIIString(module, "builtins")) {
        Py_IncRef(module);
        put_str(out, module);
        put(out, ".");
    }
    put_str(out, name);
}

static void put_object(struct safe_repr *out, PyObject *value)
{
    put(out, "<");
    put_type(out, (PyObject *)Py_TYPE(value));
    put_format(out, " object at %p>", (void *)value);
}

/* ---- what has no parts ---- */

static PyObject *own_repr(PyTypeObject *type, PyObject *value)
{
    reprfunc repr = (reprfunc)PyType_GetSlot(type, Py_tp_repr);
    return repr ? repr(value) : NULL;
}

static void show_int(struct safe_repr *out, PyObject *value, unsigned depth)
{
    int overflow = 0;

    PyLong_AsLongLongAndOverflow(value, &overflow);
    PyErr_Clear();
    if (overflow) {
        PyObject *count = PyObject_CallMethod((PyObject *)&PyLong_Type, "bit_length", "O", value);
        long bits = count ? PyLong_AsLong(count) : -1;
        Py_DecRef(count);
        PyErr_Clear();
        if (bits < 0 || bits > SAFE_REPR_BITS_MAX) {
            put_format(out, "<int of %ld bits>", bits);
            return;
        }
    }
    put_str(out, own_repr(&PyLong_Type, value));
}

static void show_number(struct safe_repr *out, PyObject *value, unsigned depth)
{
    put_str(out,
            own_repr(PyObject_TypeCheck(value, &PyFloat_Type) ? &PyFloat_Type : &PyComplex_Type,
                     value));
}

/* "... 25,523 items": how many there are of what was cut; `what` is one of them. */
static void put_count(struct safe_repr *out, Py_ssize_t n, const char *what)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%zd", n);

    put(out, CUT " ");
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            put(out, ",");
        put_bytes(out, &digits[i], 1);
    }
    put_format(out, " %s%s", what, n == 1 ? "" : "s");
}

/* The first part of a string of `size` of what is said. */
static void put_part(struct safe_repr *out, PyObject *part, Py_ssize_t size, const char *what)
{
    put_str(out, part ? PyObject_Repr(part) : NULL);
    if (size > SAFE_REPR_STRING_MAX)
        put_count(out, size, what);
}

static void show_str(struct safe_repr *out, PyObject *value, unsigned depth)
{
    Py_ssize_t length = PyUnicode_GetLength(value);
    _cleanup_unref_ PyObject *part = PyUnicode_Substring(value, 0, SAFE_REPR_STRING_MAX);
    put_part(out, part, length, "character");
}

static void put_octets(struct safe_repr *out, const char *bytes, Py_ssize_t size)
{
    _cleanup_unref_ PyObject *part =
        PyBytes_FromStringAndSize(bytes, size < SAFE_REPR_STRING_MAX ? size : SAFE_REPR_STRING_MAX);
    put_part(out, part, size, "byte");
}

static void show_bytes(struct safe_repr *out, PyObject *value, unsigned depth)
{
    put_octets(out, PyBytes_AsString(value), PyBytes_Size(value));
}

static void show_bytearray(struct safe_repr *out, PyObject *value, unsigned depth)
{
    put(out, "bytearray(");
    put_octets(out, PyByteArray_AsString(value), PyByteArray_Size(value));
    put(out, ")");
}

static void show_type(struct safe_repr *out, PyObject *value, unsigned depth)
{
    put(out, "<class '");
    put_type(out, value);
    put(out, "'>");
}

static void show_module(struct safe_repr *out, PyObject *value, unsigned depth)
{
    PyObject *name = PyModule_GetNameObject(value);
    put(out, "<module '");
    put_str(out, name && is_exactly(name, &PyUnicode_Type) ? name : NULL);
    put(out, "'>");
}

/* ---- containers ---- */

/* Whether a container that isn't empty is one of those that hold it, or nothing of it is to be
 * shown: then that is all of it. */
static bool is_cut(struct safe_repr *out, PyObject *value, unsigned depth, Py_ssize_t size,
                   const char *recursion)
{
    if (size <= 0)
        return false;
    for (unsigned i = 0; i < depth && i < SAFE_REPR_DEPTH_MAX; i++)
        if (out->path[i] == value) {
            put(out, recursion);
            return true;
        }
    if (depth < SAFE_REPR_DEPTH_MAX && out->nodes)
        return false;
    put_bytes(out, recursion, 1);
    put_count(out, size, "item");
    put(out, recursion + strlen(recursion) - 1);
    return true;
}

/* Shows one of n objects that are still to come, by its share of what may still be shown. */
static void show_share(struct safe_repr *out, PyObject *value, unsigned depth, Py_ssize_t n)
{
    unsigned parts = n > 1 ? (unsigned)n : 1;
    unsigned share = (out->nodes + parts - 1) / parts, rest = out->nodes - share;

    out->nodes = share;
    show_value(out, value, depth);
    out->nodes += rest;
}

/* How many of so many items are shown. */
static Py_ssize_t items_shown(Py_ssize_t size)
{
    return size < SAFE_REPR_ITEMS_MAX ? size : SAFE_REPR_ITEMS_MAX;
}

/* The beginning of the next one of n items; false: no more of them. */
static bool begin_item(struct safe_repr *out, Py_ssize_t i, Py_ssize_t n, const char *what)
{
    if (i > 0)
        put(out, ", ");
    if (i < SAFE_REPR_ITEMS_MAX && out->nodes && !is_full(out))
        return true;
    put_count(out, n, what);
    return false;
}

static void show_items(struct safe_repr *out, PyObject *value,
                       PyObject *(*item)(PyObject *, Py_ssize_t), Py_ssize_t (*size)(PyObject *),
                       unsigned depth)
{
    Py_ssize_t n = items_shown(size(value));

    for (Py_ssize_t i = 0; i < size(value) && begin_item(out, i, size(value), "item"); i++) {
        _cleanup_unref_ PyObject *each = item(value, i);
        Py_IncRef(each);
        show_share(out, each, depth + 1, n - i);
    }
}

static void show_list(struct safe_repr *out, PyObject *value, unsigned depth)
{
    if (is_cut(out, value, depth, PyList_Size(value), "[...]"))
        return;
    put(out, "[");
    show_items(out, value, PyList_GetItem, PyList_Size, depth);
    put(out, "]");
}

static void show_tuple(struct safe_repr *out, PyObject *value, unsigned depth)
{
    if (is_cut(out, value, depth, PyTuple_Size(value), "(...)"))
        return;
    put(out, "(");
    show_items(out, value, PyTuple_GetItem, PyTuple_Size, depth);
    put(out, PyTuple_Size(value) == 1 ? ",)" : ")");
}

/* The pairs of a dict; as attributes: names without quotes, and `=`. */
static void show_pairs(struct safe_repr *out, PyObject *dict, bool attributes, unsigned depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, n = items_shown(PyDict_Size(dict));

    for (Py_ssize_t i = 0; PyDict_Next(dict, &at, &key, &value) &&
                           begin_item(out, i, PyDict_Size(dict), attributes ? "attribute" : "item");
         i++) {
        Py_IncRef(key);
        Py_IncRef(value);
        if (attributes && is_exactly(key, &PyUnicode_Type)) {
            put_str(out, PyUnicode_Substring(key, 0, SAFE_REPR_STRING_MAX));
            put(out, "=");
        } else {
            show_share(out, key, depth + 1, 2 * (n - i));
            put(out, ": ");
        }
        show_share(out, value, depth + 1, attributes ? n - i : 2 * (n - i) - 1);
        Py_DecRef(key);
        Py_DecRef(value);
    }
}

static void show_dict(struct safe_repr *out, PyObject *value, unsigned depth)
{
    if (is_cut(out, value, depth, PyDict_Size(value), "{...}"))
        return;
    put(out, "{");
    show_pairs(out, value, false, depth);
    put(out, "}");
}

/* Shows the members of a set as the built-in type iterates; a subclass may have other ideas. */
static void show_members(struct safe_repr *out, PyTypeObject *type, PyObject *set, unsigned depth)
{
    if (is_cut(out, set, depth, PySet_Size(set), "{...}"))
        return;
    getiterfunc iterate = (getiterfunc)PyType_GetSlot(type, Py_tp_iter);
    _cleanup_unref_ PyObject *members = iterate ? iterate(set) : NULL;
    iternextfunc next = members ? (iternextfunc)PyType_GetSlot(Py_TYPE(members), Py_tp_iternext)
                                : NULL;

    Py_ssize_t n = items_shown(PySet_Size(set));
    put(out, "{");
    for (Py_ssize_t i = 0; next; i++) {
        _cleanup_unref_ PyObject *each = next(members);
        if (!each || !begin_item(out, i, PySet_Size(set), "item"))
            break;
        show_share(out, each, depth + 1, n - i);
    }
    put(out, "}");
    PyErr_Clear();
}

static void show_set(struct safe_repr *out, PyObject *value, unsigned depth)
{
    if (PySet_Size(value) == 0)
        put(out, "set()");
    else
        show_members(out, &PySet_Type, value, depth);
}

static void show_frozenset(struct safe_repr *out, PyObject *value, unsigned depth)
{
    put(out, "frozenset(");
    if (PySet_Size(value) > 0)
        show_members(out, &PyFrozenSet_Type, value, depth);
    put(out, ")");
}

/* Outside of containers: the attributes of an object. */
static void show_attributes(struct safe_repr *out, PyObject *value, unsigned depth)
{
    if (depth > 0 || !out->attributes)
        return;
    _cleanup_unref_ PyObject *attributes = PyObject_GenericGetDict(value, NULL);
    PyErr_Clear();
    if (!attributes || !is_exactly(attributes, &PyDict_Type) || PyDict_Size(attributes) == 0)
        return;
    put(out, " {");
    show_pairs(out, attributes, true, depth);
    put(out, "}");
}

/* ---- all of them ---- */

/* Types of which subclasses are shown as Type(VALUE). */
static const struct {
    PyTypeObject *type;
    void (*show)(struct safe_repr *out, PyObject *value, unsigned depth);
} kinds[] = {
    {&PyUnicode_Type, show_str},         {&PyLong_Type, show_int},
    {&PyFloat_Type, show_number},        {&PyDict_Type, show_dict},
    {&PyList_Type, show_list},           {&PyTuple_Type, show_tuple},
    {&PyBytes_Type, show_bytes},         {&PySet_Type, show_set},
    {&PyFrozenSet_Type, show_frozenset}, {&PyByteArray_Type, show_bytearray},
    {&PyComplex_Type, show_number},
};

static bool show_builtin(struct safe_repr *out, PyObject *value, unsigned depth)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (!PyObject_TypeCheck(value, kinds[i].type))
            continue;
        bool exact = is_exactly(value, kinds[i].type);
        if (!exact) {
            put_type(out, (PyObject *)Py_TYPE(value));
            put(out, "(");
        }
        kinds[i].show(out, value, depth);
        if (!exact) {
            put(out, ")");
            show_attributes(out, value, depth);
        }
        return true;
    }
    return false;
}

/* Types whose repr() is CPython's own and looks at nothing of the program's. */
static bool is_plain(PyObject *value)
{
    static void *function, *code; /* types that the limited API lacks */

    if (!function)
        function = looked_up.PyFunction_Type;
    if (!code)
        code = looked_up.PyCode_Type;
    const void *type = Py_TYPE(value);
    return value == Py_None || value == Py_Ellipsis || type == &PyBool_Type ||
           type == &PyCFunction_Type || type == function || type == code;
}

static void show_exception(struct safe_repr *out, PyObject *value, unsigned depth)
{
    _cleanup_unref_ PyObject *args = attribute_of(&out->raised->args, value);

    put_str(out, attribute_of(&out->raised->qualname, (PyObject *)Py_TYPE(value)));
    put(out, "(");
    if (args && is_exactly(args, &PyTuple_Type) && PyTuple_Size(args) > 0 &&
        (depth >= SAFE_REPR_DEPTH_MAX || !out->nodes))
        put(out, OBJECT_CUT);
    else if (args && is_exactly(args, &PyTuple_Type))
        show_items(out, args, PyTuple_GetItem, PyTuple_Size, depth);
    put(out, ")");
    show_attributes(out, value, depth);
}

static bool is_one(PyObject *number)
{
    return is_exactly(number, &PyLong_Type) && PyLong_AsLong(number) == 1;
}

/* range(0, 3), slice(None, 2, None) */
static void show_bounds(struct safe_repr *out, PyObject *value, unsigned depth)
{
    static const char *const names[] = {"start", "stop", "step"};

    put_type(out, (PyObject *)Py_TYPE(value));
    put(out, "(");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_unref_ PyObject *bound = PyObject_GetAttrString(value, names[i]);
        PyErr_Clear();
        if (!bound || (i == 2 && is_exactly(value, &PyRange_Type) && is_one(bound)))
            break;
        put(out, i ? ", " : "");
        show_value(out, bound, depth + 1);
    }
    put(out, ")");
}

static void show_value(struct safe_repr *out, PyObject *value, unsigned depth)
{
    if (out->nodes == 0 || is_full(out)) {
        put(out, OBJECT_CUT);
        return;
    }
    out->nodes--;
    if (depth < SAFE_REPR_DEPTH_MAX)
        out->path[depth] = value;
    if (is_plain(value)) {
        put_str(out, PyObject_Repr(value));
    } else if (show_builtin(out, value, depth)) {
        return;
    } else if (PyObject_TypeCheck(value, &PyType_Type)) {
        show_type(out, value, depth);
    } else if (is_exactly(value, &PyModule_Type)) {
        show_module(out, value, depth);
    } else if (PyObject_TypeCheck(value, (PyTypeObject *)PyExc_BaseException)) {
        show_exception(out, value, depth);
    } else if (is_exactly(value, &PyRange_Type) || is_exactly(value, &PySlice_Type)) {
        show_bounds(out, value, depth);
    } else {
        put_object(out, value);
        show_attributes(out, value, depth);
    }
}

static void begin(struct safe_repr *out, const struct exception_text *raised, PyObject *value,
                  bool attributes)
{
    out->raised = raised;
    out->nodes = SAFE_REPR_NODES_MAX;
    out->attributes = attributes;
    out->size = 0;
    show_value(out, value, 0);
}

void safe_repr(struct safe_repr *out, const struct exception_text *raised, PyObject *value)
{
    begin(out, raised, value, true);
}

void safe_repr_parts(struct safe_repr *out, const struct exception_text *raised, PyObject *value)
{
    begin(out, raised, value, false);
}
