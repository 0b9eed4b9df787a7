#include "agent/cpython/exception_words.h"

#include <string.h>

void words_copy(PyObject *text, char *words, size_t size)
{
    words[0] = '\0';
    _cleanup_unref_ PyObject *bytes =
        text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;
    const char *data = bytes ? PyBytes_AsString(bytes) : NULL;
    if (!data) {
        PyErr_Clear();
        return;
    }
    size_t length = strnlen(data, size);
    if (length == size) {
        length = size - 1;
        while (length && ((unsigned char)data[length] & 0xc0) == 0x80)
            length--;
    }
    memcpy(words, data, length);
    words[length] = '\0';
}

void exception_type_copy(PyObject *exception, char *words, size_t size)
{
    PyObject *type = (PyObject *)Py_TYPE(exception);
    _cleanup_unref_ PyObject *module = PyObject_GetAttrString(type, "__module__");
    _cleanup_unref_ PyObject *name = module ? PyObject_GetAttrString(type, "__qualname__") : NULL;
    bool named = name && PyUnicode_Check(module) && PyUnicode_Check(name);
    bool builtin = named && PyUnicode_CompareWithASCIIString(module, "builtins") == 0;
    _cleanup_unref_ PyObject *text = named && !builtin ? PyUnicode_FromFormat("%U.%U", module, name)
                                                       : NULL;

    PyErr_Clear();
    words_copy(builtin ? name : text, words, size);
}

void exception_words(char *words, size_t size)
{
    PyObject *type, *value, *traceback;

    words[0] = '\0';
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (type) {
        _cleanup_unref_ PyObject *name = PyObject_GetAttrString(type, "__name__");
        _cleanup_unref_ PyObject *text =
            name ? PyUnicode_FromFormat("%U: %S", name, value ? value : Py_None) : NULL;
        words_copy(text, words, size);
    }
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(traceback);
    PyErr_Clear();
}
