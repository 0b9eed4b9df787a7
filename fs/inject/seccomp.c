#include "fs/inject/seccomp.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/memfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define STATUS_MAX 8192
#define FD 5 /* any descriptor */
#define ANY (-1)
#define MFD_EXEC_ 0x10 /* kernel 6.3 */

/* ---- one filter ---- */

struct machine {
    uint32_t a, x, memory[BPF_MEMWORDS];
};

static bool compute(struct machine *m, uint16_t op, uint32_t operand)
{
    switch (op) {
    case BPF_ADD: m->a += operand; return true;
    case BPF_SUB: m->a -= operand; return true;
    case BPF_MUL: m->a *= operand; return true;
    case BPF_AND: m->a &= operand; return true;
    case BPF_OR: m->a |= operand; return true;
    case BPF_XOR: m->a ^= operand; return true;
    case BPF_LSH: m->a <<= operand & 31; return true;
    case BPF_RSH: m->a >>= operand & 31; return true;
    case BPF_NEG: m->a = -m->a; return true;
    case BPF_DIV: /* by zero: the whole program answers 0 */
        if (operand)
            m->a /= operand;
        return operand != 0;
    }
    return false;
}

static bool compare(const struct machine *m, uint16_t op, uint32_t operand)
{
    switch (op) {
    case BPF_JEQ: return m->a == operand;
    case BPF_JGT: return m->a > operand;
    case BPF_JGE: return m->a >= operand;
    case BPF_JSET: return m->a & operand;
    }
    return false;
}

/* A load or store; false: not one that seccomp knows. */
static bool move(struct machine *m, const struct sock_filter *i, const struct seccomp_data *data)
{
    uint32_t *reg = BPF_CLASS(i->code) == BPF_LDX || BPF_CLASS(i->code) == BPF_STX ? &m->x : &m->a;

    switch (i->code) {
    case BPF_LD | BPF_W | BPF_ABS:
        if (i->k & 3 || i->k >= sizeof *data)
            return false;
        __builtin_memcpy(&m->a, (const char *)data + i->k, sizeof m->a);
        return true;
    case BPF_LD | BPF_W | BPF_LEN:
    case BPF_LDX | BPF_W | BPF_LEN: *reg = sizeof *data; return true;
    case BPF_LD | BPF_IMM:
    case BPF_LDX | BPF_IMM: *reg = i->k; return true;
    case BPF_LD | BPF_MEM:
    case BPF_LDX | BPF_MEM:
        if (i->k >= BPF_MEMWORDS)
            return false;
        *reg = m->memory[i->k];
        return true;
    case BPF_ST:
    case BPF_STX:
        if (i->k >= BPF_MEMWORDS)
            return false;
        m->memory[i->k] = *reg;
        return true;
    }
    return false;
}

uint32_t seccomp_evaluate(const struct sock_filter *filter, size_t n,
                          const struct seccomp_data *data)
{
    struct machine m = {0};

    for (size_t pc = 0; pc < n; pc++) { /* jumps go forward only: it ends */
        const struct sock_filter *i = &filter[pc];
        uint32_t operand = BPF_SRC(i->code) == BPF_X ? m.x : i->k;
        switch (BPF_CLASS(i->code)) {
        case BPF_RET: return BPF_RVAL(i->code) == BPF_A ? m.a : i->k;
        case BPF_JMP:
            if (BPF_OP(i->code) == BPF_JA)
                pc += i->k;
            else
                pc += compare(&m, BPF_OP(i->code), operand) ? i->jt : i->jf;
            break;
        case BPF_ALU:
            if (!compute(&m, BPF_OP(i->code), operand))
                return SECCOMP_RET_KILL_THREAD;
            break;
        case BPF_MISC:
            if (BPF_MISCOP(i->code) == BPF_TAX)
                m.x = m.a;
            else
                m.a = m.x;
            break;
        default:
            if (!move(&m, i, data))
                return SECCOMP_RET_KILL_PROCESS;
        }
    }
    return SECCOMP_RET_KILL_PROCESS;
}

/* ---- what is called ---- */

struct allowed_call {
    int number;
    int error; /* that does no harm; ANY: every one; 0: none */
    uint64_t args[6];
};

/* Calls of the stub, the shim, libc for a thread and for a library, and the agent. */
static const struct allowed_call load_calls[] = {
    {SYS_memfd_create, 0, {0, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC_}},
    {SYS_ftruncate, 0, {FD, 65536}},
    {SYS_mmap, 0, {0, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, FD, 0}},
    {SYS_mmap, 0, {0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, FD, 0}},
    {SYS_mmap, 0, {0, 262144, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1ull, 0}},
    {SYS_mmap, 0, {0, 65536, PROT_READ, MAP_PRIVATE | MAP_DENYWRITE, FD, 0}},
    {SYS_mmap,
     0,
     {0, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED | MAP_DENYWRITE, FD, 4096}},
    {SYS_mmap, 0, {0, 135168, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1ull, 0}},
    {SYS_mprotect, 0, {0, 4096, PROT_READ | PROT_WRITE}},
    {SYS_mprotect, 0, {0, 4096, PROT_READ}},
    {SYS_munmap, 0, {0, 8192}},
    {SYS_close, 0, {FD}},
    {SYS_getpid},
    {SYS_gettid},
    {SYS_tgkill, 0, {1, 1, SIGURG}},
    {SYS_rt_sigprocmask, 0, {SIG_SETMASK, 0, 0, 8}},
    {SYS_rt_sigprocmask, 0, {SIG_BLOCK, 0, 0, 8}},
    {SYS_clock_gettime, 0, {CLOCK_MONOTONIC}},
    {SYS_ppoll, 0, {0, 0, 0, 0, 8}},
    {SYS_poll, 0, {0, 1, 0}},
    {SYS_futex, 0, {0, FUTEX_WAIT | FUTEX_PRIVATE_FLAG}},
    {SYS_futex, 0, {0, FUTEX_WAKE | FUTEX_PRIVATE_FLAG}},
    {SYS_clone3, ENOSYS, {0, 88}}, /* then clone() is used */
    {SYS_clone,
     0,
     {CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
      CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID}},
    {SYS_set_robust_list, ANY},
    {SYS_rseq, ANY},
    {SYS_brk, ANY},
    {SYS_madvise, ANY},
    {SYS_openat, 0, {(uint64_t)-100, 0, 02000000}},
    {SYS_read, 0, {FD, 0, 832}},
    {SYS_pread64, 0, {FD, 0, 784, 64}},
    {SYS_newfstatat, 0, {FD, 0, 0, 0x1000}},
    {SYS_fstat, ANY, {FD}},
    {ARCH_UNLINK, ANY},
    {SYS_exit},
    {SYS_socketpair, 0, {AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0}},
    {SYS_sendmsg, 0, {FD, 0, MSG_NOSIGNAL}},
    {SYS_sendto, 0, {FD, 0, 16, MSG_NOSIGNAL}},
    {SYS_recvmsg, 0, {FD}},
    {SYS_shutdown, ANY, {FD, 2}},
    {SYS_setsockopt, ANY, {FD}},
    {SYS_prctl, ANY, {PR_SET_NAME}},
    {SYS_fcntl, ANY, {FD, 1}},
    /* the recorder's rings and samples */
    {SYS_getrusage, ANY},
    {SYS_fstatfs, ANY, {FD}},
    {SYS_prlimit64, ANY, {0, RLIMIT_FSIZE}},
    {SYS_fcntl,
     ANY,
     {FD, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL}},
    {SYS_mmap,
     ANY,
     {0, 69632, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, FD, 0}},
};

/* Calls of a process that clears debug registers. Where such a call only fails they stay set, and
 * what they raise is ignored. */
static const struct allowed_call watch_calls[] = {
    {SYS_clone, ANY, {CLONE_VM}},
    {SYS_ptrace, ANY, {PTRACE_SEIZE}},
    {SYS_ptrace, ANY, {PTRACE_POKEUSER}},
    {SYS_wait4, ANY},
    {SYS_openat, ANY, {(uint64_t)-100, 0, 02000000}},
    {SYS_getdents64, ANY, {FD}},
    {SYS_lseek, ANY, {FD}},
    {SYS_readlink, ANY},
    {SYS_getpid, ANY},
    {SYS_tgkill, ANY, {1, 1, 0}},
    {SYS_nanosleep, ANY},
    {SYS_clock_gettime, ANY, {CLOCK_MONOTONIC}},
    {SYS_prctl, ANY, {PR_SET_PTRACER}},
    {SYS_mprotect, ANY, {0, 4096, PROT_NONE}},
    {SYS_exit_group},
    {SYS_rt_sigreturn},
    {SYS_gettid},
};

/* Calls of the handler, in whichever thread has used up its quantum, and of who puts it in place.
 * The agent tries out whether it may read memory so, and says so if it fails. */
static const struct allowed_call sample_calls[] = {
    {SYS_process_vm_readv, ANY, {1, 0, 1, 0, 1, 0}},
    {SYS_clock_gettime, 0, {CLOCK_MONOTONIC}},
    {SYS_clock_gettime, 0, {CLOCK_THREAD_CPUTIME_ID}},
    {SYS_gettid},
    {SYS_getpid},
    {SYS_rt_sigreturn},
    {SYS_rt_sigaction, 0, {SIGTRAP, 0, 0, 8}},
    {SYS_tgkill, 0, {1, 1, SIGTRAP}},
    {SYS_sched_yield, ANY},
    {SYS_mmap,
     0,
     {0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1ull, 0}},
    {SYS_madvise, ANY, {0, 4096, MADV_DONTNEED}},
    {SYS_munmap, 0, {0, 4096}},
};

static const struct {
    const struct allowed_call *calls;
    size_t n;
    const char *instead; /* what to do */
} uses[] = {
    [SECCOMP_LOAD] = {load_calls, ARRAY_SIZE(load_calls),
                      "start the program with PROBING=1, or let it `import probing`"},
    [SECCOMP_WATCH] = {watch_calls, ARRAY_SIZE(watch_calls), "hw=perf needs nothing of the kind"},
    [SECCOMP_SAMPLE] = {sample_calls, ARRAY_SIZE(sample_calls),
                        "the other sources call nothing in the process"},
};

/* Whether one filter lets all through; else which call it is about, and its answer. */
static bool is_allowed(const struct sock_filter *filter, size_t n, enum seccomp_use use,
                       uint64_t code, int *number, uint32_t *answer)
{
    const struct allowed_call *calls = uses[use].calls;

    for (size_t i = 0; i < uses[use].n; i++) {
        if (calls[i].number < 0)
            continue; /* this machine hasn't got it */
        struct seccomp_data data = {.nr = calls[i].number,
                                    .arch = ARCH_AUDIT,
                                    .instruction_pointer = code};
        __builtin_memcpy(data.args, calls[i].args, sizeof data.args);
        uint32_t said = seccomp_evaluate(filter, n, &data);
        switch (said & SECCOMP_RET_ACTION_FULL) {
        case SECCOMP_RET_ALLOW:
        case SECCOMP_RET_LOG: continue;
        case SECCOMP_RET_ERRNO:
            if (calls[i].error == ANY ||
                (calls[i].error && calls[i].error == (int)(said & SECCOMP_RET_DATA)))
                continue;
        }
        *number = calls[i].number;
        *answer = said;
        return false;
    }
    return true;
}

/* ---- the filters of a thread ---- */

bool seccomp_has_filters(pid_t tid)
{
    char status[STATUS_MAX];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return true;
    const char *mode = proc_status_field(status, "Seccomp");
    return mode && *mode != '0';
}

int seccomp_count(pid_t tid)
{
    char status[STATUS_MAX];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return -ESRCH;
    const char *mode = proc_status_field(status, "Seccomp");
    const char *count = proc_status_field(status, "Seccomp_filters");
    if (mode && *mode == '0')
        return 0;
    if (mode && *mode == '0' + SECCOMP_MODE_STRICT)
        return -EPERM;
    return mode && count ? (int)strtoul(count, NULL, 10) : -EOPNOTSUPP;
}

static int not_readable(pid_t tid, enum seccomp_use use, int error, struct text *why)
{
    if (error == ESRCH)
        return -ESRCH;
    if (!seccomp_has_filters(tid))
        return 0;
    text_printf(why,
                "it runs under a seccomp filter that can't be read (that needs CAP_SYS_ADMIN, and "
                "not to be filtered oneself), and that might kill it for what an agent needs; %s",
                uses[use].instead);
    return -EPERM;
}

int seccomp_check(pid_t tid, enum seccomp_use use, uint64_t code, struct text *why)
{
    int number;
    uint32_t answer;

    long n = ptrace(PTRACE_SECCOMP_GET_FILTER, tid, NULL, NULL);
    if (n < 0)
        return not_readable(tid, use, errno, why); /* most often there is none */
    _cleanup_free_ struct sock_filter *filter = calloc(BPF_MAXINSNS, sizeof *filter);
    if (!filter)
        return -ENOMEM;
    for (uintptr_t i = 0; i < SECCOMP_FILTERS_MAX; i++) {
        n = ptrace(PTRACE_SECCOMP_GET_FILTER, tid, (void *)i, NULL);
        if (n < 0 && errno == ENOENT)
            return 0;
        if (n < 0 || n > BPF_MAXINSNS ||
            ptrace(PTRACE_SECCOMP_GET_FILTER, tid, (void *)i, filter) != n)
            return not_readable(tid, use, errno, why);
        if (!is_allowed(filter, (size_t)n, use, code, &number, &answer)) {
            const char *name = syscall_name(number);
            bool error = (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO;
            text_printf(why, "its seccomp filter would answer %s() with %s; %s",
                        name ? name : "a call", error ? "an error" : "a signal", uses[use].instead);
            return -EPERM;
        }
    }
    text_puts(why, "it has more seccomp filters than are looked at");
    return -EPERM;
}
