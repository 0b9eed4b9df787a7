#include "fs/remote/tasks/asyncio.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/elf.h"
#include "fs/remote/memory/elf_file.h"
#include "fs/remote/native/symbols.h"

#include <errno.h>
#include <string.h>

#define SECTION ".AsyncioDebug"

#define TASK_SIZE_MAX 1024
#define TSTATE_SIZE_MAX (1u << 16)
#define INTERP_SIZE_MAX (1u << 24)

/* clang-format off */
static const struct asyncio layout_3_12 = {
    .known = true, .task_size = 176,
    .loop = 16, .callback0 = 24, .callbacks = 40, .state = 88,
    .awaited_by = -1, .awaited_by_is_set = -1,
    .waiter = 128, .coro = 136, .name = 144, .node = -1,
    .must_cancel = 160, .must_cancel_bit = 0, .cancels = 168,
    .tstate_loop = -1, .tstate_task = -1, .tstate_tasks = -1, .interp_tasks = -1,
};
static const struct asyncio layout_3_13 = {
    .known = true, .task_size = 144,
    .loop = 16, .callback0 = 24, .callbacks = 40, .state = 96,
    .awaited_by = -1, .awaited_by_is_set = -1,
    .waiter = 112, .coro = 120, .name = 128, .node = -1,
    .must_cancel = 100, .must_cancel_bit = 2, .cancels = 104,
    .tstate_loop = -1, .tstate_task = -1, .tstate_tasks = -1, .interp_tasks = -1,
};
/* clang-format on */

/* clang-format off */
enum {
    TASK_SIZE, TASK_NAME, TASK_AWAITED_BY, TASK_IS_TASK, TASK_AWAITED_BY_IS_SET, TASK_CORO,
    TASK_NODE, INTERP_SIZE, INTERP_TASKS, TSTATE_SIZE, TSTATE_LOOP, TSTATE_TASK, TSTATE_TASKS,
    WORDS,
};
/* clang-format on */
_Static_assert(WORDS * 8 == ASYNCIO_DEBUG_SIZE, "one constant a word");

/* Whether [offset, offset + len) lies in a structure, behind the head of an object. */
static bool inside(uint64_t offset, uint64_t len, uint64_t size)
{
    return offset >= 16 && offset <= size && len <= size - offset;
}

int asyncio_parse_debug(const uint8_t *bytes, int32_t head, struct asyncio *out)
{
    uint64_t w[WORDS];

    for (size_t i = 0; i < WORDS; i++)
        w[i] = load64(bytes + 8 * i);
    if (w[TASK_SIZE] > TASK_SIZE_MAX || w[INTERP_SIZE] > INTERP_SIZE_MAX ||
        w[TSTATE_SIZE] > TSTATE_SIZE_MAX || !inside(w[TASK_NAME], 8, w[TASK_SIZE]) ||
        !inside(w[TASK_AWAITED_BY], 16, w[TASK_SIZE]) || w[TASK_AWAITED_BY] < 80 ||
        !inside(w[TASK_IS_TASK], 1, w[TASK_SIZE]) ||
        !inside(w[TASK_AWAITED_BY_IS_SET], 2, w[TASK_SIZE]) ||
        !inside(w[TASK_CORO], 8, w[TASK_SIZE]) || w[TASK_CORO] < 32 ||
        !inside(w[TASK_NODE], 16, w[TASK_SIZE]) || !inside(w[INTERP_TASKS], 16, w[INTERP_SIZE]) ||
        !inside(w[TSTATE_LOOP], 8, w[TSTATE_SIZE]) || !inside(w[TSTATE_TASK], 8, w[TSTATE_SIZE]) ||
        !inside(w[TSTATE_TASKS], 16, w[TSTATE_SIZE]))
        return -EINVAL;
    /* what the section leaves out stands beside what it names, in 3.14 and 3.15 alike */
    *out = (struct asyncio){
        .known = true,
        .task_size = (int32_t)w[TASK_SIZE],
        .loop = head,
        .callback0 = head + 8,
        .callbacks = head + 24,
        .state = (int32_t)w[TASK_AWAITED_BY] + 8,
        .awaited_by = (int32_t)w[TASK_AWAITED_BY],
        .awaited_by_is_set = (int32_t)w[TASK_AWAITED_BY_IS_SET],
        .waiter = (int32_t)w[TASK_CORO] - 8,
        .coro = (int32_t)w[TASK_CORO],
        .name = (int32_t)w[TASK_NAME],
        .node = (int32_t)w[TASK_NODE],
        .must_cancel = (int32_t)w[TASK_AWAITED_BY_IS_SET] + 1,
        .must_cancel_bit = 2,
        .cancels = (int32_t)w[TASK_CORO] - 16,
        .tstate_loop = (int32_t)w[TSTATE_LOOP],
        .tstate_task = (int32_t)w[TSTATE_TASK],
        .tstate_tasks = (int32_t)w[TSTATE_TASKS],
        .interp_tasks = (int32_t)w[INTERP_TASKS],
    };
    return 0;
}

/* Reads the section of the image that begins with this mapping. -ENOENT: it has none. */
static int read_section(const struct memory *memory, const struct mapping *mapping, int32_t head,
                        struct asyncio *out)
{
    uint8_t bytes[ASYNCIO_DEBUG_SIZE];
    struct elf_image image;
    uint64_t addr, size;

    int r = elf_image_read(memory, mapping->start, &image);
    if (r < 0)
        return r == -ENOEXEC || r == -EFAULT ? -ENOENT : r;
    r = elf_image_symbol(memory, &image, "_AsyncioDebug", &addr, &size);
    if (r < 0) { /* not exported: the file tells */
        _cleanup_close_ int fd = symbols_open(memory, mapping, &image);
        if (fd < 0)
            return -EOPNOTSUPP;
        r = elf_file_section(fd, SECTION, &addr, &size);
        if (r < 0)
            return r == -ENOMEM || r == -ENOENT ? r : -EOPNOTSUPP;
        addr += image.bias;
    }
    if (size < sizeof bytes)
        return -EOPNOTSUPP;
    r = memory_read(memory, addr, bytes, sizeof bytes);
    if (r == 0)
        r = asyncio_parse_debug(bytes, head, out);
    return r == -EFAULT || r == -EINVAL ? -EOPNOTSUPP : r;
}

static bool is_asyncio_path(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && !strncmp(name, "/_asyncio", 9);
}

/* Finds the section: in the image of the interpreter where that has _asyncio built in, else in a
 * library of that name, which is there once asyncio has been imported. */
static int find_section(const struct memory *memory, const struct maps *maps,
                        const struct runtime *runtime, struct asyncio *out)
{
    int result = 0;

    for (size_t i = 0; i < maps->n; i++) {
        const struct mapping *m = &maps->items[i];
        if (!m->inode || m->offset || !m->readable)
            continue;
        if (m->start != runtime->image_base && !is_asyncio_path(m->path))
            continue;
        int r = read_section(memory, m, runtime->offsets.object_size, out);
        if (r == 0 || r == -ESRCH || r == -EPERM || r == -ENOMEM)
            return r;
        if (r == -EOPNOTSUPP)
            result = r; /* unless another one has it */
    }
    return result;
}

/* The layout of 3.13 where the head of an object is larger. */
static struct asyncio layout_behind(int32_t more)
{
    struct asyncio found = layout_3_13;
    int32_t *const fields[] = {&found.task_size, &found.loop,  &found.callback0,
                               &found.callbacks, &found.state, &found.waiter,
                               &found.coro,      &found.name,  &found.must_cancel,
                               &found.cancels};

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        *fields[i] += more;
    return found;
}

int asyncio_find(const struct memory *memory, const struct maps *maps,
                 const struct runtime *runtime, struct asyncio *out)
{
    struct asyncio found = {0};

    if (runtime->version < 0x030c0000)
        return -EOPNOTSUPP;
    if (runtime->version < 0x030d0000) {
        found = layout_3_12;
    } else if (runtime->version < 0x030e0000) {
        found = layout_behind(runtime->offsets.object_size - 16);
    } else {
        int r = find_section(memory, maps, runtime, &found);
        if (r < 0)
            return r;
    }
    *out = found;
    return 0;
}

int asyncio_find_running(const struct memory *memory, const struct maps *maps,
                         const struct runtime *runtime, struct asyncio *out)
{
    static const struct {
        uint32_t before;
        int32_t coro, name;
    } old[] = {{0x030a0000, 152, 160}, {0x030b0000, 160, 168}, {0x030c0000, 136, 144}};
    struct asyncio found;

    for (size_t i = 0; i < ARRAY_SIZE(old); i++)
        if (runtime->version < old[i].before) {
            memset(&found, -1, sizeof found);
            found.known = true;
            found.loop = 16;
            found.coro = old[i].coro;
            found.name = old[i].name;
            *out = found;
            return runtime->version < 0x03090000 ? -EOPNOTSUPP : 0;
        }
    return asyncio_find(memory, maps, runtime, out);
}
