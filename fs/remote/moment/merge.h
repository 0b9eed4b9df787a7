/* Puts the native and the Python frames of one thread in order.
 *
 * The interpreter runs Python frames inside calls of its evaluation loop, which are native frames.
 * Each such call is replaced by the Python frames that it runs; the native frames between two calls
 * are what Python code called and what called Python code again. From CPython 3.11 on a structure
 * that a call keeps on its C stack tells which native frame runs which Python frames. Before,
 * each Python frame has its own call, so counting them tells.
 *
 * No Python frame is ever dropped or moved. Native frames stand where that is proven, else they
 * are left out and a note says so; or all of them stand apart behind the Python frames, if none of
 * those is known to be run by one of them. */
#pragma once

#include "fs/remote/native/native.h"

/* Python frames that one call of the evaluation loop runs, innermost first. */
struct merge_group {
    size_t nframes;
    uint64_t anchor; /* an address in that call's C frame; 0: this version has none, and nframes
                        is 1 */
};

enum merge_kind {
    MERGE_PYTHON,
    MERGE_NATIVE,
    MERGE_APART, /* native; nothing is said of what it calls or is called by among the others */
    MERGE_NOTE,
};

struct merge_item {
    enum merge_kind kind;
    size_t index;     /* Python: counted over all groups, innermost is 0; native: in `frames` */
    const char *note; /* MERGE_NOTE: why frames may be missing here; static */
};

/* At most so many items come out. */
#define MERGE_ITEMS(nnative, npython, ngroups) ((nnative) + (npython) + (ngroups) + 1)

/* Merges, innermost first. frames[0..nnative) as native_unwind() left them, end says how they
 * end. items has room for MERGE_ITEMS(). Returns how many items there are. */
size_t merge_stacks(const struct native_frame *frames, size_t nnative, enum native_end end,
                    const struct merge_group *groups, size_t ngroups, struct merge_item *items);
