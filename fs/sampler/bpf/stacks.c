#include "fs/sampler/bpf/stacks.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/proc/lwp.h"
#include "fs/remote/memory/bytes.h"
#include "fs/remote/moment/merge.h"
#include "fs/remote/native/unwind.h"
#include "fs/sampler/reason.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define MAPS_NS 1000000000u /* new mappings are looked for so often at most */
#define GROUPS_MAX (KERNEL_FRAMES_MAX + 1)
#define PC_CACHE 4096 /* entries; a power of two */

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
                       size_t *ngroups, size_t *task)
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
        int r =
            sampler_names_python(s->names, code, lasti, f->code & FRAME_GENERATOR, &s->python[*n]);
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
                          const struct kernel_native *native, size_t ngroups, enum native_end *end)
{
    struct user_regs_struct user = {0};
    struct native_regs regs = {0};
    size_t n = 0;

    *end = NATIVE_UNREADABLE;
    if (!native || !look_at_maps(s))
        return 0;
    memcpy(&user, native->regs, sizeof native->regs); /* it begins as struct pt_regs does */
    native_regs_set(&regs, &user);
    struct stack_copy copy = {.low = user.rsp,
                              .high = user.rsp + native->size,
                              .data = native->stack,
                              .cut = native->size > KERNEL_STACK_MAX - KERNEL_STACK_STEP};
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

/* ---- the whole ---- */

/* The frames from `at` on, of which the task's is at task_at. */
static ssize_t show_task(struct stacks *s, const struct kernel_task *task, size_t at,
                         size_t task_at, const uint32_t **ids)
{
    const struct running_task running = {
        .task = task->task, .coro = task->coro, .name = task->name, .size = task->size};
    ssize_t n = sampler_tasks_show(s->tasks, &running, s->ids + at, STACKS_IDS_MAX - at,
                                   task_at - at, s->shown);

    *ids = s->shown;
    return n;
}

ssize_t stacks_resolve(struct stacks *s, const struct kernel_record *record,
                       const struct kernel_native *native, const uint32_t **ids)
{
    enum native_end end;
    size_t n, ngroups, task, task_at = 0, at = STACKS_IDS_MAX;

    int r = name_python(s, record, &n, &ngroups, &task);
    if (r < 0)
        return r;
    if (record->kind == KERNEL_AWAY || record->kind == KERNEL_READY)
        r = stacks_reason(s, record, &s->ids[--at]);
    size_t nnative = unwind_copy(s, record, native, ngroups, &end);
    size_t nitems = nnative ? merge_stacks(s->frames, nnative, end, s->groups, ngroups, s->items)
                            : n;
    for (size_t i = 0; i < nitems && r == 0; i++) {
        const struct merge_item item = nnative ? s->items[i]
                                               : (struct merge_item){MERGE_PYTHON, i, NULL};
        if (item.kind == MERGE_PYTHON && item.index < n) {
            s->ids[--at] = s->python[item.index];
            if (item.index == task)
                task_at = at;
        } else if (item.kind == MERGE_NATIVE)
            r = name_native(s, &s->frames[item.index], &s->ids[--at]);
    }
    if (record->flags & RECORD_UNREADABLE && r == 0)
        r = name_word(s, "[paged out]", &s->ids[--at]);
    else if (record->flags & RECORD_CUT && r == 0)
        r = name_word(s, "[deeper]", &s->ids[--at]);
    else if (!n && !nnative && at < STACKS_IDS_MAX)
        s->ids[--at] = STORE_NO_STACK;
    if (r == 0 && task_at && s->tasks)
        return show_task(s, task_of(record), at, task_at, ids);
    *ids = s->ids + at;
    return r < 0 ? r : (ssize_t)(STACKS_IDS_MAX - at);
}
