/* The set of breakpoints: what is in it, under which ids, and its rows, by which the daemon shows it without asking.
 *
 * Rows: one is appended to the ring `breakpoints` whenever something but a number changes; of the rows with one id the last
 * one counts, and where its state is 'removed' there is no such breakpoint. Numbers are patched in place. Before
 * the ring has gone round, all rows are appended again. */
#pragma once

#include "agent/breakpoint.h"
#include "agent/interpreter.h"
#include "agent/requests.h"

struct evaluation;
struct place_report;

/* Carries out a BREAKPOINTS. In the main interpreter, with its GIL, which is given up meanwhile. 0, or -errno with words in
 * out->done; leaves no exception. */
int breakpoints_run(struct interpreter *interpreter, struct request *request, struct evaluation *out);

/* Appends the row of a breakpoint anew, with this state and note (NULL: none). With a GIL. */
void breakpoints_publish(struct breakpoint *breakpoint, const char *state, const char *note);
/* Brings the numbers in its row up to date: after a hit. With a GIL. */
void breakpoints_count(struct breakpoint *breakpoint);
/* COUNT is reached: nothing hits it any more, and it stays in the set as 'done'. With a GIL. */
void breakpoints_done(struct breakpoint *breakpoint);
/* Code that it means has been loaded. With a GIL. */
void breakpoints_found(struct breakpoint *breakpoint, const struct place_report *report);

/* Takes all that is armed out of an interpreter: at its end and at detach. With its GIL; leaves no exception. */
void breakpoints_leave(struct interpreter *interpreter);
/* Detached: the set is given up. */
void breakpoints_end(void);
/* In a child after fork, before anything else runs. */
void breakpoints_forget(void);
