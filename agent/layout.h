/* How this interpreter's structures lie in memory, for what must be read where CPython can't be asked: in a handler of a
 * signal, and of where an object keeps what it holds.
 *
 * It is the daemon's own table (fs/remote/offsets.h). Before anything is read by it, it is tried out on what CPython
 * itself says: the frames of the thread that asks, and texts. Whoever takes an address from it compares what is there
 * with what CPython says is there. */
#pragma once

#include "agent/python.h"
#include "fs/remote/offsets.h"

/* NULL: not known. With the GIL; first in a thread that runs a function of Python. No exception before and after. */
const struct offsets *layout_find(void);
/* What that has found; NULL: nothing, or it wasn't called yet. Any thread, any time. */
const struct offsets *layout(void);

/* The frame that a thread state runs; NULL: none. */
const char *layout_frame(const PyThreadState *state);
/* Its code, NULL: it is none of Python's, and the offset of its instruction as PyCode_Addr2Line() takes it. */
PyObject *layout_frame_code(const char *frame, int *offset);
const char *layout_frame_back(const char *frame);

/* The text of an exact str as UTF-8 (what has none as '?'), at most `max` bytes of whole characters; how many. */
size_t layout_str(const PyObject *str, char *out, size_t max);

/* Whether a thread state is still that of the thread with this number of the kernel's, as far as that can be seen. With the GIL. */
bool layout_is_thread(PyInterpreterState *interpreter, const PyThreadState *state, int32_t tid);

/* Where the GIL of an interpreter keeps its switch interval, as gil_take() likes to know; 0: not known. */
uint64_t layout_gil_interval(const PyInterpreterState *state);

static inline const void *layout_pointer(const void *base, int64_t offset)
{
    return *(const void *const *)((const char *)base + offset);
}
