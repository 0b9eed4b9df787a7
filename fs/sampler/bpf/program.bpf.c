/* The kernel's half of the sampler. This file runs in the kernel, as BPF; program_update makes
 * program_bytes.h of it, which the daemon loads (program.c).
 *
 * A task-clock event ends a thread's quantum of processor time: `sampled` runs in that very thread
 * and walks its Python frames. `departed` does the same as a thread leaves the processor;
 * `returned` says for how long it was away. Nothing is stopped, nothing is written but our own
 * maps, and memory is only read: what is not there is not fetched. What an address leads to is
 * never trusted, and each loop has an end that the kernel has checked.
 *
 * The kernel lends most of what is called here to programs under its own licence only, so that this
 * file may also be used under the GNU General Public License, version 2. */
#include "fs/sampler/bpf/records.h"

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* Maps are named by what stands here; the daemon puts their descriptors in. Order and meaning:
 * enum kernel_map. */
char map_layout SECTION(".maps"), map_watched SECTION(".maps"), map_rings SECTION(".maps"),
    map_figures SECTION(".maps"), map_away SECTION(".maps"), map_scratch SECTION(".maps");

/* Helpers of the kernel by number: include/uapi/linux/bpf.h, bpf-helpers(7). */
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value,
                                uint64_t flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static uint64_t (*const clock_ns)(void) = (void *)5;
static uint32_t (*const random32)(void) = (void *)7;
static uint32_t (*const processor_id)(void) = (void *)8;
static uint64_t (*const pid_tgid)(void) = (void *)14;
static void *(*const current_task)(void) = (void *)35;
static long (*const read_user)(void *to, uint32_t size, uint64_t from) = (void *)112;
static long (*const read_kernel)(void *to, uint32_t size, uint64_t from) = (void *)113;
static long (*const ring_output)(void *ring, void *data, uint64_t size,
                                 uint64_t flags) = (void *)130;
static uint64_t (*const ring_query)(void *ring, uint64_t flags) = (void *)134;
static void *(*const current_task_btf)(void) = (void *)158;
static void *(*const task_registers)(void *task) = (void *)175;

enum { ANY = 0 };                                       /* of map_update */
enum { RING_AVAILABLE = 0, RING_SIZE = 1 };             /* of ring_query */
enum { RING_QUIET = 1, RING_WAKE = 2 };                 /* of ring_output */
enum { BUILTIN_SELF = 24 };                             /* PyCFunctionObject.m_self */
enum { TASK_DEAD = 0x80 };                              /* include/linux/sched.h */
enum { REGS_DI = 14, REGS_ORIG_AX = 15, REGS_SP = 19 }; /* struct pt_regs, in words */

/* What a program on an event gets: struct bpf_perf_event_data of x86-64. */
struct context {
    uint64_t regs[21], period, address;
    /* As the kernel has it, there are three pointers instead: to registers, data and the event. */
};

struct number {
    uint32_t pid, tid;
};

INLINE uint64_t kernel_word(uint64_t at)
{
    uint64_t word = 0;

    read_kernel(&word, sizeof word, at);
    return word;
}

/* What a task's struct pid is called in the daemon's namespace; 0: nothing. */
INLINE uint32_t number_of(const struct kernel_layout *l, uint64_t task)
{
    uint64_t pid = kernel_word(task + l->task_thread_pid), space = 0;
    uint32_t level = 0, nr = 0;

    read_kernel(&level, sizeof level, pid + l->pid_level);
    if (!pid || level < l->level)
        return 0;
    uint64_t at = pid + l->pid_numbers + (uint64_t)l->level * l->upid_size;
    read_kernel(&space, sizeof space, at + l->upid_ns);
    read_kernel(&nr, sizeof nr, at + l->upid_nr);
    return space == l->space ? nr : 0;
}

/* The current thread; pid 0: one that the daemon can't see. */
INLINE struct number whoami(const struct kernel_layout *l)
{
    uint64_t both = pid_tgid(), task;

    if (!l->level)
        return (struct number){(uint32_t)(both >> 32), (uint32_t)both};
    task = (uint64_t)current_task();
    return (struct number){number_of(l, kernel_word(task + l->task_leader)), number_of(l, task)};
}

/* The frames, innermost first. A mark is kept with its own address, which lies on the C stack. */
INLINE void walk(const struct kernel_watched *w, struct kernel_scratch *s, uint64_t frame)
{
    struct kernel_record *r = &s->record;
    /* the masks say to the kernel's verifier that all this stays within `head` */
    uint32_t size = (uint32_t)w->frame_size & 127, previous = (uint32_t)w->frame_previous & 120;
    uint32_t code = (uint32_t)w->frame_code & 120, instr = (uint32_t)w->frame_instr & 120;
    uint32_t owner = (uint32_t)w->frame_owner & 127, entry = (uint32_t)w->frame_entry & 127;

    for (uint32_t i = 0; i < KERNEL_FRAMES_MAX; i++) {
        if (!frame)
            return;
        s->addresses[i] = frame;
        if (read_user(s->head, size, frame)) {
            r->flags |= RECORD_UNREADABLE;
            return;
        }
        uint32_t owned = w->frame_owner < 0 ? 0 : s->head[owner];
        if (owned >= w->owner_mark) {
            r->frames[i].code = FRAME_MARK;
            r->frames[i].at = frame;
        } else {
            uint64_t bits = owned == 1 ? FRAME_GENERATOR : 0;
            if (w->frame_entry >= 0 && s->head[entry])
                bits |= FRAME_ENTRY;
            r->frames[i].code = (*(uint64_t *)(s->head + code) & ~7ull) | bits;
            r->frames[i].at = *(uint64_t *)(s->head + instr);
        }
        r->n = i + 1;
        frame = *(uint64_t *)(s->head + previous);
    }
    if (frame)
        r->flags |= RECORD_CUT;
}

/* The thread state, from where the thread itself keeps it. What is found there is one only if it
 * says that this thread is its own: pthread_self() is the fs base, in glibc and in musl. */
INLINE uint64_t thread_state(const struct kernel_watched *w, uint64_t fs)
{
    uint64_t state, owner;

    for (int i = 0; i < KERNEL_TLS_MAX; i++) {
        if (!w->tls[i] || !fs)
            break;
        state = owner = 0;
        read_user(&state, sizeof state, fs + (uint64_t)(int64_t)w->tls[i]);
        if (state && !read_user(&owner, sizeof owner, state + (uint64_t)w->tstate_thread_id) &&
            owner == fs)
            return state;
    }
    return 0;
}

INLINE void look_at_gil(const struct kernel_watched *w, struct kernel_record *r)
{
    uint64_t gil = w->gil, holder = 0;
    uint32_t locked = 0;

    read_user(&r->interp, sizeof r->interp, r->tstate + (uint64_t)w->tstate_interp);
    if (w->interp_gil >= 0) {
        gil = 0;
        read_user(&gil, sizeof gil, r->interp + (uint64_t)w->interp_gil);
    }
    if (!gil || w->gil_locked < 0)
        return;
    r->gil = gil;
    read_user(&locked, sizeof locked, gil + (uint64_t)w->gil_locked);
    read_user(&holder, sizeof holder, gil + (uint64_t)w->gil_holder);
    if (locked == 1 && holder == r->tstate)
        r->flags |= RECORD_GIL;
}

/* A task that may run in this thread: it does if its coroutine's frame is on the stack. */
INLINE void may_run(const struct kernel_watched *w, struct kernel_running *running, uint64_t task)
{
    uint64_t frame;

    if (!task || read_user(&running->coro, sizeof running->coro, task + (uint64_t)w->task_coro) ||
        !running->coro)
        return;
    frame = running->coro + (uint64_t)w->gen_frame;
    if (w->gen_frame_points && read_user(&frame, sizeof frame, frame))
        return;
    running->task = task;
    running->frame = frame;
}

/* Up to 3.13 a dict has the running task of each event loop. The last entries of its table are the
 * only ones that are in use, as it is filled from the front. */
INLINE void look_at_loops(const struct kernel_watched *w, struct kernel_scratch *s)
{
    uint64_t keys = 0, n = 0, first = 0, size = 0, at;
    uint8_t log2 = 0;

    read_user(&keys, sizeof keys, w->running + (uint64_t)w->dict_keys);
    if (!keys || read_user(&n, sizeof n, keys + (uint64_t)w->keys_nentries) || !n)
        return;
    if (w->keys_log2_index_bytes >= 0) {
        read_user(&log2, sizeof log2, keys + (uint64_t)w->keys_log2_index_bytes);
        size = 1ull << (log2 & 15);
    } else
        read_user(&size, sizeof size, keys + (uint64_t)w->keys_size);
    if (n > KERNEL_RUNNING_MAX)
        first = n - KERNEL_RUNNING_MAX;
    at = keys + (uint64_t)w->keys_indices + size + first * 24;
    if (read_user(s->entries, 24 * KERNEL_RUNNING_MAX, at))
        return;
#pragma unroll
    for (uint32_t k = 0; k < KERNEL_RUNNING_MAX; k++)
        if (k < n)
            may_run(w, &s->running[k], s->entries[3 * k + 2]);
}

INLINE void look_at_tasks(const struct kernel_watched *w, struct kernel_scratch *s)
{
    uint64_t task = 0;

#pragma unroll
    for (uint32_t k = 0; k < KERNEL_RUNNING_MAX; k++)
        s->running[k].frame = 0;
    if (w->tstate_task < 0) {
        look_at_loops(w, s);
        return;
    }
    read_user(&task, sizeof task, s->record.tstate + (uint64_t)w->tstate_task);
    may_run(w, &s->running[0], task);
}

/* Looks who awaits a task. A task that awaits it directly is woken up by its first callback, a
 * method of C, and says itself what it waits for. */
INLINE void look_at_awaiter(const struct kernel_watched *w, struct kernel_task *t)
{
    uint64_t callback = 0, self = 0, waits_for = 0;

    t->awaiter = t->awaiter_coro = 0;
    if (w->task_waiter < 0)
        return;
    read_user(&callback, sizeof callback, t->task + (uint64_t)w->task_callback);
    if (!callback || read_user(&self, sizeof self, callback + BUILTIN_SELF) || !self ||
        read_user(&waits_for, sizeof waits_for, self + (uint64_t)w->task_waiter) ||
        waits_for != t->task)
        return;
    if (!read_user(&t->awaiter_coro, sizeof t->awaiter_coro, self + (uint64_t)w->task_coro))
        t->awaiter = self;
}

/* Which of them has its coroutine's frame on the stack. False: none. */
INLINE int find_task(struct kernel_scratch *s)
{
    uint32_t n = s->record.n;

    for (uint32_t i = 0; i < KERNEL_FRAMES_MAX && i < n; i++) {
        uint64_t frame = s->addresses[i];
        for (uint32_t k = 0; k < KERNEL_RUNNING_MAX; k++)
            if (frame == s->running[k].frame) {
                s->task = k;
                s->at = i;
                return 1;
            }
    }
    return 0;
}

/* Adds the task behind the frames. */
INLINE void add_task(const struct kernel_watched *w, struct kernel_scratch *s)
{
    struct kernel_record *r = &s->record;
    uint32_t n = r->n;
    uint64_t name = 0;

    look_at_tasks(w, s);
    if (!find_task(s) || n > KERNEL_FRAMES_MAX)
        return;
    struct kernel_running *running = &s->running[s->task & (KERNEL_RUNNING_MAX - 1)];
    struct kernel_task *t = (void *)&r->frames[n];
    t->task = running->task;
    t->coro = running->coro;
    t->at = s->at;
    t->size = KERNEL_NAME_BYTES;
    read_user(&name, sizeof name, t->task + (uint64_t)w->task_name);
    if (read_user(t->name, KERNEL_NAME_BYTES, name)) {
        t->size = KERNEL_NAME_BYTES / 2; /* it may be the last one that its memory has room for */
        if (read_user(t->name, KERNEL_NAME_BYTES / 2, name))
            t->size = 0;
    }
    look_at_awaiter(w, t);
    r->flags |= RECORD_TASK;
}

INLINE void look_at_python(const struct kernel_layout *l, const struct kernel_watched *w,
                           struct kernel_scratch *s)
{
    struct kernel_record *r = &s->record;
    uint64_t frame = 0;

    r->thread = kernel_word((uint64_t)current_task() + l->task_fsbase);
    r->tstate = thread_state(w, r->thread);
    if (!r->tstate) {
        r->flags |= RECORD_NO_STATE;
        return;
    }
    look_at_gil(w, r);
    if (w->tstate_cframe >= 0)
        read_user(&r->cframe, sizeof r->cframe, r->tstate + (uint64_t)w->tstate_cframe);
    if (w->tstate_frame >= 0)
        read_user(&frame, sizeof frame, r->tstate + (uint64_t)w->tstate_frame);
    else if (read_user(&frame, sizeof frame, r->cframe + (uint64_t)w->cframe_frame))
        r->flags |= RECORD_UNREADABLE;
    walk(w, s, frame);
    if (w->flags & WATCHED_TASKS)
        add_task(w, s);
}

INLINE void begin(const struct kernel_watched *w, struct kernel_record *r, struct number who,
                  uint32_t kind)
{
    r->kind = kind;
    r->serial = w->serial;
    r->pid = who.pid;
    r->tid = who.tid;
    r->processor = processor_id();
    r->flags = r->n = 0;
    r->when = clock_ns();
    r->weight = r->since = r->argument = 0;
    r->tstate = r->interp = r->thread = r->cframe = r->gil = 0;
    r->syscall = -1;
}

/* Writes into the profile's ring. Its reader comes by now and then anyway. */
INLINE void put(struct kernel_figures *figures, uint32_t slot, void *data, uint64_t size)
{
    void *ring = map_lookup(&map_rings, &slot);

    if (!ring)
        return;
    uint64_t full = ring_query(ring, RING_AVAILABLE) * KERNEL_WAKE_SHARE;
    uint64_t flags = full >= ring_query(ring, RING_SIZE) ? RING_WAKE : RING_QUIET;
    if (ring_output(ring, data, size, flags))
        __sync_fetch_and_add(&figures->lost, 1);
}

INLINE void put_record(struct kernel_figures *figures, uint32_t slot, struct kernel_record *r)
{
    uint64_t n = r->n;

    if (n > KERNEL_FRAMES_MAX)
        n = KERNEL_FRAMES_MAX;
    if (r->flags & RECORD_TASK)
        n += KERNEL_TASK_FRAMES;
    put(figures, slot, r, sizeof *r - sizeof r->frames + n * sizeof r->frames[0]);
}

/* Copies as much of a stack as one record has, or as there is. */
INLINE uint32_t copy_piece(struct kernel_native *n, uint64_t at)
{
    uint32_t size = 0;

    n->full = 1;
    for (int i = 0; i < KERNEL_STACK_PIECE / KERNEL_STACK_STEP; i++) {
        uint32_t step = KERNEL_STACK_STEP - ((uint32_t)at & (KERNEL_STACK_STEP - 1));
        if (size > KERNEL_STACK_PIECE - KERNEL_STACK_STEP || step > KERNEL_STACK_STEP)
            break;
        if (read_user(n->stack + size, step, at)) {
            n->full = 0;
            break;
        }
        size += step;
        at += step;
    }
    n->size = size;
    return size;
}

/* Registers in user mode and the stack above them, up to the end of the stack. */
INLINE void put_native(struct kernel_figures *figures, uint32_t slot, struct kernel_scratch *s)
{
    struct kernel_record *r = &s->record;
    struct kernel_native *n = &s->native;

    n->kind = KERNEL_NATIVE;
    n->serial = r->serial;
    n->pid = r->pid;
    n->tid = r->tid;
    n->processor = r->processor;
    n->when = r->when;
    read_kernel(n->regs, sizeof n->regs, (uint64_t)task_registers(current_task_btf()));
    uint64_t at = n->regs[REGS_SP];
    n->offset = 0;
    for (int i = 0; i < KERNEL_STACK_PIECES; i++) {
        uint32_t size = copy_piece(n, at);
        if (size <= KERNEL_STACK_PIECE)
            put(figures, slot, n, sizeof *n - sizeof n->stack + size);
        if (!n->full)
            break;
        n->offset += size;
        at += size;
    }
}

INLINE void end(struct kernel_figures *figures, const struct kernel_record *r)
{
    __sync_fetch_and_add(&figures->samples, 1);
    if (r->flags & RECORD_NO_STATE)
        __sync_fetch_and_add(&figures->no_stack, 1);
    if (r->flags & RECORD_UNREADABLE)
        __sync_fetch_and_add(&figures->unreadable, 1);
    __sync_fetch_and_add(&figures->ns, clock_ns() - r->when);
}

/* The event whose period has just ended: the context says the one that it began with. */
INLINE uint64_t event_of(const struct context *context)
{
    return kernel_word((uint64_t)context + 16); /* struct bpf_perf_event_data_kern */
}

INLINE int take(const struct context *context, uint32_t kind)
{
    uint32_t zero = 0;
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    struct kernel_scratch *s = map_lookup(&map_scratch, &zero);
    if (!l || !s)
        return 0;
    struct number who = whoami(l);
    struct kernel_watched *w = map_lookup(&map_watched, &who.pid);
    if (!w)
        return 0;
    uint32_t slot = w->slot;
    struct kernel_figures *figures = map_lookup(&map_figures, &slot);
    if (!figures)
        return 0;
    begin(w, &s->record, who, kind);
    s->record.weight = kernel_word(event_of(context) + l->event_period);
    look_at_python(l, w, s);
    if (w->flags & WATCHED_NATIVE)
        put_native(figures, slot, s);
    put_record(figures, slot, &s->record);
    end(figures, &s->record);
    return 0;
}

SECTION("perf_event") int sampled(struct context *context) { return take(context, KERNEL_CPU); }
SECTION("perf_event") int faulted(struct context *context) { return take(context, KERNEL_FAULT); }

/* ---- waits ---- */

/* A thread that goes on: says for how long it was away. */
INLINE void come_back(const struct kernel_layout *l, uint64_t task, struct kernel_record *r)
{
    uint64_t now = clock_ns();
    uint32_t tid = 0;

    read_kernel(&tid, sizeof tid, task + l->task_pid);
    struct kernel_away *away = map_lookup(&map_away, &tid);
    if (!away || !away->when)
        return;
    uint64_t ns = now - away->when, since = away->when;
    uint32_t which = away->kind == KERNEL_READY, slot = away->slot;
    away->when = 0;
    if (!away->taken) {
        away->skipped[which] += ns;
        return;
    }
    struct kernel_figures *figures = map_lookup(&map_figures, &slot);
    if (!figures)
        return;
    r->kind = KERNEL_BACK;
    r->serial = away->serial;
    r->pid = away->pid;
    r->tid = away->tid;
    r->processor = processor_id();
    r->flags = r->n = 0;
    r->when = now;
    r->since = since;
    r->weight = ns + away->skipped[which];
    away->skipped[which] = 0;
    put_record(figures, slot, r);
}

/* Whether the stack of this wait is taken: up to so many in a while, then one in so many at random.
 * The time of the others goes to the next one that is. */
INLINE uint32_t wait_taken(struct kernel_figures *f, uint64_t now)
{
    f->switches++;
    if (now - f->window >= KERNEL_WINDOW_NS) {
        f->every = f->window_switches / KERNEL_WINDOW_SWITCHES + 1;
        f->window = now;
        f->window_switches = 0;
    }
    f->window_switches++;
    return f->every <= 1 || random32() % f->every == 0;
}

/* The current thread leaves the processor. */
INLINE void leave(const struct kernel_layout *l, struct kernel_scratch *s, uint32_t ready)
{
    struct number who = whoami(l);
    struct kernel_record *r = &s->record;
    struct kernel_away fresh = {0};
    uint32_t tid = (uint32_t)pid_tgid();
    struct kernel_watched *w = map_lookup(&map_watched, &who.pid);
    if (!w || !(w->flags & WATCHED_SWITCHES))
        return;
    uint32_t slot = w->slot;
    struct kernel_figures *figures = map_lookup(&map_figures, &slot);
    if (!figures)
        return;
    struct kernel_away *away = map_lookup(&map_away, &tid);
    if (!away || away->serial != w->serial) {
        fresh.slot = slot;
        fresh.serial = w->serial;
        fresh.pid = who.pid;
        fresh.tid = who.tid;
        if (map_update(&map_away, &tid, &fresh, ANY) || !(away = map_lookup(&map_away, &tid))) {
            __sync_fetch_and_add(&figures->lost, 1);
            return;
        }
    }
    begin(w, r, who, ready ? KERNEL_READY : KERNEL_AWAY);
    away->kind = r->kind;
    away->when = r->when;
    away->taken = wait_taken(figures, r->when);
    if (away->taken) {
        look_at_python(l, w, s);
        /* of the registers only what the system call needs, unless they are wanted */
        uint64_t regs = (uint64_t)task_registers(current_task_btf());
        if (!ready) {
            r->syscall = (int64_t)kernel_word(regs + REGS_ORIG_AX * 8);
            r->argument = kernel_word(regs + REGS_DI * 8);
        }
        if (w->flags & WATCHED_NATIVE)
            put_native(figures, slot, s);
        put_record(figures, slot, r);
        end(figures, r);
    } else
        __sync_fetch_and_add(&figures->ns, clock_ns() - r->when);
}

/* TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, ...):
 * include/trace/events/sched.h. prev is still the current one. Two programs: together they would
 * take the kernel twice as long to verify. */
SECTION("raw_tp/sched_switch") int departed(uint64_t *arguments)
{
    uint32_t zero = 0, state = 0;
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    struct kernel_scratch *s = map_lookup(&map_scratch, &zero);

    if (!l || !s)
        return 0;
    read_kernel(&state, sizeof state, arguments[1] + l->task_state);
    if (!(state & TASK_DEAD))
        leave(l, s, (arguments[0] & 1) || !state);
    return 0;
}

SECTION("raw_tp/sched_switch") int returned(uint64_t *arguments)
{
    uint32_t zero = 0;
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    struct kernel_scratch *s = map_lookup(&map_scratch, &zero);

    if (l && s)
        come_back(l, arguments[2], &s->record);
    return 0;
}

/* ---- processes that come and go ---- */

/* What starts has inherited its parent's event, or none. */
INLINE void tell_of(const struct kernel_watched *w, uint32_t pid, uint32_t tid)
{
    struct kernel_born born = {KERNEL_BORN, w->serial, pid, tid};
    uint32_t slot = w->slot;
    void *ring = map_lookup(&map_rings, &slot);

    if (ring)
        ring_output(ring, &born, sizeof born, RING_WAKE);
}

/* (struct task_struct *parent, struct task_struct *child): a child's memory is its parent's. */
SECTION("raw_tp/sched_process_fork") int forked(uint64_t *arguments)
{
    uint32_t zero = 0, child = 0;
    struct kernel_watched copy;
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    if (!l)
        return 0;
    uint32_t is_thread = kernel_word(arguments[1] + l->task_leader) != arguments[1];
    struct number who = whoami(l);
    struct kernel_watched *w = map_lookup(&map_watched, &who.pid);
    if (!w || !(is_thread || w->flags & WATCHED_CHILDREN))
        return 0;
    if (l->level)
        child = number_of(l, arguments[1]);
    else
        read_kernel(&child, sizeof child, arguments[1] + l->task_pid);
    if (w->flags & WATCHED_EVENTS && !kernel_word(arguments[1] + l->task_events))
        tell_of(w, is_thread ? who.pid : child, child);
    if (!is_thread) {
        copy = *w;
        map_update(&map_watched, &child, &copy, ANY);
    }
    return 0;
}

/* Another program: nothing that is known of this process is true any more. */
SECTION("raw_tp/sched_process_exec") int executed(void *arguments)
{
    uint32_t zero = 0;
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    if (!l)
        return 0;
    struct number who = whoami(l);
    map_delete(&map_watched, &who.pid);
    return 0;
}

/* A thread ends; of a child that the daemon may not know of, its entry too. */
SECTION("raw_tp/sched_process_exit") int ended(void *arguments)
{
    uint32_t zero = 0, tid = (uint32_t)pid_tgid();
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    if (!l)
        return 0;
    map_delete(&map_away, &tid);
    struct number who = whoami(l);
    if (who.pid == who.tid)
        map_delete(&map_watched, &who.pid);
    return 0;
}

/* Run by the daemon for itself (BPF_PROG_TEST_RUN): which pid namespace it lives in. */
SECTION("raw_tp") int introduced(void *arguments)
{
    uint32_t zero = 0, level = 0;
    struct kernel_layout *l = map_lookup(&map_layout, &zero);
    if (!l)
        return 0;
    uint64_t pid = kernel_word((uint64_t)current_task() + l->task_thread_pid);
    read_kernel(&level, sizeof level, pid + l->pid_level);
    l->space = kernel_word(pid + l->pid_numbers + (uint64_t)level * l->upid_size + l->upid_ns);
    l->level = level;
    return 0;
}
