/* What a borrowed thread executes, out of the padding behind some code of the target. What it does,
 * and why so, stands in bootstrap_x86_64.S; this is the same for 64-bit ARM.
 *
 * No instruction of this machine sets the program counter and all other registers at once, but
 * rt_sigreturn() does. So the thread saves itself as the kernel would for a signal, and returns by
 * that, which also restores its signal mask.
 *
 * x19: the block, x20: the saved state. Source: struct rt_sigframe, arch/arm64/kernel/signal.c;
 * uapi/asm/sigcontext.h. */
#include "fs/inject/inject_abi.h"

#define SYS_ftruncate 46
#define SYS_close 57
#define SYS_tgkill 131
#define SYS_rt_sigreturn 139
#define SYS_getpid 172
#define SYS_gettid 178
#define SYS_munmap 215
#define SYS_mmap 222
#define SYS_memfd_create 279

#define PROT_RW 3
#define PROT_RX 5
#define MAP_SHARED 1
#define MAP_SHARED_FIXED 0x11
#define EINVAL 22
#define BTI_JC 38           /* a landing pad for jumps and calls; nothing where there are none */

#define FRAME 4704          /* bytes of struct rt_sigframe, aligned */
#define FRAME_FLAGS 128
#define FRAME_STACK 144     /* stack_t */
#define FRAME_MASK 168
#define FRAME_FAULT 304
#define FRAME_REGS 312      /* x0 to x30, sp, pc, pstate */
#define FRAME_VECTORS 592   /* struct fpsimd_context, and the end of such records */
#define FPSIMD_MAGIC 0x46508001
#define FPSIMD_SIZE 528
#define STACK_INVALID 4     /* stack_t.ss_flags: the thread's alternate stack stays what it is */

    .section .rodata
    .balign 16
    .globl bootstrap_begin, bootstrap_end, bootstrap_unmap
    .hidden bootstrap_begin, bootstrap_end, bootstrap_unmap
bootstrap_begin:
    sub sp, sp, #4096
    sub sp, sp, #(FRAME - 4096)
    stp x0, x1, [sp, #FRAME_REGS]
    add x0, sp, #FRAME_REGS
    stp x2, x3, [x0, #16]
    stp x4, x5, [x0, #32]
    stp x6, x7, [x0, #48]
    stp x8, x9, [x0, #64]
    stp x10, x11, [x0, #80]
    stp x12, x13, [x0, #96]
    stp x14, x15, [x0, #112]
    stp x16, x17, [x0, #128]
    stp x18, x19, [x0, #144]
    stp x20, x21, [x0, #160]
    stp x22, x23, [x0, #176]
    stp x24, x25, [x0, #192]
    stp x26, x27, [x0, #208]
    stp x28, x29, [x0, #224]
    mov x20, sp
    add x19, x20, #4096
    add x19, x19, #(FRAME - 4096)
    add x1, x19, #BLOCK_SIZE
    stp x30, x1, [x0, #240]
    ldr x1, [x19, #BLOCK_RESUME]
    ldr x2, [x19, #BLOCK_EXTRA]         /* pstate */
    stp x1, x2, [x0, #256]
    stp xzr, xzr, [x20, #FRAME_FLAGS]
    mov x1, #STACK_INVALID
    stp xzr, x1, [x20, #FRAME_STACK]
    str xzr, [x20, #(FRAME_STACK + 16)]
    ldr x1, [x19, #BLOCK_MASK]
    str x1, [x20, #FRAME_MASK]
    str xzr, [x20, #FRAME_FAULT]
    add x0, x20, #FRAME_VECTORS
    mov w1, #(FPSIMD_MAGIC & 0xffff)
    movk w1, #(FPSIMD_MAGIC >> 16), lsl #16
    mov w2, #FPSIMD_SIZE
    stp w1, w2, [x0]
    mrs x1, fpsr
    mrs x2, fpcr
    stp w1, w2, [x0, #8]
    stp q0, q1, [x0, #16]
    stp q2, q3, [x0, #48]
    stp q4, q5, [x0, #80]
    stp q6, q7, [x0, #112]
    stp q8, q9, [x0, #144]
    stp q10, q11, [x0, #176]
    stp q12, q13, [x0, #208]
    stp q14, q15, [x0, #240]
    stp q16, q17, [x0, #272]
    stp q18, q19, [x0, #304]
    stp q20, q21, [x0, #336]
    stp q22, q23, [x0, #368]
    stp q24, q25, [x0, #400]
    stp q26, q27, [x0, #432]
    stp q28, q29, [x0, #464]
    stp q30, q31, [x0, #496]
    str xzr, [x0, #FPSIMD_SIZE]

    ldr x1, [x19, #BLOCK_MEMFD_SIZE]
    cbz x1, .Lmapped
1:  mov x8, #SYS_memfd_create
    add x0, x19, #BLOCK_NAME
    ldr x1, [x19, #BLOCK_MEMFD_FLAGS]
    svc #0
    cmn x0, #EINVAL
    b.ne 2f
    ldr x1, [x19, #BLOCK_MEMFD_FLAGS]
    tbz x1, #4, 2f                      /* MEMFD_EXEC, not known to this kernel */
    bic x1, x1, #MEMFD_EXEC
    str x1, [x19, #BLOCK_MEMFD_FLAGS]
    b 1b
2:  tbnz x0, #63, .Lfailed
    str x0, [x19, #BLOCK_FD]
    ldr x1, [x19, #BLOCK_MEMFD_SIZE]
    mov x8, #SYS_ftruncate
    svc #0
    tbnz x0, #63, .Lclose
    mov x0, #0
    mov x1, #SHIM_MAPPED
    mov x2, #PROT_RX
    mov x3, #MAP_SHARED
    ldr x4, [x19, #BLOCK_FD]
    ldr x5, [x19, #BLOCK_OFFSET]
    mov x8, #SYS_mmap
    svc #0
    tbnz x0, #63, .Lclose
    str x0, [x19, #BLOCK_CONTROL]
    mov x1, #SHIM_PAGE
    mov x2, #PROT_RW
    mov x3, #MAP_SHARED_FIXED
    ldr x4, [x19, #BLOCK_FD]
    ldr x5, [x19, #BLOCK_OFFSET]
    mov x8, #SYS_mmap
    svc #0
    tbnz x0, #63, .Lunmap
.Lmapped:
    mov x1, #BOOTSTRAP_MAPPED
    str x1, [x19, #BLOCK_STATE]
    bl .Lnotify
    mov x0, #0
    ldr x1, [x19, #BLOCK_GO]
    cbz x1, .Lunmap

    msr fpcr, xzr
    ldr x0, [x19, #BLOCK_CONTROL]
    ldr x1, [x19, #BLOCK_WORK]
    add x1, x1, x0
    blr x1
    add x0, x20, #FRAME_VECTORS         /* a daemon restores the others only */
    ldp w1, w2, [x0, #8]
    msr fpsr, x1
    msr fpcr, x2
    ldp q0, q1, [x0, #16]
    ldp q2, q3, [x0, #48]
    ldp q4, q5, [x0, #80]
    ldp q6, q7, [x0, #112]
    ldp q8, q9, [x0, #144]
    ldp q10, q11, [x0, #176]
    ldp q12, q13, [x0, #208]
    ldp q14, q15, [x0, #240]
    ldp q16, q17, [x0, #272]
    ldp q18, q19, [x0, #304]
    ldp q20, q21, [x0, #336]
    ldp q22, q23, [x0, #368]
    ldp q24, q25, [x0, #400]
    ldp q26, q27, [x0, #432]
    ldp q28, q29, [x0, #464]
    ldp q30, q31, [x0, #496]
    ldr x0, [x19, #BLOCK_CONTROL]
    mov w1, #1
    stlr w1, [x0]                       /* CONTROL_LEFT: from now on it may be unmapped */
    mov x1, #BOOTSTRAP_DONE
    str x1, [x19, #BLOCK_STATE]
    b .Lrestore

.Lunmap:
    ldr x1, [x19, #BLOCK_MEMFD_SIZE]
    cbz x1, .Lfailed
    mov x21, x0
    ldr x0, [x19, #BLOCK_CONTROL]
    mov x1, #SHIM_MAPPED
    mov x8, #SYS_munmap
    svc #0
    mov x0, x21
.Lclose:
    mov x21, x0
    ldr x0, [x19, #BLOCK_FD]
    mov x8, #SYS_close
    svc #0
    mov x0, x21
.Lfailed:
    str x0, [x19, #BLOCK_ERROR]
    mov x1, #BOOTSTRAP_FAILED
    str x1, [x19, #BLOCK_STATE]

.Lrestore:
    bl .Lnotify                         /* a daemon that lives restores the thread from here */
    mov sp, x20
    mov x8, #SYS_rt_sigreturn
    svc #0

/* Stops the thread, if somebody traces it. */
.Lnotify:
    mov x8, #SYS_getpid
    svc #0
    mov x21, x0
    mov x8, #SYS_gettid
    svc #0
    mov x1, x0
    mov x0, x21
    ldr x2, [x19, #BLOCK_SIGNAL]
    mov x8, #SYS_tgkill
    svc #0
    ret

/* The end of the new thread's function: x0 and x1 are the shim's mapping, where it comes from.
 * Returns NULL to libc. */
    .balign 8
bootstrap_unmap:
    hint #BTI_JC
    mov x8, #SYS_munmap
    svc #0
    mov x0, #0
    ret
    .balign 8
bootstrap_end:

    .section .note.GNU-stack, "", @progbits
