#include "fs/inject/refusal.h"

#include "fs/proc/procfs.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATUS_MAX 8192
#define COMM_MAX 32
#define LIMITS_MAX 4096 /* bytes of its file: 17 lines of 80 */
#define WITHOUT_PTRACE \
 "; without ptrace: start the program with PROBING=1, or let it `import probing`"

int refusal_stopped(struct text *why)
{
    text_puts(why, "it is stopped by a signal (SIGSTOP or the terminal); continue it with SIGCONT");
    return -ETIMEDOUT;
}

/* Which thread traces another, and its name; 0: none does. */
static pid_t tracer_of(pid_t pid, pid_t tid, char name[static COMM_MAX])
{
    char status[STATUS_MAX];

    if (proc_read_task(pid, tid, "status", status, sizeof status) <= 0)
        return 0;
    const char *field = proc_status_field(status, "TracerPid");
    pid_t tracer = field ? (pid_t)strtol(field, NULL, 10) : 0;
    if (!tracer || proc_read(tracer, "comm", name, COMM_MAX) <= 0)
        strcpy(name, "?");
    name[strcspn(name, "\n")] = 0;
    return tracer;
}

int refusal_traced(pid_t pid, pid_t tid, struct text *why)
{
    char name[COMM_MAX];

    pid_t tracer = tracer_of(pid, tid, name);
    if (!tracer)
        return 0;
    if (!why)
        return -EBUSY;
    text_printf(why, "process %d (", (int)tracer);
    text_add_escaped(why, name, strlen(name));
    text_puts(why, ") is tracing it: a thread has one tracer at a time");
    return -EBUSY;
}

bool refusal_traced_briefly(pid_t pid, pid_t tid)
{
    char name[COMM_MAX];
    pid_t tracer = tracer_of(pid, tid, name);

    return !tracer || tracer_brief(tracer);
}

/* Whether this daemon may not call ptrace(2) at all, whomever that is about, as under a seccomp
 * filter or where the kernel lacks it. */
static bool is_call_refused(void)
{
    /* no process has that number: PID_MAX_LIMIT, include/linux/threads.h */
    return ptrace(PTRACE_SEIZE, INT_MAX, NULL, NULL) < 0 && errno != ESRCH;
}

/* A field of this daemon's own status file; its text begins with a digit. */
static uint64_t own_field(const char *name, int base)
{
    char status[STATUS_MAX];

    if (proc_read(getpid(), "status", status, sizeof status) <= 0)
        return 0;
    const char *field = proc_status_field(status, name);
    return field ? strtoull(field, NULL, base) : 0;
}

void refusal_sandbox(const char *capability, struct text *out)
{
    text_printf(out,
                "%s refuses it; in a container, run that with --cap-add %s --security-opt "
                "seccomp=unconfined",
                own_field("Seccomp", 10) == SECCOMP_MODE_FILTER
                    ? "a seccomp filter"
                    : "a security module or the container",
                capability);
}

int refusal_permission(struct text *why)
{
    int scope = proc_sys_number("/proc/sys/kernel/yama/ptrace_scope"); /* -1: there is no Yama */
    bool capable = own_field("CapEff", 16) >> CAP_SYS_PTRACE & 1;

    text_puts(why, "ptrace is refused: ");
    if (is_call_refused() || (capable && scope < 3))
        refusal_sandbox("SYS_PTRACE", why);
    else if (scope > 0)
        text_printf(why, "kernel.yama.ptrace_scope is %d; let the daemon run as root%s", scope,
                    scope < 3 ? ", or set it to 0" : " after a restart with a lower one");
    else
        text_puts(why, "the daemon needs the same user, or CAP_SYS_PTRACE");
    text_puts(why, WITHOUT_PTRACE);
    return -EPERM;
}

int refusal_shared(pid_t pid, struct text *why)
{
    struct proc_stat stat;

    int r = proc_stat_read(pid, &stat);
    if (r < 0)
        return r;
    if (stat.ppid <= 0 || syscall(SYS_kcmp, pid, stat.ppid, KCMP_VM, 0, 0) != 0)
        return 0; /* or this kernel has no kcmp(2) */
    if (why)
        text_printf(why,
                    "it shares its memory with process %d, which made it by vfork(2), until it "
                    "executes a program: write to that one, or try again in a moment",
                    (int)stat.ppid);
    return -EBUSY;
}

int refusal_file_size(pid_t pid, uint64_t bytes, struct text *why)
{
    static const char name[] = "Max file size";
    char limits[LIMITS_MAX];
    uint64_t limit;

    if (proc_read(pid, "limits", limits, sizeof limits) <= 0)
        return 0;
    const char *field = strstr(limits, name);
    if (!field || sscanf(field + sizeof name - 1, "%" SCNu64, &limit) != 1 || limit >= bytes)
        return 0; /* or unlimited */
    text_printf(why,
                "it may have no file of %" PRIu64 " KiB, as an agent needs for a moment (ulimit "
                "-f); raise that: prlimit --pid %d --fsize=unlimited",
                bytes / 1024 + 1, (int)pid);
    return -EFBIG;
}

int refusal_changed(const struct target *target, struct text *why)
{
    if (!target_same_program(target))
        return -ESRCH;
    return refusal_shared(target->pid, why);
}

int refusal_find(pid_t pid, struct text *why)
{
    char status[STATUS_MAX];

    ssize_t n = proc_read(pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    int r = refusal_shared(pid, why);
    if (r < 0)
        return r;
    const char *state = proc_status_field(status, "State");
    if (state && *state == 'T')
        return refusal_stopped(why);
    const char *features = proc_status_field(status, "x86_Thread_features");
    if (features) {
        const char *shadow = strstr(features, "shstk"), *end = strchrnul(features, '\n');
        if (shadow && shadow < end) {
            text_puts(why, "it has shadow stacks (x86_Thread_features: shstk)" WITHOUT_PTRACE);
            return -EOPNOTSUPP;
        }
    }
    return 0;
}
