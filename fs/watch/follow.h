/* Watchpoints of one process, the daemon's part: what its agent wants to be told of
 * (probe_agent_record.watches) is armed in every thread, by perf events or by ptrace, and the agent
 * hears what became of it (PROTO_ARMED).
 *
 * A thread looks at the agent's record for as long as there is anything to watch, and a while
 * longer. Nothing stays armed without an agent that listens: when it is gone, ends, or has no
 * handler of SIGTRAP any more, all is disarmed. */
#pragma once

#include <stdbool.h>

struct target;
struct watches;

/* What the watchpoints belong to, as the caller has it: `of` is handed to the functions. */
struct watches_owner {
    void *of;
    void (*ref)(void *of);
    void (*unref)(void *of);
    struct target *(*target)(void *of); /* with a reference; NULL once it has ended */
};

/* The watches belong to owner->of: whoever calls a function below has a reference to that. A
 * thread of theirs has its own. -ENOMEM. */
int watches_new(const struct watches_owner *owner, struct watches **out);
void watches_free(struct watches *watches); /* NULL is fine; no thread of it runs */

/* The agent wants something to be watched, or did a moment ago. Any
 * thread; doesn't wait. */
void watches_follow(struct watches *watches);
/* watches_follow(), and waits until all is armed that is wanted now, or can't be; for a moment at
 * most. */
void watches_settle(struct watches *watches);
/* Disarms all, and arms nothing until watches_let_go(): whoever is to end the agent, or unload its
 * library, has that done first. False: a thread can't be stopped, and may get SIGTRAP yet. */
bool watches_hold(struct watches *watches);
void watches_let_go(struct watches *watches);
/* Disarms all, for good. */
void watches_end(struct watches *watches);
