/* Finds where a Python expression ends in a line that has more than it.
 *
 * Of Python's grammar this knows strings, brackets, comments and words: enough to find what stands
 * outside of them. Whether it is an expression the interpreter says. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PYTHON_BRACKETS_MAX 100 /* in one another */

enum python_token {
    PYTHON_END,  /* of the line, or a comment begins; no bracket is open */
    PYTHON_WORD, /* a name, a keyword, or digits */
    PYTHON_STRING,
    PYTHON_OPEN,  /* a bracket, which is open now */
    PYTHON_CLOSE, /* a bracket, which closed the one that was */
    PYTHON_STRAY, /* a closing bracket where none is open */
    PYTHON_OTHER, /* one byte of anything else */
    PYTHON_WRONG, /* it can't go on: `wrong` says why */
};

struct python_scan {
    const char *at, *end; /* what is still to be looked at */
    const char *token;    /* where the last one begins; it ends at `at` */
    unsigned open;
    const char *brackets[PYTHON_BRACKETS_MAX]; /* those that are open */
    const char *wrong;                         /* words for people; `token` is where */
};

enum python_token python_next(struct python_scan *scan);
/* Goes back before the last token, unless it closed a bracket. */
void python_back(struct python_scan *scan, enum python_token token);

/* Whether the last token is this word. */
bool python_is(const struct python_scan *scan, const char *word);
/* Whether a byte may be part of a word. */
bool python_in_word(char c);
