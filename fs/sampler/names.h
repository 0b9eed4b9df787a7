/* What the places that samples name are called: a code object and an instruction of it, or a
 * program counter, as a frame of the store. Both are remembered; what a code object is called is
 * looked up again after a second, for its memory may have become another one. Thread-safe; takes
 * the target's lock. */
#pragma once

#include "fs/profile/store.h"
#include "fs/remote/frames/frames.h"
#include "fs/remote/moment/target.h"

#define SAMPLER_NAMES_MAX 65536 /* places remembered; beyond, all are forgotten */
#define SAMPLER_NAMES_FRESH_NS 1000000000u

struct sampler_names;

/* target and store outlive it. -ENOMEM. */
int sampler_names_new(struct target *target, struct store *store, struct sampler_names **out);
void sampler_names_free(struct sampler_names *names);

/* The frame of a Python function: the address of its code object, without tags, and the offset of
 * the instruction in its bytecode, in bytes. One that can't be read is called "?". *until becomes
 * when that is to be looked up again, if it is later than that (CLOCK_MONOTONIC, ns). -ENOENT: it
 * has not been entered yet, and is left out; -ENOMEM, -ESRCH. */
int sampler_names_python(struct sampler_names *names, uint64_t code, int32_t lasti,
                         bool of_generator, uint32_t *id, uint64_t *until);
/* sampler_names_python() for a frame that a walk has found. The caller holds target->lock.
 * -ENOMEM. */
int sampler_names_raw(struct sampler_names *names, const struct raw_frame *frame, uint32_t *id);
/* Begins a round of sampler_names_thread() for threads of one interpreter that have been seen by
 * now: what threading calls them is read again if that was longer ago. However many threads a round
 * has, they are read twice more at most. The caller holds target->lock, here as below. */
void sampler_names_begin(struct sampler_names *names, uint64_t interp, uint64_t max_age_ns);
/* Has the store call a thread what threading does, else, unless it has a name, what the kernel
 * does. interp, thread: of its thread state; interp 0: it has none. */
void sampler_names_thread(struct sampler_names *names, uint64_t interp, uint64_t thread, pid_t tid);
/* Whether a frame that it has named is one of those that asyncio, or uvloop, calls tasks from. */
bool sampler_names_of_loop(struct sampler_names *names, uint32_t id);
/* The frame of native code, as the modules were when the target's native stacks were unwound last.
 * exact: pc is the instruction itself, else a return address. -ENOMEM. */
int sampler_names_native(struct sampler_names *names, uint64_t pc, bool exact, uint32_t *id);
