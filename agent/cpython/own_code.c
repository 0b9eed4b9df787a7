#include "agent/cpython/own_code.h"

#include "agent/cpython/text.h"

#include <string.h>

/* Bytes of the standard library's directory in the file of its module os, with the slash; 0: it
 * isn't known. */
static size_t library_size(PyObject **file, struct ring_text *text, PyObject **owner)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString("os");
    _cleanup_unref_ PyObject *module = name ? PyImport_GetModule(name) : NULL;
    const char *slash;

    *file = module ? PyObject_GetAttrString(module, "__file__") : NULL;
    PyErr_Clear();
    if (!*file || !text_of(*file, text, owner))
        return 0;
    slash = memrchr(text->bytes, '/', text->size);
    return slash ? (size_t)(slash + 1 - text->bytes) : 0;
}

static bool has(const struct ring_text *text, const char *part)
{
    return memmem(text->bytes, text->size, part, strlen(part));
}

static bool begins(const struct ring_text *text, const char *bytes, size_t size)
{
    return size && text->size >= size && memcmp(text->bytes, bytes, size) == 0;
}

/* The file of a code object; *owner as of text_of(). */
static bool file_of(PyObject *code, struct ring_text *name, PyObject **owner)
{
    _cleanup_unref_ PyObject *file = PyObject_GetAttrString(code, "co_filename");

    PyErr_Clear();
    return file && text_of(file, name, owner);
}

static bool is_agents(const struct ring_text *file) { return begins(file, "<probe", 6); }

bool own_code_is_agents(PyObject *code)
{
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text name;

    return file_of(code, &name, &owner) && is_agents(&name);
}

bool own_code_is_import(PyObject *code)
{
    static const char importer[] = "<frozen importlib._bootstrap>";
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text name;

    return file_of(code, &name, &owner) && name.size == sizeof importer - 1 &&
           begins(&name, importer, name.size);
}

bool own_code_is(PyObject *code)
{
    _cleanup_unref_ PyObject *owner = NULL, *os = NULL, *os_owner = NULL;
    struct ring_text name, library = {0};

    if (!file_of(code, &name, &owner))
        return true;
    if (begins(&name, "<frozen", 7) || is_agents(&name) || has(&name, "/site-packages/") ||
        has(&name, "/dist-packages/"))
        return false;
    size_t size = library_size(&os, &library, &os_owner);
    return !begins(&name, library.bytes, size);
}

PyFrameObject *own_code_frame(PyFrameObject *innermost, bool (*is_passed_over)(PyObject *code))
{
    PyFrameObject *frame = innermost;

    Py_IncRef((PyObject *)frame);
    while (frame) {
        _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        if (!is_passed_over(code))
            return frame;
        PyFrameObject *back = python.frame_back(frame);
        Py_DecRef((PyObject *)frame);
        frame = back;
    }
    Py_IncRef((PyObject *)innermost);
    return innermost;
}
