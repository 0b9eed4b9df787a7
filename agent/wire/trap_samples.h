/* Samples that the agent takes in the handler of SIGTRAP (agent/sample/), as it keeps them in
 * memory that the daemon reads from outside: probe_agent_record.samples says where.
 *
 * A ring: sample number i, from 0 on, is in slot i % TRAP_SAMPLES_MAX, and there once `turn` is
 * i + 1. Who reads a slot and finds `next` to be more than TRAP_SAMPLES_MAX beyond it afterwards
 * has read what was being written anew. The reader takes it all for hostile. */
#pragma once

#include <stdint.h>

#define TRAP_SAMPLES_MAGIC 0x504d415346425full /* "_BFSAMP" */
#define TRAP_SAMPLES_MAX 512u
#define TRAP_FRAMES_MAX 252u /* from the innermost end; a slot is a page */

#define TRAP_SAMPLE_GIL 1u        /* the thread holds the GIL */
#define TRAP_SAMPLE_CUT 2u        /* there are more frames */
#define TRAP_FRAME_GENERATOR 2ull /* in the low bits of a frame's code: a generator's */

struct trap_frame {
    uint64_t code; /* PyCodeObject, and bits */
    uint64_t at;   /* 3.11 on: the instruction; before: f_lasti */
};

struct trap_sample {
    uint64_t turn;
    uint64_t when;   /* CLOCK_MONOTONIC, ns */
    uint64_t cpu_ns; /* that the thread has used, in all */
    uint64_t interp; /* PyInterpreterState; 0: no Python */
    uint64_t thread; /* pthread_t */
    int32_t tid;     /* in the target's own pid namespace */
    uint32_t flags;
    uint32_t n;    /* frames */
    uint32_t busy; /* the agent's own */
    uint64_t zero;
    struct trap_frame frames[TRAP_FRAMES_MAX]; /* innermost first */
};

struct trap_samples {
    uint64_t magic;
    uint64_t on;   /* since when, CLOCK_MONOTONIC, ns; 0: they are not taken */
    uint64_t next; /* the number that comes next */
    uint64_t lost; /* their slot was still being written */
    uint64_t late; /* told when the thread did something else: it had blocked SIGTRAP */
    uint64_t ns;   /* spent in the handler */
    uint64_t zero[506];
    struct trap_sample slot[TRAP_SAMPLES_MAX];
};

_Static_assert(sizeof(struct trap_sample) == 4096, "samples");
_Static_assert(sizeof(struct trap_samples) == 4096 * (1 + TRAP_SAMPLES_MAX), "samples");
