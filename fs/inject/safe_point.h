/* Whether a stopped thread may be made to start a thread where it stands.
 *
 * It may not while it holds a lock that this needs: malloc's, the loader's, the one of the
 * thread stacks. Nobody can see locks, but one can see in which functions a thread is: its
 * stack is unwound by call frame information, from its registers to the interpreter's
 * evaluation loop or to where it began, and each frame must be one that is known not to matter.
 * What isn't understood is not safe.
 *
 * Not thread-safe. */
#pragma once

#include "fs/inject/libc_symbols.h"
#include "fs/remote/native/unwind.h"

#include <sys/user.h>

enum safety {
    SAFE,
    UNSAFE_LOADER,      /* in ld.so */
    UNSAFE_MALLOC,      /* in a module that provides malloc */
    UNSAFE_LIBC,        /* in a function of libc that is not listed */
    UNSAFE_SIGNAL,      /* in a signal handler */
    UNSAFE_UNKNOWN,     /* in code without call frame information, or of no file */
    UNSAFE_CHANGED,     /* in code that was mapped or unmapped since the last refresh */
    UNSAFE_STACK,       /* its stack has not enough room, or can't be read */
    UNSAFE_REGISTERS,   /* what it does can only go on where it is */
    UNSAFE_RESTARTABLE, /* in a restartable sequence, rseq(2) */
};

/* The place where a thread stood that wasn't safe. */
struct safety_place {
    uint64_t pc;
    bool exact;
    char module[64];
};

struct safe_points;

/* memory must outlive it. -ENOMEM. */
int safe_points_new(const struct memory *memory, struct safe_points **out);
void safe_points_free(struct safe_points *points);

/* Takes over what is mapped now. image_base: of the interpreter. -ENOMEM; -EOPNOTSUPP: no C library
 * that will do, why says it; -EAGAIN: it is only being loaded; -ESRCH, -EPERM. */
int safe_points_refresh(struct safe_points *points, uint64_t image_base, struct text *why);

const struct libc_symbols *safe_points_libc(const struct safe_points *points);
const struct maps *safe_points_maps(const struct safe_points *points);
struct modules *safe_points_modules(struct safe_points *points);

/* Whether the code at an address is still what it was at the last refresh. */
bool safe_points_mapped(struct safe_points *points, uint64_t addr);

/* Judges a stopped thread by its registers; room: bytes that its stack must have left. */
enum safety safe_point_check(struct safe_points *points, const struct registers *regs,
                             uint64_t room, struct safety_place *where);

/* Whether the thread last judged is in a system call that CPython itself made: its own code takes
 * EINTR for what it is and waits for the rest of the time (PEP 475). */
bool safe_point_in_cpython(const struct safe_points *points);

/* Whether the thread last judged waits outside Python: in a function of libc that waits for no
 * other thread, with no frame of the interpreter's image on its stack down to where it began. */
bool safe_point_outside_python(const struct safe_points *points);

/* The judgement in words: "in malloc() of libc.so.6". May read symbols: not while a thread is
 * stopped. */
void safety_describe(struct safe_points *points, enum safety safety,
                     const struct safety_place *where, struct text *out);
