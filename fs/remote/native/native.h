/* The native (C) frames of a target's threads, read from outside.
 *
 * A reading has two halves. While the thread stands still (it sleeps in a system call, or the GIL's
 * holder is stopped), its registers and its stack are copied: native_capture(). Later, when the
 * target runs again, the copy is unwound with the call frame information that the loaded modules
 * carry in memory (.eh_frame): native_unwind(). Nothing is guessed: where that information ends,
 * the stack ends too, and says why.
 *
 * Of a sleeping thread the kernel tells the stack pointer and the program counter only. The other
 * registers become known as the unwinding meets the places where functions saved them. A function
 * that is found by its frame pointer before that is measured instead (frame_size.h).
 *
 * Not thread-safe; the target's lock guards it. */
#pragma once

#include "agent/arch/arch.h"
#include "fs/proc/lwp.h"
#include "fs/proc/maps.h"
#include "fs/remote/memory/memory.h"
#include "fs/remote/native/regs.h"

#include <sys/types.h>

#define NATIVE_FRAMES_MAX 2048         /* of one stack, from its innermost end */
#define NATIVE_STACK_MAX (1u << 20)    /* bytes of one stack that are copied ... */
#define NATIVE_COPIES_MAX (256u << 20) /* ... and of all stacks of one reading */

/* All registers, as ptrace(2) gives them. */
void native_regs_set(struct native_regs *regs, const struct registers *registers);

/* Why a stack has no more frames. */
enum native_end {
    NATIVE_BASE = 1,    /* it is complete: this is where the thread began */
    NATIVE_RUNNING,     /* not captured: it was running */
    NATIVE_GONE,        /* not captured: no such thread any more, or not allowed */
    NATIVE_TORN,        /* it ran while it was being copied: no frames */
    NATIVE_NO_INFO,     /* a function without call frame information */
    NATIVE_NO_MODULE,   /* code that belongs to no file: generated at run time */
    NATIVE_NO_REGISTER, /* needs a register whose value is not known */
    NATIVE_UNREADABLE,  /* the stack is not readable here, or makes no sense */
    NATIVE_SHORT,       /* more stack than was copied; the next capture copies more */
    NATIVE_LIMIT,       /* NATIVE_FRAMES_MAX or NATIVE_STACK_MAX */
};

/* The reason in words, "native frames end here: ..."; NULL for NATIVE_BASE. */
const char *native_end_describe(enum native_end end);

struct native_frame {
    uint64_t pc;      /* a return address, unless `exact` */
    uint64_t sp, cfa; /* the frame is [sp, cfa); cfa is 0 if its end is not known */
    bool exact;       /* pc is the instruction itself: innermost, or interrupted by a signal */
    bool eval;        /* runs in the interpreter's evaluation loop */
};

struct native_stack {
    /* in */
    pid_t tid;
    uint64_t tls; /* pthread_t, or 0: stacks of threads end below it */
    bool stopped; /* `regs` is set and the thread is stopped; else it is asked for */
    struct native_regs regs;
    /* out */
    long syscall;                 /* that it sleeps in, or -1 */
    uint64_t args[LWP_ARGUMENTS]; /* of that system call */
    enum native_end end;
    struct native_frame *frames; /* innermost first; owned by the stack */
    size_t nframes;
    /* internal: the copy is [low, high), at `copy` among all copies */
    uint64_t low, high;
    size_t copy;
    bool cut;     /* there is more of the stack above it */
    char ran[64]; /* how much the kernel says a sleeping thread has run */
};

/* What is known of a target's native code, one for each target. memory must outlive it. -ENOMEM. */
struct native;
int native_new(const struct memory *memory, struct native **out);
void native_free(struct native *native);
/* Bytes that it keeps from one reading to the next, and drops. */
size_t native_size(const struct native *native);
void native_forget(struct native *native);
/* Drops only the room for copies of stacks. */
void native_rest(struct native *native);

/* Unwinds with another engine than the build's (unwind.h): for comparing them. */
struct unwind_engine;
void native_use(struct native *native, const struct unwind_engine *engine);

/* Begins a reading: copies of an earlier one that was not unwound are forgotten. */
void native_begin(struct native *native);

/* First half, for any number of threads: registers of those that sleep, then all stacks with one
 * system call. May be called for some threads before the GIL's holder is stopped, and for the
 * holder then. What a stopped thread has more of stack than was copied is lost (NATIVE_SHORT; the
 * next reading copies more); sleeping ones are extended by native_unwind(). maps may be NULL or
 * old: it only spares reading beyond the end of a stack. 0, -ESRCH, -EPERM, -ENOMEM. */
int native_capture(struct native *native, const struct maps *maps, struct native_stack *stacks,
                   size_t n);

/* Second half, for all captured stacks of this reading: frames. maps must be what is mapped now;
 * image_base is that of the interpreter (struct runtime) or 0. Each sleeping thread is looked at
 * once more: one that has run meanwhile becomes NATIVE_TORN. 0, -ESRCH, -EPERM, -ENOMEM. */
int native_unwind(struct native *native, const struct maps *maps, uint64_t image_base,
                  struct native_stack *stacks, size_t n);

/* Frees what the stacks own, not the array. */
void native_stacks_deinit(struct native_stack *stacks, size_t n);

/* What lies at a frame's pc. Strings live until the next native_unwind() and are not escaped. */
struct native_symbol {
    const char *name;   /* demangled; NULL: there is no symbol */
    const char *module; /* base name of the file, "[vdso]", or "" */
    uint64_t offset;    /* of pc in the module's file addresses, or in the file where that is no
                         * ELF image; pc itself without a module */
};
void native_resolve(struct native *native, const struct native_frame *frame,
                    struct native_symbol *out);
