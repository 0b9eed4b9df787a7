/* What one process's agent records, held by this daemon as well, so that it can be read when the
 * process hangs and after it has ended.
 *
 * Looking for rings is passive: the agent's record is read from outside (agent/wire/proto.h),
 * and the files that it names are opened through /proc/PID/fd. Once held a ring stays until
 * another one takes its place. */
#pragma once

#include "fs/link/found.h"
#include "fs/recording/ring_copy.h"
#include "fs/remote/moment/target.h"

#include "schema/rows.h"

struct recording;

/* -ENOMEM. The caller owns one reference. */
int recording_new(struct recording **out);
struct recording *recording_ref(struct recording *recording);
void recording_unref(struct recording *recording); /* NULL is fine */

/* Takes what the agent has by now: new rings, another size. Cheap where nothing changed: one read
 * of the agent's record, and nothing where there is no agent. 0: also if there is none. -ESRCH,
 * -EPERM, -EACCES, -ENOMEM, -EMFILE. */
int recording_refresh(struct recording *recording, struct target *target);
/* Whether that would read anything of the target. */
bool recording_due(struct recording *recording);
/* There may be an agent now that wasn't there when it was last looked for. at_once: the next
 * refresh looks for it, however recent the last look was. */
void recording_expect(struct recording *recording, bool at_once);
/* Who reads the target (process/examiner.h) has looked for an agent: NULL, there is none; else
 * where it is, and its record is still to be read. Refreshes never look for one themselves then. */
void recording_tell_agent(struct recording *recording, const struct found_agent *agent);
/* Whether that is wanted again. */
bool recording_wants_agent(struct recording *recording);
/* Rings are decoded by others, from now on, who answer as recording_copy(). of: passed on, and must
 * outlive the recording. */
struct ring_decoder {
    int (*copy)(void *of, struct ring_copy *copies, size_t n, struct text *answer);
    void *of;
};
void recording_decode_by(struct recording *recording, const struct ring_decoder *decoder);
/* Lets go of all rings. */
void recording_clear(struct recording *recording);

/* Copies what is asked of n of its rings, at most RING_COPIES_MAX; answer has the rows then, and is
 * the caller's to deinit. -ENOMEM; where others decode, what keeps them from it. */
int recording_copy(struct recording *recording, struct ring_copy *copies, size_t n,
                   struct text *answer);
/* Who decodes answers by that. Errors as ring_copy_write(). */
int recording_write_copies(struct recording *recording, const struct ring_ask *asks, size_t n,
                           struct text *answer);
/* Passes the last rows of a table's ring, no more than `most`, as ring_reader_follow() does, and
 * what is lost of them. counts: of all; zero: there is no ring. Returns as recording_copy(), or
 * what the follower does. */
int recording_pass(struct recording *recording, enum recorded table, uint64_t most,
                   const struct ring_follower *follower, struct ring_counts *counts);
/* Passes all, as ring_reader_scan() does. */
int recording_scan(struct recording *recording, enum recorded table,
                   int (*each)(void *arg, const struct ring_row *row), void *arg,
                   struct ring_counts *counts);
/* Counts the rows of a table. *size: of its ring, without the head, in bytes. 1; 0: it has no ring;
 * errors as recording_copy(). */
int recording_count(struct recording *recording, enum recorded table, struct ring_counts *out,
                    uint64_t *size);
/* Where the writer of a table's ring is. False: there is no ring, or it can't be told just now. */
bool recording_mark(struct recording *recording, enum recorded table, struct ring_mark *out);
/* Whether a table has a ring. */
bool recording_has(struct recording *recording, enum recorded table);

/* The ring of a table, with a reference; NULL: it was never recorded, or is none, or others are to
 * decode it. */
struct ring_reader *recording_ring(struct recording *recording, enum recorded table);
/* The file of such a ring, where somebody else decodes it (recording_tell_agent()): a descriptor of
 * the caller's, or -1: there is none. */
int recording_ring_file(struct recording *recording, enum recorded table);
/* Takes a ring that is held elsewhere, in place of another one. fd stays the caller's. -EPROTO: it
 * is none of that table; -ENOMEM. */
int recording_take_ring(struct recording *recording, enum recorded table, int fd);
/* Whether there is any. */
bool recording_any(struct recording *recording);
/* Bytes of memory that its rings, and the stacks of a crash, occupy. */
size_t recording_size(struct recording *recording);

/* Whether there was an agent that runs, when its record was last read. */
bool recording_attached(struct recording *recording);
/* Whether that agent wanted any memory to be watched (agent/wire/proto.h, struct probe_watch). */
bool recording_watching(struct recording *recording);

/* The agent of the last look; *out: as it was then. False: there was none, or it didn't run. */
bool recording_agent(struct recording *recording, struct found_agent *out);

/* What it does with a crash, when its record was last read: enum crash_mode. */
uint32_t recording_on_crash(struct recording *recording);
/* Keeps the stacks of a process that a signal is about to end, in the place of
 * earlier ones. Takes the text over. */
void recording_keep_crash(struct recording *recording, struct text *text);
/* Adds those; nothing where there are none. */
void recording_add_crash(struct recording *recording, struct text *out);

/* How a table is recorded now, as far as the agent's record said when it was last read. */
struct recording_state {
    bool on; /* or will be, from its first row on */
    double rate;
    int error; /* errno: why there is no ring although there was a row; 0 */
};
void recording_state(struct recording *recording, enum recorded table, struct recording_state *out);
