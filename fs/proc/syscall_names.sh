#!/bin/sh
# Prints `[__NR_name] = "name",` for each system call of the machine, from the kernel's own header.
echo '#include <asm/unistd.h>' | "$@" -E -dM - | sed -n '
    /__NR_syscalls /d
    /__NR_arch_specific_syscall /d
    s/^#define __NR_\([a-z0-9_]*\) \(__NR[A-Z0-9]*_[a-z0-9_]*\|[0-9][0-9]*\)$/[__NR_\1] = "\1",/p'
