#include "fs/inject/script/order.h"

#include "agent/base/cleanup.h"
#include "fs/inject/refusal.h"
#include "fs/inject/script/files.h"
#include "fs/trace/restart.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Bits of PyThreadState.eval_breaker (Include/internal/pycore_ceval.h). */
#define SIGNALS_PENDING_BIT 2u
#define CALLS_TO_DO_BIT 4u
#define ASYNC_EXCEPTION_BIT 8u

static int read_word(const struct target *target, uint64_t addr, uint64_t *out)
{
    return memory_read(&target->memory, addr, out, sizeof *out);
}

/* ---- the fields of one thread state ---- */

static uint64_t support(const struct script_order *order)
{
    return order->tstate + (uint64_t)order->runtime->offsets.support;
}

static uint64_t pending_addr(const struct script_order *order)
{
    return support(order) + (uint64_t)order->runtime->offsets.pending_call;
}

static uint64_t path_addr(const struct script_order *order)
{
    return support(order) + (uint64_t)order->runtime->offsets.script_path;
}

/* Opens the memory of the program that runs now: once another one does, it can't be written by this
 * any more (mem_rw(), the kernel's fs/proc/base.c). To be done before one looks whether it is the
 * right program. */
static int open_memory(const struct script_order *order)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", (int)order->target->pid);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : -errno;
}

static int put(const struct script_order *order, uint64_t addr, const void *data, size_t size)
{
    ssize_t n = pwrite(order->mem, data, size, (off_t)addr);
    if (n < 0)
        return errno == EIO ? -EAGAIN : -errno;
    return n == 0 ? -ESRCH : (size_t)n == size ? 0 : -EAGAIN;
}

/* Whether the order's path stands there. */
static bool is_ours(const struct script_order *order)
{
    char path[SCRIPT_ORDER_PATH_MAX];

    ssize_t n = memory_read_string(&order->target->memory, path_addr(order), path, sizeof path);
    return n >= 0 && !strcmp(path, order->path);
}

static bool is_pending(const struct script_order *order)
{
    int32_t pending;

    return !memory_read(&order->target->memory, pending_addr(order), &pending, sizeof pending) &&
           pending;
}

/* ---- with the thread stopped ---- */

/* Whether the thread state is on the list of its interpreter, which goes on to be so while its
 * thread and the main one, which ends the interpreter, are stopped. */
static int find_tstate(const struct script_order *order)
{
    const struct target *target = order->target;
    const struct offsets *o = &target->runtime.offsets;
    uint64_t tstate, finalizing;

    int r = refusal_changed(target, NULL);
    if (r < 0)
        return r;
    r = read_word(target,
                  target->runtime.addr + (uint64_t)order->runtime->offsets.runtime_finalizing,
                  &finalizing);
    if (r < 0 || finalizing)
        return -ESRCH;
    r = read_word(target, order->runtime->interp + (uint64_t)o->interp_threads_head, &tstate);
    for (int i = 0; r == 0 && tstate && i < WALK_THREADS_MAX; i++) {
        if (tstate == order->tstate)
            return 0;
        r = read_word(target, tstate + (uint64_t)o->tstate_next, &tstate);
    }
    return r == -ESRCH || r == -EPERM ? r : -EAGAIN;
}

/* Stops the thread, and the main one unless that sleeps where a stop would make its wait begin
 * anew: then it is far from ending the interpreter. */
static int stop(struct tracer *tracer, const struct script_order *order)
{
    pid_t main_tid = order->target->pid;

    int r = tracer_stop(tracer, order->tid);
    if (r == -ESRCH)
        r = -EAGAIN; /* of the process's end others tell */
    if (r == 0 && order->tid != main_tid && !restart_sleeps(main_tid)) {
        r = tracer_stop(tracer, main_tid);
        if (r == -ESRCH)
            r = 0; /* it has ended before the others */
    }
    return r == 0 ? find_tstate(order) : r;
}

/* Makes the interpreter look, as any bit does. The thread itself is stopped, but others may set
 * bits of this byte at any time, which this write may undo. So those are set that are harmless to
 * find set for nothing: a signal, a pending call or an asynchronous exception that came meanwhile
 * is noticed all the same. A request for the GIL that is undone is made again after the switch
 * interval; GC_SCHEDULED is set by the thread itself only. (_PY_EVAL_PLEASE_STOP_BIT, which
 * sys.remote_exec() uses, would make the thread give up the GIL before it looks.) */
static int raise_breaker(const struct script_order *order)
{
    uint64_t addr = order->tstate + (uint64_t)order->runtime->offsets.eval_breaker;
    uint8_t bits;

    int r = memory_read(&order->target->memory, addr, &bits, 1);
    if (r < 0)
        return r;
    bits |= SIGNALS_PENDING_BIT | CALLS_TO_DO_BIT | ASYNC_EXCEPTION_BIT;
    return put(order, addr, &bits, 1);
}

static int place_stopped(const struct script_order *order)
{
    const int32_t pending = 1;
    char path[SCRIPT_ORDER_PATH_MAX];

    if (is_pending(order)) {
        /* of a daemon that was killed: then that path is like ours */
        ssize_t n = memory_read_string(&order->target->memory, path_addr(order), path, sizeof path);
        if (n < 0 || !strstr(path, "/" SCRIPT_FILES_PREFIX))
            return -EBUSY;
    }
    size_t size = strlen(order->path) + 1;
    if (size > (size_t)order->runtime->offsets.script_path_size)
        return -EOPNOTSUPP;
    int r = put(order, path_addr(order), order->path, size);
    if (r == 0)
        r = put(order, pending_addr(order), &pending, sizeof pending);
    if (r == 0)
        r = raise_breaker(order);
    if (r == 0)
        sleep_call_wake(&order->target->memory, order->tid, order->place);
    return r;
}

static int place_work(struct tracer *tracer, void *arg)
{
    struct script_order *order = arg;

    _guard_mutex_(&order->target->tracing);
    _cleanup_close_ int mem = order->mem = open_memory(order);
    int r = mem < 0 ? mem : stop(tracer, order);
    if (r == 0)
        r = place_stopped(order);
    tracer_resume(tracer, &order->pause_ns);
    return r;
}

static int withdraw_stopped(const struct script_order *order)
{
    const int32_t none = 0;

    if (!is_pending(order) || !is_ours(order))
        return 0;
    /* the path too: the thread may stand between its look at the one and its copy of the other */
    int r = put(order, path_addr(order), "", 1);
    if (r == 0)
        r = put(order, pending_addr(order), &none, sizeof none);
    return r < 0 ? r : 1;
}

static int withdraw_work(struct tracer *tracer, void *arg)
{
    struct script_order *order = arg;

    _guard_mutex_(&order->target->tracing);
    _cleanup_close_ int mem = order->mem = open_memory(order);
    int r = mem < 0 ? mem : stop(tracer, order);
    if (mem >= 0 && (r == -ETIMEDOUT || r == -EDEADLK || r == -EBUSY))
        r = find_tstate(order); /* it must not stay; it doesn't run, or a debugger has it */
    if (r == 0)
        r = withdraw_stopped(order);
    tracer_resume(tracer, &order->pause_ns);
    return r;
}

int script_order_place(struct script_order *order) { return tracer_run(place_work, order); }

bool script_order_taken(const struct script_order *order) { return !is_pending(order); }

int script_order_withdraw(struct script_order *order) { return tracer_run(withdraw_work, order); }
