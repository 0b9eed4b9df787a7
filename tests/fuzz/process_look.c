#include "tests/fuzz/process_image.h"

#include "agent/base/cleanup.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/waits/lock.h"

#include <errno.h>

#define FRAMES_MAX 2  /* whose variables are shown, of one thread */
#define VALUES_MAX 24 /* in all */

struct looking {
    struct process *process;
    struct lock_cache classes;
    struct text text;
    unsigned left; /* values */
    uint32_t entries;
};

static int add_value(struct looking *looking, uint64_t reference)
{
    struct target *target = &looking->process->target;

    if (!looking->left)
        return 1;
    looking->left--;
    (void)value_add_stackref(target->view, &target->runtime.offsets, reference, &looking->text);
    return 0;
}

static int add_local(void *arg, const struct local *local)
{
    struct looking *looking = arg;
    struct target *target = &looking->process->target;

    if (local->name)
        (void)str_decode(target->view, &target->runtime.offsets, local->name, 64, &looking->text);
    return add_value(looking, local->reference);
}

static int add_manager(void *arg, uint64_t manager, bool async, int32_t at)
{
    struct looking *looking = arg;
    struct target *target = &looking->process->target;
    enum lock_class class =
        lock_classify(target->view, &target->runtime.offsets, &looking->classes, manager);

    text_puts(&looking->text, class == LOCK_NONE ? "" : lock_class_name(class));
    return add_value(looking, manager & ~7ull);
}

static void look_at_frame(struct looking *looking, const struct raw_frame *frame)
{
    struct target *target = &looking->process->target;
    const struct offsets *offsets = &target->runtime.offsets;

    if (frame->info && frame->info->state == CODE_LOADED)
        text_printf(&looking->text, "%s %s:%d\n", frame->info->name, frame->info->file,
                    linetable_position(&frame->info->lines, frame->lasti).line);
    (void)locals_iterate(target->view, offsets, frame->addr, frame->code, add_local, looking);
    (void)with_blocks_iterate(target->view, offsets, frame, &looking->entries, add_manager,
                              looking);
}

static int skip(void *arg, const struct semlock *lock, pid_t tid, struct code *code, int32_t at)
{
    return 0;
}

/* Who waits for whom, of threads and tasks. */
static int look_at_waits(struct process *process)
{
    struct target *target = &process->target;
    const struct tasks_origin of_tasks = {&target->runtime, &process->asyncio, target->codes,
                                          &target->walk};
    _cleanup_(tasks_deinit) struct tasks tasks = {0};
    _cleanup_(waits_deinit) struct waits waits = {0};
    const struct waits_origin origin = {target, &target->walk, &process->lwps,
                                        process->asyncio.known ? &tasks : NULL};
    int r = origin.tasks ? tasks_read(target->view, &of_tasks, &tasks) : 0;

    if (r == 0)
        r = waits_read(&origin, &waits);
    if (r == 0)
        r = waits_each_semlock(&origin, skip, NULL);
    if (r == 0 && origin.tasks)
        r = tasks_finish(&tasks, target->codes, &target->memory, &target->runtime.offsets);
    if (r == 0 && origin.tasks)
        r = waits_note_tasks(&waits, &tasks);
    return r == 0 ? waits_finish(&waits) : r;
}

ssize_t process_look(struct process *process)
{
    struct target *target = &process->target;
    struct looking looking = {.process = process, .left = VALUES_MAX, .entries = WITH_ENTRIES_MAX};

    int r = walk_run(&target->walk, target->view, &target->runtime, target->codes);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    for (size_t i = 0; r == 0 && i < target->walk.n; i++)
        target->walk.stacks[i].tid = moment_tid(target, &process->lwps, &target->walk.stacks[i]);
    if (r == 0)
        r = look_at_waits(process);
    for (size_t i = 0; r == 0 && i < target->walk.n; i++)
        for (size_t k = 0; k < target->walk.stacks[i].n && k < FRAMES_MAX; k++)
            look_at_frame(&looking, &target->walk.stacks[i].frames[k]);
    ssize_t size = (ssize_t)looking.text.size;
    text_deinit(&looking.text);
    return r < 0 ? r : size;
}
