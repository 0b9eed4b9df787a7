/* The parts of the agent, as the floors below them know them: each puts something into
 * interpreters or into the process, and says here how that ends. Whoever ends them all walks the
 * table (serve/parts.c), and needn't know who they are.
 *
 * The order of the table is the order in which they are disarmed and given up. Where the daemon
 * goes, as a detach begins, and in a child after fork, it is walked from its end: what others stand
 * on comes last. */
#pragma once

#include "agent/interpreter/interpreter.h"

/* NULL: there is nothing to do. */
struct part {
    /* With the GIL of an interpreter. No exception is set before and after, but as `lend` says. */

    /* What a program may want of its own accord: goes into an interpreter with the guest, and out
     * of it. */
    void (*install)(void);
    void (*uninstall)(void);
    /* Functions for evaluate/'s _probe. 0, or -EIO with an exception set. */
    int (*lend)(struct guest *guest);
    /* The interpreter begins to end, and no thread of ours may go in: interrupts code that it was
     * asked to run. Not in a thread of ours. */
    void (*interrupt)(struct interpreter *interpreter);
    /* Hears nothing new: first pass of a detach. */
    void (*disarm)(struct interpreter *interpreter);
    /* Gives up what is in an interpreter: second pass of a detach, when no thread is inside. At the
     * end of an interpreter it follows on `disarm`. */
    void (*give_up)(struct interpreter *interpreter);

    /* With or without a GIL. */

    /* Threads that are held in an interpreter go on: it begins to end, or to join its threads. */
    void (*let_go)(const struct interpreter *interpreter);
    /* Whether something may still call the library. */
    bool (*remains)(void);

    /* Looks at what nobody tells of. Returns after how many nanoseconds to look again; 0: there is
     * nothing to look at. Python's thread, without the GIL, which has a thread state. */
    uint64_t (*look)(void);

    /* A detach begins: from now on nothing is written, caught or hit any more. With or without the
     * GIL of the main interpreter. */
    void (*end)(void);
    /* Between its two passes: waits a bounded time until no thread is inside. Whether all have
     * left. Without the GIL. */
    bool (*wait)(void);
    /* Behind its second pass: waits a bounded time until nothing remains. With the GIL of the main
     * interpreter, which is given up meanwhile. */
    void (*settle)(void);

    /* The daemon has gone. Channel's thread, without the GIL. */
    void (*daemon_gone)(void);
    /* In a child after fork, before anything else runs. */
    void (*forget)(void);
};
extern const struct part *const parts[]; /* NULL behind the last one */

/* Call what the parts have for that. */
void parts_install(void);
void parts_uninstall(void);
int parts_lend(struct guest *guest); /* -EIO of the first one that fails */
void parts_interrupt(struct interpreter *interpreter);
void parts_disarm(struct interpreter *interpreter);
void parts_give_up(struct interpreter *interpreter);
void parts_end(struct interpreter *interpreter); /* disarms and gives up each */
void parts_let_go(const struct interpreter *interpreter);
bool parts_remain(void);   /* of any of them something does */
uint64_t parts_look(void); /* when the first one is to look again */
void parts_begin_end(void);
bool parts_wait(void); /* whether all have left each */
void parts_settle(void);
void parts_daemon_gone(void);
void parts_forget(void);
