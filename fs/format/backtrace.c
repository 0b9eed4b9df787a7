#include "fs/format/backtrace.h"

#include "agent/base/cleanup.h"
#include "fs/format/frames.h"
#include "fs/format/locks.h"
#include "fs/proc/procfs.h"
#include "fs/remote/memory/core.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/version.h"

#include <errno.h>

#define CMDLINE_MAX 1024

static void add_gil(const struct snapshot *snapshot, struct text *out)
{
    const char *before = "GIL held by ";

    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        if (!t->holds_gil)
            continue;
        text_printf(out, "%s%d (%s)", before, (int)t->tid, t->name);
        before = " and "; /* interpreters with a GIL of their own */
    }
    if (*before == 'G')
        text_puts(out, snapshot->gil_held  ? "GIL held by an unknown thread"
                       : snapshot->gil_off ? "GIL off"
                                           : "GIL free");
}

static void add_death(const struct core *core, struct text *out)
{
    if (!core->signal) {
        text_puts(out, "\nCore file of a process that lived");
        return;
    }
    text_puts(out, "\nDied of ");
    core_add_signal(core, out);
    text_printf(out, " in thread %d", (int)core->faulted);
}

void snapshot_add_head(const struct snapshot *snapshot, struct text *out)
{
    char line[CMDLINE_MAX + 1];
    size_t python = 0;

    text_printf(out, "Process %d: ", (int)snapshot->pid);
    ssize_t n = snapshot->core ? core_command(snapshot->core, line, sizeof line)
                               : proc_command(snapshot->pid, line, sizeof line);
    if (n > 0)
        text_add_escaped(out, line, (size_t)n);
    if (snapshot->core)
        add_death(snapshot->core, out);
    text_puts(out, "\nPython ");
    version_add(snapshot->version, out);
    if (!snapshot->supported) {
        text_printf(out, ", %zu thread%s, native frames only: %s\n", snapshot->nthreads,
                    snapshot->nthreads == 1 ? "" : "s", snapshot->why);
        return;
    }
    for (size_t i = 0; i < snapshot->nthreads; i++)
        python += snapshot->threads[i].tstate != 0;
    text_printf(out, ", %zu thread%s", python, python == 1 ? "" : "s");
    if (python < snapshot->nthreads)
        text_printf(out, " and %zu without Python", snapshot->nthreads - python);
    text_puts(out, ", ");
    add_gil(snapshot, out);
    text_putc(out, '\n');
}

int backtrace_text(struct target *target, struct recording *recording, struct text *why,
                   struct text *out)
{
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = target};
    struct snapshot_options options = {.native = true};
    struct snapshot *snapshot;

    waits_read_along(&reading, &options);
    int r = held_snapshot(target, recording, &options, &snapshot);
    if (r < 0)
        return snapshot_explain(target, 0, r, why);
    locks_mark(&reading.waits, snapshot);
    snapshot_add_head(snapshot, out);
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        text_putc(out, '\n');
        thread_add_backtrace(&snapshot->threads[i], out);
    }
    if (snapshot->cut)
        text_puts(out, "\n[cut: there are more threads or interpreters than are read]\n");
    snapshot_free(snapshot);
    return 0;
}

int snapshot_explain(const struct target *target, pid_t tid, int error, struct text *why)
{
    switch (error) {
    case -ESRCH:
        text_puts(why, tid ? "the process or the thread has ended" : "the process has ended");
        break;
    case -EOPNOTSUPP:
        text_printf(why, "no Python stacks: %s; backtrace shows the native ones",
                    target->runtime.why);
        break;
    case -EPERM:
    case -EACCES:
        text_puts(why,
                  "the kernel does not let the daemon read this process: run it as root or as the "
                  "target's user");
        break;
    case -ETIMEDOUT:
        text_puts(
            why,
            target->core
                ? "the interpreter's lists of threads in the core file make no sense, "
                  "or were not dumped; stacks can't be had"
                : "the interpreter's lists of threads made no sense, however often they were read: "
                  "its memory is damaged, or it is just starting or ending; try again");
        break;
    }
    return error;
}
