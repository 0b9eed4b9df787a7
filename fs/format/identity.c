#include "fs/format/identity.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/remote/objects/version.h"

#define CMDLINE_MAX 4096 /* bytes shown of a command line */

static void add_version(struct target *target, struct text *out)
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
    add_version(target, out);
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
