/* The walk over interpreters, threads, frames and code objects of a damaged or hostile target.
 *
 * The target is an address space of half a MiB, zero but for what the input's records put there, so
 * that a pointer to something that exists is as easy to make as one that leads nowhere. */
#include "fs/remote/frames/frames.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define BASE 0x7f0000000000u
#define WORDS 65536

static uint64_t image[WORDS];

/* One record: a word's number, and what goes there: a pointer to another word, a number, or any
 * eight bytes. Returns the bytes used, 0 at the end. */
static size_t apply_record(const uint8_t *p, size_t size, uint16_t *word)
{
    if (size < 5)
        return 0;
    memcpy(word, p + 1, 2);
    switch (p[0] % 4) {
    case 0: image[*word] = BASE + 8 * (uint64_t)load16(p + 3); return 5;
    case 1: image[*word] = load16(p + 3); return 5;
    case 2: image[*word] = (uint64_t)load16(p + 3) << 32 | load16(p + 3); return 5;
    default:
        if (size < 11)
            return 0;
        image[*word] = load64(p + 3);
        return 11;
    }
}

static void check(const struct walk *walk)
{
    size_t frames = 0;

    if (walk->n > WALK_THREADS_MAX || walk->interpreters > WALK_INTERPRETERS_MAX)
        abort();
    for (size_t i = 0; i < walk->n; i++) {
        const struct stack *stack = &walk->stacks[i];
        if (stack->n > WALK_FRAMES_MAX)
            abort();
        for (size_t j = 0; j < stack->n; j++) {
            const struct code *code = stack->frames[j].info;
            if (code && code->state == CODE_LOADED) {
                linetable_line(&code->lines, stack->frames[j].lasti);
                if (strlen(code->name) > 10 * CODE_NAME_MAX ||
                    strlen(code->file) > 10 * CODE_NAME_MAX)
                    abort();
            }
        }
        for (size_t j = 0; j < stack->nanchors; j++)
            if (stack->anchors[j].end > stack->n)
                abort();
        frames += stack->n;
    }
    if (frames > WALK_FRAMES_TOTAL)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t versions[] = {0x03090000, 0x030a0000, 0x030b0000, 0x030c0000,
                                        0x030d0000, 0x030e0000, 0x030f0000, 0x03080000};
    struct memory_image synthetic = {.base = BASE, .data = (uint8_t *)image, .size = sizeof image};
    struct memory memory = {.image = &synthetic};
    struct runtime runtime = {.addr = BASE, .image_base = BASE, .supported = true};
    struct code_cache *codes = NULL;
    struct view *view = NULL;
    struct walk walk = {0};
    uint16_t word;

    if (!size)
        return 0;
    runtime.version = versions[data[0] & 7];
    bool free_threaded = data[0] & 8 && runtime.version >= 0x030d0000;
    if (!offsets_for_build(runtime.version, free_threaded, &runtime.offsets))
        abort();

    memset(image, 0, sizeof image);
    for (size_t at = 1, used; (used = apply_record(data + at, size - at, &word)); at += used)
        ;
    if (view_new(&memory, &view) < 0 || code_cache_new(&codes) < 0)
        abort();
    for (int again = 0; again < 2; again++) { /* the second time from the caches */
        if (walk_run(&walk, view, &runtime, codes) == 0 &&
            code_cache_load(codes, &memory, &runtime.offsets) == 0)
            check(&walk);
        for (size_t i = 0; i < walk.n && i < 4; i++) { /* one by one, as without a GIL */
            view_reset(view);
            if (walk_again(&walk, i, view, &runtime, codes) < 0)
                break;
        }
        if (view_refresh(view) < 0)
            abort();
    }
    walk_deinit(&walk);
    code_cache_free(codes);
    view_free(view);
    return 0;
}
