#!/bin/sh
# embed.sh FILE...: assembly that makes the files a table of this program, struct page. Their checksums are in
# there so that the text changes with a file: what .incbin reads is no dependency of the object.
set -e
cat <<END
    .macro page name, file
    .section .rodata
1:  .asciz "\name"
2:  .incbin "\file"
3:  .byte 0
    .section .data.rel.ro.pages, "aw"
    .quad 1b, 2b, 3b
    .endm

    .section .data.rel.ro.pages, "aw"
    .balign 8
    .globl pages
    .hidden pages
pages:
END
for file; do
    echo "/* $(cksum <"$file") */"
    echo "    page \"${file##*/page/}\", \"$file\""
done
cat <<END
    .quad 0, 0, 0
    .section .note.GNU-stack, "", @progbits
END
