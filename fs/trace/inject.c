#include "fs/trace/inject.h"

#include "fs/cleanup.h"
#include "fs/clock.h"
#include "fs/procfs.h"
#include "fs/trace/borrow.h"
#include "fs/trace/leftover.h"
#include "fs/trace/library_file.h"
#include "fs/trace/payload.h"
#include "fs/trace/refusal.h"
#include "fs/trace/safe_point.h"
#include "fs/trace/seccomp.h"
#include "fs/trace/stub_place.h"
#include "fs/trace/tracer.h"
#include "fs/trace/volunteers.h"

#include "agent/proto.h"

#include <cpuid.h>
#include <errno.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>

#define ROOM 16384            /* bytes of stack that starting a thread needs, beside the state */
_Static_assert(LIBRARY_FILE_PATH_MAX <= SHIM_PATH_MAX, "control page");
#define TRACED_FOR_NS 60000000ull /* another tracer that stays longer than this is one */
#define DONE_NAP_NS 20000
#define DONE_NAP_MAX_NS 500000
#define ALIVE_NS 5000000ull   /* between looks at whether the target lives */

struct injector {
    struct target *target;
    struct memory memory;
    struct safe_points *points;
    uint64_t spelling;        /* of the last path: dlopen() takes equal ones for the same library */
};

/* One use of it. */
struct operation {
    struct injector *injector;
    struct payload payload;
    struct shim_control control;
    uint64_t deadline_ns;
    const struct interrupt *interrupt;
    struct inject_result *result;
    struct text *why;
    struct volunteers volunteers;
    uint64_t begun;
    uint64_t program;         /* tells one program from the next that the process executes */
    uint64_t traced_since;
    uint64_t stub;
    bool stub_there;
    int fd;                   /* the memfd, or -1 */
    struct library_file file; /* where the memfd can't be opened by the target */
    struct borrow borrow;
    enum safety safety;       /* of the last thread that wasn't */
    struct safety_place place;
};

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

/* Bytes of a thread's extended state (Intel SDM volume 1, 13.2): the same on all of a machine. */
static uint64_t xsave_size(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) ||
        !__get_cpuid_count(0xd, 0, &a, &b, &c, &d))
        return 0;
    return (b + 63u) & ~63ull;
}

static uint64_t program_of(pid_t pid)
{
    struct proc_stat stat;

    return proc_stat_read(pid, &stat) == 0 ? stat.start_stack ^ stat.start_code << 1 : 0;
}

static void set_calls(struct operation *o)
{
    const struct libc_symbols *libc = safe_points_libc(o->injector->points);
    struct shim_control *c = &o->control;

    c->errno_location = libc->errno_location;
    c->dlopen = libc->dlopen;
    c->dlclose = libc->dlclose;
    c->dlerror = libc->dlerror;
    c->attr_init = libc->attr_init;
    c->attr_setdetachstate = libc->attr_setdetachstate;
    c->attr_setstacksize = libc->attr_setstacksize;
    c->attr_destroy = libc->attr_destroy;
    c->pthread_create = libc->pthread_create;
    c->unmap = o->stub + (uint64_t)(bootstrap_unmap - bootstrap_begin);
    c->origin = ORIGIN_INJECTED;
}

/* Takes over what is mapped now, and where things are in it. -EAGAIN: that isn't known yet, since the
 * process is only beginning to run another program. */
static int refresh(struct operation *o)
{
    struct injector *injector = o->injector;

    o->stub = 0;
    o->program = program_of(injector->target->pid);
    int r = safe_points_refresh(injector->points, injector->target->runtime.image_base, o->why);
    if (r == 0)
        r = stub_place_find(safe_points_modules(injector->points), &o->stub, &o->stub_there);
    if (r == -ENOSPC) {
        text_puts(o->why, "there is no unused space in its code for the few bytes that are needed");
        return -EOPNOTSUPP;
    }
    if (r == 0)
        set_calls(o);
    return r;
}

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

    if (!target_alive(injector->target))
        return -ESRCH;
    if (!xsave_size()) {
        text_puts(o->why, "this processor can't save its extended state (no XSAVE)");
        return -EOPNOTSUPP;
    }
    int r = refusal_find(injector->target->pid, o->why);
    if (r < 0)
        return r;
    if (o->control.op != SHIM_LOAD)
        r = leftover_wait(injector->target->pid, o->interrupt);
    if (r == 0)
        r = refresh(o);
    if (r == -EAGAIN)
        r = 0;
    return r == 0 && o->control.op == SHIM_LOAD ? place_library(o) : r;
}

/* ---- a thread at a safe place ---- */

static void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* 0 while there is time. */
static int patience(const struct operation *o)
{
    if (interrupted(o->interrupt))
        return -EINTR;
    return monotonic_ns() >= o->deadline_ns ? -ETIMEDOUT : 0;
}

/* EPERM of ptrace(2) may mean that it is not allowed, that another tracer is there, perhaps for a moment
 * only, or that the thread is at its end. Who may not trace may not read memory either. */
static int not_allowed(struct operation *o, pid_t tid)
{
    const struct injector *injector = o->injector;
    pid_t pid = injector->target->pid;
    uint64_t word;

    if (memory_read(&injector->memory, safe_points_libc(injector->points)->base, &word,
                    sizeof word) == -EPERM)
        return refusal_permission(o->why);
    if (!volunteers_alive(pid, tid))
        return target_alive(injector->target) ? 0 : -ESRCH;
    if (!o->traced_since)
        o->traced_since = monotonic_ns();
    return monotonic_ns() - o->traced_since > TRACED_FOR_NS ? refusal_traced(pid, tid, o->why) : 0;
}

/* What became of stopping one thread. 0: try another; or the error that ends it all. */
static int not_stopped(struct operation *o, pid_t tid, int error)
{
    switch (error) {
    case -ECANCELED: return refusal_stopped(o->why);
    case -ETIMEDOUT: return -EAGAIN; /* a new tracer, since this one still has it */
    case -EPERM: return not_allowed(o, tid);
    case -ENOMEM: return error;
    }
    return target_alive(o->injector->target) ? 0 : -ESRCH;
}

/* Whether the stub can be put to its place in what is mapped at this moment. */
static bool has_place(struct operation *o)
{
    return o->stub && safe_points_mapped(o->injector->points, o->stub) &&
           stub_place_check(&o->injector->memory, o->stub, &o->stub_there);
}

/* Whether a module has our entry there: the library that the program imported (`import probing`) may
 * be anywhere. */
static bool exports_entry(struct modules *modules, const struct module *module, uint64_t address)
{
    uint64_t found;

    module = modules_find(modules, module->start); /* reads its image */
    return module && module->state == MODULE_READ &&
           elf_image_symbol(modules->memory, &module->image, AGENT_START_SYMBOL, &found, NULL) == 0 &&
           found == address;
}

/* Whether what is to be called or closed is a library of ours that is still there: the process may run
 * another program by now. */
static bool is_ours(const struct operation *o)
{
    struct modules *modules = safe_points_modules(o->injector->points);
    const struct shim_control *c = &o->control;
    uint64_t base;

    if (c->op == SHIM_LOAD)
        return true;
    if (c->op == SHIM_CLOSE &&
        memory_read(&o->injector->memory, c->handle, &base, sizeof base) < 0) /* link_map.l_addr */
        return false;
    for (size_t i = 0; i < modules->n; i++) {
        const struct module *m = &modules->items[i];
        bool meant = c->op == SHIM_CLOSE ? m->base == base : c->entry - m->start < m->end - m->start;
        if (meant && (strstr(m->name, MEMFD_NAME) ||
                      (c->op == SHIM_CALL && exports_entry(modules, m, c->entry))))
            return safe_points_mapped(o->injector->points, m->start);
    }
    return false;
}

/* Judges the thread that is stopped. What is mapped may have changed, or be another program's: it is
 * looked at again then. 0, or -errno. */
static int judge(struct operation *o)
{
    struct safe_points *points = o->injector->points;
    uint64_t room = ROOM + xsave_size();
    int r = 0;

    o->result->attempts++;
    o->traced_since = 0;
    for (int tries = 0; tries < 2; tries++) {
        o->safety = safe_point_check(points, &o->borrow.regs, room, &o->place);
        if (o->safety == SAFE && !has_place(o))
            o->safety = UNSAFE_CHANGED;
        if (o->safety == SAFE && borrow_in_sequence(&o->borrow))
            o->safety = UNSAFE_RESTARTABLE;
        if (o->safety != UNSAFE_CHANGED || tries)
            break;
        r = refresh(o);
        if (r < 0)
            break;
    }
    if (!safe_point_in_cpython(points))
        borrow_restart(&o->borrow);
    if (r == 0 && o->safety == SAFE && !is_ours(o)) {
        text_puts(o->why, "the library isn't there any more");
        return -ENOENT;
    }
    return r == -EAGAIN ? 0 : r;
}

/* Stops the thread and judges it. 1: it is stopped at a safe place, and o->injector->target->tracing is
 * held; 0: it isn't; -errno. */
static int try_thread(struct operation *o, pid_t tid)
{
    struct target *target = o->injector->target;

    pthread_mutex_lock(&target->tracing);
    int r = borrow_stop(tid, &o->borrow), judged = 0;
    if (r == 0) {
        judged = judge(o);
        if (judged == 0 && o->safety == SAFE)
            return 1;
        o->result->pause_ns += borrow_release(&o->borrow);
    }
    pthread_mutex_unlock(&target->tracing);
    return r < 0 ? not_stopped(o, tid, r) : judged;
}

static int no_safe_moment(struct operation *o)
{
    if (!o->result->attempts)
        text_puts(o->why, "none of its threads could be stopped in time");
    else {
        text_printf(o->why, "no thread of it came to a safe place in time (%u tries): the last one "
                            "stood ", o->result->attempts);
        safety_describe(o->injector->points, o->safety, &o->place, o->why);
    }
    return -ETIMEDOUT;
}

/* Stops a thread at a safe place, holding `tracing`. */
static int find_thread(struct operation *o)
{
    for (unsigned attempt = 0;; attempt++) {
        int r = patience(o);
        if (r < 0)
            return r == -ETIMEDOUT ? no_safe_moment(o) : r;
        pid_t tid = volunteers_next(&o->volunteers);
        r = tid ? try_thread(o, tid) : target_alive(o->injector->target) ? 0 : -ESRCH;
        if (r)
            return r < 0 ? r : 0;
        nap(attempt < 4 ? 50000 : attempt < 20 ? 200000 : 1000000);
    }
}

/* ---- what it is made to do ---- */

/* A path to the memfd that dlopen() has never seen: slashes and dots make no difference but to its
 * comparison of names. */
static void spell_path(struct operation *o, int number)
{
    uint64_t bits = o->injector->spelling = monotonic_ns();
    char *at = o->control.path;

    at += sprintf(at, "/proc/self/fd");
    for (; bits; bits >>= 1)
        at += sprintf(at, "%s", bits & 1 ? "/." : "/");
    sprintf(at, "/%d", number);
}

static int stub_failed(struct operation *o, const struct bootstrap_block *block)
{
    int error = block->error < 0 && block->error >= -4095 ? (int)block->error : -EIO;

    text_printf(o->why, "it could not make a memfd, or map it: %s", strerror(-error));
    if (error == -EACCES)
        text_puts(o->why, " (sysctl vm.memfd_noexec, or a security module, forbids it)");
    return error == -ENOMEM || error == -EMFILE ? error : -EPERM;
}

static int call_failed(struct operation *o, int error)
{
    if (error == -ETIMEDOUT)
        text_puts(o->why, "the borrowed thread did not come back in time; it goes on by itself");
    else if (error == -ENOTRECOVERABLE)
        text_puts(o->why, "the borrowed thread got a fatal signal meanwhile");
    else if (error == -EPROTO)
        text_puts(o->why, "what it made for us was changed by another of its threads");
    return error == -ENOTRECOVERABLE ? -ESRCH : error;
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

/* The borrowed thread starts the new one. It is stopped again, or for ever out of our hands. */
static int run_borrowed(struct operation *o)
{
    struct bootstrap_block block = {
        .memfd_flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | MEMFD_EXEC,
        .memfd_size = payload_size(&o->payload), .offset = payload_control(&o->payload),
        .work = payload_work(), .xsave_size = xsave_size(), .name = MEMFD_NAME,
    };

    if (!o->stub_there) {
        int r = borrow_write_stub(&o->borrow, o->stub);
        if (r < 0)
            return r;
    }
    o->borrow.stub = o->stub;
    int r = borrow_begin(&o->borrow, &block);
    if (r < 0)
        return r;
    int filled = 0;
    if (block.state == BOOTSTRAP_MAPPED) {
        filled = fill(o, &block);
        r = borrow_go(&o->borrow, filled == 0, &block);
        if (r < 0)
            return r;
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

    int r = find_thread(o);
    if (r < 0)
        return r;
    o->result->borrowed = o->borrow.tid;
    r = seccomp_check(o->borrow.tid, o->stub, o->why);
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
    uint64_t looked = monotonic_ns(), pause = DONE_NAP_NS;

    for (;;) {
        int r = payload_read(o->fd, &o->payload, &control);
        if (r < 0)
            return r;
        if (control.done)
            return finished(o, &control);
        r = patience(o);
        if (r == 0 && monotonic_ns() - looked > ALIVE_NS) {
            looked = monotonic_ns();
            if (!target_alive(o->injector->target) ||
                program_of(o->injector->target->pid) != o->program)
                r = -ESRCH;
        }
        if (r < 0)
            return give_up(o, r);
        nap(pause);
        if (pause < DONE_NAP_MAX_NS)
            pause += pause / 4;
    }
}

/* ---- the whole of it ---- */

/* The last word on a failure. */
static int explain(struct operation *o, int error)
{
    if (!target_alive(o->injector->target)) { /* all else followed from that */
        text_clear(o->why);
        error = -ESRCH;
    }
    if (o->why->size)
        return error;
    switch (error) {
    case -ESRCH:
        text_puts(o->why, "the process has ended, or runs another program now");
        break;
    case -ETIMEDOUT: text_puts(o->why, "its threads could not be stopped in time"); break;
    case -EINTR: text_puts(o->why, "interrupted"); break;
    default: text_puts(o->why, strerror(-error));
    }
    return error;
}

static int run(struct operation *o)
{
    int r = prepare(o);
    volunteers_init(&o->volunteers, o->injector->target->pid);
    while (r == 0 && (r = tracer_run(borrow_and_run, o)) == -EAGAIN)
        r = patience(o);
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
        .injector = injector, .control = {.op = op}, .deadline_ns = monotonic_ns() + deadline_ns,
        .interrupt = interrupt, .result = out, .why = why, .begun = monotonic_ns(), .fd = -1,
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
