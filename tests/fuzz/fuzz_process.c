/* Processes as they were once (images/), damaged as the input says: the walk, values, with blocks,
 * tasks and who waits for whom end soon, in a text of bounded size. The first byte chooses the
 * image; each record after it overwrites a byte, a word, or a word with an address or what another
 * one has. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/process_image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD 7
#define RECORDS_MAX 64
#define TEXT_MAX (64u << 20)

struct image {
    struct image_head head;
    struct image_thread threads[IMAGE_THREADS_MAX];
    struct image_piece pieces[IMAGE_PIECES_MAX];
    uint64_t offsets[IMAGE_PIECES_MAX]; /* of each piece's bytes */
    uint8_t bytes[IMAGE_BYTES_MAX];
};

static const unsigned minors[] = {10, 11, 13, 15};
#define IMAGES (sizeof minors / sizeof *minors)

static struct image images[IMAGES], *image;
static uint8_t memory[IMAGE_BYTES_MAX]; /* of `image`, damaged */

static void expect(bool right)
{
    if (!right)
        abort();
}

static void load(unsigned minor, struct image *out)
{
    char path[sizeof IMAGES_DIRECTORY + 16];

    snprintf(path, sizeof path, "%s/3.%u", IMAGES_DIRECTORY, minor);
    FILE *file = fopen(path, "r");
    expect(file && fread(&out->head, sizeof out->head, 1, file) == 1);
    const struct image_head *head = &out->head;
    expect(head->threads <= IMAGE_THREADS_MAX && head->pieces <= IMAGE_PIECES_MAX &&
           head->bytes <= IMAGE_BYTES_MAX);
    expect(fread(out->threads, sizeof *out->threads, head->threads, file) == head->threads &&
           fread(out->pieces, sizeof *out->pieces, head->pieces, file) == head->pieces &&
           fread(out->bytes, 1, head->bytes, file) == head->bytes);
    fclose(file);
    for (size_t i = 1; i < head->pieces; i++)
        out->offsets[i] = out->offsets[i - 1] + out->pieces[i - 1].size;
}

static bool copy(uint64_t addr, uint8_t *to, size_t size)
{
    size_t low = 0, high = image->head.pieces;

    while (low < high) { /* the first piece that begins behind addr */
        size_t mid = low + (high - low) / 2;
        if (image->pieces[mid].addr <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low)
        return false;
    const struct image_piece *piece = &image->pieces[low - 1];
    uint64_t offset = addr - piece->addr;
    if (offset > piece->size || size > piece->size - offset)
        return false;
    memcpy(to, memory + image->offsets[low - 1] + offset, size);
    return true;
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                                const struct iovec *remote, unsigned long nremote,
                                unsigned long flags)
{
    ssize_t got = 0;

    for (unsigned long i = 0; i < nlocal; i++) {
        if (!copy((uint64_t)(uintptr_t)remote[i].iov_base, local[i].iov_base, local[i].iov_len)) {
            errno = EFAULT;
            return got ? got : -1;
        }
        got += (ssize_t)local[i].iov_len;
    }
    return got;
}

static uint64_t address_of(uint64_t offset)
{
    for (size_t i = 0; i < image->head.pieces; offset -= image->pieces[i++].size)
        if (offset < image->pieces[i].size)
            return image->pieces[i].addr + offset;
    abort();
}

static void damage(const uint8_t *record)
{
    uint64_t words = image->head.bytes / 8;
    uint64_t at = (load16(record + 1) % words) * 8, value = load32(record + 3);

    switch (record[0] & 7) {
    case 0: memory[at + (record[0] >> 3 & 7)] = (uint8_t)value; return;
    case 1: value = (uint64_t)(int64_t)(int32_t)value; break;
    case 2: value = address_of(value % words * 8); break;
    case 3: value = load64(memory + value % words * 8); break;
    case 4: value = UINT64_C(1) << (value & 63); break;
    case 5: value = load64(memory + at) + (uint64_t)(int64_t)(int8_t)record[3]; break;
    case 6: value = load64(memory + at) & (UINT64_MAX << 32 | value); break;
    case 7: value = load64(memory + at) | UINT64_C(1) << (value & 63); break;
    }
    memcpy(memory + at, &value, sizeof value);
}

static void set_threads(struct lwp_list *list, struct lwp *items)
{
    list->items = items;
    list->n = image->head.threads;
    for (size_t i = 0; i < list->n; i++) {
        const struct image_thread *thread = &image->threads[i];
        char line[128];
        items[i] = (struct lwp){.tid = (pid_t)thread->tid,
                                .inner_tid = (pid_t)thread->tid,
                                .state = (char)thread->state,
                                .syscall = (int)thread->syscall};
        memcpy(items[i].args, thread->args, sizeof items[i].args);
        snprintf(line, sizeof line, "%d 0x%lx 0x%lx 0x%lx 0x%lx 0x0 0x0", (int)thread->syscall,
                 thread->args[0], thread->args[1], thread->args[2], thread->args[3]);
        (void)blocking_parse(line, &items[i].blocking);
    }
}

static void set_process(struct process *process, struct lwp *lwps)
{
    struct target *target = &process->target;
    const struct maps none = {0};

    target->pid = target->memory.pid = 1;
    target->runtime = (struct runtime){
        .addr = image->head.runtime,
        .image_base = image->head.image_base,
        .code_type = image->head.code_type,
        .version = (uint32_t)image->head.version,
        .supported = true,
    };
    expect(offsets_for_version(target->runtime.version, &target->runtime.offsets));
    if (target->runtime.version < 0x030e0000)
        (void)asyncio_find(&target->memory, &none, &target->runtime, &process->asyncio);
    else
        (void)asyncio_parse_debug((const uint8_t *)image->head.asyncio, 16, &process->asyncio);
    set_threads(&process->lwps, lwps);
    expect(view_new(&target->memory, &target->view) == 0 && code_cache_new(&target->codes) == 0);
}

static ssize_t look(void)
{
    struct process process = {0};
    struct lwp lwps[IMAGE_THREADS_MAX];

    set_process(&process, lwps);
    ssize_t size = process_look(&process);
    code_cache_free(process.target.codes);
    view_free(process.target.view);
    walk_deinit(&process.target.walk);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    unsigned which = data[0] % IMAGES;
    bool first = !images[which].head.version;
    if (first)
        load(minors[which], &images[which]);
    image = &images[which];
    memcpy(memory, image->bytes, image->head.bytes);
    if (first) /* as it was recorded it is all there */
        expect(look() > 0);
    for (size_t i = 1, n = 0; i + RECORD <= size && n < RECORDS_MAX; i += RECORD, n++)
        damage(data + i);
    expect(look() <= (ssize_t)TEXT_MAX);
    return 0;
}
