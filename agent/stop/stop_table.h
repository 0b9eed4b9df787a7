/* The threads that are held, as daemons see them without asking (probe_agent_record.stops). */
#pragma once

#include "agent/wire/proto.h"

/* All with agent_lock. */

/* Takes an entry and fills it; change is ignored. NULL: there is none left. */
struct probe_stop *stop_table_take(const struct probe_stop *stop);
/* A thread that is held is at another line now. */
void stop_table_set_line(struct probe_stop *entry, int32_t line);
/* Gives it back; NULL is fine. */
void stop_table_free(struct probe_stop *entry);
void stop_table_forget(void);
