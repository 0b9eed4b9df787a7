/* 64-bit x86. Sources: System V ABI for x86-64; Intel SDM; Linux, arch/x86. */
#pragma once

#define ARCH_PAGE_MAX 4096 /* bytes: the largest that pages can have */
#define ARCH_RED_ZONE 128  /* bytes below a stack pointer, in use: System V ABI, 3.2.2 */

#ifndef __ASSEMBLER__
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <ucontext.h>

#define ARCH_NAME "64-bit x86"
#define ARCH_ELF EM_X86_64
#define ARCH_AUDIT AUDIT_ARCH_X86_64
#define ARCH_RELOCATION_SLOT R_X86_64_JUMP_SLOT
#define ARCH_RELOCATION_ADDRESS R_X86_64_GLOB_DAT

/* Whether debug registers are used: those of this machine tell of a write when it is done. */
#define ARCH_WATCHES true
/* Whether the program that the kernel runs for samples (fs/sampler/bpf) is for this machine. */
#define ARCH_SAMPLES_IN_KERNEL true

/* ---- registers ---- */

struct registers {
    struct user_regs_struct user;
};

/* By their DWARF number (System V ABI, figure 3.36). */
enum {
    ARCH_DW_FRAME = 6,   /* rbp */
    ARCH_DW_SP = 7,      /* rsp */
    ARCH_DW_PC = 16,     /* rip ... */
    ARCH_DW_RETURN = 16, /* ... which call frame information means by the return address, too */
    ARCH_DW_N = 17,
    ARCH_DW_KEPT = 1u << 3 | 1u << 6 | 0xfu << 12, /* by callees: rbx, rbp and r12 to r15 */
};
#define ARCH_CALL_PUSHES 8 /* bytes, the return address */
/* Whether glibc's description of a thread (struct pthread) lies above what its thread pointer has,
 * else below it. */
#define ARCH_DESCRIPTION_ABOVE true
/* The offset of a thread's number in that: glibc's, musl's. */
#define ARCH_PTHREAD_TID 0x2d0, 0x30

static inline int registers_read(pid_t tid, struct registers *out)
{
    struct iovec io = {&out->user, sizeof out->user};

    return ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &io) < 0 ? -errno : 0;
}

static inline int registers_write(pid_t tid, const struct registers *registers)
{
    struct iovec io = {(void *)&registers->user, sizeof registers->user};

    return ptrace(PTRACE_SETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &io) < 0 ? -errno : 0;
}

static inline uint64_t registers_pc(const struct registers *r) { return r->user.rip; }
static inline uint64_t registers_sp(const struct registers *r) { return r->user.rsp; }
static inline uint64_t registers_tls(const struct registers *r) { return r->user.fs_base; }
static inline bool registers_are_of(const struct registers *r, uint64_t pthread)
{
    return r->user.fs_base == pthread;
}
static inline int64_t registers_syscall(const struct registers *r)
{
    return (int64_t)r->user.orig_rax;
}
static inline int64_t registers_result(const struct registers *r) { return (int64_t)r->user.rax; }

static inline uint64_t registers_argument(const struct registers *r, unsigned i)
{
    const uint64_t arguments[] = {r->user.rdi, r->user.rsi, r->user.rdx,
                                  r->user.r10, r->user.r8,  r->user.r9};
    return arguments[i];
}

static inline void registers_to_dwarf(const struct registers *r, uint64_t value[])
{
    const struct user_regs_struct *user = &r->user;
    const uint64_t values[ARCH_DW_N] = {user->rax, user->rdx, user->rcx, user->rbx, user->rsi,
                                        user->rdi, user->rbp, user->rsp, user->r8,  user->r9,
                                        user->r10, user->r11, user->r12, user->r13, user->r14,
                                        user->r15, user->rip};
    memcpy(value, values, sizeof values);
}

/* ---- system calls that are begun anew ---- */

#define ARCH_SYSCALL_SIZE 2                               /* bytes of the instruction */
#define ARCH_IS_SYSCALL(code) (((code)&0xffff) == 0x050f) /* 0f 05, little endian */
/* What the kernel leaves in rax of a system call that it means to begin anew
 * (include/linux/errno.h). */
#define ARCH_ERESTARTSYS 512
#define ARCH_ERESTARTNOINTR 513
#define ARCH_ERESTARTNOHAND 514
#define ARCH_ERESTART_RESTARTBLOCK 516
#define ARCH_TRAP_FLAG 0x100ull

/* Whether registers tell a return from a system call from one of a signal's handler. */
#define ARCH_TELLS_INTERRUPTION true

static inline bool registers_interrupted(pid_t tid, struct registers *r)
{
    if (registers_result(r) != -EINTR)
        return false;
    errno = 0;
    long code =
        ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(r->user.rip - ARCH_SYSCALL_SIZE), NULL);
    return !errno && ARCH_IS_SYSCALL(code);
}

static inline void registers_enter_again(struct registers *r)
{
    r->user.rip -= ARCH_SYSCALL_SIZE;
    r->user.rax = r->user.orig_rax;
}

static inline bool registers_restarts(const struct registers *r, uint64_t pc)
{
    int64_t result = registers_result(r);

    if (r->user.rip == pc)
        return result <= -ARCH_ERESTARTSYS && result >= -ARCH_ERESTART_RESTARTBLOCK;
    return r->user.rip == pc - ARCH_SYSCALL_SIZE && r->user.rax == r->user.orig_rax;
}

static inline void registers_fail(struct registers *r, uint64_t pc)
{
    r->user.rip = pc;
    r->user.rax = (uint64_t)-EINTR;
    r->user.orig_rax = (uint64_t)-1; /* or else the kernel would look for a restart code */
}

static inline bool registers_need_restart_block(const struct registers *r)
{
    return registers_syscall(r) >= 0 && (registers_result(r) == -ARCH_ERESTART_RESTARTBLOCK ||
                                         registers_result(r) == SYS_restart_syscall);
}

/* The call that a thread is in. Of one that has gone on by SYS_restart_syscall the code before it
 * may tell: `mov $NUMBER, %eax`. -1: it isn't told. */
static inline long arch_call_of(pid_t tid, const struct registers *r)
{
    uint64_t code;

    if (registers_syscall(r) != SYS_restart_syscall)
        return registers_syscall(r);
    errno = 0;
    code = (uint64_t)ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(r->user.rip - sizeof code),
                            NULL);
    return !errno && (code >> 8 & 0xff) == 0xb8 && ARCH_IS_SYSCALL(code >> 48)
               ? (long)(code >> 16 & 0xffffffff)
               : -1;
}

static inline bool registers_enter_anew(pid_t tid, struct registers *r)
{
    long number = arch_call_of(tid, r);

    if (number < 0)
        return false;
    r->user.orig_rax = (uint64_t)number;
    registers_enter_again(r);
    return true;
}

static inline bool registers_can_be_borrowed(pid_t tid, const struct registers *r)
{
    (void)tid;
    (void)r;
    return true;
}

static inline void registers_resume(struct registers *r)
{
    if (registers_syscall(r) < 0)
        return;
    switch (-registers_result(r)) {
    case ARCH_ERESTARTSYS:
    case ARCH_ERESTARTNOINTR:
    case ARCH_ERESTARTNOHAND: registers_enter_again(r); break;
    case ARCH_ERESTART_RESTARTBLOCK:
        r->user.rip -= ARCH_SYSCALL_SIZE;
        r->user.rax = SYS_restart_syscall;
        break;
    }
}

static inline void registers_redirect(struct registers *r, uint64_t pc, uint64_t sp)
{
    r->user.rip = pc;
    r->user.rsp = sp;
    r->user.orig_rax = ~0ull; /* in no system call */
    r->user.eflags &= ~ARCH_TRAP_FLAG;
}

/* What xsave writes (Intel SDM volume 1, 13.2): the same on all of a machine. */
static inline uint64_t registers_extended_size(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) ||
        !__get_cpuid_count(0xd, 0, &a, &b, &c, &d))
        return 0;
    return (b + 63u) & ~63ull;
}

static inline uint64_t registers_for_stub(const struct registers *r)
{
    (void)r;
    return registers_extended_size();
}

static inline uint64_t context_pc(const ucontext_t *context)
{
    return (uint64_t)context->uc_mcontext.gregs[REG_RIP];
}

static inline uint64_t context_sp(const ucontext_t *context)
{
    return (uint64_t)context->uc_mcontext.gregs[REG_RSP];
}

/* The kernel says so where DR6 is empty (exc_debug_user() of arch/x86/kernel/traps.c): after int1,
 * f1. It is empty also where KVM, before Linux 6.14, has lost what was in it, as it does now and
 * then of a guest that gets few processors ("the guest's value may be stale if a VM-Exit is handled
 * in the fastpath"). */
static inline bool arch_is_unnamed_hit(uint8_t last_byte) { return last_byte != 0xf1; }

/* ---- instructions ---- */

/* Tells the processor that this thread waits for another one. */
static inline void arch_relax(void) { __builtin_ia32_pause(); }

/* A system call without libc, which takes no notice of it in errno. Returns -errno on failure. */
static inline long arch_call(long number, long a, long b, long c, long d, long e)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

/* unlink(2), likewise: it is this call. */
#define ARCH_UNLINK SYS_unlink
static inline long arch_unlink(const char *path)
{
    return arch_call(ARCH_UNLINK, (long)(uintptr_t)path, 0, 0, 0, 0);
}

/* Assembler: a function `name` that calls thread_main() with its own argument. Where that returns
 * an address the function goes on there, with its argument and `size` as the first two; else it
 * returns. */
#define ARCH_CALL_AND_LEAVE(name, size) \
 name ":\n"                             \
      "    push %rbx\n"                 \
      "    mov %rdi, %rbx\n"            \
      "    call thread_main\n"          \
      "    mov %rbx, %rdi\n"            \
      "    pop %rbx\n"                  \
      "    test %rax, %rax\n"           \
      "    jz 1f\n"                     \
      "    mov $" size ", %esi\n"       \
      "    jmp *%rax\n"                 \
      "1:  ret\n"

/* Where the registers of whatever a signal interrupted lie above the stack pointer, if the code is
 * that which returns from a signal's handler; 0: call frame information tells that. */
static inline uint64_t arch_signal_registers(const uint8_t code[static 8]) { return 0; }

/* A return address without what authenticates it: nothing does. */
static inline uint64_t arch_code_address(uint64_t value) { return value; }

static inline int32_t arch_load32(const uint8_t *p)
{
    int32_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

/* Whether a call ends before p, which is in code: a direct one, or one through memory or a
 * register. */
static inline bool arch_is_behind_call(const uint8_t *p)
{
    return p[-5] == 0xe8 || (p[-2] == 0xff && (p[-1] & 0x38) == 0x10) ||
           (p[-3] == 0xff && (p[-2] & 0x38) == 0x10) || (p[-6] == 0xff && (p[-5] & 0x38) == 0x10);
}

/* Where a direct call goes that ends before p; 0: it isn't one. */
static inline uint64_t arch_called(const uint8_t *p)
{
    return p[-5] == 0xe8 ? (uint64_t)(uintptr_t)p + (uint64_t)(int64_t)arch_load32(p - 4) : 0;
}

/* The slot by which a call goes that ends before p; 0: it isn't such a call. */
static inline uint64_t arch_called_by_slot(const uint8_t *p)
{
    return p[-6] == 0xff && p[-5] == 0x15
               ? (uint64_t)(uintptr_t)p + (uint64_t)(int64_t)arch_load32(p - 4)
               : 0;
}

/* The slot by which an entry of the linkage table at p jumps, of which 16 bytes can be read (psABI
 * of x86-64, 5.2); 0: it is no such entry. */
static inline uint64_t arch_linkage_slot(const uint8_t *p)
{
    p += memcmp(p, "\xf3\x0f\x1e\xfa", 4) ? 0 : 4; /* endbr64 */
    p += *p == 0xf2;                               /* bnd */
    return p[0] == 0xff && p[1] == 0x25
               ? (uint64_t)(uintptr_t)(p + 6) + (uint64_t)(int64_t)arch_load32(p + 2)
               : 0;
}
#endif
