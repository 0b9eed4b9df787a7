/* What was seen of a process when it was last looked at, and when a second look is due.
 *
 * To find out whether a process runs CPython its mappings and images are read: up to a
 * millisecond, too much to do again for each of a thousand processes whenever someone lists the
 * mount. The answer holds until the process executes another program, or, where it was no, loads
 * a library: both show in /proc/PID/stat and statm. */
#pragma once

#include "fs/proc/procfs.h"

/* A library that brings an interpreter is larger than this (the smallest libpython3 is 3 MiB). */
#define LAST_LOOK_GROWTH (1u << 20) /* bytes */
/* After a look that found nothing the next waits so long, each time twice as
 * long up to the last. */
#define LAST_LOOK_WAIT_MIN 10000000u   /* ns */
#define LAST_LOOK_WAIT_MAX 1000000000u /* ns */

struct last_look {
    uint64_t start_time, start_code, start_stack; /* of struct proc_stat */
    uint64_t text;        /* pages, of struct proc_statm; set by whoever lists */
    uint64_t vsize;       /* bytes, the least seen since the look */
    uint64_t wait, until; /* ns; no look before `until` on CLOCK_MONOTONIC */
    bool found;           /* it runs CPython */
};

/* Whether the same process still runs the program that was seen. */
bool last_look_same(const struct last_look *look, const struct proc_stat *now);
/* Whether a listing may trust what was seen without reading stat. Learns from `now`. */
bool last_look_holds(struct last_look *look, const struct proc_statm *now, uint64_t page);
/* Whether the same program may have loaded an interpreter since. Learns from vsize. patient: only
 * once the wait is over. */
bool last_look_grown(struct last_look *look, uint64_t vsize, uint64_t time, bool patient);
/* Takes down the outcome of a look at `time`. */
void last_look_update(struct last_look *look, const struct proc_stat *seen, bool found,
                      uint64_t time);
