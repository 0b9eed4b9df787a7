/* Registers, a stack and a module's image, all of them hostile: ELF headers, .eh_frame and its
 * expressions, dynamic symbols, the code that is measured.
 *
 * Input: rip, known registers, stack size (4 bytes each), the stack, the image. */
#include "fs/remote/native/unwind.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE 0x400000ull
#define STACK 0x7f0000000000ull
#define HEAD 12
#define FRAMES 64

static void check(const struct native_frame *frames, size_t n, enum native_end end)
{
    if (n > FRAMES || !end || (end != NATIVE_BASE && !native_end_describe(end)))
        abort();
    for (size_t i = 0; i + 1 < n; i++)
        if (!frames[i].cfa)
            abort(); /* only the last one's end may be unknown */
}

static int map_image(size_t size, struct maps *maps)
{
    char *text = NULL;
    int n = asprintf(&text, "%llx-%llx r-xp 00000000 08:01 1 /lib/a.so (deleted)\n", BASE,
                     BASE + ((size + 4095) & ~4095ull));
    return n < 0 ? n : maps_parse(text, (size_t)n, maps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    size_t stack_size = load32(data + 8) % 65536 & ~7u;
    if (size - HEAD < stack_size || size - HEAD == stack_size)
        return 0;
    struct memory_image image = {.base = BASE,
                                 .data = data + HEAD + stack_size,
                                 .size = size - HEAD - stack_size};
    struct memory memory = {.image = &image};
    struct stack_copy copy = {.low = STACK, .high = STACK + stack_size, .data = data + HEAD};
    struct native_regs regs = {.known = load32(data + 4)};
    struct native_frame frames[FRAMES];
    static struct unwinder u; /* large */
    struct maps maps;
    size_t n = 0;

    if (map_image(image.size, &maps) < 0)
        return 0;
    for (unsigned i = 0; i < REGS_N; i++)
        regs.value[i] = STACK + stack_size / 2;
    regs_put(&regs, DW_SP, STACK);
    regs_put(&regs, DW_PC, BASE + load32(data));
    unwinder_init(&u, &memory);
    if (unwinder_refresh(&u, &maps, BASE) == 0) {
        enum native_end end = unwind(&u, &copy, &regs, frames, FRAMES, &n);
        check(frames, n, end);
        for (size_t i = 0; i < n; i++)
            unwinder_name(&u, frames[i].pc, frames[i].exact);
    }
    unwinder_deinit(&u);
    maps_deinit(&maps);
    return 0;
}
