/* The events of a process: one for each of its threads, which those that they start inherit. */
#pragma once

#include "fs/base/text.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PERF_EVENTS_MAX 4096 /* threads that have one of their own, and haven't inherited it */

struct perf_events {
    struct event {
        int fd;
        pid_t tid;
        uint64_t period; /* it has now; 0: the usual one */
    } * items; /* ascending by tid; of threads that bore the same one, the last one first */
    size_t n, alloc;
    struct perf_event_attr attr;
    int part;
};

/* Opens an event of PERF_TYPE_SOFTWARE (config, period) for all threads that there are, or only for
 * tid, if that isn't 0, a clock with a period as perf_events_vary() gives it; children: those that
 * it forks inherit it, too. Runs `part` whenever it happens, and begins. -ESRCH: it has ended;
 * -EPERM, -EMFILE, -ENOMEM and whatever perf_event_open(2) says: *why says it in words. The caller
 * owns *events (perf_events_deinit). */
int perf_events_open(struct perf_events *events, pid_t pid, pid_t tid, uint64_t config,
                     uint64_t period, bool children, int part, struct text *why);
/* Opens the event for a thread that started meanwhile, and has inherited none; not for one that has
 * an event. anew: one that had this number, and one, has ended. (Its event stays: others may have
 * inherited it, and lose it with that.) Where it isn't possible any more nothing happens. */
void perf_events_add(struct perf_events *events, pid_t tid, bool anew);
/* Gives the event of a thread another period, at random: the usual rate more or less by half, so
 * that nothing that comes as regularly stays in step with it. What has passed of the old one is
 * lost: half of it on average, which is what is returned; 0: it has no event of its own. */
uint64_t perf_events_vary(struct perf_events *events, pid_t tid);
void perf_events_deinit(struct perf_events *events);

/* What an event costs the thread that it interrupts, when nobody looks at it: measured here, in
 * some 20 ms of processor time. trapped: one that sends SIGTRAP, handler included. [ns]; 0: it
 * can't be told. */
uint64_t perf_events_cost(bool trapped);
