/* One breakpoint or watchpoint of the set (breakpoints.h).
 *
 * It is shared by all interpreters: what is Python's of it (compiled expressions, code objects) each of them keeps for
 * itself (places.h). A thread that is in the midst of a hit holds a reference, so it may be removed meanwhile. */
#pragma once

#include "agent/proto.h"
#include "agent/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct breakpoint {
    unsigned refs;            /* under the lock of the set */
    uint32_t id;
    enum breakpoint_kind kind;
    enum breakpoint_action action;
    enum watch_route route;
    uint32_t line;
    uint64_t address;
    uint32_t length;
    uint64_t count;           /* 0: hits for ever */
    uint64_t stop_ns;         /* never 0 */
    double set_at;            /* [s] since 1970 */
    char *text;               /* as it is written; what follows points into the same memory. All NUL-terminated */
    const char *where;
    const char *condition;    /* NULL: none */
    uint32_t ncaptures;
    const char *captures;     /* one after the other */

    /* changed by any thread, atomically */
    uint64_t hits, dropped, errors;
    uint32_t places;          /* code objects or pieces of memory in which it is armed, in all interpreters */
    bool removed;             /* no longer in the set: nothing hits any more */
};

struct breakpoint *breakpoint_ref(struct breakpoint *breakpoint);
/* NULL is fine. */
void breakpoint_unref(struct breakpoint *breakpoint);
