/* Changes the set of breakpoints, and what is armed for it, as the daemon asks. */
#pragma once

#include "agent/eval/requests.h"
#include "agent/interpreter/interpreter.h"

struct breakpoint;
struct evaluation;

/* Carries out a BREAKPOINTS. In the main interpreter, with its GIL, which is given up meanwhile. 0,
 * or -errno with words in out->done. No exception is set afterwards. */
int breakpoints_run(struct interpreter *interpreter, struct request *request,
                    struct evaluation *out);

/* Takes those out of the set that were released (set.h). In the main interpreter, with its GIL,
 * which is given up meanwhile. No exception is set before and after. */
void breakpoints_tidy(struct interpreter *interpreter);

/* What watches for breakpoints of a kind that is no code: watch/watch.c watches values, watch/nan.c
 * models. All functions are called in the main interpreter, with its GIL. */
struct armer {
    /* Begins to watch. state: "hw", "dict", "line" or "armed", as breakpoints.sql has it; words:
     * the note of the breakpoint's row. 0; -EBUSY: no debug register is free, words say who has
     * them; -EINVAL: the expression has no value now, or there is nothing to watch; others. */
    int (*add)(struct interpreter *interpreter, struct breakpoint *breakpoint, const char **state,
               char words[PROTO_WORDS_MAX]);
    /* Ends watching, if it has begun. */
    void (*remove)(struct interpreter *interpreter, struct breakpoint *breakpoint);
};
extern const struct armer watch_armer, nan_armer;

/* Arms the breakpoints in interpreters that came into being since the last call. Returns after how
 * many nanoseconds it is worth while to look again; 0: there are no breakpoints. Python's thread,
 * without the GIL, which has a thread state. */
uint64_t breakpoints_look(void);
/* The daemon has gone: nothing that lives as long as an open file hits any more, and Python's
 * thread is to take it out. Any thread, without the GIL. */
void breakpoints_daemon_gone(void);

/* Takes all that is armed out of an interpreter: at its end and at detach. With its GIL. No
 * exception is set afterwards. */
void breakpoints_leave(struct interpreter *interpreter);
