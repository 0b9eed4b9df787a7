/* What this process shows to a daemon that reads its memory: struct probe_agent_record. */
#pragma once

#include "agent/wire/proto.h"

#include <stdbool.h>

extern struct probe_agent_record probe_agent_record;

/* Whether the agent runs: its state, which other threads and the daemon look at without a lock. */
static inline bool record_is_running(void)
{
    return __atomic_load_n(&probe_agent_record.state, __ATOMIC_ACQUIRE) == RECORD_RUNNING;
}
static inline void record_set_state(enum record_state state)
{
    __atomic_store_n(&probe_agent_record.state, state, __ATOMIC_RELEASE);
}
