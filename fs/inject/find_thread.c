#include "fs/inject/operation.h"

#include "agent/base/clock.h"
#include "fs/inject/refusal.h"
#include "fs/inject/stub_place.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"

#include "agent/wire/proto.h"

#include <errno.h>
#include <string.h>

#define ROOM 16384 /* bytes of stack that starting a thread needs, beside the state */
#define TRACED_FOR_NS 500000000ull /* a tracer that stays longer than this is a debugger */

/* ---- what is mapped ---- */

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

/* Takes over what is mapped now, and where things are in it. -EAGAIN: that isn't known yet, since
 * the process is only beginning to run another program. */
int operation_refresh(struct operation *o)
{
    struct injector *injector = o->injector;

    o->stub = 0;
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

/* ---- a thread at a safe place ---- */

int operation_patience(const struct operation *o)
{
    if (interrupted(o->interrupt))
        return -EINTR;
    return monotonic_ns() >= o->deadline_ns ? -ETIMEDOUT : 0;
}

/* Another tracer has this thread. 0: it may be there for a moment only; or -EBUSY. */
static int wait_for_tracer(struct operation *o, pid_t tid)
{
    pid_t pid = o->injector->target->pid;

    o->traced = tid;
    if (!o->traced_since)
        o->traced_since = monotonic_ns();
    if (monotonic_ns() - o->traced_since < TRACED_FOR_NS || refusal_traced_briefly(pid, tid))
        return 0;
    return refusal_traced(pid, tid, o->why);
}

/* A thread that another tracer keeps stopped, or 0. It may have a lock that starting a thread
 * takes: one that is borrowed now would stand for as long. */
static pid_t kept_by_tracer(pid_t pid)
{
    struct lwp_list list;
    pid_t tid = 0;

    if (lwp_list_read(pid, LWP_STATES, &list) < 0)
        return 0;
    for (size_t i = 0; i < list.n && !tid; i++)
        if (list.items[i].state == 't')
            tid = list.items[i].tid;
    lwp_list_deinit(&list);
    return tid;
}

/* What became of stopping one thread. 0: try another; or the error that ends it all. */
static int not_stopped(struct operation *o, pid_t tid, int error)
{
    switch (error) {
    case -ECANCELED: return refusal_stopped(o->why);
    case -ETIMEDOUT: return -EAGAIN; /* a new tracer, since this one still has it */
    case -EBUSY: return wait_for_tracer(o, tid);
    case -EPERM: return refusal_permission(o->why);
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

/* Whether a module has our entry there: the library that the program imported
 * (`import probing`) may be anywhere. */
static bool exports_entry(struct modules *modules, const struct module *module, uint64_t address)
{
    uint64_t found;

    module = modules_find(modules, module->start); /* reads its image */
    return module && module->state == MODULE_READ &&
           elf_image_symbol(modules->memory, &module->image, AGENT_START_SYMBOL, &found, NULL) ==
               0 &&
           found == address;
}

/* Whether what is to be called or closed is a library of ours that is still there. */
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
        bool meant = c->op == SHIM_CLOSE ? m->base == base
                                         : c->entry - m->start < m->end - m->start;
        if (meant && (strstr(m->name, MEMFD_NAME) ||
                      (c->op == SHIM_CALL && exports_entry(modules, m, c->entry))))
            return safe_points_mapped(o->injector->points, m->start);
    }
    return false;
}

/* Judges the thread that is stopped. What is mapped may have changed: it is looked at again then.
 * 0, or -errno. */
static int judge(struct operation *o)
{
    struct safe_points *points = o->injector->points;
    uint64_t room = ROOM + registers_extended_size();
    int r = 0;

    o->result->attempts++;
    o->traced = 0;
    o->traced_since = 0;
    for (int tries = 0; tries < 2; tries++) {
        o->safety = safe_point_check(points, &o->borrow.regs, room, &o->place);
        if (o->safety == SAFE && !has_place(o))
            o->safety = UNSAFE_CHANGED;
        if (o->safety == SAFE && borrow_in_sequence(&o->borrow))
            o->safety = UNSAFE_RESTARTABLE;
        if (o->safety == SAFE && !registers_can_be_borrowed(o->borrow.tid, &o->borrow.regs))
            o->safety = UNSAFE_REGISTERS;
        if (o->safety != UNSAFE_CHANGED || tries)
            break;
        r = operation_refresh(o);
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

int operation_stop(struct operation *o, pid_t tid)
{
    int r = borrow_stop(tid, &o->borrow);
    if (r < 0)
        return not_stopped(o, tid, r);
    r = refusal_changed(o->injector->target, o->why);
    if (r == 0)
        r = judge(o);
    if (r == 0 && o->safety == SAFE)
        return 1;
    o->result->pause_ns += borrow_release(&o->borrow);
    return r;
}

/* Tries the next thread, unless one is kept from running on. The same; and 1: `tracing` is held. */
static int try_next(struct operation *o)
{
    struct target *target = o->injector->target;

    pthread_mutex_lock(&target->tracing); /* now this daemon keeps none of them stopped */
    pid_t kept = kept_by_tracer(target->pid), next = kept ? 0 : volunteers_next(&o->volunteers);
    int r = kept ? wait_for_tracer(o, kept) : next ? operation_stop(o, next) : 0;
    if (r != 1)
        pthread_mutex_unlock(&target->tracing);
    return !kept && !next && !target_alive(target) ? -ESRCH : r;
}

static int no_safe_moment(struct operation *o)
{
    if (o->traced && refusal_traced(o->injector->target->pid, o->traced, o->why) < 0)
        return -EBUSY;
    if (!o->result->attempts)
        text_puts(o->why, "none of its threads could be stopped in time");
    else {
        text_printf(o->why,
                    "no thread of it came to a safe place in time (%u tries): the last one "
                    "stood ",
                    o->result->attempts);
        safety_describe(o->injector->points, o->safety, &o->place, o->why);
    }
    return -ETIMEDOUT;
}

/* Stops a thread at a safe place, holding `tracing`. */
int operation_find_thread(struct operation *o)
{
    for (unsigned attempt = 0;; attempt++) {
        int r = operation_patience(o);
        if (r < 0)
            return r == -ETIMEDOUT ? no_safe_moment(o) : r;
        r = try_next(o);
        if (r)
            return r < 0 ? r : 0;
        uint64_t nap = attempt < 4 ? 50000 : attempt < 20 ? 200000 : 1000000;
        nap_ns(nap);
    }
}
