#include "fs/owner/confine.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define BOUNDS_MEMORY 0 /* the shadow of all there may be counts, too */
#else
#define BOUNDS_MEMORY 1
#endif

/* ---- files ---- */

#define PLAIN (MS_NOSUID | MS_NODEV | MS_NOEXEC)

static bool reads(enum confine what) { return what == CONFINE_READING || what == CONFINE_ACTING; }

/* Fine if the process has ended. */
static bool bind_process(pid_t pid)
{
    char from[16], to[32];

    snprintf(from, sizeof from, "%d", (int)pid);
    snprintf(to, sizeof to, "/proc/proc/%d", (int)pid);
    return mount(from, to, NULL, MS_BIND, NULL) == 0 || errno == ENOENT;
}

static bool bind_proc(int proc, pid_t writes)
{
    return mkdir("/proc/proc", 0555) == 0 && fchdir(proc) == 0 &&
           mount(".", "/proc/proc", NULL, MS_BIND, NULL) == 0 &&
           mount(NULL, "/proc/proc", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | PLAIN, NULL) == 0 &&
           (!writes || bind_process(writes));
}

/* Makes the new root where /proc is, which is there in any case, with that in it if it reads. */
static int make_root(enum confine what, pid_t writes)
{
    _cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (proc < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/proc", "tmpfs", PLAIN, "mode=0555,size=4k,nr_inodes=4") < 0 ||
        (reads(what) && !bind_proc(proc, writes)) ||
        mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | PLAIN, NULL) < 0)
        return -errno;
    return 0;
}

static int enter_root(void)
{
    return chdir("/proc") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
                   umount2(".", MNT_DETACH) < 0 || chdir("/") < 0
               ? -errno
               : 0;
}

static int bound(int resource, uint64_t most)
{
    const struct rlimit limit = {most, most};

    return setrlimit(resource, &limit) < 0 ? -errno : 0;
}

#ifdef __SANITIZE_ADDRESS__
#define SILENCED 2 /* it says on its standard error what it has found */
#else
#define SILENCED 3
#endif

int confine_descriptors(int kept)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int r = null < 0 ? -errno : 0;

    for (int fd = 0; r == 0 && fd < SILENCED; fd++)
        r = dup2(null, fd) < 0 ? -errno : 0;
    close_range((unsigned)kept + 1, ~0u, 0);
    return r;
}

static int bound_statement(void)
{
    struct rlimit stack;

    /* no more than it has to have, where it may not have so much */
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_max > CONFINE_SQL_STACK)
        bound(RLIMIT_STACK, CONFINE_SQL_STACK);
    int r = bound(RLIMIT_CPU, CONFINE_SQL_SECONDS);
    return r == 0 && BOUNDS_MEMORY ? bound(RLIMIT_DATA, CONFINE_SQL_BYTES) : r;
}

static int bound_reading(void) { return BOUNDS_MEMORY ? bound(RLIMIT_DATA, CONFINE_BYTES) : 0; }

int confine_files(enum confine what, pid_t writes)
{
    tzset();                       /* reads /etc/localtime */
    int r = bound(RLIMIT_CORE, 0); /* it holds what others may not see */
    if (r == 0)
        r = reads(what) ? bound_reading() : bound_statement();
    if (r < 0 || geteuid())
        return r;
    r = unshare(CLONE_NEWNS) < 0 ? -errno : make_root(what, writes);
    return r == 0 ? enter_root() : r;
}

/* ---- system calls ---- */

#define REFUSED (SECCOMP_RET_ERRNO | ENOSYS) /* libc does without what it doesn't find */
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skipped))
#define ALLOW(name) UNLESS(SYS_##name, 1), RETURN(SECCOMP_RET_ALLOW)
#define HIGH(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n]) + 4)
/* Where an argument, an int, is 0, or has that flag; or where a pointer is NULL. */
#define ALLOW_IF_0(name, n) \
 UNLESS(SYS_##name, 4), LOAD(args[n]), UNLESS(0, 1), RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED)
#define ALLOW_IF_NULL(name, n) ALLOW_IF(name, n, 0)
/* Where an argument, an unsigned long, is that. */
#define ALLOW_IF(name, n, value)                                                  \
 UNLESS(SYS_##name, 6), LOAD(args[n]), UNLESS((value), 3), HIGH(n), UNLESS(0, 1), \
     RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED)
#define ALLOW_IF_SET(name, n, flag)                                                        \
 UNLESS(SYS_##name, 4), LOAD(args[n]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (flag), 0, 1), \
     RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED)

#define HEAD                                                       \
 LOAD(arch), UNLESS(ARCH_AUDIT, 1), BPF_STMT(BPF_JMP | BPF_JA, 1), \
     RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr)
#define HEAD_SIZE 5

/* What reading processes takes, and the life of threads. */
static const struct sock_filter reading[] = {
    HEAD,
    /* the most frequent first */
    ALLOW(process_vm_readv),
    ALLOW(openat),
    ALLOW(read),
    ALLOW(close),
    ALLOW(futex),
    ALLOW(pread64),
    ALLOW(poll),
    ALLOW(recvmsg),
    ALLOW(recvfrom),
    ALLOW(sendmsg),
    ALLOW(sendto),
    /* processes */
    ALLOW(ptrace),
    ALLOW(waitid),
    ALLOW(pidfd_open),
    ALLOW(kcmp),
    /* files below /proc */
    ALLOW(access),
    ALLOW(faccessat),
    ALLOW(faccessat2),
    ALLOW(fcntl),
    ALLOW(fstat),
    ALLOW(fstatfs),
    ALLOW(getdents64),
    ALLOW(ioctl),
    ALLOW(lseek),
    ALLOW(lstat),
    ALLOW(newfstatat),
    ALLOW(open),
    ALLOW(openat2),
    ALLOW(preadv),
    ALLOW(readlink),
    ALLOW(readlinkat),
    ALLOW(readv),
    ALLOW(stat),
    ALLOW(statfs),
    ALLOW(statx),
    /* what it holds itself */
    ALLOW(brk),
    ALLOW(close_range),
    ALLOW(memfd_create),
    ALLOW(madvise),
    ALLOW(mmap),
    ALLOW(mprotect),
    ALLOW(mremap),
    ALLOW(munmap),
    ALLOW(ppoll),
    ALLOW(eventfd2),
    ALLOW(epoll_ctl),
    ALLOW(epoll_wait),
    ALLOW(epoll_pwait),
    ALLOW(shutdown),
    ALLOW(write),
    /* threads */
    ALLOW(exit),
    ALLOW(exit_group),
    ALLOW(getpriority),
    ALLOW(membarrier),
    ALLOW(prctl),
    ALLOW(restart_syscall),
    ALLOW(rseq),
    ALLOW(rt_sigaction),
    ALLOW(rt_sigprocmask),
    ALLOW(rt_sigreturn),
    ALLOW(sched_getaffinity),
    ALLOW(sched_yield),
    ALLOW(set_robust_list),
    ALLOW(setpriority),
    ALLOW(sigaltstack),
    /* what it asks of itself and the machine */
    ALLOW(capget),
    ALLOW(clock_getres),
    ALLOW(clock_gettime),
    ALLOW(clock_nanosleep),
    ALLOW(getcpu),
    ALLOW(getegid),
    ALLOW(geteuid),
    ALLOW(getgid),
    ALLOW(getpid),
    ALLOW(getppid),
    ALLOW(getrandom),
    ALLOW(getrlimit),
    ALLOW(gettid),
    ALLOW(gettimeofday),
    ALLOW(getuid),
    ALLOW(nanosleep),
    ALLOW(sysinfo),
    ALLOW(time),
    ALLOW(uname),
    /* a thread, no process: the flags of clone3(2) can't be seen from here */
    ALLOW_IF_SET(clone, 0, CLONE_THREAD),
    /* whether a process is there, and no signal */
    ALLOW_IF_0(kill, 1),
    ALLOW_IF_0(tgkill, 2),
    /* where a thread of its own runs */
    ALLOW_IF_0(sched_setaffinity, 0),
    /* what the limits are, and no others */
    ALLOW_IF_NULL(prlimit64, 2),
    RETURN(REFUSED),
};

/* What it takes beside that to put an agent into a process, or take it out. */
static const struct sock_filter acting[] = {
    HEAD,
    ALLOW(getsockopt),
    ALLOW(pidfd_getfd),
    ALLOW(process_vm_writev),
    ALLOW(pwrite64),
    /* files as its user would make them (inject/file_user.h) */
    ALLOW(capset),
    ALLOW(getgroups),
    ALLOW(mkdirat),
    ALLOW(setfsgid),
    ALLOW(setfsuid),
    ALLOW(setgroups),
    ALLOW(unlinkat),
};

#if BOUNDS_MEMORY
#define FOR_SANITIZER
#else
/* What it says and looks for. */
#define FOR_SANITIZER ALLOW(sched_yield), ALLOW(sigaltstack), ALLOW(write),
#endif

/* What running a statement takes, which has no files: memory, clocks, and the socket by which it is
 * told and tells. */
#define STATEMENT                                                                       \
 HEAD, ALLOW(recvfrom), ALLOW(sendto), ALLOW(brk), ALLOW(clock_gettime), ALLOW(exit),   \
     ALLOW(exit_group), ALLOW(futex), ALLOW(getpid), ALLOW(getrandom), ALLOW(gettid),   \
     ALLOW(gettimeofday), ALLOW(madvise), ALLOW(mmap), ALLOW(mprotect), ALLOW(mremap),  \
     ALLOW(munmap), ALLOW(restart_syscall), ALLOW(rt_sigprocmask), ALLOW(rt_sigreturn), \
     ALLOW(time), FOR_SANITIZER

static const struct sock_filter statement[] = {STATEMENT RETURN(REFUSED)};

static const struct sock_filter starting[] = {
    STATEMENT ALLOW(close),
    ALLOW(dup2),
    ALLOW(prctl),
    ALLOW(recvmsg),
    ALLOW_IF(clone, 0, CLONE_PARENT | SIGCHLD), /* a process, of its parent's */
    ALLOW_IF_0(kill, 0),                        /* itself, and those */
    RETURN(REFUSED),
};

int confine_calls(enum confine what)
{
    struct sock_filter both[ARRAY_SIZE(acting) + ARRAY_SIZE(reading) - HEAD_SIZE];

    memcpy(both, acting, sizeof acting);
    memcpy(both + ARRAY_SIZE(acting), reading + HEAD_SIZE, sizeof both - sizeof acting);
    const struct sock_fprog programs[] = {
        [CONFINE_ACTING] = {ARRAY_SIZE(both), both},
        [CONFINE_READING] = {ARRAY_SIZE(reading), (struct sock_filter *)reading},
        [CONFINE_STARTING] = {ARRAY_SIZE(starting), (struct sock_filter *)starting},
        [CONFINE_STATEMENT] = {ARRAY_SIZE(statement), (struct sock_filter *)statement},
    };

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &programs[what]) < 0 ? -errno : 0;
}
