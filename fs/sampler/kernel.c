/* The best source of samples: a program in the kernel (program.bpf.c) takes each in the very
 * thread, as its quantum of processor time ends, or as it leaves the processor. Nothing of the
 * target is stopped or written. What the program wrote is read here, by the sampler's thread and by
 * whoever wants to see it now. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/sampler/bpf/kernel_ring.h"
#include "fs/sampler/bpf/own_state.h"
#include "fs/sampler/bpf/program.h"
#include "fs/sampler/sampler.h"
#include "fs/sampler/stacks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_MIN_MS 100     /* the reader comes so often while there are new places, threads, ... */
#define WAIT_MAX_MS 1000    /* ... and then seldomer, as the ring has room for it */
#define OPEN_NS 1000000000u /* a wait that lasts is noted so often */
#define NAMES_NS 10000000000u /* threads' names are looked at so often, ... */
#define NAMES_SHARE 10        /* ... and for one in so many parts of the time at most */
#define VARY_NS 1000000000u   /* periods are changed so often */
#define SWEEP_NS 1000000000u  /* threads that have ended are looked for so often at most */
#define YIELD_MS 1            /* the reader leaves the lock to others so long */
#define THREADS_MAX 16384     /* that are told apart */
#define CHILDREN_MAX 64 /* whose memory is read; others' names are looked up in the parent's */

/* A thread that was heard of. */
struct heard {
    pid_t pid, tid;
    uint64_t named;          /* CLOCK_MONOTONIC, ns: when its name was looked at ... */
    bool in_python;          /* ... as a thread of Python */
    bool to_name;            /* it is to be looked at */
    uint64_t interp, thread; /* of its thread state, as last seen */
    bool sampled;            /* since its period was changed */
    uint64_t owed;           /* ns that no sample has, since that was changed while they passed */
    bool away;               /* it waits */
    bool before;    /* ... since before the profile began: it ends with the first that is heard */
    uint64_t since; /* when it left, or the profile began */
    uint64_t until; /* so far the wait was noted */
    enum sample_kind kind;
    uint32_t *ids; /* the stack, outermost first */
    size_t n, alloc;
};

/* A process that the target has forked. */
struct child {
    pid_t pid;
    uint32_t word;               /* the frame [child PID] */
    struct target *target;       /* NULL: it has ended already */
    struct sampler_names *names; /* of it; NULL: none */
    struct sampler_tasks *tasks; /* ... whose names alone are shown */
    struct stacks *stacks;
};

struct kernel {
    struct sampler *sampler;
    struct kernel_watch *watch; /* NULL: sampler->door is asked */
    struct kernel_ring ring;
    uint32_t serial;
    uint64_t event_ns; /* what an event costs a thread; 0: not known */
    uint64_t began;    /* how far the ring was written as all threads had their events */
    int wait_ms;       /* the reader's own: until it comes again */
    size_t known;      /* places and threads, as it came last */

    _Atomic unsigned wanted; /* those that wait for the lock: it is left to them */
    pthread_mutex_t lock;    /* guards what follows */
    struct stacks *stacks;
    struct heard *threads; /* ascending by tid */
    size_t nthreads, threads_alloc;
    struct child *children;
    size_t nchildren, children_alloc;
    struct native_copy **natives; /* by processor: belongs to the record that comes next */
    size_t nnatives, natives_alloc;
    uint32_t *ids;   /* with the word for a child before them */
    uint64_t lost;   /* that the store knows of */
    uint64_t varied; /* CLOCK_MONOTONIC, ns: when periods were changed, ... */
    uint64_t swept;  /* ... threads that have ended were looked for, ... */
    uint64_t naming; /* ... and names may be looked at again; 0: at once */
    bool names_due;  /* some thread is to be named */
    uint64_t clocked, daemon_ns;
    uint64_t gil; /* of the main interpreter */
};

/* ---- what takes the daemon's rights ---- */

static int ask(struct kernel *k, struct kernel_ask *asked, struct kernel_told *told)
{
    const struct sampler_door *door = k->sampler->door;

    if (door)
        door->ask_kernel(door->arg, asked, told);
    else
        kernel_watch_do(k->watch, asked, told);
    return told->error;
}

static int order(struct kernel *k, enum kernel_op op, struct text *why)
{
    struct kernel_ask asked = {.op = op};
    struct kernel_told told;

    int r = ask(k, &asked, &told);
    text_puts(why, told.why);
    return r;
}

/* ---- threads ---- */

static bool has_ended(const struct heard *heard)
{
    return syscall(SYS_tgkill, heard->pid, heard->tid, 0) < 0 && errno == ESRCH;
}

/* Forgets threads that have ended, now and then. What is left of a wait isn't known. */
static void sweep_threads(struct kernel *k)
{
    uint64_t now = monotonic_ns();
    size_t n = 0;

    if (k->swept && now - k->swept < SWEEP_NS)
        return;
    for (size_t i = 0; i < k->nthreads; i++)
        if (has_ended(&k->threads[i]))
            free(k->threads[i].ids);
        else
            k->threads[n++] = k->threads[i];
    k->nthreads = n;
    k->swept = monotonic_ns();
}

/* NULL: there are too many. What comes of such a thread is lost. */
static struct heard *find_thread(struct kernel *k, pid_t pid, pid_t tid)
{
    if (k->nthreads >= THREADS_MAX)
        sweep_threads(k);
    size_t low = LOWER_BOUND(k->nthreads, i, k->threads[i].tid < tid);

    if (low < k->nthreads && k->threads[low].tid == tid)
        return &k->threads[low];
    if (k->nthreads >= THREADS_MAX || ARRAY_GROW(k->threads, k->threads_alloc, k->nthreads + 1) < 0)
        return NULL;
    memmove(&k->threads[low + 1], &k->threads[low], (k->nthreads - low) * sizeof *k->threads);
    k->nthreads++;
    k->threads[low] = (struct heard){.pid = pid, .tid = tid};
    return &k->threads[low];
}

static void note_to_name(struct kernel *k, struct heard *heard, uint64_t interp, uint64_t thread)
{
    heard->to_name = k->names_due = true;
    heard->interp = interp;
    heard->thread = thread;
}

static void name_now_and_then(struct kernel *k, struct heard *heard,
                              const struct kernel_record *record)
{
    if (heard->named && record->when - heard->named < NAMES_NS &&
        (heard->in_python || !record->interp))
        return;
    note_to_name(k, heard, record->interp, record->thread);
}

/* Looks at the names of those threads that are to have one, together: it takes a while where there
 * are many. The caller holds target->lock. */
static void name_all(struct kernel *k)
{
    struct sampler_names *names = k->sampler->names;
    uint64_t now = monotonic_ns(), interp = 0;

    for (size_t i = 0; i < k->nthreads; i++) {
        struct heard *heard = &k->threads[i];
        if (!heard->to_name)
            continue;
        if (heard->interp && heard->interp != interp)
            sampler_names_begin(names, heard->interp, OPEN_NS);
        interp = heard->interp ? heard->interp : interp;
        sampler_names_thread(names, heard->interp, heard->thread, heard->tid);
        heard->to_name = false;
        heard->named = now;
        heard->in_python = heard->interp;
    }
    k->names_due = false;
}

static void name_threads(struct kernel *k)
{
    uint64_t begun = monotonic_ns();

    if (!k->names_due || begun < k->naming)
        return;
    pthread_mutex_lock(&k->sampler->target->lock);
    name_all(k);
    pthread_mutex_unlock(&k->sampler->target->lock);
    uint64_t now = monotonic_ns();
    k->naming = now + (now - begun) * (NAMES_SHARE - 1);
}

/* ---- children ---- */

static void child_deinit(struct child *child)
{
    stacks_free(child->stacks);
    sampler_tasks_free(child->tasks);
    sampler_names_free(child->names);
    target_unref(child->target);
}

static struct child *find_child(struct kernel *k, pid_t pid)
{
    struct store *store = k->sampler->store;
    char word[32];

    for (size_t i = 0; i < k->nchildren; i++)
        if (k->children[i].pid == pid)
            return &k->children[i];
    if (k->nchildren >= CHILDREN_MAX) { /* the oldest one goes */
        child_deinit(&k->children[0]);
        memmove(k->children, k->children + 1, --k->nchildren * sizeof *k->children);
    }
    if (ARRAY_GROW(k->children, k->children_alloc, k->nchildren + 1) < 0)
        return NULL;
    struct child child = {.pid = pid};
    snprintf(word, sizeof word, "[child %d]", (int)pid);
    struct profile_frame frame = {.kind = PROFILE_WORD, .func = word, .file = ""};
    if (store_intern(store, &frame, &child.word) < 0)
        return NULL;
    if (target_open(pid, &child.target) == 0 &&
        (sampler_names_new(child.target, store, &child.names) < 0 ||
         sampler_tasks_new(child.target, child.names, store, &child.tasks) < 0 ||
         stacks_new(child.target, child.names, child.tasks, store, &child.stacks) < 0)) {
        child_deinit(&child);
        return NULL;
    }
    k->children[k->nchildren] = child;
    return &k->children[k->nchildren++];
}

/* ---- records ---- */

static void add_sample(struct kernel *k, struct heard *heard, const struct kernel_record *record,
                       const uint32_t *ids, size_t n, struct store_place *place)
{
    bool of_time = record->kind == KERNEL_CPU;
    uint64_t owed = of_time ? heard->owed : 0;
    struct sample sample = {.when = record->when,
                            .tid = (pid_t)record->tid,
                            .kind = of_time ? SAMPLE_CPU : SAMPLE_FAULT,
                            .gil = record->flags & RECORD_GIL,
                            .weight = (int64_t)(record->weight + owed),
                            .frames = ids,
                            .n = n,
                            .place = place};

    heard->owed -= owed;
    heard->sampled |= of_time;
    store_add(k->sampler->store, &sample);
}

/* What of a wait hasn't been noted so far. */
static void add_wait(struct kernel *k, struct heard *heard, uint64_t now, int64_t ns)
{
    struct sample sample = {.when = now,
                            .tid = heard->tid,
                            .kind = heard->kind,
                            .weight = ns,
                            .frames = heard->ids,
                            .n = heard->n};

    if (ns)
        store_add(k->sampler->store, &sample);
    heard->until = now;
}

/* Notes that a thread waits with this stack from now on. */
static int begin_wait(struct heard *heard, enum sample_kind kind, const uint32_t *ids, size_t n,
                      uint64_t since)
{
    heard->away = heard->before = false;
    if (ARRAY_GROW(heard->ids, heard->alloc, n) < 0)
        return -ENOMEM;
    memcpy(heard->ids, ids, n * sizeof *ids);
    heard->n = n;
    heard->kind = kind;
    heard->away = true;
    heard->since = heard->until = since;
    return 0;
}

static void come_back(struct kernel *k, const struct kernel_record *record)
{
    struct heard *heard = find_thread(k, (pid_t)record->pid, (pid_t)record->tid);

    if (!heard || !heard->away || heard->since != record->since)
        return; /* the record with its stack was lost, and is counted as such */
    uint64_t noted = heard->until - heard->since;
    add_wait(k, heard, record->when, (int64_t)(record->weight - noted));
    heard->away = false;
}

/* The native half of a record, if it has one. */
static const struct native_copy *take_native(struct kernel *k, const struct kernel_record *record)
{
    if (record->processor >= k->nnatives)
        return NULL;
    const struct native_copy *native = k->natives[record->processor];
    return native && native->tid == (pid_t)record->tid && native->when == record->when ? native
                                                                                       : NULL;
}

/* A piece of the native half of the record that comes next from this processor. */
static void keep_native(struct kernel *k, const struct kernel_native *native, size_t size)
{
    if (native->processor >= PROCESSORS_MAX || size > sizeof *native ||
        size < offsetof(struct kernel_native, stack) + native->size ||
        ARRAY_GROW(k->natives, k->natives_alloc, native->processor + 1) < 0)
        return;
    if (native->processor >= k->nnatives)
        k->nnatives = native->processor + 1;
    struct native_copy **at = &k->natives[native->processor];
    if (!*at)
        *at = calloc(1, sizeof **at);
    struct native_copy *kept = *at;
    if (!kept)
        return;
    if (native->offset == 0) {
        kept->tid = (pid_t)native->tid;
        kept->when = native->when;
        kept->size = 0;
        memcpy(kept->regs, native->regs, sizeof kept->regs);
    }
    if (kept->tid != (pid_t)native->tid || kept->when != native->when ||
        kept->size != native->offset || native->size > sizeof kept->stack - kept->size)
        return; /* what is between them was lost */
    memcpy(kept->stack + kept->size, native->stack, native->size);
    kept->size += native->size;
    kept->cut = native->full;
}

static void take_stack(struct kernel *k, const struct kernel_record *record)
{
    bool is_child = (pid_t)record->pid != k->sampler->target->pid;
    struct child *child = is_child ? find_child(k, (pid_t)record->pid) : NULL;
    struct heard *heard = find_thread(k, (pid_t)record->pid, (pid_t)record->tid);
    struct stacks *stacks = child && child->stacks ? child->stacks : k->stacks;
    struct store_place *place;
    const uint32_t *ids;

    if (!heard || (is_child && !child)) {
        store_lose(k->sampler->store, 1);
        return;
    }
    if (heard->before && record->when > heard->until)
        add_wait(k, heard, record->when, (int64_t)(record->when - heard->until));
    if (heard->before)
        heard->away = heard->before = false;
    ssize_t n = stacks_resolve(stacks, record, take_native(k, record), &ids, &place);
    if (n < 0)
        return;
    if (child) {
        memcpy(k->ids + 1, ids, (size_t)n * sizeof *ids);
        k->ids[0] = child->word;
        ids = k->ids;
        n++;
        if (stacks == k->stacks) /* the store has it where it is the parent's */
            place = NULL;
    } else
        name_now_and_then(k, heard, record);
    if (record->kind == KERNEL_AWAY || record->kind == KERNEL_READY)
        begin_wait(heard, record->kind == KERNEL_READY ? SAMPLE_PREEMPTED : SAMPLE_OFF, ids,
                   (size_t)n, record->when);
    else
        add_sample(k, heard, record, ids, (size_t)n, place);
}

/* A thread that started before its parent had an event. */
static void equip(struct kernel *k, pid_t tid)
{
    struct kernel_ask asked = {.op = KERNEL_EQUIP, .tid = tid};
    struct kernel_told told;

    asked.anew = *k->ring.read >= k->began; /* it wasn't there as threads were listed */
    ask(k, &asked, &told);
}

static void take_record(struct kernel *k, const void *data, size_t size)
{
    const struct kernel_record *record = data;

    if (record->serial != k->serial) /* of a profile that had this slot before */
        return;
    if (record->kind == KERNEL_BORN) {
        equip(k, (pid_t)record->tid);
        return;
    }
    if (record->kind == KERNEL_NATIVE) {
        keep_native(k, data, size);
        return;
    }
    if (k->sampler->options.tid && (pid_t)record->tid != k->sampler->options.tid)
        return;
    if (record->kind == KERNEL_BACK) {
        come_back(k, record);
        return;
    }
    if (record->kind == KERNEL_CPU)
        k->clocked++;
    take_stack(k, record);
}

static bool take_each(void *arg, const void *record, size_t size)
{
    take_record(arg, record, size);
    return true;
}

/* take() for a reader that comes again: others needn't wait until it is through. */
static bool take_unless_wanted(void *arg, const void *record, size_t size)
{
    struct kernel *k = arg;

    take_record(k, record, size);
    return !atomic_load_explicit(&k->wanted, memory_order_relaxed);
}

/* Waits that last: they are noted so far. */
static void note_waits(struct kernel *k, uint64_t now, uint64_t least)
{
    for (size_t i = 0; i < k->nthreads; i++) {
        struct heard *heard = &k->threads[i];
        if (heard->away && now > heard->until && now - heard->until >= least)
            add_wait(k, heard, now, (int64_t)(now - heard->until));
    }
}

/* Changes the periods of threads that run. */
static void vary(struct kernel *k, uint64_t now)
{
    if (now - k->varied < VARY_NS)
        return;
    k->varied = now;
    for (size_t i = 0; i < k->nthreads; i++) {
        struct heard *heard = &k->threads[i];
        struct kernel_ask asked = {.op = KERNEL_VARY, .tid = heard->tid};
        struct kernel_told told;
        if (heard->sampled && ask(k, &asked, &told) == 0)
            heard->owed += told.ns;
        heard->sampled = false;
    }
}

/* Takes what the program wrote. The caller holds lock. least: see note_waits(). */
static void read_ring(struct kernel *k, uint64_t least,
                      bool (*take)(void *arg, const void *record, size_t size))
{
    uint64_t cpu = thread_cpu_ns(), now = monotonic_ns();
    struct kernel_ask asked = {.op = KERNEL_FIGURES};
    struct kernel_told told;

    kernel_ring_read(&k->ring, take, k);
    name_threads(k);
    vary(k, now);
    if (target_alive(k->sampler->target))
        note_waits(k, now, least);
    if (ask(k, &asked, &told) == 0 && told.figures.lost > k->lost) {
        store_lose(k->sampler->store, told.figures.lost - k->lost);
        k->lost = told.figures.lost;
    }
    k->daemon_ns += thread_cpu_ns() - cpu;
}

/* ---- waits that began before the profile ---- */

/* The Python frames of a thread of a walk, outermost first, and the reason it sleeps. */
static ssize_t old_stack(struct kernel *k, const struct stack *stack, const struct lwp *lwp)
{
    const struct runtime *rt = &k->sampler->target->runtime;
    struct kernel_record record = {.kind = KERNEL_AWAY, .syscall = lwp->syscall};
    size_t n = 0;

    for (size_t i = stack ? stack->n : 0; i-- > 0 && n < KERNEL_FRAMES_MAX; n++) {
        int r = sampler_names_raw(k->sampler->names, &stack->frames[i], &k->ids[n]);
        if (r < 0)
            return r;
    }
    if (!n)
        k->ids[n++] = STORE_NO_STACK;
    record.argument = lwp->args[0];
    record.gil = rt->free_threaded ? 0 : k->gil;
    int r = stacks_reason(k->stacks, &record, &k->ids[n]);
    return r < 0 ? r : (ssize_t)n + 1;
}

static int note_sleepers(struct kernel *k, struct walk *walk, const struct lwp_list *lwps)
{
    struct target *target = k->sampler->target;
    uint64_t now = monotonic_ns();
    int r = 0;

    for (size_t w = 0; w < walk->n; w++)
        walk->stacks[w].tid = moment_tid(target, lwps, &walk->stacks[w]);
    for (size_t i = 0; i < lwps->n && r == 0; i++) {
        const struct lwp *lwp = &lwps->items[i];
        const struct stack *found = NULL;
        if (lwp->state == 'R' || (k->sampler->options.tid && lwp->tid != k->sampler->options.tid))
            continue;
        for (size_t w = 0; w < walk->n && !found; w++)
            if (walk->stacks[w].tid == lwp->tid)
                found = &walk->stacks[w];
        struct heard *heard = find_thread(k, target->pid, lwp->tid);
        if (!heard || heard->since)
            continue; /* it has run meanwhile, and was heard of */
        ssize_t n = old_stack(k, found, lwp);
        r = n < 0 ? (int)n : begin_wait(heard, SAMPLE_OFF, k->ids, (size_t)n, now);
        heard->before = r == 0;
        if (r == 0 && found)
            note_to_name(k, heard, found->interp, found->thread_id);
    }
    return r;
}

/* Threads that sleep as the profile begins may never be heard of: their stacks are read from
 * outside. What can't be read is left out. */
static void see_sleepers(struct kernel *k)
{
    struct target *target = k->sampler->target;
    struct lwp_list lwps = {0};
    struct walk walk = {0};
    struct view *view;

    if (view_new(&target->memory, &view) < 0)
        return;
    _guard_mutex_(&k->lock);
    pthread_mutex_lock(&target->lock);
    int r = walk_run(&walk, view, &target->runtime, target->codes);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    if (r == 0)
        r = lwp_list_read(target->pid, LWP_SYSCALLS, &lwps);
    if (r == 0 && note_sleepers(k, &walk, &lwps) == 0)
        name_all(k);
    pthread_mutex_unlock(&target->lock);
    lwp_list_deinit(&lwps);
    walk_deinit(&walk);
    view_free(view);
}

/* ---- begin and end ---- */

/* Describes where it is found which task runs, as far as that is known yet. */
static void describe_tasks(const struct kernel *k, struct kernel_watched *out)
{
    const struct offsets *o = &k->sampler->target->runtime.offsets;
    struct asyncio asyncio;

    if (!sampler_tasks_where(k->sampler->tasks, &asyncio, &out->running))
        return;
    out->tstate_task = asyncio.tstate_task;
    out->task_coro = asyncio.coro;
    out->task_name = asyncio.name;
    out->task_callback = asyncio.callback0;
    out->task_waiter = asyncio.waiter;
    out->gen_frame_points = o->gen_iframe < 0;
    out->gen_frame = out->gen_frame_points ? o->gen_frame : o->gen_iframe;
    out->dict_keys = o->dict_keys;
    out->keys_nentries = o->keys_nentries;
    out->keys_indices = o->keys_indices;
    out->keys_log2_index_bytes = o->keys_log2_index_bytes;
    out->keys_size = o->keys_size;
    out->flags |= WATCHED_TASKS;
}

static int32_t offset(int32_t value, int32_t most)
{
    return value >= 0 && value <= most ? value : -1;
}

/* What the program has to know of this process. */
static int describe(struct kernel *k, struct kernel_watched *out, struct text *why)
{
    struct sampler *sampler = k->sampler;
    struct target *target = sampler->target;
    const struct runtime *rt = &target->runtime;
    const struct offsets *o = &rt->offsets;
    int32_t last = KERNEL_FRAME_BYTES - 8, instr = o->frame_instr;

    if (!rt->supported) {
        text_puts(why, "this interpreter's memory is not understood");
        return -EOPNOTSUPP;
    }
    if (o->frame_tlbc_index >= 0) {
        text_puts(why, "each thread runs a copy of the bytecode here, and lines would be wrong");
        return -EOPNOTSUPP;
    }
    if (instr < 0)
        instr = o->frame_lasti;
    *out = (struct kernel_watched){
        .tstate_frame = o->tstate_frame,
        .tstate_cframe = o->tstate_cframe,
        .cframe_frame = o->cframe_current_frame,
        .tstate_thread_id = o->tstate_thread_id,
        .tstate_interp = o->tstate_interp,
        .interp_gil = o->interp_gil,
        .gil_holder = o->gil_last_holder,
        .gil_locked = rt->free_threaded ? -1 : o->gil_locked,
        .frame_previous = offset(o->frame_previous, last),
        .frame_code = offset(o->frame_code, last),
        .frame_instr = offset(instr, last),
        .frame_owner = offset(o->frame_owner, last),
        .frame_entry = offset(o->frame_is_entry, last),
        .owner_mark = rt->version >= 0x030c0000 ? 3 : UINT32_MAX, /* FRAME_OWNED_BY_CSTACK */
    };
    int32_t size = 0;
    const int32_t fields[] = {out->frame_previous + 8, out->frame_code + 8, out->frame_instr + 8,
                              out->frame_owner + 1, out->frame_entry + 1};
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        size = fields[i] > size ? fields[i] : size;
    out->frame_size = size;
    if (out->frame_previous < 0 || out->frame_code < 0 || out->frame_instr < 0 ||
        size >= KERNEL_FRAME_BYTES) {
        text_puts(why, "this interpreter's frames are too large");
        return -EOPNOTSUPP;
    }
    sampler_tasks_look(sampler->tasks, monotonic_ns(), false, 0);
    describe_tasks(k, out);
    pthread_mutex_lock(&target->lock);
    int r = own_state_learn(target, out->tls, &out->gil);
    pthread_mutex_unlock(&target->lock);
    if (r == -EAGAIN)
        text_puts(why, "no thread of it runs Python yet");
    else if (r == -ENOENT)
        text_puts(why, "its threads don't keep their thread state where it was looked for");
    else if (r < 0)
        text_printf(why, "its threads can't be read: %s", strerror(-r));
    return r;
}

static void kernel_free(struct kernel *k)
{
    kernel_watch_free(k->watch);
    kernel_ring_deinit(&k->ring);
    stacks_free(k->stacks);
    for (size_t i = 0; i < k->nthreads; i++)
        free(k->threads[i].ids);
    free(k->threads);
    for (size_t i = 0; i < k->nchildren; i++)
        child_deinit(&k->children[i]);
    free(k->children);
    for (size_t i = 0; i < k->nnatives; i++)
        free(k->natives[i]);
    free(k->natives);
    free(k->ids);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* Has the process watched, and reads the ring that it gets. */
static int begin_watching(struct kernel *k, struct text *why)
{
    struct kernel_ask asked = {.op = KERNEL_WATCH};
    struct kernel_told told;

    int r = describe(k, &asked.watched, why);
    if (r < 0)
        return r;
    r = ask(k, &asked, &told);
    text_puts(why, told.why);
    if (r < 0)
        return r;
    k->gil = asked.watched.gil;
    k->serial = told.serial;
    k->event_ns = told.event_ns;
    r = kernel_ring_init(&k->ring, told.fd, told.ring);
    if (r < 0)
        text_printf(why, "its samples can't be read: %s", strerror(-r));
    return r;
}

static int begin(struct kernel *k, struct text *why)
{
    struct sampler *sampler = k->sampler;
    int r = 0;

    if (!sampler->door) {
        const struct kernel_wish wish = sampler_wish(sampler);
        r = kernel_watch_new(&wish, &k->watch, why);
    }
    if (r == 0)
        r = begin_watching(k, why);
    if (r == 0 && sampler->options.modes & SAMPLER_OFF_MODES) {
        r = order(k, KERNEL_HEAR, why);
        if (r == 0)
            see_sleepers(k);
    }
    if (r == 0)
        r = order(k, KERNEL_SAMPLE, why);
    if (r == 0)
        k->began = __atomic_load_n(k->ring.written, __ATOMIC_ACQUIRE);
    return r;
}

static int start(struct sampler *sampler, struct text *why)
{
    struct kernel *k = calloc(1, sizeof *k);

    if (!k)
        return -ENOMEM;
    k->sampler = sampler;
    k->ring.fd = -1;
    pthread_mutex_init(&k->lock, NULL);
    k->ids = calloc(STACKS_IDS_MAX + 1, sizeof *k->ids);
    int r = k->ids ? stacks_new(sampler->target, sampler->names, sampler->tasks, sampler->store,
                                &k->stacks)
                   : -ENOMEM;
    if (r == 0)
        r = begin(k, why);
    if (r < 0) {
        kernel_free(k);
        return r;
    }
    sampler->of = k;
    return 0;
}

/* What was sampled until there were no events any more is still taken. */
static void stop(struct sampler *sampler)
{
    struct kernel *k = sampler->of;
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    order(k, KERNEL_SILENCE, &why);
    read_ring(k, 0, take_each);
    kernel_free(k);
}

/* A lock isn't fair: whoever takes it again and again would keep it. */
static void lock_wanted(struct kernel *k)
{
    atomic_fetch_add(&k->wanted, 1);
    pthread_mutex_lock(&k->lock);
    atomic_fetch_sub(&k->wanted, 1);
}

static void collect(struct sampler *sampler)
{
    struct kernel *k = sampler->of;

    lock_wanted(k);
    read_ring(k, 0, take_each);
    pthread_mutex_unlock(&k->lock);
}

/* The sampler's own thread: it leaves the lock to whoever wants it. */
static void read_in_turn(struct kernel *k)
{
    if (atomic_load(&k->wanted)) {
        poll(NULL, 0, YIELD_MS);
        return;
    }
    _guard_mutex_(&k->lock);
    read_ring(k, OPEN_NS, take_unless_wanted);
}

/* Tasks that wait; and tells the program once there is asyncio. */
static void look_at_tasks(struct kernel *k, uint64_t now)
{
    const struct sampler_options *options = &k->sampler->options;
    struct kernel_ask asked = {.op = KERNEL_TASKS};
    struct kernel_told told;
    uint64_t cpu = thread_cpu_ns();

    if (sampler_tasks_look(k->sampler->tasks, now, options->modes & SAMPLER_OFF_MODES,
                           options->tid)) {
        describe_tasks(k, &asked.watched);
        ask(k, &asked, &told);
    }
    _guard_mutex_(&k->lock);
    k->daemon_ns += thread_cpu_ns() - cpu;
}

/* How long the ring may be left alone. Code dies, and threads end: what is new is soon named. */
static int wait_ms(struct kernel *k)
{
    const struct sampler *sampler = k->sampler;
    struct store_stats stats;
    struct asyncio asyncio;
    uint64_t dict, now = monotonic_ns();

    store_stats(sampler->store, &stats);
    bool fresh = stats.frames + stats.threads != k->known;
    k->known = stats.frames + stats.threads;
    k->wait_ms = fresh || !k->wait_ms ? WAIT_MIN_MS : 2 * k->wait_ms;
    if (k->wait_ms > WAIT_MAX_MS)
        k->wait_ms = WAIT_MAX_MS;
    if (sampler_hurries(sampler, now) ||
        (sampler->options.modes & SAMPLER_OFF_MODES &&
         sampler_tasks_where(sampler->tasks, &asyncio, &dict))) /* a census is to be taken */
        k->wait_ms = WAIT_MIN_MS;
    int64_t left = sampler->until ? (int64_t)(sampler->until - now) / 1000000 + 1 : k->wait_ms;
    return left > k->wait_ms ? k->wait_ms : left > 0 ? (int)left : 0;
}

static uint64_t tick(struct sampler *sampler, uint64_t now)
{
    struct kernel *k = sampler->of;
    eventfd_t woken;
    struct pollfd either[] = {{k->ring.fd, POLLIN, 0}, {sampler->wakes, POLLIN, 0}};

    poll(either, ARRAY_SIZE(either), wait_ms(k));
    eventfd_read(sampler->wakes, &woken);
    bool alive = target_alive(sampler->target);
    read_in_turn(k);
    if (alive)
        look_at_tasks(k, monotonic_ns());
    return alive ? now : UINT64_MAX;
}

static void figures(struct sampler *sampler, struct sampler_figures *out)
{
    struct kernel *k = sampler->of;
    struct kernel_ask asked = {.op = KERNEL_FIGURES};
    struct kernel_told told;
    size_t at = 0;

    lock_wanted(k);
    *out = (struct sampler_figures){
        .daemon_ns = k->daemon_ns,
        .native = sampler->options.native,
        .missing = sampler->options.modes & ~sampler_bpf.modes,
        .target_ns = k->clocked * k->event_ns,
    };
    uint64_t incomplete = stacks_incomplete(k->stacks);
    pthread_mutex_unlock(&k->lock);
    if (ask(k, &asked, &told) < 0)
        return;
    out->target_ns += told.figures.ns;
    if (told.figures.unreadable)
        at += (size_t)snprintf(out->note, sizeof out->note, "%llu stacks in part paged out",
                               (unsigned long long)told.figures.unreadable);
    if (incomplete && at < sizeof out->note)
        snprintf(out->note + at, sizeof out->note - at, "%s%llu native stacks end too early",
                 at ? ", " : "", (unsigned long long)incomplete);
}

const struct sampler_source sampler_bpf = {
    .name = "bpf",
    .modes = SAMPLER_ON_MODES | SAMPLER_OFF_MODES | SAMPLER_MODE(MODE_FAULTS),
    .start = start,
    .stop = stop,
    .tick = tick,
    .collect = collect,
    .figures = figures,
};
