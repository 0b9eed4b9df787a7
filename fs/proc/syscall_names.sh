#!/bin/sh
# Prints `[number] = "name",` for each system call of x86-64, from the kernel's own header.
echo '#include <asm/unistd_64.h>' | "$@" -E -dM - |
    sed -n 's/^#define __NR_\([a-z0-9_]*\) \([0-9][0-9]*\)$/[\2] = "\1",/p'
