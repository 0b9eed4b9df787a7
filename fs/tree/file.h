/* What a virtual file's own .c implements: one function that renders it. */
#pragma once

#include "fs/access/credentials.h"
#include "fs/base/interrupt.h"
#include "fs/base/text.h"
#include "fs/remote/moment/target.h"

struct history;
struct lifetime;
struct process;
struct recording;
struct registry;
struct replies;
struct statement_runner;

struct file_context {
    struct registry *registry; /* all known processes */
    const struct statement_runner
        *statements;             /* who runs them (tree/query.h); NULL: who is asked */
    struct history *history;     /* NULL: none is kept */
    struct replies *replies;     /* of the command files here */
    const struct access *access; /* who may look at whom */
    const struct caller *caller; /* of a name that is looked up: who does */
    /* of a file: in whose name it is read, or something is done; NULL where a name is looked up */
    struct principals *principals;
    struct process *process; /* NULL outside a <pid>/ directory */
    /* its target; NULL outside, and below exited/<pid>/; for names, and whether a file is there,
     * also where others read it (struct server.keeps) */
    struct target *target;
    /* what its agent records, as of now; NULL outside. All that there is below exited/<pid>/ */
    struct recording *recording;
    const char *file;                  /* path of its entry in the layout */
    pid_t tid;                         /* below threads/<tid>/, else 0 */
    unsigned depth;                    /* below frames/<depth>/ */
    unsigned rank;                     /* at by-rank/<rank>, and below jobs/<job> */
    const char *word;                  /* at globals/<module>, at and below jobs/<job>, else "" */
    const char *part;                  /* below profile/: the thread, time, mark ..., else "" */
    const struct interrupt *interrupt; /* of a command: its writer's; else NULL, never raised */
    const char *sampled; /* the line of status about the profile of its process, or "" */
    const char *agent;   /* those about its agent; "": they are what can be seen in the process */
    int noted;           /* -errno: what a file that could be rendered doesn't show; why says it */
    int flags;           /* of a command: those of its open(2), O_APPEND and O_TRUNC of them */
    struct lifetime
        *lifetime;   /* of a command: of what it asks for with `here`; NULL: there is none */
    bool clears;     /* of a command that clears (layout.h): what was there is still to go */
    uint64_t gil_ns; /* of a command: for how long it waits for the GIL (agent_session.h) */
    struct text why; /* of either: what failed, why, what to do; no newline at the end.
                        Shown by <pid>/errors, and by the next read of a command file */
};

/* Renders one file into out. Returns 0 or -errno, the error of open(2); a link renders what it
 * points to. */
typedef int file_render(struct file_context *context, struct text *out);

/* What was written to one open file and isn't done with yet. */
struct input {
    const char *text;
    size_t size;
    size_t before; /* bytes of it that earlier calls had already */
    size_t lines;  /* that were done with before it, since the reply was read last */
    bool last;     /* the file is being closed: nothing will follow */
};

/* What one call of a command came to; zero at first. */
struct outcome {
    size_t consumed; /* bytes of the input that are done with: the rest comes again */
    size_t stays;    /* so many at its beginning come again, too, in front of all that follows */
    bool cleared;    /* of a command that clears: what was there has gone */
    bool keeps;      /* of one, too: closing the file by itself doesn't make that go any more */
    bool retake;     /* what the last call said in passing is taken back: `said` takes its place */
    size_t passing;  /* bytes at the end of `said` that the next call may take back */
};

/* Bytes of the stack of a thread that runs a command; only what is used is real. SQLite calls
 * itself for each level of a statement: those that fit into ENGINE_SQL_MAX took up to 3 MiB. */
#define COMMAND_STACK (16u << 20)

/* Runs what a command file was told, on a thread of its own: it may wait, and ends soon once
 * context->interrupt is raised. Called at each write(2) with what is pending and what is new
 * (shells cut a text as they like: at each line, or at 4,096 bytes), and at close if something
 * is pending. said, empty at first, is added to what reads of this file show. Returns 0 or
 * -errno, the error of write(2): then nothing is pending any more, and context->why, if set, is
 * the reply's last line. */
typedef int file_run(struct file_context *context, const struct input *input, struct text *said,
                     struct outcome *outcome);

/* Adds what a file, which may be made elsewhere, has to know of the context's process, which is
 * read here; line: of `size` bytes, what it asks for. 0 or -errno. */
typedef int file_say(struct file_context *context, const char *line, size_t size, struct text *out);

/* The files, one .c each. */
file_render help_render, status_render, exited_status_render, core_status_render, backtrace_render,
    backtrace_python_render, stacks_folded_render, stacks_python_folded_render,
    all_backtrace_render, all_stacks_folded_render, all_backtrace_python_render,
    all_stacks_python_folded_render, tasks_render, locks_render, metrics_render, errors_render,
    thread_status_render, thread_backtrace_render, locals_render, frame_locals_render,
    globals_render, heap_census_render, source_render, sources_render, self_render, job_render,
    job_link_render, exited_link_render, table_render, exceptions_top_render,
    crash_traceback_render, crash_locals_render, crash_backtrace_render, crash_frame_locals_render,
    crash_source_render, history_render, torch_trace_render, torch_top_render, torch_modules_render,
    collectives_render;
/* The files of a profile. */
file_render profile_status_render, profile_folded_render, profile_top_render, profile_lines_render,
    profile_source_render, profile_flamegraph_render, profile_speedscope_render,
    profile_gecko_render, profile_pprof_render, top_render, all_top_render;

/* Whether the interpreter's tasks can be read. */
bool tasks_listed(const struct file_context *context);
/* Whether PyTorch is there; whether its profiler was started. */
bool torch_is_there(struct file_context *context);
bool torch_profile_is_there(struct file_context *context);
/* Whether the daemon keeps a history. */
bool history_listed(const struct file_context *context);

/* What a command file reads as where it has nothing better to show: the last reply to the same
 * credentials at the same place. */
file_render reply_render;
/* Adds that reply below what is true now: behind an empty line and the time at which it came. Lines
 * at its beginning that say how things were then, as is_state knows them, are left out; NULL: none.
 */
void reply_add_apart(struct file_context *context, bool (*is_state)(const char *line),
                     struct text *out);

/* The commands, each in the .c of its file. */
file_render all_breakpoints_render, breakpoints_render, ctl_render, thread_ctl_render;
file_run all_breakpoints_run, all_ctl_run, all_eval_run, breakpoints_run, ctl_run, eval_run,
    frame_value_run, query_run, thread_ctl_run;

/* What of a file is told by who reads its process. */
file_say frame_value_say, source_say, sources_say, heap_diff_say, top_say, collectives_say,
    locks_say;
