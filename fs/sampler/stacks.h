/* From what the kernel's program wrote down to the frames of a profile.
 *
 * Not thread-safe. Takes the target's lock for short. */
#pragma once

#include "fs/profile/store.h"
#include "fs/remote/moment/target.h"
#include "fs/remote/native/native.h"
#include "fs/sampler/bpf/records.h"
#include "fs/sampler/tasks.h"

/* Frames of a stack: Python's, native ones between them, and a few words. */
#define STACKS_IDS_MAX (KERNEL_FRAMES_MAX + NATIVE_FRAMES_MAX + 4 + SAMPLER_TASKS_ABOVE)

/* The native half of a sample, its pieces together. */
struct native_copy {
    pid_t tid;
    uint64_t when; /* of the record that it belongs to */
    uint64_t regs[21];
    size_t size; /* bytes of the stack, from the stack pointer upwards */
    bool cut;    /* there may be more of it */
    uint8_t stack[KERNEL_STACK_PIECES * KERNEL_STACK_PIECE];
};

struct stacks;

/* target, names, tasks and store outlive it. tasks: NULL, and none is shown. -ENOMEM. */
int stacks_new(struct target *target, struct sampler_names *names, struct sampler_tasks *tasks,
               struct store *store, struct stacks **out);
void stacks_free(struct stacks *stacks);
/* Resolves a record with frames: the numbers of its frames, the outermost first. native: what
 * belongs to it, or NULL. The reason of a wait is the innermost one. *ids belongs to stacks, until
 * the next call, and so does *place: where the store has this stack; NULL: it isn't remembered. How
 * many; -ENOMEM, -ESRCH. */
ssize_t stacks_resolve(struct stacks *stacks, const struct kernel_record *record,
                       const struct native_copy *native, const uint32_t **ids,
                       struct store_place **place);
/* The frame that says why a thread left the processor. -ENOMEM. */
int stacks_reason(const struct stacks *stacks, const struct kernel_record *record, uint32_t *id);
/* Native stacks that weren't complete. */
uint64_t stacks_incomplete(const struct stacks *stacks);
