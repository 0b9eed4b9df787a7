/* The program in the kernel, once for the daemon: its parts, and the maps that they share.
 *
 * Loaded by bpf(2) alone, from the bytes that program_update made: neither a compiler nor libbpf is
 * needed where the daemon runs. (libbpf would bring relocation against the kernel's types, of which
 * we have a dozen offsets, and skeletons, of which we have eight programs. Less than what has to be
 * said to it.) Whatever is in the kernel goes with the descriptors: when the daemon ends, nothing
 * is left. Needs Linux 5.15, its type information, and CAP_BPF and CAP_PERFMON, or root. */
#pragma once

#include "fs/base/text.h"
#include "fs/sampler/bpf/records.h"

#include <stdint.h>

enum kernel_part {
    PART_INTRODUCED,
    PART_FORKED, /* always listens, as do the next two */
    PART_EXECUTED,
    PART_ENDED,
    PART_DEPARTED, /* listens as long as anybody wants it */
    PART_RETURNED,
    PART_SAMPLED, /* for events */
    PART_FAULTED,
    KERNEL_PARTS
};

#define PROCESSORS_MAX 8192 /* Linux has no more on x86-64 */

struct program {
    int maps[KERNEL_MAPS]; /* descriptors, -1: not made */
    int parts[KERNEL_PARTS];
    int links[KERNEL_PARTS]; /* what attaches those that listen to the whole machine */
    unsigned switch_users;   /* of PART_DEPARTED and PART_RETURNED */
    unsigned users;
    unsigned processors; /* how many values a map has that is kept per processor */
    uint64_t event_ns;   /* what an event costs a thread, without the program; 0: not known */
};

/* Loads it, or takes part in it: a reference, given back by program_put(). Below 0: *why says in
 * words why not, and what would help. */
int program_get(struct program **out, struct text *why);
void program_put(struct program *program);
/* A part that is for events: its descriptor, which stays ours; below 0 as program_get(). */
int program_part(struct program *program, enum kernel_part part, struct text *why);
/* Listens for threads that leave and come back, as long as anybody wants that. As program_get(). */
int program_hear_switches(struct program *program, struct text *why);
void program_ignore_switches(struct program *program);

/* bpf(2) on a map; 0 or -errno. */
int map_get(int map, const void *key, void *value);
int map_set(int map, const void *key, const void *value);
int map_drop(int map, const void *key);
/* The key behind one; NULL: the first. -ENOENT: none. */
int map_next(int map, const void *key, void *next);
/* A ring buffer of a power of two of pages. A descriptor or -errno. */
int map_new_ring(uint32_t bytes);
