/* The history: what the daemon sees of all processes, appended to a file every few seconds, so that
 * it is there when the daemon isn't any more: how much each process used, what happened in it, its
 * exceptions and its crashes. All of it is seen from outside, and no process takes part.
 *
 * One thread does it, for which nobody waits: a process or a disk that hangs holds up the history
 * and nothing else. What could not be appended is tried again as long as the processes' own rings
 * hold it; of samples it is lost. */
#pragma once

#include "fs/history/file.h"
#include "fs/process/registry.h"

#define HISTORY_INTERVAL_NS 5000000000u
#define HISTORY_AGE_NS (7 * 86400000000000ull)
#define HISTORY_BYTES (1ull << 30)
#define HISTORY_PROCESSES_MAX 4096 /* that are followed; of more nothing is appended */
/* Events of one process that are appended each time; the rest is said to be lost. */
#define HISTORY_EVENTS_BYTES (64u << 10)
#define HISTORY_ROWS_MAX 200 /* of a recorded table, the same; the last ones stay */

struct history;

/* Makes the path of a file absolute, without links in it; *out is the caller's. The file need not
 * be there. -ENOENT: its directory isn't; -EINVAL: it names no file; why says it. */
int history_find(const char *path, struct text *why, char **out);

/* Opens the file (history_file_open()); the registry must outlive it. On failure why says more. */
int history_new(struct registry *registry, const char *path, const struct history_limits *limits,
                struct text *why, struct history **out);
/* From now on it is appended to. -EAGAIN. */
int history_start(struct history *history);
/* Appends what there is and stops. False: its thread hangs, and with it what it works with. */
bool history_end(struct history *history, uint64_t timeout_ns);
void history_free(struct history *history); /* NULL is fine */

/* The path of the file. */
const char *history_path(const struct history *history);
/* How it is doing, one `Key: value` a line. */
void history_status(struct history *history, struct text *out);
