/* The Python stacks of a process, for people and for flame graphs. */
#pragma once

#include "fs/base/text.h"
#include "fs/remote/moment/target.h"

struct recording;

/* What is asked of one process: adds a text of its stacks to out. recording: the process's. 0 or
 * -errno as snapshot_take(), and why says what failed, why, and what to do. */
typedef int stacks_text(struct target *target, struct recording *recording, struct text *why,
                        struct text *out);

/* Python frames only: who holds others up, or is held up, first, then who runs, then who waits; of
 * equal stacks of those one, and the numbers of the others. */
stacks_text stacks_python_text;
/* Text by which equal stacks of many processes are found: a block for each thread, which ends with
 * a NUL, without pids, numbers of threads and addresses. "MainThread [idle, futex]" and its Python
 * frames on lines of their own; of one that has none and isn't held, STACKS_NO_PYTHON and its
 * state. */
stacks_text stacks_blocks_text;
#define STACKS_NO_PYTHON '-'
/* One line a thread, `root;...;leaf 1`: all frames, or those of Python. No pids, no addresses:
 * equal stacks of many processes and hosts fold together. */
stacks_text stacks_folded_text, stacks_python_folded_text;

/* These forms by number, for who asks another process for a text (process/examiner.h). */
enum stacks_form {
    STACKS_PYTHON,
    STACKS_BLOCKS,
    STACKS_FOLDED,
    STACKS_PYTHON_FOLDED,
    STACKS_BACKTRACE, /* backtrace_text() */
    STACKS_FORMS
};
extern stacks_text *const stacks_texts[STACKS_FORMS];
