/* What a borrowed thread executes, out of the padding behind some code of the target.
 *
 * The thread arrives with the registers that it was stopped with, save rip, and rsp at a struct
 * bootstrap_block below its red zone. It makes the memfd and maps the shim, raises a signal that
 * stops it for the daemon, which fills the memfd and sets `go`; calls the shim; and raises the signal
 * again, upon which the daemon restores it.
 *
 * Where the block says a size of 0, nothing is made or mapped: what is called is in the target
 * already, BLOCK_WORK behind BLOCK_CONTROL, which is its argument.
 *
 * All that holds without a daemon, too: then the signal does nothing, `go` is not set, what was made
 * is undone, and the thread restores its mask, its registers and its stack pointer by itself. No
 * breakpoint, no single step: a thread that stopped with SIGTRAP dies of it with its tracer.
 *
 * rbx: the block, rbp: the saved registers, r12: the saved extended state. */
#include "fs/inject/inject_abi.h"

#define SYS_mmap 9
#define SYS_munmap 11
#define SYS_rt_sigprocmask 14
#define SYS_getpid 39
#define SYS_close 3
#define SYS_ftruncate 77
#define SYS_gettid 186
#define SYS_tgkill 234
#define SYS_memfd_create 319

#define SIG_SETMASK 2
#define PROT_RW 3
#define PROT_RX 5
#define MAP_SHARED 1
#define MAP_SHARED_FIXED 0x11
#define ERROR_MIN -4095
#define EINVAL 22
#define SAVED 128           /* 16 registers of 8 bytes */
#define XSAVE_LEGACY 512
#define MXCSR_DEFAULT 0x1f80

    .section .rodata
    .balign 16
    .globl bootstrap_begin, bootstrap_end, bootstrap_unmap
    .hidden bootstrap_begin, bootstrap_end, bootstrap_unmap
bootstrap_begin:
    pushfq
    push %rax
    push %rcx
    push %rdx
    push %rbx
    push %rbp
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    cld
    mov %rsp, %rbp
    lea SAVED(%rsp), %rbx

    cmpq $0, BLOCK_MEMFD_SIZE(%rbx)
    je .Lmapped
1:  mov $SYS_memfd_create, %eax
    lea BLOCK_NAME(%rbx), %rdi
    mov BLOCK_MEMFD_FLAGS(%rbx), %rsi
    syscall
    cmp $-EINVAL, %rax
    jne 2f
    btrq $4, BLOCK_MEMFD_FLAGS(%rbx)    /* MEMFD_EXEC, not known to this kernel */
    jc 1b
2:  test %rax, %rax
    js .Lfailed
    mov %rax, BLOCK_FD(%rbx)
    mov %rax, %rdi
    mov BLOCK_MEMFD_SIZE(%rbx), %rsi
    mov $SYS_ftruncate, %eax
    syscall
    test %rax, %rax
    js .Lclose
    xor %edi, %edi
    mov $SHIM_MAPPED, %esi
    mov $PROT_RX, %edx
    mov $MAP_SHARED, %r10d
    mov BLOCK_FD(%rbx), %r8
    mov BLOCK_OFFSET(%rbx), %r9
    mov $SYS_mmap, %eax
    syscall
    cmp $ERROR_MIN, %rax
    jae .Lclose
    mov %rax, BLOCK_CONTROL(%rbx)
    mov %rax, %rdi
    mov $SHIM_PAGE, %esi
    mov $PROT_RW, %edx
    mov $MAP_SHARED_FIXED, %r10d
    mov BLOCK_FD(%rbx), %r8
    mov BLOCK_OFFSET(%rbx), %r9
    mov $SYS_mmap, %eax
    syscall
    cmp $ERROR_MIN, %rax
    jae .Lunmap
.Lmapped:
    movq $BOOTSTRAP_MAPPED, BLOCK_STATE(%rbx)
    call .Lnotify
    xor %eax, %eax
    cmpq $0, BLOCK_GO(%rbx)
    je .Lunmap

    sub BLOCK_EXTRA(%rbx), %rsp
    and $-64, %rsp
    mov %rsp, %r12
    lea XSAVE_LEGACY(%r12), %rdi        /* its header must be zero */
    xor %eax, %eax
    mov $8, %ecx
    rep stosq
    mov $-1, %eax
    mov $-1, %edx
    xsave64 (%r12)
    fninit
    push $MXCSR_DEFAULT
    ldmxcsr (%rsp)
    add $8, %rsp                        /* aligned to 64 again */
    mov BLOCK_CONTROL(%rbx), %rdi
    mov BLOCK_WORK(%rbx), %rax
    add %rdi, %rax
    call *%rax
    mov $-1, %eax
    mov $-1, %edx
    xrstor64 (%r12)
    mov %rbp, %rsp
    mov BLOCK_CONTROL(%rbx), %rax
    movl $1, CONTROL_LEFT(%rax)         /* from now on it may be unmapped */
    movq $BOOTSTRAP_DONE, BLOCK_STATE(%rbx)
    jmp .Lrestore

.Lunmap:
    cmpq $0, BLOCK_MEMFD_SIZE(%rbx)
    je .Lfailed
    mov %rax, BLOCK_ERROR(%rbx)
    mov BLOCK_CONTROL(%rbx), %rdi
    mov $SHIM_MAPPED, %esi
    mov $SYS_munmap, %eax
    syscall
    mov BLOCK_ERROR(%rbx), %rax
.Lclose:
    mov %rax, BLOCK_ERROR(%rbx)
    mov BLOCK_FD(%rbx), %rdi
    mov $SYS_close, %eax
    syscall
    mov BLOCK_ERROR(%rbx), %rax
.Lfailed:
    mov %rax, BLOCK_ERROR(%rbx)
    movq $BOOTSTRAP_FAILED, BLOCK_STATE(%rbx)

.Lrestore:
    call .Lnotify                       /* a daemon that lives restores the thread from here */
    mov $SIG_SETMASK, %edi
    lea BLOCK_MASK(%rbx), %rsi
    xor %edx, %edx
    mov $8, %r10d
    mov $SYS_rt_sigprocmask, %eax
    syscall
    mov %rbp, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rbp
    pop %rbx
    pop %rdx
    pop %rcx
    pop %rax
    popfq
    ret $(BLOCK_SIZE - 8 + ARCH_RED_ZONE) /* to BLOCK_RESUME, with rsp as it was */

/* Stops the thread, if somebody traces it. */
.Lnotify:
    mov $SYS_getpid, %eax
    syscall
    mov %rax, %r13
    mov $SYS_gettid, %eax
    syscall
    mov %r13, %rdi
    mov %rax, %rsi
    mov BLOCK_SIGNAL(%rbx), %rdx
    mov $SYS_tgkill, %eax
    syscall
    ret

/* The end of the new thread's function: rdi and rsi are the shim's mapping, where it comes from.
 * Returns NULL to libc. */
    .balign 8
bootstrap_unmap:
    mov $SYS_munmap, %eax
    syscall
    xor %eax, %eax
    ret
    .balign 8
bootstrap_end:

    .section .note.GNU-stack, "", @progbits
