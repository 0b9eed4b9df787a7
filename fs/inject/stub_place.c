#include "fs/inject/stub_place.h"

#include "fs/inject/inject_abi.h"
#include "fs/inject/libc_symbols.h"

#include <errno.h>
#include <string.h>

#define STEP 64
#define STUB_MAX 1024
#define PADDING_MAX ARCH_PAGE_MAX

/* How much of the stub lies at `at`, where the rest is zero: one that was killed while it wrote
 * leaves a beginning. -1: something else lies there. */
static ssize_t written(const uint8_t *at)
{
    size_t size = (size_t)(bootstrap_end - bootstrap_begin), same = 0;

    while (same < size && at[same] == bootstrap_begin[same])
        same++;
    for (size_t i = same; i < size; i++)
        if (at[i] && at[i] != bootstrap_begin[i])
            return -1;
    return (ssize_t)same;
}

bool stub_place_check(const struct memory *memory, uint64_t addr, bool *there)
{
    uint8_t code[STUB_MAX];
    size_t size = (size_t)(bootstrap_end - bootstrap_begin);

    if (size > sizeof code || memory_read(memory, addr, code, size) < 0)
        return false;
    ssize_t n = written(code);
    *there = (size_t)n == size;
    return n >= 0;
}

static int find_in(const struct modules *modules, const struct module *module, uint64_t *addr,
                   bool *there)
{
    size_t size = (size_t)(bootstrap_end - bootstrap_begin);
    uint8_t padding[PADDING_MAX];
    uint64_t end;

    if (module->state != MODULE_READ ||
        elf_image_code_end(modules->memory, &module->image, &end) < 0 || end <= module->start ||
        end > module->end || module->end - end > sizeof padding)
        return -ENOSPC;
    int r = memory_read(modules->memory, end, padding, module->end - end);
    if (r < 0)
        return r == -EFAULT ? -ENOSPC : r;
    for (uint64_t at = (end + STEP - 1) & ~(uint64_t)(STEP - 1); at + size <= module->end;
         at += STEP) {
        ssize_t n = written(padding + (at - end));
        if (n < 0)
            continue;
        *addr = at;
        *there = (size_t)n == size;
        return 0;
    }
    return -ENOSPC;
}

int stub_place_find(struct modules *modules, uint64_t *addr, bool *there)
{
    int r = -ENOSPC;

    /* libc is never unloaded, and neither is what a process starts with */
    for (size_t i = 0; i < modules->n && r == -ENOSPC; i++)
        if (libc_is_library(&modules->items[i]))
            r = find_in(modules, modules_find(modules, modules->items[i].start), addr, there);
    for (size_t i = 0; i < modules->n && r == -ENOSPC; i++)
        if (libc_is_loader(&modules->items[i]) || !strncmp(modules->items[i].name, "libpython", 9))
            r = find_in(modules, modules_find(modules, modules->items[i].start), addr, there);
    return r;
}
