#include "fs/mount/trials.h"

#include "agent/base/cleanup.h"
#include "fs/arch/debug_registers.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define WORD_BEFORE 0x70726f62656673ul
#define WORD_AFTER 0x746f756368ul

/* What is read and written; the process that it is tried on has it at the same address. */
static volatile unsigned long word = WORD_BEFORE;

/* A process of this user that no one here is an ancestor of, as Yama lets ancestors do more. */
struct stranger {
    pid_t pid;
    int ends_with; /* a pipe; the process ends once it is closed, whoever does that */
};

static void cleanup_stranger(struct stranger *stranger) { cleanup_close(&stranger->ends_with); }

static _Noreturn void be_stranger(const int ends[2])
{
    char byte;

    close(ends[1]);
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* Makes a process whose parent ends at once, so that init adopts it, and reaps it in the end. */
static int stranger_make(struct stranger *out)
{
    int ends[2], told[2];
    pid_t pid = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(told, O_CLOEXEC) < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        return -error;
    }
    pid_t parent = fork();
    if (parent == 0) {
        pid = fork();
        if (pid == 0)
            be_stranger(ends);
        _exit(pid < 0 || write(told[1], &pid, sizeof pid) != sizeof pid);
    }
    int r = parent < 0 ? -errno : 0;
    close(told[1]);
    close(ends[0]);
    if (parent > 0) {
        while (waitpid(parent, NULL, 0) < 0 && errno == EINTR)
            ;
        if (read(told[0], &pid, sizeof pid) != sizeof pid)
            r = -EAGAIN;
    }
    close(told[0]);
    if (r < 0) {
        close(ends[1]);
        return r;
    }
    *out = (struct stranger){pid, ends[1]};
    return 0;
}

static int try_read(pid_t pid)
{
    unsigned long got = 0;
    struct iovec local = {&got, sizeof got}, remote = {(void *)&word, sizeof got};

    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof got)
        return -errno;
    return got == WORD_BEFORE ? 0 : -EIO;
}

struct acting {
    pid_t pid;
    struct trials *trials;
};

/* On the thread that traces. */
static int act(struct tracer *tracer, void *arg)
{
    struct acting *acting = arg;
    struct registers registers;

    int r = tracer_stop(tracer, acting->pid);
    if (r == 0)
        r = tracer_registers(tracer, acting->pid, &registers);
    if (r < 0)
        return r;
    acting->trials->registers_ptrace = debug_registers_clear(acting->pid);
    if (ptrace(PTRACE_POKEDATA, acting->pid, (void *)&word, (void *)WORD_AFTER) < 0)
        return -errno;
    return 0;
}

static void try_act(pid_t pid, struct trials *out)
{
    struct acting acting = {pid, out};

    out->registers_ptrace = -EPERM;
    out->act = tracer_run(act, &acting);
    if (out->act < 0)
        out->registers_ptrace = out->act;
}

static int try_event(struct perf_event_attr *attr, pid_t pid)
{
    attr->size = sizeof *attr;
    attr->exclude_kernel = attr->exclude_hv = 1;
    _cleanup_close_ int fd =
        (int)syscall(SYS_perf_event_open, attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : 0;
}

static int try_perf(pid_t pid)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_TASK_CLOCK,
    };
    return try_event(&attr, pid);
}

/* Tries to have a debug register as fs/watch/by_perf.c asks for it. */
static int try_register(pid_t pid)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_BREAKPOINT,
        .bp_type = HW_BREAKPOINT_W,
        .bp_addr = (uintptr_t)&word,
        .bp_len = HW_BREAKPOINT_LEN_8,
        .sample_period = 1,
        .inherit = 1,
        .inherit_thread = 1,
        .remove_on_exec = 1,
        .sigtrap = 1,
    };
    return try_event(&attr, pid);
}

/* Mounts in a child, whose namespace ends with it, and the mount in it. */
static int mount_privately(void)
{
    char options[64];

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return errno;
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    return mount("probefs", "/", "fuse.probefs", MS_NOSUID | MS_NODEV, options) < 0 ? errno : 0;
}

static int try_mount(void)
{
    int status = 0;

    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        _exit(mount_privately());
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int trials_run(struct trials *out)
{
    _cleanup_(cleanup_stranger) struct stranger stranger = {.ends_with = -1};

    *out = (struct trials){0};
    int r = stranger_make(&stranger);
    if (r < 0)
        return r;
    out->mount = try_mount();
    out->read = try_read(stranger.pid);
    try_act(stranger.pid, out);
    out->perf = try_perf(stranger.pid);
    out->registers_perf = try_register(stranger.pid);
    return 0;
}
