/* The flight recorder: which tables are recorded, and into which rings.
 *
 * A ring is made when it is first needed and kept until the agent is detached, when recording is
 * switched off as well: its rows are what is wanted after a hang or a crash. Writers ask for it at
 * each row, which costs one load.
 *
 * A recorder puts its hooks into the program (`on`) and takes them out (`off`); its ring, who is
 * told of it, and what becomes of it all at fork and detach are the business of recorder.c. */
#pragma once

#include "agent/arch/arch.h"
#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"
#include "schema/rows.h"

#include <stdbool.h>

/* What writers look at. Where a child is made by fork(), or by a system call behind libc's back, it
 * finds this empty: two processes that write into one ring would tear its rows. */
union recorder_page {
    struct {
        struct ring *rings[RECORDED_TABLES]; /* NULL: nothing is recorded */
        bool alive;                          /* there is an agent that records */
        bool waiting[RECORDED_TABLES];       /* its ring is made at first use */
    };
    char bytes[ARCH_PAGE_MAX]; /* whole pages, for a fork */
};
extern union recorder_page recorder_page;

/* The ring that rows of the table go to now; NULL: none. It must not be kept for longer than a row
 * takes, nor while the GIL is given up. Any thread of a recorder, with the GIL. */
static inline struct ring *recorder_ring(enum recorded table)
{
    return __atomic_load_n(&recorder_page.rings[table], __ATOMIC_ACQUIRE);
}

struct ring *recorder_make_first(enum recorded table);

/* recorder_ring() of a table that is recorded unless somebody has switched it off (spans, events):
 * makes the ring at first use. NULL: switched off, or it could not be made, which isn't tried
 * again. With the GIL. */
static inline struct ring *recorder_first_use(enum recorded table)
{
    struct ring *ring = recorder_ring(table);
    if (ring || !__atomic_load_n(&recorder_page.waiting[table], __ATOMIC_RELAXED))
        return ring;
    return recorder_make_first(table);
}

/* A recorder has taken its hooks out by itself, after a mistake of its own: nothing is written any
 * more, and daemons are told so, with an errno. With the GIL. */
void recorder_gave_up(enum recorded table, int error);

extern PyObject *recorders_keep[INTERPRETERS_MAX][RECORDED_TABLES]; /* under GILs */

/* What a recorder keeps of an interpreter, under its GIL; *NULL: nothing is recorded there. */
static inline PyObject **recorder_kept(const struct interpreter *interpreter, enum recorded table)
{
    return &recorders_keep[interpreter_index(interpreter)][table];
}

/* One table's recorder. */
struct recorder {
    /* Puts the hooks into an interpreter, whose GIL is held, and keeps what `off` needs in
     * *recorder_kept(); they may be there already: then with another rate, or
     * after fork. Rows may be written once it has returned 0. -errno: it has undone what it
     * did; with a Python exception set it need not say words. words[], NUL-terminated: what
     * the user has to know, also on success.
     * Not `python`: on the channel's thread, interpreter is NULL. NULL: there is nothing to do. */
    int (*on)(struct interpreter *interpreter, const struct proto_record *record,
              char words[PROTO_WORDS_MAX]);
    /* Undoes that, in each interpreter of which something is kept, with its GIL; nothing is
     * written any more. Leaves no exception. The core drops that. Also at detach. */
    void (*off)(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
    /* In a child after fork, where its threads are gone, before anything else
     * runs; NULL: nothing. */
    void (*forget)(void);
    /* struct part; NULL: all of it is told of. */
    uint64_t (*look)(void);
    bool python;
    bool by_itself; /* recorded from its first use on, without RECORD_ON */
    /* proto_record's rate unless another one is asked for; 0: there is none. And the largest. */
    double rate, rate_max;
};

/* The recorders by table: serve/parts.c; each is in the .c of its table (gc.c, span.c, ...). NULL:
 * there is none. */
extern const struct recorder *const recorders[RECORDED_TABLES];
extern const struct recorder collectives_recorder, events_recorder, exceptions_recorder,
    gc_recorder, loop_recorder, process_recorder, spans_recorder, torch_profile_recorder,
    torch_trace_recorder;

/* What a row keeps of a str, whose bytes live as long as it does: NULL for None, for what isn't
 * one, or can't be told in UTF-8. Leaves no exception. With the GIL. */
struct ring_text recorder_text(PyObject *value);

/* ---- for the agent's own threads ---- */

/* Whether such a thing can be asked for. -errno, with words. */
int recorder_check(const struct proto_record *record, char words[PROTO_WORDS_MAX]);
/* What needs no GIL: makes or resizes the ring, or stops the writers. A ring that is resized drops
 * rows meanwhile, and counts them. Without agent_lock. 0 or -errno, with words. */
int recorder_prepare(const struct proto_record *record, char words[PROTO_WORDS_MAX]);
/* The rest: on or off. For those with `python` in the interpreter, with its GIL: the main one for
 * RECORD_OFF. Leaves no exception. 0 or -errno. */
int recorder_switch(struct interpreter *interpreter, const struct proto_record *record,
                    char words[PROTO_WORDS_MAX]);

/* Has recorders look at what nobody tells them of, as struct part says. */
uint64_t recorder_look(void);
/* Takes the hooks out of an interpreter. With its GIL. */
void recorder_leave(struct interpreter *interpreter);
/* Detached: ends our own threads and gives all rings up, those that are written with the GIL if
 * nobody can be writing any more. Channel's thread. */
void recorder_end(bool nobody_writes);
/* In a child after fork: nothing is recorded until an agent starts there. */
void recorder_forget(void);
/* Bytes of all rings. Any thread. */
uint64_t recorder_memory(void);
