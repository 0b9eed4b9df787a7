#include "agent/watch/stale_registers.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/cut_short.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#define STACK_SIZE 65536u
#define GUARD_SIZE 4096u
#define STOP_NAP_NS 50000
#define STOP_NAPS 2000 /* for a thread to stop: 100 ms and more */
#define PASS_NAP_NS 1000000
#define TRIES_MIN 100 /* of a pass, however late it is */
#define SYSCALL_INSTRUCTION 0x050f
#define TIDS_MAX 4194304 /* PID_MAX_LIMIT, include/linux/threads.h */

/* ---- the cleaner: another process, with our memory, and the thread-local variables of the thread
 * that waits for it. So it calls no function of libc's ---- */

struct entry { /* what getdents64(2) fills in */
    uint64_t inode, offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

struct cleaner {
    pid_t pid;         /* of the process to be cleared */
    int tasks;         /* its /proc/self/task; -1: none that can be used */
    uint64_t until_ns; /* CLOCK_MONOTONIC */
    int result;
    _Alignas(struct entry) char entries[8192];
};

static long raw(long number, long a, long b, long c, long d)
{
    return arch_call(number, a, b, c, d, 0);
}

static long trace(long request, pid_t tid, long where, const void *data)
{
    return raw(SYS_ptrace, request, tid, where, (long)(uintptr_t)data);
}

static void nap(long ns)
{
    struct timespec t = {0, ns};
    raw(SYS_nanosleep, (long)(uintptr_t)&t, 0, 0, 0);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    raw(SYS_clock_gettime, CLOCK_MONOTONIC, (long)(uintptr_t)&t, 0, 0);
    return timespec_ns(&t);
}

/* Waits until a thread stops. Its status; 0: it is gone; -1: it doesn't stop. */
static int wait_stop(pid_t tid)
{
    int status;

    for (int i = 0; i < STOP_NAPS; i++) {
        long r = raw(SYS_wait4, tid, (long)(uintptr_t)&status, __WALL | WNOHANG, 0);
        if (r == tid)
            return status;
        if (r < 0)
            return 0;
        nap(STOP_NAP_NS);
    }
    return -1;
}

static bool has_signal(pid_t tid)
{
    struct __ptrace_peeksiginfo_args own = {.nr = 1},
                                     shared = {.flags = PTRACE_PEEKSIGINFO_SHARED, .nr = 1};
    siginfo_t info;

    return trace(PTRACE_PEEKSIGINFO, tid, (long)(uintptr_t)&own, &info) > 0 ||
           trace(PTRACE_PEEKSIGINFO, tid, (long)(uintptr_t)&shared, &info) > 0;
}

/* Has a stopped thread enter its system call again, if it would see an EINTR without a signal. */
static void restart(pid_t tid)
{
    struct user_regs_struct regs;
    long code = 0;

    if (trace(PTRACE_GETREGS, tid, 0, &regs) < 0 || (int64_t)regs.rax != -EINTR ||
        !is_cut_short((long)regs.orig_rax) || has_signal(tid) ||
        trace(PTRACE_PEEKTEXT, tid, (long)regs.rip - 2, &code) < 0 ||
        (code & 0xffff) != SYSCALL_INSTRUCTION)
        return;
    regs.rip -= 2;
    regs.rax = regs.orig_rax;
    trace(PTRACE_SETREGS, tid, 0, &regs);
}

static bool clear_thread(pid_t tid)
{
    long r = trace(PTRACE_SEIZE, tid, 0, NULL);
    bool seized = r == 0;

    if (r == -ESRCH)
        return true;
    if (seized)
        trace(PTRACE_INTERRUPT, tid, 0, NULL);
    int status = wait_stop(tid); /* of one that is ours, also since an earlier pass */
    if (status < 0 || (!status && !seized))
        return false; /* our end lets it go, or another tracer has it */
    if (!WIFSTOPPED(status))
        return true;
    bool event = status >> 16;
    if (event)
        restart(tid);
    r = trace(PTRACE_POKEUSER, tid, offsetof(struct user, u_debugreg[7]), NULL);
    trace(PTRACE_DETACH, tid, 0, (const void *)(uintptr_t)(event ? 0 : WSTOPSIG(status)));
    return r == 0;
}

/* Without /proc only trying tells which numbers are threads: less than a second on a processor of
 * its own. So it tries again at once where another tracer has a thread, and doesn't begin anew. */
static bool clear_tried(struct cleaner *cleaner)
{
    bool clear = true;
    int tries = TRIES_MIN;

    for (pid_t tid = 1; tid < TIDS_MAX; tid++) {
        if (raw(SYS_tgkill, cleaner->pid, tid, 0, 0) < 0)
            continue;
        while (!clear_thread(tid)) {
            if (tries-- <= 0 && now_ns() > cleaner->until_ns) {
                clear = false;
                break;
            }
            nap(PASS_NAP_NS);
        }
    }
    return clear;
}

static bool clear_listed(struct cleaner *cleaner)
{
    bool clear = true;
    long n;

    raw(SYS_lseek, cleaner->tasks, 0, SEEK_SET, 0);
    while ((n = raw(SYS_getdents64, cleaner->tasks, (long)(uintptr_t)cleaner->entries,
                    sizeof cleaner->entries, 0)) > 0) {
        for (long at = 0; at < n;) {
            const struct entry *entry = (const struct entry *)(cleaner->entries + at);
            pid_t tid = 0;
            for (const char *p = entry->name; *p >= '0' && *p <= '9'; p++)
                tid = tid * 10 + (*p - '0');
            if (tid && !clear_thread(tid))
                clear = false;
            at += entry->size;
        }
    }
    return clear && n == 0;
}

static int cleaner_main(void *arg)
{
    struct cleaner *cleaner = arg;

    /* new threads have no registers armed: it is enough to see each thread once */
    while (!(cleaner->tasks < 0 ? clear_tried(cleaner) : clear_listed(cleaner))) {
        if (now_ns() > cleaner->until_ns)
            raw(SYS_exit_group, 1, 0, 0, 0);
        nap(PASS_NAP_NS);
    }
    cleaner->result = 0;
    raw(SYS_exit_group, 0, 0, 0, 0);
    __builtin_unreachable();
}

/* ---- who waits for it ---- */

/* Under Yama a process may be traced by one that it names; one that the program
 * has named loses that. */
static bool needs_naming(void)
{
    char scope = '0';

    _cleanup_close_ int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &scope, 1) == 1 && scope == '1';
}

/* -1: there is no /proc, or that of another pid namespace. */
static int open_tasks(void)
{
    char self[16] = "";

    if (readlink("/proc/self", self, sizeof self - 1) < 0 || atoi(self) != getpid())
        return -1;
    return open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int run(struct cleaner *cleaner, char *stack)
{
    int r = clone(cleaner_main, stack + STACK_SIZE, CLONE_VM, cleaner);
    if (r < 0)
        return -errno;
    bool named = needs_naming() && prctl(PR_SET_PTRACER, r, 0, 0, 0) == 0;
    while (raw(SYS_wait4, r, 0, __WALL, 0) == -EINTR) /* it shares our errno */
        continue;
    if (named)
        prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    return cleaner->result;
}

int stale_registers_clear(uint64_t until_ns)
{
    struct cleaner *cleaner;
    char *memory = mmap(NULL, GUARD_SIZE + STACK_SIZE + sizeof *cleaner, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return -ENOMEM;
    mprotect(memory, GUARD_SIZE, PROT_NONE);
    cleaner = (struct cleaner *)(memory + GUARD_SIZE + STACK_SIZE);
    cleaner->until_ns = until_ns; /* the rest is zero: it is fresh from the kernel */
    cleaner->result = -ETIMEDOUT;
    cleaner->pid = getpid();
    cleaner->tasks = open_tasks();
    int r = run(cleaner, memory + GUARD_SIZE);
    if (cleaner->tasks >= 0)
        close(cleaner->tasks);
    munmap(memory, GUARD_SIZE + STACK_SIZE + sizeof *cleaner);
    return r;
}
