#include "fs/format/identity.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/version.h"

#define CMDLINE_MAX 4096 /* bytes shown of a command line */

void identity_version(struct target *target, struct text *out)
{
    const struct runtime *runtime = &target->runtime;

    _guard_mutex_(&target->lock);
    target_learn_version(target);
    text_puts(out, "Python: ");
    version_add(runtime->version, out);
    text_printf(out, "\nImplementation: %s\nSupported: %s", version_implementation(runtime),
                runtime->supported ? "yes" : "no");
    if (*runtime->why)
        text_printf(out, ", %s", runtime->why);
    text_putc(out, '\n');
}

static void add_command(pid_t pid, struct text *out)
{
    char path[4096], line[CMDLINE_MAX + 1];

    ssize_t n = proc_link(pid, "exe", path, sizeof path);
    if (n > 0) {
        text_puts(out, "Executable: ");
        text_add_escaped(out, path, (size_t)n);
        text_putc(out, '\n');
    }
    n = proc_command(pid, line, sizeof line);
    if (n > 0) {
        text_puts(out, "Cmdline: ");
        text_add_escaped(out, line, (size_t)n);
        text_putc(out, '\n');
    }
}

void identity_program(struct target *target, struct text *out)
{
    identity_version(target, out);
    add_command(target->pid, out);
}

double identity_started(uint64_t start_time, struct text *out)
{
    double started, uptime;

    proc_started(start_time, &started, &uptime);
    text_puts(out, "Started: ");
    text_add_time(out, (time_t)started);
    text_putc(out, '\n');
    return uptime;
}

/* Threads come by interpreter, but the first one may be there for a fault. */
static size_t count_interpreters(const struct snapshot *snapshot)
{
    const struct thread *first = snapshot->threads;
    size_t n = 0, begin = snapshot->nthreads && first->state == THREAD_FAULTED;
    bool again = !begin || !first->tstate;

    for (size_t i = begin; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        n += t->tstate && (i == begin || t->interp_id != t[-1].interp_id);
        again |= t->tstate && t->interp_id == first->interp_id;
    }
    return n + !again;
}

void identity_interpreter(const struct snapshot *snapshot, struct text *out)
{
    size_t python = 0, waiting = 0;
    bool held = false;

    text_puts(out, "GilHolder:");
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        if (t->holds_gil) /* more than one: interpreters with a GIL of their own */
            text_printf(out, " %d (%s)", (int)t->tid, t->name);
        held |= t->holds_gil;
        waiting += t->waits_gil;
        python += t->tstate != 0;
    }
    text_puts(out, held                 ? "\n"
                   : snapshot->gil_held ? " unknown\n"
                   : snapshot->gil_off  ? " none, the GIL is off\n"
                                        : " none\n");
    text_printf(out, "GilWaiting: %zu\nPythonThreads: %zu\nInterpreters: %zu\n", waiting, python,
                count_interpreters(snapshot));
}
