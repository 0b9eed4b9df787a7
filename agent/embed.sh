#!/bin/sh
# embed.sh FILE...: a C header with each file's text as source_NAME, NAME being its name without .py.
#
# The text comes in parts of whole definitions, each with a NUL behind it, and another one behind the last: compiling
# all of it at once would leave megabytes of scratch memory with the program. Each part but the first begins with as
# many empty lines as keep its line numbers what they are in the file.
set -e
PART=2000 # bytes
for file; do
    name=$(basename "$file" .py)
    echo "static const char source_$name[] = {"
    LC_ALL=C awk -v most=$PART '
        /^[^ \t#)\]}]/ && blank >= 2 && size > most { # two empty lines part definitions
            printf "%c", 0
            for (i = 1; i < NR; i++)
                print ""
            size = 0
        }
        { print; size += length($0) + 1; blank = /^$/ ? blank + 1 : 0 }
        END { printf "%c", 0 }' "$file" | od -An -v -tx1 | sed 's/ \(..\)/0x\1,/g'
    echo "0};"
done
