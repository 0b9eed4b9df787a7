#include "agent/cpython/struct_layout.h"

#include <string.h>

#define FRAMES_TRIED 16
/* of 3.12 on, _PyInterpreterFrame.owner from there on: no code of Python's */
#define OWNED_BY_C_STACK 3
#define TAGS 3ull    /* of a reference in a frame, from 3.14 on */
#define KIND_SHIFT 2 /* of PyASCIIObject.state, as are: */
#define KIND_BITS 7u
#define COMPACT (1u << 5)
#define ASCII (1u << 6)

static struct offsets found;
static bool known;

const struct offsets *struct_layout(void)
{
    return __atomic_load_n(&known, __ATOMIC_ACQUIRE) ? &found : NULL;
}

/* ---- frames ---- */

const char *struct_layout_frame(const PyThreadState *state)
{
    if (python.version < 0x030b || python.version > 0x030c)
        return struct_layout_pointer(state, found.tstate_frame);
    const char *cframe = struct_layout_pointer(state, found.tstate_cframe);
    return cframe ? struct_layout_pointer(cframe, found.cframe_current_frame) : NULL;
}

const char *struct_layout_frame_back(const char *frame)
{
    return struct_layout_pointer(frame, found.frame_previous);
}

PyObject *struct_layout_frame_code(const char *frame, int *offset)
{
    uintptr_t code = (uintptr_t)struct_layout_pointer(frame, found.frame_code);

    if (python.version >= 0x030e)
        code &= ~TAGS;
    if (!code ||
        (python.version >= 0x030c && (unsigned char)frame[found.frame_owner] >= OWNED_BY_C_STACK))
        return NULL;
    if (python.version < 0x030b) {
        memcpy(offset, frame + found.frame_lasti, sizeof *offset);
        *offset *= *offset > 0 ? 2 : 1; /* counted in instructions */
    } else {
        uintptr_t first = code + (uintptr_t)found.code_adaptive;
        *offset = (int)((uintptr_t)struct_layout_pointer(frame, found.frame_instr) - first);
    }
    return (PyObject *)code;
}

/* ---- texts ---- */

static size_t put_utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        if (c >= 0xd800 && c < 0xe000) { /* half a character */
            out[0] = '?';
            return 1;
        }
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (c >> 18 & 7));
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static uint32_t character(const void *data, unsigned kind, size_t i)
{
    return kind == 1   ? ((const uint8_t *)data)[i]
           : kind == 2 ? ((const uint16_t *)data)[i]
                       : ((const uint32_t *)data)[i];
}

size_t struct_layout_str(const PyObject *str, char *out, size_t max)
{
    const char *base = (const char *)str;
    uint32_t state;
    size_t length, used = 0;

    if (!str || Py_TYPE(str) != &PyUnicode_Type)
        return 0;
    memcpy(&state, base + found.unicode_state, sizeof state);
    memcpy(&length, base + found.unicode_length, sizeof length);
    unsigned kind = state >> KIND_SHIFT & KIND_BITS;
    if (!(state & COMPACT) || (kind != 1 && kind != 2 && kind != 4))
        return 0;
    const char *data = base +
                       (state & ASCII ? found.unicode_ascii_size : found.unicode_compact_size);
    for (size_t i = 0; i < length; i++) {
        char bytes[4];
        size_t size = put_utf8(character(data, kind, i), bytes);
        if (used + size > max)
            break;
        memcpy(out + used, bytes, size);
        used += size;
    }
    return used;
}

uint64_t struct_layout_gil_interval_by(const struct offsets *o, const PyInterpreterState *state)
{
    if (python.version >= 0x030c)
        return (uint64_t)(uintptr_t)struct_layout_pointer(state, o->interp_gil);
    return (uint64_t)(uintptr_t)(python.runtime + o->rt_gil);
}

uint64_t struct_layout_gil_interval(const PyInterpreterState *state)
{
    return struct_layout() ? struct_layout_gil_interval_by(&found, state) : 0;
}

unsigned long struct_layout_gil_switches(const PyInterpreterState *state, bool *is_known)
{
    const char *gil = (const char *)(uintptr_t)struct_layout_gil_interval(state);

    *is_known = gil;
    /* it stands behind the int `locked` */
    return gil ? *(const unsigned long *)(gil + found.gil_locked + sizeof(long)) : 0;
}

/* ---- trying it out ---- */

bool struct_layout_table(struct offsets *out)
{
    uint32_t version;
    bool free_threaded = false;

    if (python.version < 0x030d)
        return offsets_for_version(python.version << 16, out);
    return python.runtime && python.runtime_size >= DEBUG_OFFSETS_SIZE &&
           offsets_parse_debug((const uint8_t *)python.runtime, DEBUG_OFFSETS_SIZE, out, &version,
                               &free_threaded) == 0 &&
           !free_threaded;
}

static bool try_text(const char *text)
{
    _cleanup_unref_ PyObject *str = PyUnicode_FromString(text);
    char out[64];
    size_t size = str ? struct_layout_str(str, out, sizeof out) : 0;

    return size == strlen(text) && memcmp(text, out, size) == 0;
}

static const char *next_of_python(const char *frame, PyObject **code, int *offset)
{
    *code = NULL;
    for (unsigned i = 0; frame && i < 2 && !(*code = struct_layout_frame_code(frame, offset)); i++)
        frame = struct_layout_frame_back(frame);
    return *code ? frame : NULL;
}

/* Whether a frame as CPython sees it is the one that was read. */
static bool is_same(PyFrameObject *expected, PyObject *code, int offset)
{
    _cleanup_unref_ PyObject *right = (PyObject *)PyFrame_GetCode(expected);
    _cleanup_unref_ PyObject *last = PyObject_GetAttrString((PyObject *)expected, "f_lasti");
    _cleanup_unref_ PyObject *file = code == right ? PyObject_GetAttrString(code, "co_filename")
                                                   : NULL;
    long lasti = last ? PyLong_AsLong(last) : -2;

    PyErr_Clear();
    return code == right && offset == lasti &&
           struct_layout_pointer(code, found.code_filename) == file;
}

static bool try_frames(void)
{
    PyFrameObject *expected = PyThreadState_GetFrame(PyThreadState_Get());
    const char *frame = struct_layout_frame(PyThreadState_Get());
    bool same = expected != NULL;
    PyObject *code;
    int offset;

    for (unsigned i = 0; same && expected && i < FRAMES_TRIED; i++) {
        frame = next_of_python(frame, &code, &offset);
        same = frame && is_same(expected, code, offset);
        frame = same ? struct_layout_frame_back(frame) : NULL;
        PyFrameObject *back = python.frame_back(expected);
        Py_DecRef((PyObject *)expected);
        expected = back;
    }
    Py_DecRef((PyObject *)expected);
    return same;
}

const struct offsets *struct_layout_find(void)
{
    if (known)
        return &found;
    bool right = struct_layout_table(&found) && try_frames() && try_text("plain") &&
                 try_text("\xc3\xa9") && try_text("\xe2\x82\xac x") && try_text("\xf0\x9f\x90\x8d");
    PyErr_Clear();
    __atomic_store_n(&known, right, __ATOMIC_RELEASE);
    return right ? &found : NULL;
}
