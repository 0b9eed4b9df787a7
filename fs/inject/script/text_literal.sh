#!/bin/sh
# Prints a text file as a string literal of C: sh text_literal.sh FILE
sed 's/[\\"]/\\&/g; s/^/"/; s/$/\\n"/' "$1"
