#include "fs/owner/confine.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
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

/* Makes the new root where /proc is, which is there in any case, with that in it. */
static int make_root(void)
{
    _cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (proc < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/proc", "tmpfs", PLAIN, "mode=0555,size=4k,nr_inodes=4") < 0 ||
        mkdir("/proc/proc", 0555) < 0 || fchdir(proc) < 0 ||
        mount(".", "/proc/proc", NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, "/proc/proc", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | PLAIN, NULL) < 0 ||
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

int confine_files(void)
{
    tzset();                       /* reads /etc/localtime */
    int r = bound(RLIMIT_CORE, 0); /* it holds what others may not see */
    if (r == 0 && BOUNDS_MEMORY)
        r = bound(RLIMIT_DATA, CONFINE_BYTES);
    if (r < 0 || geteuid())
        return r;
    r = unshare(CLONE_NEWNS) < 0 ? -errno : make_root();
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
#define ALLOW_IF_NULL(name, n)                                              \
 UNLESS(SYS_##name, 6), LOAD(args[n]), UNLESS(0, 3), HIGH(n), UNLESS(0, 1), \
     RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED)
#define ALLOW_IF_SET(name, n, flag)                                                        \
 UNLESS(SYS_##name, 4), LOAD(args[n]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (flag), 0, 1), \
     RETURN(SECCOMP_RET_ALLOW), RETURN(REFUSED)

/* What reading processes takes, and the life of threads. */
static const struct sock_filter filter[] = {
    LOAD(arch),
    UNLESS(AUDIT_ARCH_X86_64, 1),
    BPF_STMT(BPF_JMP | BPF_JA, 1),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
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

int confine_calls(void)
{
    const struct sock_fprog program = {ARRAY_SIZE(filter), (struct sock_filter *)filter};

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}
