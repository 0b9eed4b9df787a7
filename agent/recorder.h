/* The flight recorder: which tables are recorded, and into which rings.
 *
 * A ring is made when it is first needed and kept until the agent is detached, when recording is switched off as
 * well: its rows are what is wanted after a hang or a crash. Writers ask for it at each row, which costs one load. */
#pragma once

#include "agent/proto.h"
#include "schema/rows.h"

#include <stdbool.h>

/* The rings that are written; NULL: that table is not recorded. */
extern struct ring *recorder_rings[RECORDED_TABLES];

/* Where rows of the table go now; NULL: nowhere. Any thread. */
static inline struct ring *recorder_ring(enum recorded table)
{
    return __atomic_load_n(&recorder_rings[table], __ATOMIC_ACQUIRE);
}

/* The same for tables that are recorded unless somebody has switched them off (spans, events): makes
 * the ring at first use. NULL: switched off, or it could not be made, which isn't tried again. With the GIL. */
struct ring *recorder_first_use(enum recorded table);

/* Begins to write into a ring of that size (0: as it is, or the default). Any thread, without agent.lock.
 * 0 or -errno. */
int recorder_open(enum recorded table, uint64_t size);
/* Nothing is written any more; the ring stays. */
void recorder_close(enum recorded table);

/* CLOCK_REALTIME, [s]; what the rows' times are. About as fast as CLOCK_MONOTONIC. */
double recorder_now(void);

/* One table's recorder. */
struct recorder {
    /* With the GIL of the interpreter, if `python`; else on the channel's thread. 0 or -errno, and
     * words, of at most words_size bytes, say more; also on success, what the user has to know. */
    int (*on)(const struct proto_record *record, char *words, size_t words_size);
    int (*off)(char *words, size_t words_size); /* whatever `on` did in any interpreter is undone */
    bool python;
    bool by_itself; /* recorded from its first use on, without RECORD_ON */
};

/* By table; each in the .c of its table (record_gc.c, spans.c, ...). */
extern const struct recorder *const recorders[RECORDED_TABLES];

/* Carries out a request: dispatch.c for those without Python, thread.c for the others. */
int recorder_run(const struct proto_record *record, char *words, size_t words_size);
/* Detaching: all is switched off (with the GIL), then the rings are given up. */
void recorder_off_all(void);
void recorder_end(void);
/* In a child after fork: nothing is recorded until it is asked for. */
void recorder_forget(void);
