/* Each line is one thing that a user may lack. What it says follows from what was tried
 * (mount/trials.h), not from what the settings promise; the settings are named where something was
 * refused, as they say what to change. */
#include "fs/mount/check.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/inject/refusal.h"
#include "fs/mount/mountpoint.h"
#include "fs/mount/trials.h"
#include "fs/proc/procfs.h"
#include "fs/sampler/bpf/program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define STATUS_MAX 8192
#define CONF_LINE_MAX 256
/* PROC_USER_INIT_INO and PROC_PID_INIT_INO, include/linux/proc_ns.h. */
#define FIRST_USER_NAMESPACE 0xeffffffdul
#define FIRST_PID_NAMESPACE 0xeffffffcul

struct check {
    struct trials trials;
    bool root;
    uint64_t caps; /* CapEff */
    bool no_new_privs;
    bool first_user_namespace, first_pid_namespace;
};

static bool in_namespace(const char *path, ino_t first)
{
    struct stat st;

    return stat(path, &st) < 0 || st.st_ino == first; /* a kernel without them has but one */
}

static bool has(const struct check *check, int cap) { return check->caps >> cap & 1; }

/* Whether the daemon has a capability that the kernel asks for in the first user namespace,
 * whatever one is root of. */
static bool has_truly(const struct check *check, int cap)
{
    return check->first_user_namespace && has(check, cap);
}

static int check_init(struct check *check)
{
    char status[STATUS_MAX];
    const char *field;

    *check = (struct check){
        .root = geteuid() == 0,
        .first_user_namespace = in_namespace("/proc/self/ns/user", FIRST_USER_NAMESPACE),
        .first_pid_namespace = in_namespace("/proc/self/ns/pid", FIRST_PID_NAMESPACE),
    };
    ssize_t n = proc_read(getpid(), "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    if ((field = proc_status_field(status, "CapEff")))
        check->caps = strtoull(field, NULL, 16);
    check->no_new_privs = (field = proc_status_field(status, "NoNewPrivs")) && *field == '1';
    return trials_run(&check->trials);
}

static bool yes(struct text *out, const char *words)
{
    text_puts(out, "yes");
    if (words)
        text_printf(out, ", %s", words);
    return true;
}

static bool no(struct text *out)
{
    text_puts(out, "no: ");
    return false;
}

static bool check_mount(const struct check *check, struct text *out)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    if (mountpoint_check_device(&why) < 0 || (!check->root && mountpoint_check_helper(&why) < 0)) {
        no(out);
        text_add(out, why.data, why.size);
        return false;
    }
    if (!check->root && check->no_new_privs) {
        no(out);
        text_puts(out, "no_new_privs is set, so that fusermount3 gets no rights by its setuid bit; "
                       "mount from outside of this sandbox, or as root");
        return false;
    }
    if (!check->root)
        return yes(out, "on a directory of your own, by fusermount3");
    if (check->trials.mount == 0)
        return yes(out, NULL);
    no(out);
    text_printf(out, "mount(2) said %s; ", strerror(-check->trials.mount));
    if (!has(check, CAP_SYS_ADMIN))
        text_puts(out, "it takes CAP_SYS_ADMIN; in a container, run that with --cap-add SYS_ADMIN "
                       "--device /dev/fuse");
    else
        text_puts(out, "in a container, run that with --security-opt apparmor=unconfined "
                       "--security-opt seccomp=unconfined");
    return false;
}

/* Whether /etc/fuse.conf has the line, as fusermount3 reads it. */
static bool conf_allows_other(void)
{
    char line[CONF_LINE_MAX];
    bool found = false;

    FILE *file = fopen("/etc/fuse.conf", "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = !strcmp(strtok(line, " \t\n") ?: "", "user_allow_other");
    if (file)
        fclose(file);
    return found;
}

static bool check_allow_other(const struct check *check, struct text *out)
{
    if (check->root)
        return yes(out, NULL);
    if (conf_allows_other())
        return yes(out, "by user_allow_other in /etc/fuse.conf");
    no(out);
    text_puts(out, "only root lets other users into a mount; run it as root, or let root add the "
                   "line user_allow_other to /etc/fuse.conf");
    return false;
}

static bool ptraced(const struct check *check, int r, struct text *out)
{
    if (r == 0)
        return yes(out, NULL);
    no(out);
    if (r != -EPERM && r != -EACCES && r != -ENOSYS)
        text_printf(out, "it was tried and said %s; try again", strerror(-r));
    else if (proc_sys_number("/proc/sys/kernel/yama/ptrace_scope") > 0 &&
             !has(check, CAP_SYS_PTRACE))
        refusal_permission(out);
    else
        refusal_sandbox("SYS_PTRACE", out);
    return false;
}

static bool check_read(const struct check *check, struct text *out)
{
    return ptraced(check, check->trials.read, out);
}

static bool check_act(const struct check *check, struct text *out)
{
    return ptraced(check, check->trials.act, out);
}

static bool check_other_users(const struct check *check, struct text *out)
{
    if (check->trials.read < 0) {
        no(out);
        text_puts(out, "not even your own can be read, see Read");
        return false;
    }
    if (has(check, CAP_SYS_PTRACE))
        return yes(out, check->first_user_namespace ? NULL : "of this user namespace");
    no(out);
    text_printf(out, "only those of uid %u; ", geteuid());
    text_puts(out, check->root ? "it takes CAP_SYS_PTRACE; in a container, run that with --cap-add "
                                 "SYS_PTRACE"
                               : "run it as root");
    return false;
}

static bool check_yama(const struct check *check, struct text *out)
{
    int scope = proc_sys_number("/proc/sys/kernel/yama/ptrace_scope"); /* -1: there is no Yama */

    if (scope <= 0)
        return yes(out, scope < 0 ? "this kernel has none" : "kernel.yama.ptrace_scope is 0");
    if (scope < 3 && has(check, CAP_SYS_PTRACE)) {
        yes(out, NULL);
        text_printf(out,
                    ", kernel.yama.ptrace_scope is %d: users may look at their own processes, and "
                    "only root may write",
                    scope);
        return true;
    }
    no(out);
    refusal_permission(out);
    return false;
}

static void say_perf(const struct check *check, int r, struct text *out)
{
    no(out);
    if (r == -EACCES || r == -EPERM) {
        if (has_truly(check, CAP_PERFMON) || has_truly(check, CAP_SYS_ADMIN))
            refusal_sandbox("PERFMON", out);
        else
            text_printf(out,
                        "kernel.perf_event_paranoid is %d; run it as root, or let root type "
                        "sysctl kernel.perf_event_paranoid=2; in a container, run that with "
                        "--cap-add PERFMON --security-opt seccomp=unconfined",
                        proc_sys_number("/proc/sys/kernel/perf_event_paranoid"));
    } else if (r == -EINVAL || r == -E2BIG) {
        text_puts(out, "this kernel's perf events can't do it (it came with Linux 5.13)");
    } else {
        text_printf(out, "this kernel or machine hasn't got it (%s)", strerror(-r));
    }
}

static bool check_perf(const struct check *check, struct text *out)
{
    if (check->trials.perf == 0)
        return yes(out, NULL);
    say_perf(check, check->trials.perf, out);
    return false;
}

static bool check_registers(const struct check *check, struct text *out)
{
    if (!ARCH_WATCHES) {
        no(out);
        text_puts(out, "they are not used on " ARCH_NAME);
        return false;
    }
    if (check->trials.registers_perf == 0)
        return yes(out, NULL);
    if (check->trials.registers_ptrace == 0)
        return yes(out, "by ptrace(2) only: hw=ptrace");
    say_perf(check, check->trials.registers_perf, out);
    return false;
}

static bool check_bpf(const struct check *check, struct text *out)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct program *program;

    int r = program_get(&program, &why);
    if (r == 0) {
        program_put(program);
        return yes(out, NULL);
    }
    no(out);
    text_printf(out, "%s; profiles are sampled from outside instead",
                why.size ? why.data : strerror(-r));
    return false;
}

static bool check_namespaces(const struct check *check, struct text *out)
{
    if (check->first_user_namespace && check->first_pid_namespace)
        return yes(out, "of all containers");
    no(out);
    if (!check->first_pid_namespace)
        text_puts(out,
                  "this is a pid namespace of its own, outside of which nothing can be seen; ");
    if (!check->first_user_namespace)
        text_puts(out,
                  "this is a user namespace of its own, outside of which nothing can be read; ");
    text_puts(out, "run it on the host, or the container with --pid=host --userns=host");
    return false;
}

typedef bool check_one(const struct check *check, struct text *out);

/* Adds a line. Whether what it is about works. */
static bool add(const char *name, check_one *one, const struct check *check, struct text *out)
{
    text_printf(out, "%s: ", name);
    bool works = one(check, out);
    text_putc(out, '\n');
    return works;
}

int check_run(struct text *out, enum check_result *result)
{
    struct utsname system;
    struct check check;

    int r = check_init(&check);
    if (r < 0)
        return r;
    uname(&system);
    text_printf(out, "System: %s %s, uid %u\n", system.sysname, system.release, geteuid());
    bool mounts = add("Mount", check_mount, &check, out);
    add("AllowOther", check_allow_other, &check, out);
    bool reads = add("Read", check_read, &check, out);
    bool acts = add("Act", check_act, &check, out);
    add("OtherUsers", check_other_users, &check, out);
    add("Namespaces", check_namespaces, &check, out);
    add("Yama", check_yama, &check, out);
    add("Perf", check_perf, &check, out);
    add("DebugRegisters", check_registers, &check, out);
    add("Bpf", check_bpf, &check, out);
    *result = !mounts || !reads ? CHECK_NOTHING : !acts ? CHECK_READS_ONLY : CHECK_ALL;
    return text_finish(out);
}
