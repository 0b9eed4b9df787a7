#include "fs/inject/script/wake.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/proc/lwp.h"

#include <errno.h>
#include <string.h>

#define CALLER_DEPTH_MAX 1024 /* bytes of stack from a system call to the interpreter's frame */
#define WRAPPERS_MAX 4        /* frames of the libc */

/* A system call that CPython makes again after EINTR, or whose timeout it computes anew: of the
 * time, select, socket and posix modules. NULL: it is none of these. */
static const char *retried(const char *syscall)
{
    static const char *const names[] = {
        "clock_nanosleep", "select",      "pselect6", "poll",     "ppoll",
        "epoll_wait",      "epoll_pwait", "read",     "recvfrom", "recvmsg",
        "accept",          "accept4",     "wait4",    "waitid",
    };

    for (size_t i = 0; syscall && i < ARRAY_SIZE(names); i++)
        if (!strcmp(syscall, names[i]))
            return names[i];
    return NULL;
}

static bool same_file(const struct mapping *a, const struct mapping *b)
{
    return a->inode && a->inode == b->inode && a->dev_major == b->dev_major &&
           a->dev_minor == b->dev_minor;
}

/* Whether an address lies in the interpreter or in a module of its standard library. */
static bool is_interpreter(const struct target *target, uint64_t addr)
{
    const struct mapping *map = maps_find(&target->maps, addr);
    const struct mapping *own = maps_find(&target->maps, target->runtime.image_base);

    return map && own && (same_file(map, own) || strstr(map->path, "/lib-dynload/"));
}

void sleep_call_find(struct target *target, const struct thread *thread, struct sleep_call *out)
{
    *out = (struct sleep_call){.name = thread->state == THREAD_IDLE ? retried(thread->wait) : NULL};
    if (!out->name || thread->nframes < 2 || thread->frames[0].kind != FRAME_NATIVE)
        return;
    _guard_mutex_(&target->lock);
    if (is_interpreter(target, thread->frames[0].address))
        return; /* statically linked: whose call it is can't be told */
    for (size_t i = 1; i < thread->nframes && i <= WRAPPERS_MAX; i++) {
        if (thread->frames[i].kind != FRAME_NATIVE)
            return;
        if (is_interpreter(target, thread->frames[i].address)) {
            out->pc = thread->frames[0].address;
            out->caller = thread->frames[i].address;
            return;
        }
        const struct mapping *inner = maps_find(&target->maps, thread->frames[0].address);
        const struct mapping *here = maps_find(&target->maps, thread->frames[i].address);
        if (!inner || !here || !same_file(inner, here))
            return; /* another library calls it */
    }
}

static bool calls_from(const struct memory *memory, uint64_t sp, uint64_t caller)
{
    uint64_t words[CALLER_DEPTH_MAX / 8];
    size_t n = ARRAY_SIZE(words);

    while (n && memory_read(memory, sp, words, n * 8) < 0)
        n /= 2; /* the stack's end */
    for (size_t i = 0; i < n; i++)
        if (words[i] == caller)
            return true;
    return false;
}

void sleep_call_wake(const struct memory *memory, pid_t tid, const struct sleep_call *place)
{
    struct registers regs;

    if (!place->caller || registers_read(tid, &regs) < 0)
        return;
    const char *name = syscall_name((int)registers_syscall(&regs));
    /* else it has returned just now; or it is one that restart_interrupted() has set back. Since
     * glibc 2.41 all that can be cancelled are made at one place, and what is left on the stack of
     * the call before may name its caller. */
    if (!registers_restarts(&regs, place->pc) || !name || strcmp(name, place->name) ||
        !calls_from(memory, registers_sp(&regs), place->caller))
        return;
    registers_fail(&regs, place->pc);
    registers_write(tid, &regs);
}
