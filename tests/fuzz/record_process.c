/* record_process PID FILE: writes what a reading copies of a process that stands still, for
 * fuzz_process.c. Victim: process.py. */
#include "tests/fuzz/process_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct image_piece pieces[IMAGE_PIECES_MAX];
static uint8_t *copies[IMAGE_PIECES_MAX];
static size_t npieces;
static bool records;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                                const struct iovec *remote, unsigned long nremote,
                                unsigned long flags);

static void keep(const struct iovec *remote, const void *data, size_t size)
{
    if (npieces == IMAGE_PIECES_MAX)
        abort();
    copies[npieces] = malloc(size);
    memcpy(copies[npieces], data, size);
    pieces[npieces++] = (struct image_piece){(uint64_t)(uintptr_t)remote->iov_base, size};
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                                const struct iovec *remote, unsigned long nremote,
                                unsigned long flags)
{
    ssize_t got = __real_process_vm_readv(pid, local, nlocal, remote, nremote, flags);
    size_t left = got < 0 ? 0 : (size_t)got;

    for (unsigned long i = 0; records && i < nlocal && left; i++) {
        size_t size = left < local[i].iov_len ? left : local[i].iov_len;
        keep(&remote[i], local[i].iov_base, size);
        left -= size;
    }
    return got;
}

static int by_address(const void *a, const void *b)
{
    const struct image_piece *x = &pieces[*(const size_t *)a], *y = &pieces[*(const size_t *)b];
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Ascending, with what overlaps or touches made one. Returns how many. */
static size_t merge(struct image_piece *out, uint8_t *bytes, uint64_t *nbytes)
{
    static size_t order[IMAGE_PIECES_MAX];
    size_t n = 0;

    for (size_t i = 0; i < npieces; i++)
        order[i] = i;
    qsort(order, npieces, sizeof *order, by_address);
    *nbytes = 0;
    for (size_t i = 0; i < npieces; i++) {
        const struct image_piece *p = &pieces[order[i]];
        if (!n || p->addr > out[n - 1].addr + out[n - 1].size)
            out[n++] = (struct image_piece){p->addr, 0};
        uint64_t had = out[n - 1].addr + out[n - 1].size - p->addr;
        if (had >= p->size)
            continue;
        if (*nbytes + p->size - had > IMAGE_BYTES_MAX)
            abort();
        memcpy(bytes + *nbytes, copies[order[i]] + had, p->size - had);
        *nbytes += p->size - had;
        out[n - 1].size += p->size - had;
    }
    return n;
}

/* Finds the layout of asyncio's tasks, and takes what the section that says it has. */
static void find_asyncio(struct process *process, uint64_t *words)
{
    struct target *target = &process->target;
    struct asyncio said;

    records = true;
    if (asyncio_find(&target->memory, &target->maps, &target->runtime, &process->asyncio) < 0)
        process->asyncio.known = false;
    for (size_t i = 0; i < npieces; i++)
        if (pieces[i].size == ASYNCIO_DEBUG_SIZE && asyncio_parse_debug(copies[i], 16, &said) == 0)
            memcpy(words, copies[i], ASYNCIO_DEBUG_SIZE);
    while (npieces) /* what else was read is of no use */
        free(copies[--npieces]);
}

static void write_all(const char *path, struct image_head *head, const struct lwp_list *lwps)
{
    static struct image_piece merged[IMAGE_PIECES_MAX];
    static uint8_t bytes[IMAGE_BYTES_MAX];
    FILE *file = fopen(path, "w");

    if (!file || lwps->n > IMAGE_THREADS_MAX)
        abort();
    head->threads = lwps->n;
    head->pieces = merge(merged, bytes, &head->bytes);
    fwrite(head, sizeof *head, 1, file);
    for (size_t i = 0; i < lwps->n; i++) {
        const struct lwp *lwp = &lwps->items[i];
        struct image_thread thread = {.tid = (uint64_t)lwp->tid,
                                      .state = (uint64_t)lwp->state,
                                      .syscall = (uint64_t)lwp->syscall};
        memcpy(thread.args, lwp->args, sizeof thread.args);
        fwrite(&thread, sizeof thread, 1, file);
    }
    fwrite(merged, sizeof *merged, head->pieces, file);
    fwrite(bytes, 1, head->bytes, file);
    if (fclose(file))
        abort();
}

int main(int argc, char **argv)
{
    struct process process = {0};
    struct target *target = &process.target;
    struct image_head head = {0};

    if (argc != 3) {
        fprintf(stderr, "usage: record_process PID FILE\n");
        return 2;
    }
    target->pid = target->memory.pid = atoi(argv[1]);
    if (maps_read(target->pid, &target->maps) < 0 ||
        runtime_find(&target->memory, &target->maps, &target->runtime) < 0 ||
        lwp_list_read(target->pid, LWP_SYSCALLS, &process.lwps) < 0 ||
        view_new(&target->memory, &target->view) < 0 || code_cache_new(&target->codes) < 0) {
        fprintf(stderr, "record_process: %s can't be read\n", argv[1]);
        return 1;
    }
    head.version = target->runtime.version;
    head.runtime = target->runtime.addr;
    head.image_base = target->runtime.image_base;
    head.code_type = target->runtime.code_type;
    find_asyncio(&process, head.asyncio);
    ssize_t size = process_look(&process);
    if (size <= 0) {
        fprintf(stderr, "record_process: %zd\n", size);
        return 1;
    }
    write_all(argv[2], &head, &process.lwps);
    printf("%lu pieces, %lu bytes, %zd characters\n", head.pieces, head.bytes, size);
    while (npieces)
        free(copies[--npieces]);
    code_cache_free(target->codes);
    view_free(target->view);
    walk_deinit(&target->walk);
    maps_deinit(&target->maps);
    lwp_list_deinit(&process.lwps);
    return 0;
}
