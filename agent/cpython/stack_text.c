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

/* Writes a number so that it ends at `end`; returns where it begins. */
static char *put_line(char *end, int64_t line)
{
    uint32_t left = line > 0 ? (uint32_t)line : 0; /* an int, in CPython */

    do
        *--end = (char)('0' + left % 10);
    while (left /= 10);
    return end;
}

/* Puts a frame in front of the text, all of it or nothing. */
static bool put_site(struct front *front, const struct code_site *site, bool first)
{
    char end[16], *const behind = end + sizeof end;
    char *begin = behind;

    if (!first)
        *--begin = ';';
    *--begin = ')';
    begin = put_line(begin, site->line);
    *--begin = ':';
    size_t size = (size_t)(behind - begin);
    if (site->func.size + 2 + site->file.size + size > (size_t)(front->at - front->begin))
        return false;
    put(front, begin, size);
    put(front, site->file.bytes, site->file.size);
    put(front, " (", 2);
    return put(front, site->func.bytes, site->func.size);
}

struct ring_text stack_text(struct code_sites *sites, PyFrameObject *frame,
                            const struct code_site *innermost, unsigned frames,
                            char buffer[RING_TEXT_MAX])
{
    struct front front = {buffer + 4, buffer + RING_TEXT_MAX};
    struct code_site site;
    bool fits = true;

    Py_IncRef((PyObject *)frame);
    for (unsigned depth = 0; frame && fits && depth < frames; depth++) {
        const struct code_site *here = depth == 0 ? innermost : NULL;
        PyObject *code = here ? NULL : (PyObject *)PyFrame_GetCode(frame);
        if (code)
            stack_text_site(sites, frame, code, &site);
        fits = put_site(&front, here ? here : &site, depth == 0);
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
