/* 64-bit ARM. Sources: Procedure Call Standard for the Arm 64-bit Architecture; DWARF for the same;
 * Arm Architecture Reference Manual; Linux, arch/arm64. */
#pragma once

#define ARCH_PAGE_MAX 65536 /* bytes: the largest that pages can have */
#define ARCH_RED_ZONE 0     /* bytes below a stack pointer, in use: none */

#ifndef __ASSEMBLER__
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_NAME "64-bit ARM"
#define ARCH_ELF EM_AARCH64
#define ARCH_AUDIT AUDIT_ARCH_AARCH64
#define ARCH_RELOCATION_SLOT R_AARCH64_JUMP_SLOT
#define ARCH_RELOCATION_ADDRESS R_AARCH64_GLOB_DAT

/* Whether debug registers are used: those of this machine tell of a write before it is done. */
#define ARCH_WATCHES false
/* Whether the program that the kernel runs for samples (fs/sampler/bpf) is for this machine. */
#define ARCH_SAMPLES_IN_KERNEL false

/* Older calls that this machine has never had: numbers of none. */
enum {
    SYS_access = -1000,
    SYS_dup2,
    SYS_epoll_wait,
    SYS_getdents,
    SYS_lstat,
    SYS_open,
    SYS_pause,
    SYS_poll,
    SYS_readlink,
    SYS_select,
    SYS_stat,
    SYS_time,
    SYS_unlink,
};

/* ---- registers ---- */

struct registers {
    struct user_regs_struct user; /* `regs` are x0 to x30 */
    uint64_t tls;
    int64_t syscall; /* as registers_syscall() tells it */
    uint64_t first;  /* argument of a call that registers_interrupted() has found */
};

/* By their DWARF number, which is that in the instruction set. It has none for the program counter,
 * which call frame information finds in x30, where calls leave the return address. */
enum {
    ARCH_DW_FRAME = 29,
    ARCH_DW_RETURN = 30,
    ARCH_DW_SP = 31,
    ARCH_DW_PC = 32,
    ARCH_DW_N = 33,
    ARCH_DW_KEPT = 0xfffu << 19, /* by callees, x19 to x29; and x30 until it is saved */
};
#define ARCH_CALL_PUSHES 0 /* bytes */
/* Whether glibc's description of a thread (struct pthread) lies above what its thread pointer has,
 * else below it. */
#define ARCH_DESCRIPTION_ABOVE false
#define ARCH_DESCRIPTION_SIZE_MAX 4096 /* bytes */
/* The offset of a thread's number in that: glibc's, musl's. */
#define ARCH_PTHREAD_TID 0xd0, 0x20

#define ARCH_SYSCALL_SIZE 4                                    /* bytes of the instruction */
#define ARCH_IS_SYSCALL(code) ((uint32_t)(code) == 0xd4000001) /* svc #0 */
#define ARCH_BTYPE (3ull << 10) /* of pstate: after what branch the next instruction is */

static inline bool arch_is_syscall_at(pid_t tid, uint64_t address)
{
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(address & ~7ull), NULL);
    return !errno && ARCH_IS_SYSCALL((uint64_t)code >> (address & 4 ? 32 : 0));
}

static inline int arch_read_set(pid_t tid, int set, void *out, size_t size)
{
    struct iovec io = {out, size};

    return ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)set, &io) < 0 ? -errno : 0;
}

/* In a stop by ptrace(2) the kernel has already forgotten which system call the thread was in, and
 * put a thread that begins it anew before the instruction, with the first argument in its place
 * (do_signal(), arch/arm64/kernel/signal.c). x8 keeps the call's number. */
static inline int registers_read(pid_t tid, struct registers *out)
{
    int call = -1;

    int r = arch_read_set(tid, NT_PRSTATUS, &out->user, sizeof out->user);
    if (r == 0)
        r = arch_read_set(tid, NT_ARM_TLS, &out->tls, sizeof out->tls);
    if (r < 0)
        return r;
    arch_read_set(tid, NT_ARM_SYSTEM_CALL, &call, sizeof call);
    out->syscall = call;
    if (call < 0 && out->user.regs[8] < 1024 &&
        (arch_is_syscall_at(tid, out->user.pc) ||
         ((int64_t)out->user.regs[0] == -EINTR &&
          arch_is_syscall_at(tid, out->user.pc - ARCH_SYSCALL_SIZE))))
        out->syscall = (int64_t)out->user.regs[8];
    return 0;
}

static inline int registers_write(pid_t tid, const struct registers *registers)
{
    struct iovec io = {(void *)&registers->user, sizeof registers->user};

    return ptrace(PTRACE_SETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &io) < 0 ? -errno : 0;
}

static inline uint64_t registers_pc(const struct registers *r) { return r->user.pc; }
static inline uint64_t registers_sp(const struct registers *r) { return r->user.sp; }
static inline uint64_t registers_tls(const struct registers *r) { return r->tls; }
/* pthread_t is the address of glibc's description, which ends at the thread pointer. */
static inline bool registers_are_of(const struct registers *r, uint64_t pthread)
{
    return pthread < r->tls && r->tls - pthread <= ARCH_DESCRIPTION_SIZE_MAX;
}
static inline int64_t registers_syscall(const struct registers *r) { return r->syscall; }
static inline int64_t registers_result(const struct registers *r)
{
    return (int64_t)r->user.regs[0];
}
static inline uint64_t registers_argument(const struct registers *r, unsigned i)
{
    return r->user.regs[i];
}

static inline void registers_to_dwarf(const struct registers *r, uint64_t value[])
{
    memcpy(value, r->user.regs, sizeof r->user.regs);
    value[ARCH_DW_SP] = r->user.sp;
    value[ARCH_DW_PC] = r->user.pc;
}

/* ---- system calls that are begun anew ---- */

/* Whether registers tell a return from a system call from one of a signal's handler. */
#define ARCH_TELLS_INTERRUPTION false

/* A call's result lies where its first argument was. Of that the kernel has a copy, which /proc
 * shows of a thread in a system call: for a moment it is said to be in one. Linux 7.2 shows the
 * result in its place: then what it was isn't known, and the call has returned EINTR. */
static inline bool registers_interrupted(pid_t tid, struct registers *r)
{
    int call = (int)r->user.regs[8], none = -1;
    struct iovec io = {&call, sizeof call};
    char path[64], text[256];

    if (registers_result(r) != -EINTR || r->syscall < 0 ||
        !arch_is_syscall_at(tid, r->user.pc - ARCH_SYSCALL_SIZE))
        return false;
    snprintf(path, sizeof path, "/proc/%d/syscall", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    void *set = (void *)(uintptr_t)NT_ARM_SYSTEM_CALL;
    bool told = ptrace(PTRACE_SETREGSET, tid, set, &io) == 0;
    ssize_t n = told ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    io.iov_base = &none;
    if (told)
        ptrace(PTRACE_SETREGSET, tid, set, &io);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%*d %" SCNx64, &r->first) == 1 && atoi(text) == call &&
           r->first != r->user.regs[0];
}

static inline void registers_enter_again(struct registers *r)
{
    r->user.pc -= ARCH_SYSCALL_SIZE;
    r->user.regs[0] = r->first;
}

static inline bool registers_restarts(const struct registers *r, uint64_t pc)
{
    return r->syscall >= 0 && r->user.pc == pc - ARCH_SYSCALL_SIZE;
}

static inline void registers_fail(struct registers *r, uint64_t pc)
{
    r->user.pc = pc;
    r->user.regs[0] = (uint64_t)-EINTR;
}

static inline bool registers_need_restart_block(const struct registers *r)
{
    return r->syscall == SYS_restart_syscall;
}

static inline bool registers_enter_anew(pid_t tid, struct registers *r)
{
    (void)tid;
    (void)r;
    return false;
}

/* Whether it is before or in a system call with a time from now on: stopped there, it goes on with
 * what is left of that only if the kernel is the one that has it enter the call again. */
static inline bool registers_sleep_for(const struct registers *r)
{
    const unsigned long long *x = r->user.regs;

    switch (r->syscall) {
    case SYS_nanosleep: return true;
    case SYS_clock_nanosleep: return !(x[1] & TIMER_ABSTIME);
    case SYS_futex: return (x[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && x[3];
    default: return false;
    }
}

/* Whether the thread computes with scalable vectors, which system calls forget, and which are not
 * saved with its other registers. Source: Documentation/arm64/sve.rst. */
static inline bool registers_have_vectors(pid_t tid)
{
    struct {
        uint32_t size, max_size;
        uint16_t length, max_length, flags, reserved;
    } head = {0};

    return (arch_read_set(tid, 0x405 /* NT_ARM_SVE */, &head, sizeof head) == 0 &&
            (head.flags & 1)) ||
           (arch_read_set(tid, 0x40b /* NT_ARM_SSVE */, &head, sizeof head) == 0 &&
            (head.flags & 1));
}

static inline bool registers_can_be_borrowed(pid_t tid, const struct registers *r)
{
    return !registers_sleep_for(r) && !registers_have_vectors(tid);
}

static inline void registers_resume(struct registers *r) {}

static inline void registers_redirect(struct registers *r, uint64_t pc, uint64_t sp)
{
    r->user.pc = pc;
    r->user.sp = sp;
    r->user.pstate &= ~ARCH_BTYPE;
}

/* What the stub has on its stack: a signal's frame, and a few words. */
static inline uint64_t registers_extended_size(void) { return 8192; }

static inline uint64_t registers_for_stub(const struct registers *r) { return r->user.pstate; }

static inline uint64_t context_pc(const ucontext_t *context) { return context->uc_mcontext.pc; }
static inline uint64_t context_sp(const ucontext_t *context) { return context->uc_mcontext.sp; }

static inline bool arch_is_unnamed_hit(uint8_t last_byte)
{
    (void)last_byte;
    return false;
}

/* ---- instructions ---- */

/* Tells the processor that this thread waits for another one. */
static inline void arch_relax(void) { __asm__ volatile("yield"); }

/* A system call without libc, which takes no notice of it in errno. Returns -errno on failure. */
static inline long arch_call(long number, long a, long b, long c, long d, long e)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}

/* unlink(2), likewise: it is this call. */
#define ARCH_UNLINK SYS_unlinkat
static inline long arch_unlink(const char *path)
{
    return arch_call(ARCH_UNLINK, -100 /* AT_FDCWD */, (long)(uintptr_t)path, 0, 0, 0);
}

/* Assembler: a function `name` that calls thread_main() with its own argument. Where that returns
 * an address the function goes on there, with its argument and `size` as the first two; else it
 * returns. By x16, as a landing pad for calls takes jumps from there, too. */
#define ARCH_CALL_AND_LEAVE(name, size) \
 name ":\n"                             \
      "    stp x29, x30, [sp, #-32]!\n" \
      "    str x0, [sp, #16]\n"         \
      "    bl thread_main\n"            \
      "    mov x16, x0\n"               \
      "    ldr x0, [sp, #16]\n"         \
      "    ldp x29, x30, [sp], #32\n"   \
      "    cbz x16, 1f\n"               \
      "    mov x1, #" size "\n"         \
      "    br x16\n"                    \
      "1:  mov x0, #0\n"                \
      "    ret\n"

static inline uint32_t arch_load32(const uint8_t *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

/* Whether a call ends before p, which is in code: bl, or blr and its kin. */
static inline bool arch_is_behind_call(const uint8_t *p)
{
    uint32_t code = arch_load32(p - 4);

    return (code & 0xfc000000) == 0x94000000 || (code & 0xfeffe000) == 0xd63f0000;
}

/* Where a direct call goes that ends before p; 0: it isn't one. */
static inline uint64_t arch_called(const uint8_t *p)
{
    uint32_t code = arch_load32(p - 4);

    return (code & 0xfc000000) == 0x94000000
               ? (uint64_t)(uintptr_t)(p - 4) + (uint64_t)((int64_t)((uint64_t)code << 38) >> 36)
               : 0;
}

/* No call of this machine goes by a slot. */
static inline uint64_t arch_called_by_slot(const uint8_t *p) { return 0; }

/* The slot by which an entry of the linkage table at p jumps, of which 16 bytes can be read: adrp
 * x16, ldr x17 from there; 0: it is no such entry. */
static inline uint64_t arch_linkage_slot(const uint8_t *p)
{
    p += arch_load32(p) == 0xd503245f ? 4 : 0; /* bti c */
    uint32_t page = arch_load32(p), load = arch_load32(p + 4);
    if ((page & 0x9f00001f) != 0x90000010 || (load & 0xffc003ff) != 0xf9400211)
        return 0;
    uint64_t offset = (uint64_t)(page >> 5 & 0x7ffff) << 2 | (page >> 29 & 3);
    return ((uint64_t)(uintptr_t)p & ~4095ull) + (uint64_t)((int64_t)(offset << 43) >> 31) +
           (load >> 10 & 0xfff) * 8;
}

/* Where the registers of whatever a signal interrupted lie above the stack pointer, as ptrace(2)
 * has them, if the code is that which returns from a signal's handler; else 0. The kernel's has no
 * call frame information. Source: struct rt_sigframe, arch/arm64/kernel/signal.c. */
static inline uint64_t arch_signal_registers(const uint8_t code[static 8])
{
    bool is_return = arch_load32(code) == 0xd2801168 /* mov x8, #SYS_rt_sigreturn */ &&
                     ARCH_IS_SYSCALL(arch_load32(code + 4));

    return is_return ? sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.regs) : 0;
}

/* A return address without what authenticates it (PAC): the bits above the 48 of an address. */
static inline uint64_t arch_code_address(uint64_t value) { return value & 0xffffffffffffull; }
#endif
