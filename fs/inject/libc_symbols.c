#include "fs/inject/libc_symbols.h"

#include "agent/base/cleanup.h"
#include "fs/arch/insn.h"
#include "fs/base/array.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define HEAD_MAX (512u << 10) /* libc's symbol tables lie within its first bytes */
#define VERSIONS_MAX 8        /* of one name */
#define TAIL_CALL_CODE 24     /* bytes: a function that begins by jumping elsewhere */
#define TRY_CODE 128          /* the same, of one that tries first */
#define TRY_PATHS 8

/* Functions of libc that wait, or do one system call, or neither lock nor allocate.
 * Not in it, on purpose: all that may hold malloc's lock, the loader's, stdio's, or
 * the one of the thread stacks. */
/* clang-format off */
#define W ENTRY_WAITS
static const struct {
    const char *name;
    enum libc_entry_kind kind;
} entries[] = {
    {"read", W}, {"write"}, {"readv", W}, {"writev"}, {"pread64"}, {"pwrite64"}, {"preadv64"},
    {"pwritev64"}, {"recv", W}, {"recvfrom", W}, {"recvmsg", W}, {"recvmmsg", W}, {"send"},
    {"sendto"}, {"sendmsg"}, {"sendmmsg"}, {"sendfile64"}, {"splice"}, {"copy_file_range"},
    {"select", W}, {"__select", W}, {"pselect", W}, {"poll", W}, {"__poll", W}, {"ppoll", W},
    {"epoll_wait", W}, {"epoll_pwait", W}, {"epoll_pwait2", W}, {"epoll_ctl"}, {"accept", W},
    {"accept4", W}, {"connect"}, {"nanosleep", W}, {"__nanosleep", W}, {"clock_nanosleep", W},
    {"usleep", W}, {"sleep", W}, {"pause", W}, {"sem_wait"}, {"sem_timedwait"}, {"sem_clockwait"},
    {"sem_trywait"}, {"sem_post"}, {"pthread_cond_wait"}, {"pthread_cond_timedwait"},
    {"pthread_cond_clockwait"}, {"pthread_cond_signal"}, {"pthread_cond_broadcast"},
    {"pthread_mutex_lock"}, {"pthread_mutex_unlock"}, {"pthread_mutex_trylock"},
    {"pthread_mutex_timedlock"}, {"pthread_rwlock_rdlock"}, {"pthread_rwlock_wrlock"},
    {"pthread_rwlock_unlock"}, {"pthread_barrier_wait"}, {"wait4"}, {"waitpid"}, {"wait"},
    {"waitid"}, {"sigwait", W}, {"sigwaitinfo", W}, {"sigtimedwait", W}, {"sigsuspend", W},
    {"syscall"}, {"flock"}, {"fcntl"}, {"fcntl64"}, {"ioctl"}, {"open"}, {"open64"}, {"openat"},
    {"openat64"}, {"close"}, {"close_range"}, {"stat"}, {"stat64"}, {"lstat64"}, {"fstat64"},
    {"fstatat64"}, {"lseek64"}, {"lseek"}, {"fsync"}, {"fdatasync"}, {"msync"}, {"sched_yield"},
    {"clock_gettime"}, {"__clock_gettime"}, {"gettimeofday"}, {"time"}, {"getpid"}, {"getppid"},
    {"gettid"}, {"getuid"}, {"geteuid"}, {"getgid"}, {"getegid"}, {"getrandom"}, {"getrusage"},
    {"getitimer"}, {"setitimer"}, {"kill"}, {"raise"}, {"umask"}, {"sigaltstack"}, {"sigprocmask"},
    {"pthread_sigmask"}, {"prctl"}, {"access"}, {"faccessat"}, {"readlink"}, {"readlinkat"},
    {"unlink"}, {"unlinkat"}, {"rename"}, {"renameat"}, {"mkdir"}, {"rmdir"}, {"chdir"}, {"chmod"},
    {"fchmod"}, {"statx"}, {"ftruncate64"}, {"truncate64"}, {"dup"}, {"dup2"}, {"dup3"}, {"pipe"},
    {"pipe2"}, {"socket"}, {"socketpair"}, {"bind"}, {"listen"}, {"shutdown"}, {"setsockopt"},
    {"getsockopt"}, {"getsockname"}, {"getpeername"}, {"eventfd_read"}, {"eventfd_write"},
    {"timerfd_settime"}, {"timerfd_gettime"}, {"madvise"}, {"mmap"}, {"mmap64"}, {"munmap"},
    {"mremap"}, {"mprotect"}, {"io_getevents"}, {"semop"}, {"semtimedop"}, {"mq_timedreceive"},
    {"memcpy"}, {"memmove"}, {"memset"}, {"memcmp"}, {"strlen"}, {"strcmp"},
    {"pthread_join", ENTRY_ASLEEP}, {"pthread_timedjoin_np", ENTRY_ASLEEP},
    {"pthread_clockjoin_np", ENTRY_ASLEEP}, {"__libc_start_main", ENTRY_BASE},
};
#undef W
/* clang-format on */

/* What is called there. */
static const struct {
    const char *name;
    size_t offset; /* in struct libc_symbols */
} calls[] = {
    {"__errno_location", offsetof(struct libc_symbols, errno_location)},
    {"dlopen", offsetof(struct libc_symbols, dlopen)},
    {"dlclose", offsetof(struct libc_symbols, dlclose)},
    {"dlerror", offsetof(struct libc_symbols, dlerror)},
    {"pthread_attr_init", offsetof(struct libc_symbols, attr_init)},
    {"pthread_attr_setdetachstate", offsetof(struct libc_symbols, attr_setdetachstate)},
    {"pthread_attr_setstacksize", offsetof(struct libc_symbols, attr_setstacksize)},
    {"pthread_attr_destroy", offsetof(struct libc_symbols, attr_destroy)},
    {"pthread_create", offsetof(struct libc_symbols, pthread_create)},
};

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

bool libc_is_library(const struct module *module)
{
    return begins(module->name, "libc.so.6") || begins(module->name, "libc-2.");
}

bool libc_is_loader(const struct module *module)
{
    return begins(module->name, "ld-linux") || begins(module->name, "ld-2.");
}

/* musl's library is the loader, too. Each distribution calls it otherwise; glibc's libc.so is a
 * text. */
static bool is_musl(const struct module *module)
{
    return begins(module->name, "ld-musl") || begins(module->name, "libc.musl") ||
           !strcmp(module->name, "libc.so");
}

static int refuse(const struct modules *modules, struct text *why)
{
    for (size_t i = 0; i < modules->n; i++)
        if (is_musl(&modules->items[i])) {
            text_puts(why, "its C library is musl: an agent needs glibc 2.34 or later");
            return -EOPNOTSUPP;
        }
    for (size_t i = 0; i < modules->n; i++)
        if (libc_is_loader(&modules->items[i]))
            return -EAGAIN;
    text_puts(why, "it has no shared C library (a static executable): an agent needs glibc 2.34 or "
                   "later");
    return -EOPNOTSUPP;
}

static int by_addr(const void *a, const void *b)
{
    const struct libc_entry *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void add_entry(struct libc_symbols *s, uint64_t addr, enum libc_entry_kind kind)
{
    if (s->nentries < LIBC_ENTRIES_MAX)
        s->entries[s->nentries++] = (struct libc_entry){addr, kind};
}

/* What a function of a few instructions jumps to at its end, as pthread_mutex_unlock() does: that
 * is the one which is on the stack. 0: it isn't such a function. */
static uint64_t tail_call(const struct memory *memory, uint64_t addr)
{
    uint8_t code[TAIL_CALL_CODE];
    struct insn insn;

    if (memory_read(memory, addr, code, sizeof code) < 0)
        return 0;
    for (size_t at = 0; insn_decode(code + at, sizeof code - at, addr + at, &insn);
         at += insn.size) {
        if (insn.kind == INSN_JUMP)
            return insn.target;
        if (insn.kind != INSN_OTHER)
            return 0;
    }
    return 0;
}

/* The tail call of sem_wait() and its kin, which first try without waiting: where the path that
 * waits goes. CPython's locks wait there, so that without it a program whose threads all wait for
 * one is never safe. */
static uint64_t tail_call_behind_a_try(const struct memory *memory, uint64_t addr)
{
    uint8_t code[TRY_CODE];
    bool seen[TRY_CODE] = {false};
    size_t paths[TRY_PATHS] = {0}, npaths = 1;
    struct insn insn;

    if (memory_read(memory, addr, code, sizeof code) < 0)
        return 0;
    while (npaths) {
        size_t at = paths[--npaths];
        while (at < sizeof code && !seen[at] &&
               insn_decode(code + at, sizeof code - at, addr + at, &insn)) {
            bool inside = insn.target >= addr && insn.target - addr < sizeof code;
            seen[at] = true;
            if (insn.kind == INSN_JUMP && !inside)
                return insn.target;
            if (insn.kind == INSN_STOP || insn.kind == INSN_JUMP_SLOT)
                break;
            if (insn.kind == INSN_BRANCH && inside && npaths < TRY_PATHS)
                paths[npaths++] = insn.target - addr;
            at = insn.kind == INSN_JUMP ? insn.target - addr : at + insn.size;
        }
    }
    return 0;
}

static void find_entries(const struct memory *tables, const struct memory *memory,
                         const struct elf_image *image, struct libc_symbols *s)
{
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        uint64_t addrs[VERSIONS_MAX];
        size_t n = elf_image_functions(tables, image, entries[i].name, addrs, VERSIONS_MAX);
        for (size_t k = 0; k < n; k++) {
            uint64_t tail = begins(entries[i].name, "sem_")
                                ? tail_call_behind_a_try(memory, addrs[k])
                                : tail_call(memory, addrs[k]);
            add_entry(s, addrs[k], entries[i].kind);
            if (tail >= image->base && tail < image->end)
                add_entry(s, tail, entries[i].kind);
        }
    }
    qsort(s->entries, s->nentries, sizeof *s->entries, by_addr);
}

static int find_calls(const struct memory *memory, const struct elf_image *image,
                      struct libc_symbols *s, struct text *why)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        uint64_t addr;
        int r = elf_image_symbol(memory, image, calls[i].name, &addr, NULL);
        if (r == -ESRCH || r == -EPERM)
            return r;
        if (r < 0) {
            text_printf(why, "its C library has no %s(): an agent needs glibc 2.34 or later",
                        calls[i].name);
            return -EOPNOTSUPP;
        }
        memcpy((char *)s + calls[i].offset, &addr, sizeof addr);
    }
    return 0;
}

int libc_symbols_find(struct modules *modules, struct libc_symbols *out, struct text *why)
{
    struct libc_symbols found = {0};
    struct module *libc = NULL;

    for (size_t i = 0; i < modules->n && !libc; i++)
        if (libc_is_library(&modules->items[i]))
            libc = modules_find(modules, modules->items[i].start);
    if (!libc)
        return refuse(modules, why);
    if (libc->state != MODULE_READ) {
        text_puts(why, "its C library can't be read");
        return -EOPNOTSUPP;
    }
    if (libc->base == out->base)
        return 0;

    /* hundreds of small reads: from one copy of where the tables are */
    struct memory_image head = {.base = libc->base, .size = libc->start - libc->base};
    struct memory copy = {.image = &head};
    if (!head.size) /* they share a segment with the code */
        head.size = libc->end - libc->base;
    if (head.size > HEAD_MAX)
        head.size = HEAD_MAX;
    _cleanup_free_ uint8_t *data = malloc(head.size ? head.size : 1);
    if (!data)
        return -ENOMEM;
    head.data = data;
    bool copied = memory_read(modules->memory, head.base, data, head.size) == 0;
    int r = find_calls(copied ? &copy : modules->memory, &libc->image, &found, why);
    if (r < 0)
        return r;
    find_entries(copied ? &copy : modules->memory, modules->memory, &libc->image, &found);
    found.base = libc->base;
    *out = found;
    return 0;
}

const struct libc_entry *libc_entry_find(const struct libc_symbols *symbols, uint64_t start,
                                         uint64_t end)
{
    size_t found = LOWER_BOUND(symbols->nentries, i, symbols->entries[i].addr < start);

    return found < symbols->nentries && symbols->entries[found].addr < end
               ? &symbols->entries[found]
               : NULL;
}
