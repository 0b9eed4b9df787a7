/* Which code objects, and which of their lines, a breakpoint's location means. */
#pragma once

#include "agent/breakpoint/breakpoint.h"
#include "agent/breakpoint/places.h"
#include "agent/cpython/codes.h"

/* Gathers the code objects that some breakpoints may mean. */
void location_gather(struct breakpoint *const *breakpoints, unsigned count, struct codes *out);

/* Files and names of code objects, looked up once for all searches. */
struct location_index;

/* NULL: there is no memory. `codes` must not change while the index is used. */
struct location_index *location_index_new(const struct codes *codes);
void location_index_free(struct location_index *index);

/* Called for each place that is found; false ends the search. */
typedef bool location_found(void *arg, PyObject *code, enum place_event event, int line);
/* What a search found out besides the places. */
struct location_told {
    unsigned files; /* files of that name that have code at that line */
    /* the first line that was taken in the last of these files, if it isn't the one asked for;
     * else 0 */
    int line;
    bool known; /* whether some code is of that file */
};
/* Finds the places of a breakpoint of kind LINE, FUNCTION or RETURN. within: finds a line only
 * inside the code objects that are indexed, as for code that is just being loaded. */
void location_find(struct location_index *index, const struct breakpoint *breakpoint, bool within,
                   location_found *found, void *arg, struct location_told *told);
/* Whether a code object may be what a breakpoint means, or may define it, judged by its file.
 * Quick. */
bool location_concerns(const struct breakpoint *breakpoint, PyObject *code);
/* Whether what a breakpoint of kind LINE, FUNCTION or RETURN means is of a loaded module that is
 * machine code, as Nuitka, Cython and C make them: then no code object runs there. Runs no code of
 * the program. With the GIL; no exception is set afterwards. */
bool location_is_compiled(const struct breakpoint *breakpoint);
