#include "agent/cpython/exception_text.h"

#include "agent/cpython/look_up.h"

#include <errno.h>

static void *str_slot(PyObject *type)
{
    return type ? PyType_GetSlot((PyTypeObject *)type, Py_tp_str) : NULL;
}

/* PyExc_BaseExceptionGroup, since 3.11. */
static PyObject *group_type(void)
{
    PyObject **group = looked_up.PyExc_BaseExceptionGroup;
    return group ? *group : NULL;
}

int exception_text_init(struct exception_text *raised)
{
    static const char *const fields[] = {"errno", "strerror", "filename", "filename2"};

    bool all = attribute_find((PyObject *)&PyType_Type, "__module__", &raised->module) &&
               attribute_find((PyObject *)&PyType_Type, "__qualname__", &raised->qualname) &&
               attribute_find(PyExc_BaseException, "args", &raised->args);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        all = all && attribute_find(PyExc_OSError, fields[i], &raised->error[i]);
    raised->says[SAYS_ARGS] = str_slot(PyExc_BaseException);
    raised->says[SAYS_KEY] = str_slot(PyExc_KeyError);
    raised->says[SAYS_OS] = str_slot(PyExc_OSError);
    raised->says[SAYS_DECODE] = str_slot(PyExc_UnicodeDecodeError);
    raised->says[SAYS_ENCODE] = str_slot(PyExc_UnicodeEncodeError);
    raised->says[SAYS_SYNTAX] = str_slot(PyExc_SyntaxError);
    raised->says[SAYS_GROUP] = str_slot(group_type());
    if (all)
        return 0;
    exception_text_clear(raised);
    return -EOPNOTSUPP;
}

/* ---- types ---- */

static enum exception_text_says says(const struct exception_text *raised, PyObject *type)
{
    void *slot = str_slot(type);

    if (slot == str_slot(PyExc_ImportError))
        return SAYS_ARGS; /* what it has more is not said */
    for (enum exception_text_says i = 0; i < SAYS_OTHERWISE; i++)
        if (slot && slot == raised->says[i])
            return i;
    return SAYS_OTHERWISE;
}

static enum exception_text_ends ends(PyObject *type)
{
    if (type == PyExc_StopIteration || type == PyExc_StopAsyncIteration)
        return ENDS_ITERATION;
    if (type == PyExc_GeneratorExit)
        return ENDS_GENERATOR;
    return PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)PyExc_StopIteration)
               ? ENDS_LIKE_ITERATION
               : ENDS_NOTHING;
}

static PyObject *full_name(const struct exception_text *raised, PyObject *type)
{
    _cleanup_unref_ PyObject *module = attribute_of(&raised->module, type);
    PyObject *name = attribute_of(&raised->qualname, type);

    if (!name || !module || !is_exactly(module, &PyUnicode_Type) ||
        !is_exactly(name, &PyUnicode_Type) ||
        PyUnicode_CompareWithASCIIString(module, "builtins") == 0)
        return name;
    PyObject *full = PyUnicode_FromFormat("%U.%U", module, name);
    PyErr_Clear();
    Py_DecRef(name);
    return full;
}

static void describe(const struct exception_text *raised, PyObject *type,
                     struct exception_type *out)
{
    _cleanup_unref_ PyObject *name = full_name(raised, type);
    text_of(name, &out->name, &out->owner);
    out->says = says(raised, type);
    out->ends = ends(type);
}

const struct exception_type *exception_text_type(struct exception_text *raised, PyObject *exception)
{
    PyObject *type = (PyObject *)Py_TYPE(exception);
    unsigned at = (unsigned)(((uintptr_t)type >> 4) * 0x9e3779b97f4a7c15 >> 40);
    struct exception_type *entry;

    for (; (entry = &raised->types[at % RAISED_SLOTS])->type; at++)
        if (entry->type == type)
            return entry;
    struct exception_type fresh = {0};
    describe(raised, type, &fresh);
    if (fresh.name.bytes && raised->count < RAISED_TYPES) {
        raised->count++;
        Py_IncRef(fresh.type = type);
    } else { /* there is no room, or there was no memory: not for ever */
        entry = &raised->spare;
        python_clear(&entry->owner);
    }
    *entry = fresh;
    return entry;
}

/* ---- messages ---- */

#define LENGTH_MAX 4096 /* characters or bytes of an argument that is formatted */

/* Whether repr() of it is CPython's own and brief. */
static bool is_plain(PyObject *value)
{
    int overflow = 0;

    if (value == Py_None || is_exactly(value, &PyFloat_Type) || is_exactly(value, &PyBool_Type))
        return true;
    if (is_exactly(value, &PyUnicode_Type))
        return PyUnicode_GetLength(value) <= LENGTH_MAX;
    if (is_exactly(value, &PyBytes_Type))
        return PyBytes_Size(value) <= LENGTH_MAX;
    if (!is_exactly(value, &PyLong_Type))
        return false;
    PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

static bool all_plain(PyObject *tuple)
{
    Py_ssize_t size = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < size; i++)
        if (!is_plain(PyTuple_GetItem(tuple, i)))
            return false;
    return size <= 16;
}

/* What str() of it says; new. NULL: not known. */
static PyObject *plain_str(PyObject *value)
{
    if (is_exactly(value, &PyUnicode_Type)) {
        Py_IncRef(value);
        return value;
    }
    return is_plain(value) ? PyObject_Repr(value) : NULL; /* of bytes too: str() of them may warn */
}

static PyObject *argument(PyObject *args, Py_ssize_t i)
{
    return i < PyTuple_Size(args) ? PyTuple_GetItem(args, i) : NULL; /* borrowed */
}

static PyObject *say_args(PyObject *args)
{
    Py_ssize_t size = PyTuple_Size(args);

    if (size == 0)
        return PyUnicode_FromString("");
    if (size > 1 && all_plain(args))
        return PyObject_Repr(args);
    return size == 1 ? plain_str(argument(args, 0)) : NULL;
}

static PyObject *say_key(PyObject *args)
{
    PyObject *key = argument(args, 0);
    return PyTuple_Size(args) != 1 ? say_args(args) : is_plain(key) ? PyObject_Repr(key) : NULL;
}

static PyObject *say_error(const struct exception_text *raised, PyObject *exception, PyObject *args)
{
    _cleanup_unref_ PyObject *number = attribute_of(&raised->error[0], exception);
    _cleanup_unref_ PyObject *words = attribute_of(&raised->error[1], exception);
    _cleanup_unref_ PyObject *file = attribute_of(&raised->error[2], exception);
    _cleanup_unref_ PyObject *other = attribute_of(&raised->error[3], exception);

    if (!number || !words || !file || !other || number == Py_None || words == Py_None)
        return say_args(args);
    if (!is_plain(number) || !is_plain(words) || !is_plain(file) || !is_plain(other))
        return NULL;
    if (file == Py_None)
        return PyUnicode_FromFormat("[Errno %S] %S", number, words);
    if (other == Py_None)
        return PyUnicode_FromFormat("[Errno %S] %S: %R", number, words, file);
    return PyUnicode_FromFormat("[Errno %S] %S: %R -> %R", number, words, file, other);
}

/* The arguments of both errors: encoding, object, start, end, reason. False: they aren't. */
static bool unicode_error(PyObject *args, PyTypeObject *type, Py_ssize_t *start, Py_ssize_t *end)
{
    if (PyTuple_Size(args) != 5 || !is_exactly(argument(args, 1), type))
        return false;
    for (Py_ssize_t i = 0; i < 5; i++)
        if (i != 1 &&
            (!is_plain(argument(args, i)) ||
             !is_exactly(argument(args, i), i == 2 || i == 3 ? &PyLong_Type : &PyUnicode_Type)))
            return false;
    *start = PyLong_AsSsize_t(argument(args, 2));
    *end = PyLong_AsSsize_t(argument(args, 3));
    return *start >= 0 && *end > *start;
}

static PyObject *say_decode(PyObject *args)
{
    Py_ssize_t start, end;

    if (!unicode_error(args, &PyBytes_Type, &start, &end))
        return NULL;
    PyObject *bytes = argument(args, 1);
    if (end == start + 1 && start < PyBytes_Size(bytes))
        return PyUnicode_FromFormat("'%U' codec can't decode byte 0x%02x in position %zd: %U",
                                    argument(args, 0),
                                    (int)(unsigned char)PyBytes_AsString(bytes)[start], start,
                                    argument(args, 4));
    return PyUnicode_FromFormat("'%U' codec can't decode bytes in position %zd-%zd: %U",
                                argument(args, 0), start, end - 1, argument(args, 4));
}

static PyObject *say_encode(PyObject *args)
{
    Py_ssize_t start, end;

    if (!unicode_error(args, &PyUnicode_Type, &start, &end))
        return NULL;
    PyObject *text = argument(args, 1);
    if (end != start + 1 || start >= PyUnicode_GetLength(text))
        return PyUnicode_FromFormat("'%U' codec can't encode characters in position %zd-%zd: %U",
                                    argument(args, 0), start, end - 1, argument(args, 4));
    unsigned bad = PyUnicode_ReadChar(text, start);
    const char *format = bad <= 0xff
                             ? "'%U' codec can't encode character '\\x%02x' in position %zd: %U"
                         : bad <= 0xffff
                             ? "'%U' codec can't encode character '\\u%04x' in position %zd: %U"
                             : "'%U' codec can't encode character '\\U%08x' in position %zd: %U";
    return PyUnicode_FromFormat(format, argument(args, 0), bad, start, argument(args, 4));
}

/* "invalid syntax (x.py, line 3)" */
static PyObject *say_syntax(PyObject *args)
{
    PyObject *where = argument(args, 1);
    PyObject *file = where && is_exactly(where, &PyTuple_Type) ? argument(where, 0) : NULL;
    PyObject *line = file ? argument(where, 1) : NULL;

    if (!line || !is_exactly(argument(args, 0), &PyUnicode_Type) ||
        !is_exactly(file, &PyUnicode_Type) || !is_exactly(line, &PyLong_Type) || !is_plain(line))
        return PyTuple_Size(args) <= 1 ? say_args(args) : NULL;
    Py_ssize_t length = PyUnicode_GetLength(file);
    Py_ssize_t slash = PyUnicode_FindChar(file, '/', 0, length, -1);
    _cleanup_unref_ PyObject *name = PyUnicode_Substring(file, slash + 1, length);
    return name ? PyUnicode_FromFormat("%U (%U, line %S)", argument(args, 0), name, line) : NULL;
}

static PyObject *say_group(PyObject *args)
{
    PyObject *inside = argument(args, 1);
    if (!inside || !is_exactly(argument(args, 0), &PyUnicode_Type) ||
        !(is_exactly(inside, &PyTuple_Type) || is_exactly(inside, &PyList_Type)))
        return NULL;
    Py_ssize_t count = PySequence_Size(inside);
    return PyUnicode_FromFormat("%U (%zd sub-exception%s)", argument(args, 0), count,
                                count == 1 ? "" : "s");
}

static PyObject *say(const struct exception_text *raised, enum exception_text_says how,
                     PyObject *exception, PyObject *args)
{
    switch (how) {
    case SAYS_ARGS: return say_args(args);
    case SAYS_KEY: return say_key(args);
    case SAYS_OS: return say_error(raised, exception, args);
    case SAYS_DECODE: return say_decode(args);
    case SAYS_ENCODE: return say_encode(args);
    case SAYS_SYNTAX: return say_syntax(args);
    case SAYS_GROUP: return say_group(args);
    default: return NULL;
    }
}

void exception_text_message(struct exception_text *raised, const struct exception_type *type,
                            PyObject *exception, struct ring_text *out, PyObject **owner)
{
    _cleanup_unref_ PyObject *args = attribute_of(&raised->args, exception);

    *out = (struct ring_text){0};
    *owner = NULL;
    if (!args || !is_exactly(args, &PyTuple_Type))
        return;
    if (type->says == SAYS_ARGS && PyTuple_Size(args) == 1 &&
        text_of(argument(args, 0), out, owner))
        return;
    _cleanup_unref_ PyObject *said = say(raised, type->says, exception, args);
    if (!said)
        PyErr_Clear();
    text_of(said ? said : argument(args, 0), out, owner);
}

void exception_text_clear(struct exception_text *raised)
{
    attribute_clear(&raised->module);
    attribute_clear(&raised->qualname);
    attribute_clear(&raised->args);
    for (size_t i = 0; i < ARRAY_SIZE(raised->error); i++)
        attribute_clear(&raised->error[i]);
    for (unsigned i = 0; i < RAISED_SLOTS; i++) {
        struct exception_type entry = raised->types[i];
        raised->types[i] = (struct exception_type){0};
        Py_DecRef(entry.owner);
        Py_DecRef(entry.type);
    }
    python_clear(&raised->spare.owner);
    raised->count = 0;
}
