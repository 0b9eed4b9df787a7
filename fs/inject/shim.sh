#!/bin/sh
# shim.sh SOURCE-DIRECTORY COMPILER...: prints the shim's code as the inside of a C array. Its flags
# are its own: it can call nothing that a sanitizer or a hardening option would.
set -eu
top=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$@" -std=gnu17 -D_GNU_SOURCE -I"$top" -Os -fPIC -ffreestanding -mgeneral-regs-only \
    -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -fno-jump-tables \
    -fno-stack-clash-protection -Wall -Wextra -Werror -Wno-unused-parameter \
    -nostdlib -static -Wl,--build-id=none -Wl,-T,"$top/fs/inject/shim.lds" \
    -o "$out" "$top/fs/inject/shim.c"
"$("$@" -print-prog-name=objcopy)" -O binary -j .text "$out"
od -An -v -tx1 "$out" | sed 's/ \(..\)/0x\1,/g'
