/* From the registers and a copy of the stack to native frames, and what lies at each pc.
 *
 * What was found out about a pc (its module, the rule to its caller, its name) is kept until the
 * mappings change, so that a warm stack costs a look-up and two loads a frame. */
#pragma once

#include "fs/remote/native/modules.h"
#include "fs/remote/native/native.h"

#define PCS_MAX 16384 /* program counters that are known at once */

struct stack_copy {
    uint64_t low, high; /* [low, high) */
    const uint8_t *data;
    bool cut; /* there is more of it above */
};

/* What is known of one program counter. */
struct pc {
    uint64_t addr;         /* of the instruction: a return address is looked up by the byte before
                              it, since a call can be its function's last instruction; 0: empty */
    struct module *module; /* NULL: none */
    int rules;             /* 0: row is set, else why not: -ENOENT, -ENOEXEC and the like */
    struct cfi_row row;
    int64_t depth; /* measured size of the frame here; 0: not yet, -1: can't be told */
    bool named;
    char *name;  /* raw symbol, NULL if there is none */
    char *shown; /* demangled */
};

struct unwinder;

/* How a stack is unwound. Two are there: unwind_own reads call frame information itself and keeps
 * account of which registers are known; unwind_libunwind is a library's, where the build has it. */
struct unwind_engine {
    /* Innermost frame first, at most max frames. Returns why it ended. */
    enum native_end (*unwind)(struct unwinder *u, const struct stack_copy *copy,
                              const struct native_regs *regs, struct native_frame *frames,
                              size_t max, size_t *n);
    /* Drops what it keeps in u->kept: the mappings changed, or the unwinder ends. May be NULL. */
    void (*forget)(struct unwinder *u);
};
extern const struct unwind_engine unwind_own, unwind_libunwind;

struct unwinder {
    const struct unwind_engine *engine; /* UNWINDER, an option of the build, until it is changed */
    void *kept;                         /* the engine's */
    struct modules modules;
    struct pc *pcs;      /* hashed by addr, open addressing */
    size_t npcs, alloc;  /* alloc: a power of two, or 0 */
    size_t names;        /* bytes of their names */
    struct pc spare;     /* used when the table is full: one at a time, without a name */
    uint64_t image_base; /* of the interpreter */
    uint64_t eval;       /* start of its evaluation function, 0: not known */
};

void unwinder_init(struct unwinder *u, const struct memory *memory);
void unwinder_deinit(struct unwinder *u);
/* Bytes that it keeps, and drops but for what is mapped. */
size_t unwinder_size(const struct unwinder *u);
void unwinder_forget(struct unwinder *u);

/* Takes over what is mapped now; forgets what is no longer so. -ENOMEM. */
int unwinder_refresh(struct unwinder *u, const struct maps *maps, uint64_t image_base);

/* Unwinds with the engine that is set. */
enum native_end unwind(struct unwinder *u, const struct stack_copy *copy,
                       const struct native_regs *regs, struct native_frame *frames, size_t max,
                       size_t *n);

/* Whether a frame's pc lies in the interpreter's evaluation loop. */
bool unwinder_in_eval(struct unwinder *u, uint64_t pc, bool exact);
/* What is known of a frame's pc, without its name. Never NULL; valid until the next call. */
const struct pc *unwinder_pc(struct unwinder *u, uint64_t pc, bool exact);
/* What is known of a frame's pc, its name too. Never NULL. */
const struct pc *unwinder_name(struct unwinder *u, uint64_t pc, bool exact);
