/* How far the agent's life has come, of interest on every floor. */
#pragma once

#include <stdbool.h>

/* The agent's states, with agent_lock; agent_changed is broadcast where one of them becomes
 * true. */
struct life {
    bool ending;    /* the main interpreter ends: no request runs any more */
    bool detaching; /* a DETACH waits or runs */
    bool detached;  /* ...and has given up what was Python's */
};
extern struct life agent_life;
