/* The places of one process that debug registers watch, each by one of the two routes. */
#pragma once

#include "fs/watch/by_perf.h"
#include "fs/watch/by_ptrace.h"

struct watch_slots {
    pid_t pid;
    struct {
        bool traced;          /* armed by ptrace */
        struct by_perf *perf; /* armed by perf */
    } slots[PROTO_WATCHES_MAX];
    struct by_ptrace *tracer; /* NULL: nothing is armed by ptrace */
};

/* Arms one that isn't armed, by a route that the agent allows: perf first. *route: by which, on
 * failure too. -errno as by_perf_arm() and by_ptrace_set(), -EINVAL: no register can watch
 * that; why says it in words, and, where it was armed, which threads are not watched. */
int watch_slots_arm(struct watch_slots *slots, unsigned slot, const struct probe_watch *watch,
                    enum watch_route *route, struct text *why);
bool watch_slots_armed(const struct watch_slots *slots, unsigned slot);
void watch_slots_disarm(struct watch_slots *slots, unsigned slot);
void watch_slots_disarm_all(struct watch_slots *slots);
/* To be called every few milliseconds. 0; or those armed by ptrace are so no
 * more: as by_ptrace_attend(). */
int watch_slots_attend(struct watch_slots *slots);
