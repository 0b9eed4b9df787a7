/* Which code objects, and which of their lines, a breakpoint's location means. */
#pragma once

#include "agent/breakpoint.h"
#include "agent/codes.h"
#include "agent/places.h"

/* Gathers the code objects that some breakpoints may mean. */
void location_gather(struct breakpoint *const *breakpoints, unsigned count, struct codes *out);

/* The names that a search compares, looked up once for all code objects. */
struct location_index;

/* NULL: there is no memory. `codes` must stay as they are. */
struct location_index *location_index_new(const struct codes *codes);
void location_index_free(struct location_index *index);

/* Called with each place; false ends the search. */
typedef bool location_found(void *arg, PyObject *code, enum place_event event, int line);
/* What can be told of a search. */
struct location_told {
    unsigned files;          /* how many of that name have code there */
    int line;                /* that is used in the last of them, where it isn't the one that was asked for; else 0 */
    bool known;              /* some code is of that file */
};
/* Finds the places of a breakpoint of kind LINE, FUNCTION or RETURN. within: only where the line is inside of what is
 * known, as for code that is just being loaded. */
void location_find(struct location_index *index, const struct breakpoint *breakpoint, bool within,
                   location_found *found, void *arg, struct location_told *told);
/* Whether a code object may be, or may define, what a breakpoint means: of its file, or any. Quick. */
bool location_concerns(const struct breakpoint *breakpoint, PyObject *code);
