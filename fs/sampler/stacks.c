#include "fs/sampler/stacks.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/remote/memory/bytes.h"
#include "fs/remote/moment/merge.h"
#include "fs/remote/native/unwind.h"
#include "fs/sampler/reason.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define MAPS_NS 1000000000u /* new mappings are looked for so often at most */
#define NO_REASON UINT32_MAX
#define GROUPS_MAX (KERNEL_FRAMES_MAX + 1)
#define PC_CACHE 4096 /* entries; a power of two */
#define KNOWN 1024    /* stacks; a power of two */

/* A stack of Python frames alone that was seen before: the same words of the kernel's are the same
 * names, until one of them is to be looked up again. */
struct known_stack {
    struct kernel_frame *frames;
    size_t nframes, frames_alloc;
    uint32_t reason, flags; /* reason: a frame, or NO_REASON */
    struct task_key task;
    uint32_t *ids;
    size_t n, ids_alloc;
    uint64_t until; /* CLOCK_MONOTONIC, ns */
    struct store_place place;
};

struct stacks {
    struct target *target;
    struct sampler_names *names;
    struct sampler_tasks *tasks;
    struct store *store;
    struct unwinder unwinder;
    bool unwinds;       /* the unwinder knows what is mapped ... */
    uint64_t looked_ns; /* ... since then */
    uint64_t incomplete;
    struct named_pc {
        uint64_t addr; /* of the instruction */
        uint32_t id;
    } pcs[PC_CACHE];
    struct known_stack known[KNOWN];
    struct native_frame frames[NATIVE_FRAMES_MAX];
    struct merge_group groups[GROUPS_MAX];
    struct merge_item items[MERGE_ITEMS(NATIVE_FRAMES_MAX, KERNEL_FRAMES_MAX, GROUPS_MAX)];
    uint32_t python[KERNEL_FRAMES_MAX]; /* innermost first */
    uint32_t ids[STACKS_IDS_MAX];       /* filled from the end */
    uint32_t shown[STACKS_IDS_MAX];     /* with the task in place of the event loop */
};

int stacks_new(struct target *target, struct sampler_names *names, struct sampler_tasks *tasks,
               struct store *store, struct stacks **out)
{
    struct stacks *s = calloc(1, sizeof *s);

    if (!s)
        return -ENOMEM;
    s->target = target;
    s->names = names;
    s->tasks = tasks;
    s->store = store;
    unwinder_init(&s->unwinder, &target->memory);
    *out = s;
    return 0;
}

void stacks_free(struct stacks *stacks)
{
    if (!stacks)
        return;
    unwinder_deinit(&stacks->unwinder);
    for (size_t i = 0; i < KNOWN; i++) {
        free(stacks->known[i].frames);
        free(stacks->known[i].ids);
    }
    free(stacks);
}

uint64_t stacks_incomplete(const struct stacks *stacks) { return stacks->incomplete; }

/* ---- Python ---- */

/* The task that runs; NULL: none. */
static const struct kernel_task *task_of(const struct kernel_record *record)
{
    return record->flags & RECORD_TASK ? (const void *)&record->frames[record->n] : NULL;
}

/* The names of the Python frames, and which call of the evaluation loop runs which of them. Frames
 * that have not begun are left out. *task: the one of the running task's coroutine, or SIZE_MAX. */
static int name_python(struct stacks *s, const struct kernel_record *record, size_t *n,
                       size_t *ngroups, size_t *task, uint64_t *until)
{
    const struct runtime *rt = &s->target->runtime;
    const struct kernel_task *running = task_of(record);
    bool old = rt->version < 0x030b0000;
    size_t from = 0;

    *n = *ngroups = 0;
    *task = SIZE_MAX;
    for (uint32_t i = 0; i < record->n; i++) {
        const struct kernel_frame *f = &record->frames[i];
        uint64_t code = f->code & ~7ull;
        if (f->code & FRAME_MARK) {
            if (i + 1 == record->n && *n == from)
                break; /* 3.15: base_frame of the thread state, below every call */
            s->groups[(*ngroups)++] = (struct merge_group){*n - from, f->at};
            from = *n;
            continue;
        }
        int32_t lasti = (int32_t)f->at;
        if (!old)
            lasti = (int32_t)(f->at - code - (uint64_t)rt->offsets.code_adaptive);
        else if (rt->version >= 0x030a0000 && lasti > 0)
            lasti *= 2; /* counted in instructions */
        int r = sampler_names_python(s->names, code, lasti, f->code & FRAME_GENERATOR,
                                     &s->python[*n], until);
        if (r < 0 && r != -ENOENT)
            return r;
        if (r == 0 && running && running->at == i)
            *task = *n;
        *n += r == 0;
        if ((old && r == 0) || (f->code & FRAME_ENTRY)) {
            s->groups[(*ngroups)++] = (struct merge_group){*n - from, 0};
            from = *n;
        }
    }
    if (*n > from)
        s->groups[(*ngroups)++] = (struct merge_group){*n - from, 0};
    return 0;
}

/* ---- native ---- */

static bool look_at_maps(struct stacks *s)
{
    struct target *t = s->target;
    uint64_t now = monotonic_ns();

    if (s->looked_ns && now - s->looked_ns < MAPS_NS)
        return s->unwinds;
    s->looked_ns = now;
    _guard_mutex_(&t->lock);
    s->unwinds = target_refresh_maps(t) == 0 &&
                 unwinder_refresh(&s->unwinder, &t->maps, t->runtime.image_base) == 0;
    memset(s->pcs, 0, sizeof s->pcs);
    return s->unwinds;
}

/* 3.10 and 3.11 have a chain of _PyCFrame, one for each call of the loop, on the C stack: the copy
 * of that has them. */
static void find_anchors(struct stacks *s, uint64_t cframe, const struct stack_copy *copy,
                         size_t ngroups)
{
    const struct offsets *o = &s->target->runtime.offsets;

    if (o->tstate_cframe < 0 || s->target->runtime.version >= 0x030c0000)
        return;
    uint64_t link = (uint64_t)(o->cframe_size - 8);
    for (size_t i = 0; i < ngroups && cframe >= copy->low; i++) {
        uint64_t at = cframe + link;
        if (at < cframe || at + 8 > copy->high)
            return;
        s->groups[i].anchor = cframe;
        cframe = load64(copy->data + (at - copy->low));
    }
}

static size_t unwind_copy(struct stacks *s, const struct kernel_record *record,
                          const struct native_copy *native, size_t ngroups, enum native_end *end)
{
    struct registers registers = {0};
    struct native_regs regs = {0};
    size_t n = 0;

    *end = NATIVE_UNREADABLE;
    if (!native || !look_at_maps(s))
        return 0;
    memcpy(&registers.user, native->regs,
           sizeof native->regs); /* it begins as struct pt_regs does */
    native_regs_set(&regs, &registers);
    uint64_t sp = registers_sp(&registers);
    struct stack_copy copy = {
        .low = sp, .high = sp + native->size, .data = native->stack, .cut = native->cut};
    *end = unwind(&s->unwinder, &copy, &regs, s->frames, NATIVE_FRAMES_MAX, &n);
    s->incomplete += *end != NATIVE_BASE;
    find_anchors(s, record->cframe, &copy, ngroups);
    return n;
}

static int name_native(struct stacks *s, const struct native_frame *frame, uint32_t *id)
{
    uint64_t addr = frame->pc - !frame->exact;
    struct named_pc *known = &s->pcs[(addr ^ addr >> 12) & (PC_CACHE - 1)];
    char unknown[64];

    if (known->addr == addr) {
        *id = known->id;
        return 0;
    }
    const struct pc *pc = unwinder_name(&s->unwinder, frame->pc, frame->exact);
    const char *module = pc->module ? pc->module->name : "";
    snprintf(unknown, sizeof unknown, "[%s]", *module ? module : "native code");
    struct profile_frame named = {.kind = PROFILE_NATIVE,
                                  .func = pc->shown ? pc->shown : unknown,
                                  .file = module};
    int r = store_intern(s->store, &named, id);
    if (r == 0)
        *known = (struct named_pc){addr, *id};
    return r;
}

/* ---- words ---- */

/* Why a thread doesn't run. */
static void say_reason(const struct stacks *s, const struct kernel_record *record,
                       char out[SAMPLER_REASON_MAX])
{
    uint64_t size = (uint64_t)s->target->runtime.offsets.gil_size;

    if (record->kind == KERNEL_READY)
        strcpy(out, "[preempted]");
    else if (record->syscall == SYS_futex && record->gil && record->argument - record->gil < size)
        strcpy(out, "[gil]");
    else
        sampler_reason((int)record->syscall, out);
}

static int name_word(const struct stacks *s, const char *word, uint32_t *id)
{
    struct profile_frame frame = {.kind = PROFILE_WORD, .func = word, .file = ""};

    return store_intern(s->store, &frame, id);
}

int stacks_reason(const struct stacks *stacks, const struct kernel_record *record, uint32_t *id)
{
    char word[SAMPLER_REASON_MAX];

    say_reason(stacks, record, word);
    return name_word(stacks, word, id);
}

/* ---- stacks that come again ---- */

static uint64_t hash_record(const struct kernel_record *record, uint32_t reason,
                            const struct task_key *task)
{
    uint64_t hash =
        hash_add(hash_add(task->name, task->task), (uint64_t)record->flags << 32 | reason);

    for (uint32_t i = 0; i < record->n; i++)
        hash = hash_add(hash_add(hash, record->frames[i].code), record->frames[i].at);
    return hash;
}

static bool is_known(const struct known_stack *known, const struct kernel_record *record,
                     uint32_t reason, const struct task_key *task)
{
    return known->n && !memcmp(&known->task, task, sizeof *task) && known->reason == reason &&
           known->flags == record->flags && known->nframes == record->n &&
           (!record->n ||
            !memcmp(known->frames, record->frames, record->n * sizeof *record->frames)) &&
           monotonic_ns() < known->until;
}

/* Takes a stack in, in the place of another one. Not if there is no memory. */
static void know(struct known_stack *known, const struct kernel_record *record, uint32_t reason,
                 const struct task_key *task, const uint32_t *ids, size_t n, uint64_t until)
{
    known->n = 0;
    if (!n || ARRAY_GROW(known->frames, known->frames_alloc, record->n) < 0 ||
        ARRAY_GROW(known->ids, known->ids_alloc, n) < 0)
        return;
    if (record->n)
        memcpy(known->frames, record->frames, record->n * sizeof *record->frames);
    memcpy(known->ids, ids, n * sizeof *ids);
    known->nframes = record->n;
    known->reason = reason;
    known->flags = record->flags;
    known->task = *task;
    known->n = n;
    known->until = until;
    known->place = (struct store_place){0};
}

/* ---- the whole ---- */

/* Fills s->ids from its end. *until: when the Python frames are to be looked up again. *task_at:
 * where the frame of the running task's coroutine is; 0: no task. */
static ssize_t name_all(struct stacks *s, const struct kernel_record *record,
                        const struct native_copy *native, uint32_t reason, uint64_t *until,
                        size_t *task_at)
{
    enum native_end end;
    size_t n, ngroups, task, at = STACKS_IDS_MAX;

    *task_at = 0;
    int r = name_python(s, record, &n, &ngroups, &task, until);
    if (r < 0)
        return r;
    if (reason != NO_REASON)
        s->ids[--at] = reason;
    size_t nnative = unwind_copy(s, record, native, ngroups, &end);
    size_t nitems = nnative ? merge_stacks(s->frames, nnative, end, s->groups, ngroups, s->items)
                            : n;
    for (size_t i = 0; i < nitems && r == 0; i++) {
        const struct merge_item item = nnative ? s->items[i]
                                               : (struct merge_item){MERGE_PYTHON, i, NULL};
        if (item.kind == MERGE_PYTHON && item.index < n) {
            s->ids[--at] = s->python[item.index];
            if (item.index == task)
                *task_at = at;
        } else if (item.kind == MERGE_NATIVE)
            r = name_native(s, &s->frames[item.index], &s->ids[--at]);
    }
    if (record->flags & RECORD_UNREADABLE && r == 0)
        r = name_word(s, "[paged out]", &s->ids[--at]);
    else if (record->flags & RECORD_CUT && r == 0)
        r = name_word(s, "[deeper]", &s->ids[--at]);
    else if (!n && !nnative && at < STACKS_IDS_MAX)
        s->ids[--at] = STORE_NO_STACK;
    return r < 0 ? r : (ssize_t)(STACKS_IDS_MAX - at);
}

/* The task that runs; false: none. */
static bool find_task(const struct stacks *s, const struct kernel_record *record,
                      struct running_task *out)
{
    const struct kernel_task *task = task_of(record);

    if (!task || !s->tasks)
        return false;
    *out = (struct running_task){.task = task->task,
                                 .coro = task->coro,
                                 .awaiter = task->awaiter,
                                 .awaiter_coro = task->awaiter_coro,
                                 .name = task->name,
                                 .size = task->size};
    return true;
}

ssize_t stacks_resolve(struct stacks *s, const struct kernel_record *record,
                       const struct native_copy *native, const uint32_t **ids,
                       struct store_place **place)
{
    uint32_t reason = NO_REASON;
    uint64_t until = UINT64_MAX;
    struct running_task task;
    struct task_key key = {0};
    size_t task_at;
    int r = 0;

    *place = NULL;
    if (record->kind == KERNEL_AWAY || record->kind == KERNEL_READY)
        r = stacks_reason(s, record, &reason);
    if (r < 0)
        return r;
    bool in_task = find_task(s, record, &task);
    if (in_task)
        sampler_tasks_key(s->tasks, &task, &key);
    struct known_stack *known = native ? NULL
                                       : &s->known[hash_record(record, reason, &key) & (KNOWN - 1)];
    if (known && is_known(known, record, reason, &key)) {
        *ids = known->ids;
        *place = &known->place;
        return (ssize_t)known->n;
    }
    ssize_t n = name_all(s, record, native, reason, &until, &task_at);
    if (n < 0)
        return n;
    *ids = s->ids + STACKS_IDS_MAX - n;
    if (in_task && task_at) {
        n = sampler_tasks_show(s->tasks, &task, *ids, (size_t)n,
                               task_at - (STACKS_IDS_MAX - (size_t)n), s->shown);
        if (n < 0)
            return n;
        *ids = s->shown;
    }
    if (known)
        know(known, record, reason, &key, *ids, (size_t)n, until);
    if (known && known->n)
        *place = &known->place;
    return n;
}
