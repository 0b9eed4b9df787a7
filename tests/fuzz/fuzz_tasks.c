/* asyncio's tasks in a damaged or hostile process: a small one that is right (asyncio_world.h), and
 * the input's records that overwrite pieces of it, or the offsets that the target tells. */
#include "fs/format/tasks.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/asyncio_world.h"

static struct world world;

/* One record: where, and what goes there: a pointer into the process, a number, a byte, or any
 * eight bytes. Returns the bytes used, 0 at the end. */
static size_t apply_record(const uint8_t *p, size_t size)
{
    if (size < 5)
        return 0;
    uint64_t at = WORLD_BASE + load16(p + 1) % (WORLD_SIZE / 8) * 8;
    uint16_t value = load16(p + 3);
    switch (p[0] % 4) {
    case 0: world_put(&world, at, WORLD_BASE + value % (WORLD_SIZE / 8) * 8); return 5;
    case 1: world_put(&world, at, value); return 5;
    case 2: world.bytes[at - WORLD_BASE + (p[0] >> 2 & 7)] = (uint8_t)value; return 5;
    default:
        if (size < 11)
            return 0;
        world_put(&world, at, load64(p + 3));
        return 11;
    }
}

static void check(const struct tasks *tasks)
{
    if (tasks->n > TASKS_MAX || tasks->nedges > TASKS_EDGES_MAX ||
        tasks->nframes > TASKS_FRAMES_TOTAL || tasks->nloops > TASK_LOOPS_MAX)
        abort();
    for (size_t i = 0; i < tasks->n; i++) {
        const struct task *task = &tasks->items[i];
        if (task->nframes > TASK_FRAMES_MAX || task->awaiting + task->nawaiting > tasks->nedges ||
            (task->loop != TASKS_NONE && task->loop >= tasks->nloops))
            abort();
    }
    for (size_t i = 0; i < tasks->nedges; i++)
        if (tasks->edges[i].task >= tasks->n || tasks->edges[i].awaiter >= tasks->n)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t versions[] = {0x030c0000, 0x030d0000, 0x030e0000, 0x030f0000};
    static struct world fresh[4];
    static struct tasks tasks;
    struct code_cache *codes;
    struct text text = TEXT_INIT;

    if (!size)
        return 0;
    uint8_t choice = *data++;
    size--;
    if (!fresh[choice & 3].used)
        world_make(&fresh[choice & 3], versions[choice & 3]);
    world = fresh[choice & 3];
    world.stack.frames = world.frames; /* the copy's own */
    world.walk.stacks = &world.stack;
    world.image.data = world.bytes;
    world.memory.image = &world.image;
    if (choice & 4 && size >= ASYNCIO_DEBUG_SIZE) {
        (void)asyncio_parse_debug(data, 16, &world.asyncio);
        data += ASYNCIO_DEBUG_SIZE;
        size -= ASYNCIO_DEBUG_SIZE;
    }
    for (size_t used; (used = apply_record(data, size)); data += used, size -= used)
        ;
    if (code_cache_new(&codes) < 0 || world_read(&world, codes, &tasks) < 0 ||
        tasks_tree_add(&tasks, &text) < 0)
        abort();
    check(&tasks);
    text_deinit(&text);
    code_cache_free(codes);
    return 0;
}
