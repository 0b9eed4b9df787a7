/* The rings that there are, one for a table: made at first use, resized, given back, and shown to
 * daemons in probe_agent_record.
 *
 * Their lock is held for moments only and may be waited for with the GIL; it is taken
 * before agent_lock. Making a ring, and moving rows from one to another, takes
 * longer: that is done without it. */
#pragma once

#include "agent/record/recorder.h"

/* Sees to it that the table has a ring, of `size` bytes (0: as it is, or the default), its rows
 * kept. Those that are written meanwhile are dropped, and counted. One thread at a time for
 * each table, but for its first use.
 * 0 or -errno: as ring_new(), -EBUSY resized too often, -EAGAIN a thread is
 * writing all the time, -ESHUTDOWN. */
int rings_make(enum recorded table, uint64_t size);
/* Writers find the ring from now on, or none. rate 0: as it was. */
void rings_switch(enum recorded table, bool on, double rate);

/* Whether there is a ring that is written with the GIL. */
bool rings_with_gil(void);
/* Gives back what is left of those that were resized, of tables that are written
 * so: nobody has one in hand. */
void rings_free_retired(bool with_gil);

/* The agent starts, with agent_lock: the tables that are recorded from their
 * first use on wait for it. */
void rings_begin(void);
/* From now on nothing is written, and no ring is made. */
void rings_stop(void);
/* After that: gives them all up; those that are written with the GIL only if
 * nobody can be writing still. */
void rings_end(bool nobody_writes);
/* Drops all rings, in a child after fork. */
void rings_forget(void);
/* Keep rings from changing during a fork. */
void rings_lock(void);
void rings_unlock(void);
