#include "fs/inject/inject.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/inject/leftover.h"
#include "fs/inject/operation.h"
#include "fs/inject/refusal.h"
#include "fs/inject/seccomp.h"
#include "fs/proc/procfs.h"
#include "fs/trace/claims.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>

#define DONE_NAP_NS 20000
#define DONE_NAP_MAX_NS 500000
#define ALIVE_NS 5000000ull /* between looks at whether the target lives */
_Static_assert(LIBRARY_FILE_PATH_MAX <= SHIM_PATH_MAX, "control page");

int injector_new(struct target *target, struct injector **out)
{
    struct injector *injector = calloc(1, sizeof *injector);

    if (!injector)
        return -ENOMEM;
    injector->target = target;
    injector->memory.pid = target->pid;
    int r = safe_points_new(&injector->memory, &injector->points);
    if (r < 0) {
        injector_free(injector);
        return r;
    }
    *out = injector;
    return 0;
}

void injector_free(struct injector *injector)
{
    if (!injector)
        return;
    safe_points_free(injector->points);
    free(injector);
}

/* ---- before anything is stopped ---- */

/* The library travels in the memfd, or else as a file. */
static int place_library(struct operation *o)
{
    const struct target *target = o->injector->target;

    if (library_file_needless(target->pid, target->start_time))
        return 0;
    int r = library_file_create(target->pid, o->payload.library, o->payload.library_size, &o->file,
                                o->why);
    if (r < 0)
        return r;
    memcpy(o->control.path, o->file.path, sizeof o->file.path);
    memcpy(o->control.remove, o->file.path, sizeof o->file.path);
    o->payload = (struct payload){NULL, 0};
    return 0;
}

static int prepare(struct operation *o)
{
    struct injector *injector = o->injector;

    if (!target_same_program(injector->target))
        return -ESRCH;
    if (!registers_extended_size()) {
        text_puts(o->why, "this processor can't save its extended state (no XSAVE)");
        return -EOPNOTSUPP;
    }
    int r = refusal_find(injector->target->pid, o->why);
    if (r < 0)
        return r;
    if (o->control.op != SHIM_LOAD)
        r = leftover_wait(injector->target->pid, o->interrupt);
    if (r == 0)
        r = operation_refresh(o);
    if (r == -EAGAIN)
        r = 0;
    if (r == 0 && o->control.op == SHIM_LOAD)
        r = place_library(o);
    return r < 0 ? r : refusal_file_size(injector->target->pid, payload_size(&o->payload), o->why);
}

/* ---- what it is made to do ---- */

/* What the borrowed thread is called in its own pid namespace: the last of its numbers. */
static pid_t inner_tid(pid_t tid)
{
    char status[8192], *end;
    pid_t inner = tid;

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return tid;
    const char *p = proc_status_field(status, "NSpid");
    for (long number; p && *p != '\n' && (number = strtol(p, &end, 10)) > 0 && end != p; p = end)
        inner = (pid_t)number;
    return inner;
}

/* A path to the memfd that dlopen() has never seen: slashes and dots make no difference
 * but to its comparison of names. By a thread's number, so that it leads nowhere in
 * another process: a debugger opens the libraries that it finds listed, and
 * /proc/self/fd/9 might be a pipe of its own. */
static void spell_path(struct operation *o, int number)
{
    uint64_t bits = monotonic_ns();
    char *at = o->control.path;

    at += sprintf(at, "/proc/self/task/%d/fd", (int)inner_tid(o->borrow.tid));
    for (; bits; bits >>= 1)
        at += sprintf(at, "%s", bits & 1 ? "/." : "/");
    sprintf(at, "/%d", number);
}

static int call_failed(struct operation *o, int error)
{
    if (error == -ETIMEDOUT)
        text_puts(o->why, "the borrowed thread did not come back in time; it goes on by itself");
    else if (error == -ENOTRECOVERABLE)
        text_puts(o->why, "the borrowed thread got a fatal signal meanwhile");
    else if (error == -EPROTO)
        text_puts(o->why, "what it made for us was changed by another of its threads");
    else if (error == -EFBIG)
        text_puts(o->why, "the daemon may write no file of this size (ulimit -f where it was "
                          "started)");
    return error == -ENOTRECOVERABLE ? -ESRCH : error;
}

static int stub_failed(struct operation *o, const struct bootstrap_block *block)
{
    int error = block->error < 0 && block->error >= -4095 ? (int)block->error : -EIO;

    if (error == -EBADF) /* closed as soon as it was made */
        return call_failed(o, -EPROTO);
    text_printf(o->why, "it could not make a memfd, or map it: %s", strerror(-error));
    if (error == -EACCES)
        text_puts(o->why, " (sysctl vm.memfd_noexec, or a security module, forbids it)");
    return error == -ENOMEM || error == -EMFILE ? error : -EPERM;
}

/* Fills the memfd that the stub made. */
static int fill(struct operation *o, const struct bootstrap_block *block)
{
    int number = (int)block->fd;

    o->control.fd = -1;
    if (number < 0 || number != block->fd)
        return -EPROTO;
    int r = payload_open(o->injector->target->pid, number, &o->payload, &o->fd);
    if (r < 0)
        return r;
    o->control.fd = number;
    o->control.gentle = borrow_needs_restart_block(&o->borrow);
    if (o->control.op == SHIM_LOAD && !o->control.path[0])
        spell_path(o, number);
    return payload_fill(o->fd, &o->payload, &o->control);
}

/* Has the stub there, and what its thread is waited with. */
static int ready_stub(struct operation *o)
{
    if (!o->stub_there) {
        int r = borrow_write_stub(&o->borrow, o->stub);
        if (r < 0)
            return r;
    }
    o->borrow.stub = o->stub;
    o->borrow.deadline_ns = o->deadline_ns;
    o->borrow.interrupt = o->interrupt;
    return 0;
}

/* The borrowed thread starts the new one. It is stopped again, or for ever out of our hands. */
static int run_borrowed(struct operation *o)
{
    struct bootstrap_block block = {
        .memfd_flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | MEMFD_EXEC,
        .memfd_size = payload_size(&o->payload),
        .offset = payload_control(&o->payload),
        .work = payload_work(),
        .name = MEMFD_NAME,
    };

    int r = ready_stub(o), filled = 0;
    if (r < 0)
        return r;
    r = borrow_begin(&o->borrow, &block);
    if (r == 0 && block.state == BOOTSTRAP_MAPPED) {
        filled = fill(o, &block);
        r = borrow_go(&o->borrow, filled == 0, &block);
    }
    if (r < 0) {
        if (o->fd >= 0)
            payload_cancel(o->fd, &o->payload);
        return call_failed(o, r);
    }
    borrow_restore(&o->borrow);
    if (filled < 0)
        return call_failed(o, filled);
    return block.state == BOOTSTRAP_DONE ? 0 : stub_failed(o, &block);
}

static int borrow_and_run(struct tracer *tracer, void *arg)
{
    struct operation *o = arg;
    struct target *target = o->injector->target;

    int r = operation_find_thread(o);
    if (r < 0)
        return r;
    o->result->borrowed = o->borrow.tid;
    r = seccomp_check(o->borrow.tid, SECCOMP_LOAD, o->stub, o->why);
    if (r == 0)
        r = run_borrowed(o);
    o->result->pause_ns += borrow_release(&o->borrow);
    pthread_mutex_unlock(&target->tracing);
    return r;
}

/* ---- what the new thread does ---- */

static int finished(struct operation *o, const struct shim_control *c)
{
    char words[SHIM_WORDS_MAX + 1];

    switch (c->phase) {
    case SHIM_RETURNED:
        o->result->handle = c->handle;
        o->result->base = c->base;
        o->result->result = c->result;
        return 0;
    case SHIM_NOT_LOADED:
        memcpy(words, c->words, SHIM_WORDS_MAX);
        words[SHIM_WORDS_MAX] = 0;
        text_puts(o->why, "its dlopen() failed: ");
        text_add_escaped(o->why, words, strlen(words));
        return -ENOEXEC;
    case SHIM_NO_THREAD:
        text_printf(o->why, "it could not start a thread: %s",
                    strerror(c->result < 0 && c->result > -4096 ? -c->result : EIO));
        return -EAGAIN;
    case SHIM_CANCELLED: return -ETIMEDOUT;
    }
    text_puts(o->why, "its memory was changed by another of its threads");
    return -EPROTO;
}

/* Gives up waiting: what has not begun never will. */
static int give_up(struct operation *o, int error)
{
    if (payload_cancel(o->fd, &o->payload) < 0 || error == -ESRCH)
        return error;
    if (error == -ETIMEDOUT)
        text_puts(o->why, "its dynamic loader did not come to it in time: another thread may be "
                          "loading something");
    return error;
}

static int wait_done(struct operation *o)
{
    struct shim_control control;
    uint64_t looked = monotonic_ns();
    uint64_t pause = DONE_NAP_NS;

    for (;;) {
        int r = payload_read(o->fd, &o->payload, &control);
        if (r < 0)
            return r;
        if (control.done)
            return finished(o, &control);
        r = operation_patience(o);
        if (r == 0 && monotonic_ns() - looked > ALIVE_NS) {
            looked = monotonic_ns();
            if (!target_same_program(o->injector->target))
                r = -ESRCH;
        }
        if (r < 0)
            return give_up(o, r);
        nap_ns(pause);
        if (pause < DONE_NAP_MAX_NS)
            pause += pause / 4;
    }
}

/* ---- the whole of it ---- */

/* The last word on a failure. */
static int explain(struct operation *o, int error)
{
    if (target_why_not(o->injector->target) == -ESRCH) { /* all else followed from that */
        text_clear(o->why);
        error = -ESRCH;
    }
    if (o->why->size)
        return error;
    switch (error) {
    case -ESRCH: text_puts(o->why, "the process has ended, or runs another program now"); break;
    case -ETIMEDOUT: text_puts(o->why, "its threads could not be stopped in time"); break;
    case -EINTR: text_puts(o->why, "interrupted"); break;
    default: text_puts(o->why, strerror(-error));
    }
    return error;
}

static int run(struct operation *o)
{
    pid_t pid = o->injector->target->pid;
    int r = prepare(o);
    if (r == 0)
        r = claim_pause(pid);
    bool paused = r == 0;
    volunteers_init(&o->volunteers, pid);
    while (r == 0 && (r = tracer_run(borrow_and_run, o)) == -EAGAIN)
        r = operation_patience(o);
    if (paused)
        claim_go_on(pid);
    if (r == 0)
        r = wait_done(o);
    if (r < 0)
        r = explain(o, r);
    volunteers_deinit(&o->volunteers);
    library_file_remove(&o->file);
    if (o->fd >= 0)
        close(o->fd);
    o->result->total_ns = monotonic_ns() - o->begun;
    return r;
}

static struct operation begin(struct injector *injector, enum shim_op op, uint64_t deadline_ns,
                              const struct interrupt *interrupt, struct inject_result *out,
                              struct text *why)
{
    *out = (struct inject_result){0};
    return (struct operation){
        .injector = injector,
        .control = {.op = op},
        .deadline_ns = monotonic_ns() + deadline_ns,
        .interrupt = interrupt,
        .result = out,
        .why = why,
        .begun = monotonic_ns(),
        .fd = -1,
        .file.directory = -1,
    };
}

int inject_load(struct injector *injector, const struct inject_image *image, uint64_t deadline_ns,
                const struct interrupt *interrupt, struct inject_result *out, struct text *why)
{
    struct operation o = begin(injector, SHIM_LOAD, deadline_ns, interrupt, out, why);

    o.payload = (struct payload){image->data, image->size};
    o.control.entry = image->entry;
    return run(&o);
}

int inject_call(struct injector *injector, uint64_t address, uint64_t deadline_ns,
                const struct interrupt *interrupt, struct inject_result *out, struct text *why)
{
    struct operation o = begin(injector, SHIM_CALL, deadline_ns, interrupt, out, why);

    o.control.entry = address;
    return run(&o);
}

int inject_unload(struct injector *injector, uint64_t handle, uint64_t deadline_ns,
                  const struct interrupt *interrupt, struct inject_result *out, struct text *why)
{
    struct operation o = begin(injector, SHIM_CLOSE, deadline_ns, interrupt, out, why);

    o.control.handle = handle;
    return run(&o);
}

/* ---- what the borrowed thread does itself ---- */

struct errand_run {
    struct operation o;
    const struct inject_errand *errand;
};

static int run_errand(struct operation *o, const struct inject_errand *errand)
{
    struct bootstrap_block block = {.control = errand->argument,
                                    .work = errand->function - errand->argument};

    int r = ready_stub(o), cleared = 0;
    if (r < 0)
        return r;
    r = borrow_begin(&o->borrow, &block);
    if (r == 0 && block.state == BOOTSTRAP_MAPPED) {
        if (ptrace(PTRACE_POKEDATA, o->borrow.tid, (void *)errand->argument, NULL) < 0)
            cleared = -errno;
        r = borrow_go(&o->borrow, cleared == 0, &block);
    }
    if (r < 0)
        return call_failed(o, r);
    borrow_enter_anew(&o->borrow);
    borrow_restore(&o->borrow);
    return cleared;
}

/* Whether a stopped thread sleeps in a system call that goes on as if nothing had been: it stands
 * behind it, or before it since it was made to enter it again; but not since the kernel means it to
 * go on with what it keeps. */
static bool is_asleep(const struct registers *regs)
{
    uint64_t pc = registers_pc(regs);

    return registers_syscall(regs) >= 0 &&
           (registers_restarts(regs, pc) || (registers_restarts(regs, pc + ARCH_SYSCALL_SIZE) &&
                                             registers_syscall(regs) != SYS_restart_syscall));
}

static int may_be_sent(struct errand_run *run)
{
    const struct operation *o = &run->o;

    return is_asleep(&o->borrow.regs) && safe_point_outside_python(o->injector->points) &&
                   safe_points_mapped(o->injector->points, run->errand->function)
               ? run->errand->agree(run->errand->arg)
               : -EAGAIN;
}

static int stop_and_send(struct tracer *tracer, void *arg)
{
    struct errand_run *run = arg;
    struct operation *o = &run->o;
    struct target *target = o->injector->target;

    _guard_mutex_(&target->tracing);
    int r = operation_stop(o, run->errand->tid);
    if (r <= 0)
        return r == 0 ? -EAGAIN : r;
    o->result->borrowed = o->borrow.tid;
    r = may_be_sent(run);
    if (r == 0)
        r = seccomp_check(o->borrow.tid, SECCOMP_LOAD, o->stub, o->why);
    if (r == 0)
        r = run_errand(o, run->errand);
    o->result->pause_ns += borrow_release(&o->borrow);
    return r;
}

int inject_errand(struct injector *injector, const struct inject_errand *errand,
                  uint64_t deadline_ns, const struct interrupt *interrupt,
                  struct inject_result *out, struct text *why)
{
    struct errand_run run = {begin(injector, SHIM_LOAD, deadline_ns, interrupt, out, why), errand};
    struct operation *o = &run.o;
    pid_t pid = injector->target->pid;

    int r = target_same_program(injector->target) ? refusal_find(pid, why) : -ESRCH;
    if (r == 0)
        r = operation_refresh(o);
    if (r == 0)
        r = claim_pause(pid);
    if (r == 0) {
        r = tracer_run(stop_and_send, &run);
        claim_go_on(pid);
    }
    o->result->total_ns = monotonic_ns() - o->begun;
    return r < 0 && r != -EAGAIN ? explain(o, r) : r;
}
