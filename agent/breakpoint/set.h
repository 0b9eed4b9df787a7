/* The set of breakpoints, by id, and its rows, from which the daemon shows the set without asking.
 * Only Python's thread changes the set, so this thread reads it without the lock.
 *
 * Whenever anything but a number of a breakpoint changes, a row is appended to the ring
 * `breakpoints`. Of the rows with one id the last one counts; if its state is 'removed', there is
 * no such breakpoint. Numbers are patched in place. Before the ring wraps around, all rows are
 * appended again. */
#pragma once

#include "agent/breakpoint/breakpoint.h"

struct place_report;

struct breakpoint_set {
    struct breakpoint *all[PROTO_BREAKPOINTS_MAX]; /* references, by rising id */
    unsigned count;
};

/* The present set. */
const struct breakpoint_set *breakpoint_set(void);
/* Makes `next` the present set and leaves `next` empty. The references of the previous set are
 * released. A breakpoint that is not in the new set is marked as removed, and its row says so. */
void breakpoint_set_replace(struct breakpoint_set *next);
/* Whether the rows of a whole set take at most a quarter of the ring; true while there is none. */
bool breakpoint_set_fits(const struct breakpoint_set *set);
/* The index of an id, or the index at which it would be inserted. */
unsigned breakpoint_set_find(const struct breakpoint_set *set, uint32_t id);
/* Whether rows of hits may have an id: no other breakpoint gets it. */
bool breakpoint_id_is_spent(uint32_t id);
/* The highest of those ids; 0: there is none. */
uint32_t breakpoint_ids_spent(void);
/* Inserts a breakpoint and takes over the reference. No other one may have its id. */
void breakpoint_set_insert(struct breakpoint_set *set, struct breakpoint *breakpoint);
/* Removes the breakpoint at an index and returns its reference. */
struct breakpoint *breakpoint_set_take(struct breakpoint_set *set, unsigned at);
void breakpoint_set_clear(struct breakpoint_set *set);

/* An open file is closed, or, 0, all are: breakpoints that live as long hit nothing any more, and
 * threads that they hold go on. Whether there are any: then breakpoints_tidy() is to take them out.
 * Any thread, without a GIL. */
bool breakpoints_release(uint64_t here);
/* A breakpoint of the set lives as long as that open file from now on; 0: it stays. With a GIL. */
void breakpoints_keep(struct breakpoint *breakpoint, uint64_t here);
/* A breakpoint as it is written, with what stands in front: "here log a.py:3". */
#define BREAKPOINT_WORDS_MAX (PROTO_BREAKPOINT_TEXT_MAX + 16)
void breakpoint_words(const struct breakpoint *breakpoint, char out[BREAKPOINT_WORDS_MAX]);

/* ---- their rows ---- */

/* Appends the row of a breakpoint anew, with this state and note (NULL: none). With a GIL. */
void breakpoints_publish(struct breakpoint *breakpoint, const char *state, const char *note);
/* Appends the row of a breakpoint that is at code, with the state that came of arming it: 'armed',
 * or 'pending'. */
void breakpoints_armed(struct breakpoint *breakpoint, const struct place_report *report,
                       const char *note);
/* Notes what the condition of a breakpoint raised, in its row, once. Whether that is the first
 * time. With a GIL. */
bool breakpoints_raised(struct breakpoint *breakpoint, const char *words);
/* Updates the numbers in the row of a breakpoint, after a hit. With a GIL. */
void breakpoints_count(struct breakpoint *breakpoint);
/* Ends a breakpoint whose COUNT is reached: it isn't hit any more and stays in the set as 'done'.
 * With a GIL. */
void breakpoints_done(struct breakpoint *breakpoint);
/* Ends a breakpoint of which there can be no further hit, as words say. With a GIL. */
void breakpoints_over(struct breakpoint *breakpoint, const char *words);
/* Notes that code was loaded in which a breakpoint is armed. With a GIL. */
void breakpoints_found(struct breakpoint *breakpoint, const struct place_report *report);

/* Empties the set, at a detach. */
void breakpoints_end(void);
/* In a child after fork, before anything else runs. */
void breakpoints_forget(void);
