/* How often a thread was given a processor, and for how long: while both stay the same, the thread
 * has not run, and is the same one. Source: /proc/PID/task/TID/schedstat; where the kernel keeps
 * none, the context switches of status. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct runs {
    uint64_t ns, n;
    uint64_t queued_ns; /* for which it wanted a processor and had none; 0 where that isn't kept */
};

/* Another number whenever the thread has run, or runs. The time alone is noted only at the end of a
 * run, and at times on the way. */
static inline uint64_t runs_number(const struct runs *runs) { return runs->ns + runs->n; }

/* The text of a schedstat file. False: the kernel doesn't count. */
bool runs_parse(const char *text, struct runs *out);
/* -ESRCH, -EACCES. */
int runs_read(pid_t pid, pid_t tid, struct runs *out);
/* How often the thread gave its processor up to wait for something; 0 if that can't be read. */
uint64_t runs_voluntary(pid_t pid, pid_t tid);
