/* Getting a library into a running process, and out again.
 *
 * One thread that stands at a safe place is borrowed for less than a millisecond: it makes a memfd,
 * starts a thread, and goes back to what it was doing with every register, its signals, its errno
 * and an interrupted system call as they were. The new thread loads the library like any thread
 * would. Killing the daemon at any moment leaves a process that runs on by itself: what the
 * borrowed thread executes restores the thread when nobody else does.
 *
 * Works by the process's own libc: other roots and mount namespaces, read-only and noexec file
 * systems make no difference, and nothing is left on disk. */
#pragma once

#include "fs/base/interrupt.h"
#include "fs/remote/moment/target.h"

/* What to load. */
struct inject_image {
    const void *data; /* an ELF shared library; stays the caller's */
    size_t size;
    uint64_t entry; /* file address of an int f(const struct agent_boot *): called on the
                       new thread once the library is loaded */
};

struct inject_result {
    uint64_t handle;   /* of dlopen(): the library's struct link_map */
    uint64_t base;     /* its load bias */
    int32_t result;    /* of the entry: 0 or -errno */
    pid_t borrowed;    /* the thread that was */
    unsigned attempts; /* stops until a place was safe */
    uint64_t pause_ns; /* that it was kept, in all */
    uint64_t total_ns;
};

/* What is known of one process for that: symbols, call frame information. Kept, so that a second
 * use is fast. Not thread-safe. */
struct injector;

/* The target must outlive it. -ENOMEM. */
int injector_new(struct target *target, struct injector **out);
void injector_free(struct injector *injector);

/* Loads a library and calls its entry. On failure the target is as it was, and `why` says in words
 * what failed and what to do.
 *
 * -EBUSY: it is being traced; -EPERM: ptrace is refused (Yama, capabilities) or its seccomp filter
 * forbids what is needed; -EOPNOTSUPP: not possible here (no glibc of 2.34 or later, static, shadow
 * stacks); -ETIMEDOUT: no safe moment before the deadline, or it is stopped by a signal, or the
 * library did not load in time; -EINTR: interrupted; -ESRCH: it ended; -ENOEXEC: dlopen() failed
 * (its words in why); -ENOMEM. */
int inject_load(struct injector *injector, const struct inject_image *image, uint64_t deadline_ns,
                const struct interrupt *interrupt, struct inject_result *out, struct text *why);

/* Calls a function of a library that is loaded: int f(const struct agent_boot *) at an
 * address, on a new thread. The errors are the same, and -ENOENT: no library that was
 * put in is there (any more). */
int inject_call(struct injector *injector, uint64_t address, uint64_t deadline_ns,
                const struct interrupt *interrupt, struct inject_result *out, struct text *why);

/* dlclose() of a handle, once no thread of the process runs in the library any more: that is the
 * caller's to know. out->result: what dlclose() returned. -ENOENT, as above. */
int inject_unload(struct injector *injector, uint64_t handle, uint64_t deadline_ns,
                  const struct interrupt *interrupt, struct inject_result *out, struct text *why);

/* What a thread that waits outside Python is made to do itself. */
struct inject_errand {
    pid_t tid;
    /* of a library that is loaded: void f(uint64_t *), called with that address, where a word is
     * which is 0 from then on, until the lower half of it is 1 once the thread has left */
    uint64_t function, argument;
    /* the last word, with the thread stopped: 0, or -EAGAIN */
    int (*agree)(void *arg);
    void *arg;
};

/* Has that thread call a function, and go on with its system call as it was, if it sleeps in one of
 * those in which it waits for no other thread, and no frame on its stack, down to where it began,
 * is of the interpreter's image. Where the daemon stops waiting, or is killed, the thread goes on
 * by itself once it comes back from the function. The errors are the same, and -EAGAIN: not now. */
int inject_errand(struct injector *injector, const struct inject_errand *errand,
                  uint64_t deadline_ns, const struct interrupt *interrupt,
                  struct inject_result *out, struct text *why);
