#!/bin/sh
# embed.sh LIBRARY: assembly that makes the library a constant of this program. Its checksum is in
# there so that the text changes with the library: what .incbin reads is no dependency of the object.
set -e
cat <<END
/* $(cksum <"$1") */
    .section .rodata
    .balign 16
    .globl agent_library
    .globl agent_library_end
    .hidden agent_library
    .hidden agent_library_end
agent_library:
    .incbin "$1"
agent_library_end:
    .byte 0
    .section .note.GNU-stack, "", @progbits
END
