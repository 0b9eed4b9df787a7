#include "agent/cpython/stack_text.h"

#include "agent/cpython/look_up.h"

static int (*frame_lasti)(PyFrameObject *); /* PyFrame_GetLasti, since 3.11 */

void stack_text_site(struct code_sites *sites, PyFrameObject *frame, PyObject *code,
                     struct code_site *out)
{
    static bool looked;

    if (!looked)
        frame_lasti = (int (*)(PyFrameObject *))looked_up.PyFrame_GetLasti;
    looked = true;
    int lasti = frame_lasti ? frame_lasti(frame) : -1;
    code_site_find(sites, code, lasti, out);
    if (!frame_lasti)
        out->line = PyFrame_GetLineNumber(frame);
}

/* Puts text in front of what is there. */
struct front {
    char *begin, *at;
};

static bool put(struct front *front, const char *bytes, size_t size)
{
    if (size > (size_t)(front->at - front->begin))
        return false;
    front->at -= size;
    memcpy(front->at, bytes, size);
    return true;
}

static bool put_line(struct front *front, int64_t line)
{
    char digits[16];
    char *at = digits + sizeof digits;

    for (uint64_t left = line > 0 ? (uint64_t)line : 0; left || at == digits + sizeof digits;
         left /= 10)
        *--at = (char)('0' + left % 10);
    return put(front, at, (size_t)(digits + sizeof digits - at));
}

/* Puts a frame in front of the text, all of it or nothing. */
static bool put_site(struct front *front, const struct code_site *site, bool first)
{
    struct front tried = *front;

    if ((first || put(&tried, ";", 1)) && put(&tried, ")", 1) && put_line(&tried, site->line) &&
        put(&tried, ":", 1) && put(&tried, site->file.bytes, site->file.size) &&
        put(&tried, " (", 2) && put(&tried, site->func.bytes, site->func.size)) {
        *front = tried;
        return true;
    }
    return false;
}

struct ring_text stack_text(struct code_sites *sites, PyFrameObject *frame, unsigned frames,
                            char buffer[RING_TEXT_MAX])
{
    struct front front = {buffer + 4, buffer + RING_TEXT_MAX};
    struct code_site site;
    bool fits = true;

    Py_IncRef((PyObject *)frame);
    for (unsigned depth = 0; frame && fits && depth < frames; depth++) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        stack_text_site(sites, frame, code, &site);
        fits = put_site(&front, &site, depth == 0);
        Py_DecRef(code);
        PyFrameObject *back = python.frame_back(frame);
        Py_DecRef((PyObject *)frame);
        frame = back;
    }
    if (frame || !fits) {
        front.begin = buffer;
        put(&front, "...;", 4);
    }
    Py_DecRef((PyObject *)frame);
    PyErr_Clear();
    return (struct ring_text){front.at, (size_t)(buffer + RING_TEXT_MAX - front.at)};
}
