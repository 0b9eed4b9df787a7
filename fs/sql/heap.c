#include "fs/sql/heap.h"

#include "agent/base/cleanup.h"
#include "fs/base/shares.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>

#define CHARGES_BETWEEN_LOOKS 64

/* The heap of this thread, as errno belongs to a thread: exceptions to "no global mutable
 * state". */
static _Thread_local struct heap *current;
static _Thread_local const struct stop *watched;
static _Thread_local unsigned asked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of: */
static struct shares shares = {.all = HEAP_TOTAL_MAX, .each = HEAP_EACH, .kept = HEAP_KEPT};

static heap_give_share *give_share; /* NULL: these */
static void *give_arg;

void heap_ask(heap_give_share *give, void *arg)
{
    give_share = give;
    give_arg = arg;
}

void heap_give_taken(struct heap *heap, size_t bytes) { atomic_store(&heap->taken, (long)bytes); }

static bool take_share(uid_t uid, size_t bytes)
{
    return give_share ? give_share(give_arg, bytes) : shares_take_many(&shares, uid, bytes) == 0;
}

static bool is_time_to_stop(void)
{
    return watched && asked++ % CHARGES_BETWEEN_LOOKS == 0 && stop_reason(watched) < 0;
}

/* Whether its user's share has room for so many bytes of it. */
static bool has_share(struct heap *heap, long used)
{
    if (used <= atomic_load(&heap->taken))
        return true;
    _guard_mutex_(&lock);
    long more = used - atomic_load(&heap->taken);
    if (more <= 0)
        return true;
    more = (more + (long)HEAP_PIECE - 1) / (long)HEAP_PIECE * (long)HEAP_PIECE;
    if (!take_share(heap->uid, (size_t)more))
        return false;
    atomic_fetch_add(&heap->taken, more);
    return true;
}

/* Counts `size` bytes; false: they are too many. */
static bool charge(long size)
{
    struct heap *heap = current;

    if (!heap)
        return true;
    long used = atomic_fetch_add(&heap->used, size) + size;
    if (size <= 0 || (used <= heap->limit && has_share(heap, used)))
        return true;
    atomic_fetch_sub(&heap->used, size);
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

int heap_new(long limit, uid_t uid, struct heap **out)
{
    struct heap *heap = calloc(1, sizeof *heap);
    if (!heap)
        return -ENOMEM;
    atomic_init(&heap->refs, 1);
    heap->limit = limit;
    heap->uid = uid;
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
    if (!heap || atomic_fetch_sub(&heap->refs, 1) > 1)
        return;
    pthread_mutex_lock(&lock);
    if (!give_share)
        shares_give_many(&shares, heap->uid, (size_t)heap->taken);
    pthread_mutex_unlock(&lock);
    free(heap);
}
