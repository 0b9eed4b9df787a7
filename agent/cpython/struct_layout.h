/* The layout of this interpreter's structures in memory. It serves where CPython can't be asked: in
 * a signal handler, and to find the address at which an object keeps a value.
 *
 * The layout is the daemon's own table (offsets.h). Before it is used, it is tried out against what
 * CPython says of the calling thread's frames and of texts. Whoever takes the address of a value
 * from it compares the value there with the one that CPython gives. */
#pragma once

#include "agent/cpython/offsets.h"
#include "agent/cpython/python.h"

/* The layout, tried out; NULL: it isn't known. With the GIL; the first call must be in a thread
 * that runs a Python function. No exception is set before and after. */
const struct offsets *struct_layout_find(void);
/* The layout before it is tried out. False: there is none for this version. */
bool struct_layout_table(struct offsets *out);
/* The result of struct_layout_find(); NULL: it found nothing or wasn't called yet. Any thread, any
 * time.
 */
const struct offsets *struct_layout(void);

/* The frame that a thread state runs; NULL: none. */
const char *struct_layout_frame(const PyThreadState *state);
/* The code object of a frame; NULL: the frame isn't one of Python code. *offset: its instruction,
 * as PyCode_Addr2Line() takes it. */
PyObject *struct_layout_frame_code(const char *frame, int *offset);
const char *struct_layout_frame_back(const char *frame);

/* Writes the text of an exact str as UTF-8, at most `max` bytes of whole characters, and returns
 * how many bytes. A lone surrogate becomes '?'. */
size_t struct_layout_str(const PyObject *str, char *out, size_t max);

/* The address of an interpreter's switch interval, for gil_take(); 0: not known. */
uint64_t struct_layout_gil_interval(const PyInterpreterState *state);
/* struct_layout_gil_interval() by a layout that wasn't tried out. */
uint64_t struct_layout_gil_interval_by(const struct offsets *o, const PyInterpreterState *state);
/* How often an interpreter's GIL has come to another thread than the one that had it last
 * (switch_number of CPython's pycore_gil.h); *known, false: that isn't known. With the GIL. */
unsigned long struct_layout_gil_switches(const PyInterpreterState *state, bool *known);

static inline const void *struct_layout_pointer(const void *base, int64_t offset)
{
    return *(const void *const *)((const char *)base + offset);
}
