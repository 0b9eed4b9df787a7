#!/bin/sh
# embed.sh FILE...: a C header with each file's text as source_NAME, NAME being its name without .py.
set -e
for file; do
    name=$(basename "$file" .py)
    echo "static const char source_$name[] = {"
    od -An -v -tx1 "$file" | sed 's/ \(..\)/0x\1,/g'
    echo "0};"
done
