/* What a virtual file's own .c implements: one function that renders it. */
#pragma once

#include "fs/target.h"
#include "fs/text.h"

struct process;
struct registry;

/* Who asks: the thread that issued the FUSE request, with the ids the kernel gives. */
struct caller {
    pid_t pid; /* of the calling thread, in the daemon's pid namespace; 0 if it isn't visible */
    uid_t uid;
    gid_t gid;
};

struct file_context {
    struct registry *registry;   /* all known processes */
    const struct caller *caller;
    struct process *process;     /* NULL outside a <pid>/ directory */
    struct target *target;       /* its target; NULL outside, or once the process has ended */
    pid_t tid;                   /* below threads/<tid>/, else 0 */
    unsigned depth;              /* below frames/<depth>/ */
    unsigned rank;               /* at by-rank/<rank> */
    struct text why;             /* on failure: what failed, why, what to do; no newline at the end.
                                    Shown by <pid>/errors. */
};

/* Renders one file into out. Returns 0 or -errno, the error of open(2); a link renders what it
 * points to. */
typedef int file_render(struct file_context *context, struct text *out);

/* The files, one .c each. */
file_render help_render, status_render, backtrace_render, stacks_folded_render, tasks_render,
    errors_render, thread_status_render, thread_backtrace_render, locals_render,
    frame_locals_render, source_render, self_render, rank_render;
