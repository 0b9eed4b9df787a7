/* What differs from machine to machine: all that this program knows of the one that it is built
 * for stands in one header, which has the same names as that of the others.
 *
 * The headers have facts, and functions of a few lines over the registers of a thread that
 * ptrace(2) has stopped, which are struct registers. What takes more than that is a .c of each
 * machine, in fs/arch/MACHINE/. */
#pragma once

#if defined __x86_64__
#include "agent/arch/x86_64.h"
#elif defined __aarch64__
#include "agent/arch/aarch64.h"
#else
#error "of this machine nothing is known: add agent/arch/MACHINE.h and fs/arch/MACHINE/"
#endif

#ifndef __ASSEMBLER__
/* Reads the registers of a stopped thread. 0, or -errno. */
static inline int registers_read(pid_t tid, struct registers *out);
/* Sets what registers_read() has read, and has been changed since. 0, or -errno. */
static inline int registers_write(pid_t tid, const struct registers *registers);

/* Program counter and stack pointer; the thread pointer. */
static inline uint64_t registers_pc(const struct registers *r);
static inline uint64_t registers_sp(const struct registers *r);
static inline uint64_t registers_tls(const struct registers *r);
/* Whether they are those of the thread with that pthread_t. */
static inline bool registers_are_of(const struct registers *r, uint64_t pthread);
/* The system call that the thread stands in, or is about to enter again; negative: none. */
static inline int64_t registers_syscall(const struct registers *r);
/* The value that a function or a system call has returned. */
static inline int64_t registers_result(const struct registers *r);

/* Whether the thread has come back with EINTR from a system call that it can be made to enter
 * again; registers_enter_again() has it do so. Of one that hasn't *r is of no use then. */
static inline bool registers_interrupted(pid_t tid, struct registers *r);
static inline void registers_enter_again(struct registers *r);
/* Whether it stands behind a system call, at pc, that the kernel would begin anew, or before it
 * since it has been made to enter it again. */
static inline bool registers_restarts(const struct registers *r, uint64_t pc);
/* Has the call that ends at pc return EINTR. */
static inline void registers_fail(struct registers *r, uint64_t pc);

/* Whether the call that it is in goes on by what the kernel keeps for that, one piece for each
 * thread. */
static inline bool registers_need_restart_block(const struct registers *r);
/* Has the thread, which stands behind that call, enter it anew instead, with the whole of its time.
 * False: it isn't told which call it is, as it has gone on like that before; *r is as it was. */
static inline bool registers_enter_anew(pid_t tid, struct registers *r);
/* Whether the thread can be put to another use for a moment, as far as its registers tell. */
static inline bool registers_can_be_borrowed(pid_t tid, const struct registers *r);
/* From the registers of a stopped thread those with which one that restores itself goes on: where
 * the kernel would have it enter its system call again, it does so itself. */
static inline void registers_resume(struct registers *r);
/* Sends the thread elsewhere, with another stack pointer. */
static inline void registers_redirect(struct registers *r, uint64_t pc, uint64_t sp);
/* Bytes of stack that saving all other registers takes; 0: this processor can't do it. */
static inline uint64_t registers_extended_size(void);
/* What the stub has to know of the thread that it can't find out (fs/inject/inject_abi.h). */
static inline uint64_t registers_for_stub(const struct registers *r);

/* By their DWARF number: ARCH_DW_N values, all of which are known. */
static inline void registers_to_dwarf(const struct registers *r, uint64_t value[]);

/* Argument i, from 0 to 5, of the system call. */
static inline uint64_t registers_argument(const struct registers *r, unsigned i);

/* Where a signal's context (ucontext(3)) was interrupted, and its stack pointer there. */
static inline uint64_t context_pc(const ucontext_t *context);
static inline uint64_t context_sp(const ucontext_t *context);

/* Whether a SIGTRAP with TRAP_BRKPT at an instruction, whose last byte that is, comes of a debug
 * register that the kernel couldn't name, and of nothing that the program did. */
static inline bool arch_is_unnamed_hit(uint8_t last_byte);
#endif
