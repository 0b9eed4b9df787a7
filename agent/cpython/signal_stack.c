#include "agent/cpython/signal_stack.h"

#include "agent/cpython/look_up.h"
#include "agent/cpython/struct_layout.h"

#include <string.h>

#define FRAMES_MAX 512
#define CUT "...;" /* in the place of outer frames that there is no room for */
#define CUT_SIZE 4
#define NAME_MAX 255 /* bytes of a function's name and of a file's */
#define FILE_MAX 767

static struct {
    int (*line)(PyObject *code, int offset); /* PyCode_Addr2Line */
    PyThreadState *(*current)(void);         /* _PyThreadState_UncheckedGet */
} api;

bool signal_stack_bind(void)
{
    int (*line)(PyObject *, int) = (int (*)(PyObject *, int))looked_up.PyCode_Addr2Line;
    /* 3.13 */
    PyThreadState *(*current)(void) = (PyThreadState * (*)(void))
                                          looked_up.PyThreadState_GetUnchecked;

    if (!current)
        current = (PyThreadState * (*)(void)) looked_up._PyThreadState_UncheckedGet;
    if (!line || !current || !struct_layout_find())
        return false;
    /* handlers may run by now, in other threads: there is never another word here for a moment */
    api.line = line;
    api.current = current;
    return true;
}

PyThreadState *signal_stack_state(bool *gil)
{
    PyThreadState *current = api.current(), *own = PyGILState_GetThisThreadState();

    /* up to 3.11 the current one is that of whoever has the GIL */
    *gil = current && (python.version >= 0x030c || current == own);
    return *gil ? current : own;
}

/* Text that grows towards its beginning. */
static bool put(struct signal_stack *out, const char *text, size_t size)
{
    if (size + CUT_SIZE > out->start)
        return false;
    out->start -= (uint16_t)size;
    memcpy(out->stack + out->start, text, size);
    return true;
}

static bool put_line(struct signal_stack *out, int line)
{
    char digits[12];
    size_t at = sizeof digits;

    for (unsigned n = line > 0 ? (unsigned)line : 0; at == sizeof digits || n; n /= 10)
        digits[--at] = (char)('0' + n % 10);
    return put(out, digits + at, sizeof digits - at);
}

/* Puts a frame before what is there; false: there is no room for all of it. */
static bool put_frame(struct signal_stack *out, const PyObject *code, int line)
{
    const struct offsets *o = struct_layout();
    char name[NAME_MAX], file[FILE_MAX];
    size_t name_size = struct_layout_str(
        struct_layout_pointer(code, o->code_qualname < 0 ? o->code_name : o->code_qualname), name,
        sizeof name);
    size_t file_size =
        struct_layout_str(struct_layout_pointer(code, o->code_filename), file, sizeof file);
    uint16_t before = out->start;

    bool whole = (before == sizeof out->stack || put(out, ";", 1)) && put(out, ")", 1) &&
                 put_line(out, line) && put(out, ":", 1) && put(out, file, file_size);
    uint16_t file_at = out->start;
    whole = whole && put(out, " (", 2) && put(out, name, name_size);
    if (!whole) {
        out->start = before;
        return false;
    }
    if (before == sizeof out->stack) {
        out->file = file_at;
        out->file_size = (uint16_t)file_size;
        out->func = out->start;
        out->func_size = (uint16_t)name_size;
        out->line = line > 0 ? line : 0;
    }
    return true;
}

void signal_stack_capture(const PyThreadState *state, struct signal_stack *out)
{
    const char *frame = state ? struct_layout_frame(state) : NULL;
    bool room = true;
    int offset;

    out->line = 0;
    out->start = sizeof out->stack;
    out->func = out->func_size = out->file = out->file_size = 0;
    for (unsigned i = 0; room && frame && i < FRAMES_MAX;
         i++, frame = struct_layout_frame_back(frame)) {
        PyObject *code = struct_layout_frame_code(frame, &offset);
        if (code)
            room = put_frame(out, code, api.line(code, offset));
    }
    if ((frame || !room) && out->start < sizeof out->stack)
        memcpy(out->stack + (out->start -= CUT_SIZE), CUT, CUT_SIZE);
}
