#include "agent/base/thread.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/fork_count.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Thread-local variables are cut from the stack: of a program with many of them it wants more. */
#define STACK_RETRY (256u * 1024)

/* While another thread execs, the kernel makes none (EAGAIN; copy_fs() of its kernel/fork.c): that
 * ends this process, or fails, soon. */
#define EXEC_NS 1000000000u
#define EXEC_POLL_NS 1000000u

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

pid_t thread_tid(void)
{
    static __thread struct {
        pid_t tid;
        unsigned forks;
    } cached; /* one, since each look at such a variable is a call */
    __auto_type own = &cached;

    if (!own->tid || own->forks != fork_count()) {
        own->forks = fork_count();
        own->tid = gettid();
    }
    return own->tid;
}

/* ---- those that are there ---- */

int32_t threads_own[THREADS_OWN_MAX];

/* What one is to run. */
static struct start {
    bool taken;
    void *(*run)(void *arg);
    void *arg;
} starts[THREADS_OWN_MAX];

/* NULL: there are too many. */
static struct start *take_start(void *(*run)(void *), void *arg)
{
    for (size_t i = 0; i < THREADS_OWN_MAX; i++)
        if (!__atomic_exchange_n(&starts[i].taken, true, __ATOMIC_ACQUIRE)) {
            starts[i].run = run;
            starts[i].arg = arg;
            return &starts[i];
        }
    return NULL;
}

static void give_back(struct start *start)
{
    __atomic_store_n(&threads_own[start - starts], 0, __ATOMIC_RELEASE);
    __atomic_store_n(&start->taken, false, __ATOMIC_RELEASE);
}

static void *run_start(void *arg)
{
    struct start *start = arg;

    __atomic_store_n(&threads_own[start - starts], gettid(), __ATOMIC_RELEASE);
    void *result = start->run(start->arg);
    give_back(start);
    return result;
}

bool threads_own_has(pid_t tid)
{
    for (size_t i = 0; i < THREADS_OWN_MAX; i++)
        if (__atomic_load_n(&threads_own[i], __ATOMIC_ACQUIRE) == tid)
            return true;
    return false;
}

void threads_own_forget(void)
{
    memset(threads_own, 0, sizeof threads_own);
    memset(starts, 0, sizeof starts);
}

/* ---- */

/* -EINVAL: the stack is too small. */
static int create(size_t stack, void *(*run)(void *), void *arg, pthread_t *out, bool detached)
{
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);
    if (r)
        return -r;
    if (stack)
        r = pthread_attr_setstacksize(&attr, stack);
    if (!r && detached)
        r = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (!r)
        r = pthread_create(out, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return -r;
}

static int create_beside_exec(size_t stack, void *(*run)(void *), void *arg, pthread_t *out,
                              bool detached)
{
    uint64_t end = monotonic_ns() + EXEC_NS;
    int r = create(stack, run, arg, out, detached);

    while (r == -EAGAIN && monotonic_ns() < end) {
        nap_ns(EXEC_POLL_NS);
        r = create(stack, run, arg, out, detached);
    }
    return r;
}

int thread_spawn(size_t stack, bool faults, void *(*run)(void *), void *arg, pthread_t *out)
{
    const size_t sizes[] = {stack, STACK_RETRY, 0};
    sigset_t all, before;
    pthread_t thread;
    int r = -EINVAL;

    struct start *start = take_start(run, arg);
    if (!start)
        return -EAGAIN;
    sigfillset(&all);
    if (faults)
        for (size_t i = 0; i < ARRAY_SIZE(fault_signals); i++)
            sigdelset(&all, fault_signals[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    for (size_t i = 0; i < ARRAY_SIZE(sizes) && r == -EINVAL; i++)
        r = create_beside_exec(sizes[i], run_start, start, &thread, !out);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0)
        give_back(start);
    else if (out)
        *out = thread;
    return r;
}

void thread_name(const char *name)
{
    prctl(PR_SET_NAME, name); /* pthread_setname_np() of another thread needs /proc */
}

size_t stack_resident(const void *top, const void *bottom)
{
    size_t page_size = (size_t)sysconf(_SC_PAGESIZE), size = 0;
    uintptr_t page = (uintptr_t)top & ~(page_size - 1);
    unsigned char resident = 1;

    while (resident && page >= (uintptr_t)bottom &&
           mincore((void *)page, page_size, &resident) == 0) {
        size += resident & 1 ? page_size : 0;
        page -= page_size;
    }
    return size;
}
