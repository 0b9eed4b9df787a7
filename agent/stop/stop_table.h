/* The threads that are held, and those that are to be paused, as daemons see them without asking
 * (probe_agent_record.stops and .pauses). */
#pragma once

#include "agent/wire/proto.h"

/* A thread, by its pthread_t, is to be paused; where there is no room for it, nobody sees that. Any
 * thread, as all of these. */
void pause_table_add(uint64_t thread, uint64_t here);
/* A thread isn't to be paused any more. */
void pause_table_remove(uint64_t thread);
/* None of the threads is that an open file paused (`here`); 0: none at all. */
void pause_table_clear(uint64_t here);

/* All the following with agent_lock. */

/* Takes an entry and fills it; change is ignored. NULL: there is none left. */
struct probe_stop *stop_table_take(const struct probe_stop *stop);
/* A thread that is held is at another line now. */
void stop_table_set_line(struct probe_stop *entry, int32_t line);
/* Gives it back; NULL is fine. */
void stop_table_free(struct probe_stop *entry);
void stop_table_forget(void);
