/* What a thread that waits for an answer of ours has been signalled meanwhile.
 *
 * The kernel tells that a waiting writer got some signal, once, and not which. That may be
 * Ctrl-C, or the end of a shell's background job, which is no reason to stop what it waits for. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether a signal is pending for thread tid that means to end what it does: any but those that
 * programs ignore unless they ask for them, and a profiler's. True where that can't be seen. */
bool signals_urgent(pid_t tid);

/* signals_urgent() by the text of a /proc/TID/status. */
bool signals_parse_urgent(const char *status);
