#include "fs/sql/heap.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>

#define CHARGES_BETWEEN_LOOKS 64

/* As errno belongs to a thread, and memory to a process: exceptions to "no
 * global mutable state". */
static _Thread_local struct heap *current;
static _Thread_local const struct stop *watched;
static _Thread_local unsigned asked;
static atomic_long total;

static bool is_time_to_stop(void)
{
    return watched && asked++ % CHARGES_BETWEEN_LOOKS == 0 && stop_reason(watched) < 0;
}

/* Counts `size` bytes; false: they are too many. */
static bool charge(long size)
{
    struct heap *heap = current;

    if (!heap)
        return true;
    long used = atomic_fetch_add(&heap->used, size) + size;
    long all = atomic_fetch_add(&total, size) + size;
    if (size <= 0 || (used <= heap->limit && all <= (long)HEAP_TOTAL_MAX))
        return true;
    atomic_fetch_sub(&heap->used, size);
    atomic_fetch_sub(&total, size);
    atomic_store(&heap->exceeded, true);
    return false;
}

static long size_of(void *p) { return p ? (long)malloc_usable_size(p) : 0; }

static void *counted_malloc(int size)
{
    if (is_time_to_stop() || !charge(size))
        return NULL;
    void *p = malloc((size_t)size);
    charge(size_of(p) - size); /* what it really is */
    return p;
}

static void counted_free(void *p)
{
    charge(-size_of(p));
    free(p);
}

static void *counted_realloc(void *p, int size)
{
    long before = size_of(p);

    if (size > before && (is_time_to_stop() || !charge(size - before)))
        return NULL;
    long charged = size > before ? size : before;
    void *more = realloc(p, (size_t)size);
    charge((more ? size_of(more) : before) - charged);
    return more;
}

static int counted_size(void *p) { return (int)size_of(p); }
static int round_up(int size) { return (size + 7) & ~7; }
static int counting_starts(void *arg) { return SQLITE_OK; }
static void counting_ends(void *arg) {}

static int started = -ENOMEM;

static void start(void)
{
    static const sqlite3_mem_methods methods = {
        counted_malloc, counted_free,    counted_realloc, counted_size,
        round_up,       counting_starts, counting_ends,   NULL,
    };

    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK &&
        sqlite3_config(SQLITE_CONFIG_MULTITHREAD) == SQLITE_OK &&
        sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK && /* spares a lock */
        sqlite3_initialize() == SQLITE_OK)
        started = 0;
}

int heap_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start);
    return started;
}

struct heap *heap_enter(struct heap *heap)
{
    struct heap *before = current;

    current = heap;
    return before;
}

bool heap_take(size_t bytes) { return charge((long)bytes); }

void heap_give(size_t bytes) { charge(-(long)bytes); }

void heap_watch(const struct stop *stop) { watched = stop; }

struct heap *heap_current(void) { return current; }

int heap_new(long limit, struct heap **out)
{
    struct heap *heap = calloc(1, sizeof *heap);
    if (!heap)
        return -ENOMEM;
    atomic_init(&heap->refs, 1);
    heap->limit = limit;
    *out = heap;
    return 0;
}

struct heap *heap_ref(struct heap *heap)
{
    atomic_fetch_add(&heap->refs, 1);
    return heap;
}

void heap_unref(struct heap *heap)
{
    if (heap && atomic_fetch_sub(&heap->refs, 1) == 1)
        free(heap);
}
