#include "fs/remote/waits/lock.h"

#include <string.h>

/* Python classes by their full names: subclasses count. What a PyTypeObject is called by itself is
 * the last part of it. */
static const struct {
    const char *type;
    enum lock_class class;
} classes[] = {
    {"_thread.lock", LOCK_LOCK},
    {"_thread.RLock", LOCK_RLOCK},
    {"_multiprocessing.SemLock", LOCK_SEMLOCK},
    {"_queue.SimpleQueue", LOCK_SIMPLE_QUEUE},
    {"_thread._ThreadHandle", LOCK_HANDLE},
    {"threading._RLock", LOCK_PY_RLOCK},
    {"threading.Condition", LOCK_CONDITION},
    {"threading.Event", LOCK_EVENT},
    {"threading.BoundedSemaphore", LOCK_BOUNDED_SEMAPHORE},
    {"threading.Semaphore", LOCK_SEMAPHORE},
    {"threading.Barrier", LOCK_BARRIER},
    {"threading.Thread", LOCK_THREAD},
    {"queue.Queue", LOCK_QUEUE},
    {"concurrent.futures._base.Future", LOCK_FUTURE},
    {"concurrent.futures.thread._WorkItem", LOCK_WORK_ITEM},
    {"_frozen_importlib._ModuleLock", LOCK_MODULE},
    {"multiprocessing.synchronize.Lock", LOCK_MP_LOCK},
    {"multiprocessing.synchronize.RLock", LOCK_MP_RLOCK},
    {"multiprocessing.synchronize.Semaphore", LOCK_MP_SEMAPHORE},
    {"multiprocessing.synchronize.Condition", LOCK_MP_CONDITION},
    {"multiprocessing.synchronize.Event", LOCK_MP_EVENT},
    {"multiprocessing.queues.Queue", LOCK_MP_QUEUE},
    {"multiprocessing.queues.SimpleQueue", LOCK_MP_QUEUE},
    {"asyncio.locks.Lock", LOCK_AIO_LOCK},
    {"asyncio.locks.Condition", LOCK_AIO_CONDITION},
    {"asyncio.locks.Event", LOCK_AIO_EVENT},
    {"asyncio.locks.BoundedSemaphore", LOCK_AIO_BOUNDED_SEMAPHORE},
    {"asyncio.locks.Semaphore", LOCK_AIO_SEMAPHORE},
    {"asyncio.locks.Barrier", LOCK_AIO_BARRIER},
    {"asyncio.queues.Queue", LOCK_AIO_QUEUE},
    {"asyncio.timeouts.Timeout", LOCK_AIO_TIMEOUT},
};

#define CLASSES (sizeof classes / sizeof *classes)
#define NAME_SIZE 40 /* longer than any name looked for */

const char *lock_class_name(enum lock_class class)
{
    static const char *const names[] = {
        [LOCK_NONE] = "",
        [LOCK_LOCK] = "Lock",
        [LOCK_RLOCK] = "RLock",
        [LOCK_SEMLOCK] = "SemLock",
        [LOCK_SIMPLE_QUEUE] = "SimpleQueue",
        [LOCK_HANDLE] = "Thread",
        [LOCK_PY_RLOCK] = "RLock",
        [LOCK_CONDITION] = "Condition",
        [LOCK_EVENT] = "Event",
        [LOCK_SEMAPHORE] = "Semaphore",
        [LOCK_BOUNDED_SEMAPHORE] = "BoundedSemaphore",
        [LOCK_BARRIER] = "Barrier",
        [LOCK_THREAD] = "Thread",
        [LOCK_QUEUE] = "Queue",
        [LOCK_FUTURE] = "Future",
        [LOCK_WORK_ITEM] = "Future",
        [LOCK_MODULE] = "_ModuleLock",
        [LOCK_MP_LOCK] = "multiprocessing.Lock",
        [LOCK_MP_RLOCK] = "multiprocessing.RLock",
        [LOCK_MP_SEMAPHORE] = "multiprocessing.Semaphore",
        [LOCK_MP_CONDITION] = "multiprocessing.Condition",
        [LOCK_MP_EVENT] = "multiprocessing.Event",
        [LOCK_MP_QUEUE] = "multiprocessing.Queue",
        [LOCK_AIO_LOCK] = "asyncio.Lock",
        [LOCK_AIO_CONDITION] = "asyncio.Condition",
        [LOCK_AIO_EVENT] = "asyncio.Event",
        [LOCK_AIO_SEMAPHORE] = "asyncio.Semaphore",
        [LOCK_AIO_BOUNDED_SEMAPHORE] = "asyncio.BoundedSemaphore",
        [LOCK_AIO_BARRIER] = "asyncio.Barrier",
        [LOCK_AIO_QUEUE] = "asyncio.Queue",
        [LOCK_AIO_TIMEOUT] = "asyncio.Timeout",
    };

    return names[class];
}

struct search {
    struct view *view;
    const struct offsets *offsets;
    unsigned left;
    enum lock_class class;
};

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The class of that very type. */
static enum lock_class class_of(struct search *s, uint64_t type)
{
    struct text full = TEXT_INIT;
    char name[NAME_SIZE];
    uint64_t addr;
    enum lock_class class = LOCK_NONE;

    if (!object_field(s->view, type, s->offsets->type_name, &addr) ||
        !cstring_read(s->view, addr, name, sizeof name))
        return LOCK_NONE;
    for (size_t i = 0; i < CLASSES && class == LOCK_NONE; i++) {
        if (strcmp(last_part(name), last_part(classes[i].type)))
            continue; /* a full name takes more reading */
        if (!full.size && type_add_name(s->view, s->offsets, type, &full) < 0)
            break;
        if (full.data && !strcmp(full.data, classes[i].type))
            class = classes[i].class;
    }
    text_deinit(&full);
    return class;
}

static int try_base(void *arg, uint64_t type)
{
    struct search *s = arg;

    if (!s->left--)
        return 1;
    s->class = class_of(s, type);
    return s->class != LOCK_NONE;
}

enum lock_class lock_classify(struct view *view, const struct offsets *offsets,
                              struct lock_cache *cache, uint64_t object)
{
    struct search search = {view, offsets, MRO_MAX, LOCK_NONE};
    uint64_t type, mro;

    if (!object_type(view, offsets, object, &type))
        return LOCK_NONE;
    size_t slot = (type >> 4) * 0x9e3779b97f4a7c15ull >> 56;
    _Static_assert(LOCK_CACHE == 1 << 8, "the hash keeps 8 bits");
    if (cache->slots[slot].type != type) {
        if (object_field(view, type, offsets->type_mro, &mro) && mro)
            (void)tuple_iterate(view, offsets, mro, try_base, &search, NULL);
        cache->slots[slot].class = search.class;
        cache->slots[slot].type = type;
    }
    return cache->slots[slot].class;
}

/* ---- what the kernel sees ---- */

/* Behind the head of each of them is the lock, or where it is; and of an RLock: */
#define RLOCK_OWNER 8   /* unsigned long, up to 3.13; in _PyRecursiveMutex after */
#define QUEUE_SIZE 128  /* more than sizeof(simplequeueobject) */
#define PARKED_BEFORE 8 /* struct wait_entry: addr, then sema */

/* ThreadHandle, Modules/_threadmodule.c, 3.13 on: two list nodes before ident */
#define HANDLE_IDENT 32
#define HANDLE_OS_HANDLE 40
#define HANDLE_EXITING 57 /* PyEvent */

static bool points_to(struct view *view, const struct offsets *o, uint64_t object, uint64_t futex)
{
    uint64_t semaphore;
    return object_field(view, object, o->object_size, &semaphore) && semaphore == futex;
}

/* The address that a thread is parked for, from 3.13 on. */
static bool parked_for(struct view *view, const struct offsets *offsets, uint64_t futex,
                       uint64_t *out)
{
    return offsets->version >= 0x030d0000 && !(futex & 7) &&
           view_read64(view, futex - PARKED_BEFORE, out);
}

bool lock_is_waited(struct view *view, const struct offsets *offsets, uint64_t object,
                    enum lock_class class, uint64_t futex)
{
    const uint64_t first = object + (uint32_t)offsets->object_size;
    uint64_t parked, handle;

    switch (class) {
    case LOCK_LOCK:
    case LOCK_RLOCK:
        return points_to(view, offsets, object, futex) ||
               (parked_for(view, offsets, futex, &parked) && parked == first);
    case LOCK_SEMLOCK: return points_to(view, offsets, object, futex);
    case LOCK_SIMPLE_QUEUE:
        return points_to(view, offsets, object, futex) ||
               (parked_for(view, offsets, futex, &parked) && parked - object < QUEUE_SIZE);
    case LOCK_HANDLE:
        return parked_for(view, offsets, futex, &parked) && view_read64(view, first, &handle) &&
               parked == handle + HANDLE_EXITING;
    default: return false;
    }
}

uint64_t rlock_owner(struct view *view, const struct offsets *offsets, uint64_t object)
{
    uint64_t owner;
    return object_field(view, object, offsets->object_size + RLOCK_OWNER, &owner) ? owner : 0;
}

uint64_t lock_joined_thread(struct view *view, const struct offsets *offsets, uint64_t futex)
{
    uint64_t parked, ident, os_handle;

    if (!parked_for(view, offsets, futex, &parked) || parked < HANDLE_EXITING)
        return 0;
    uint64_t handle = parked - HANDLE_EXITING;
    return !(handle & 7) && view_read64(view, handle + HANDLE_IDENT, &ident) &&
                   view_read64(view, handle + HANDLE_OS_HANDLE, &os_handle) && ident == os_handle
               ? ident
               : 0;
}

#define SEMLOCK_SIZE 28 /* behind its head, up to name */

bool semlock_read(struct view *view, const struct offsets *offsets, uint64_t object,
                  struct semlock *out)
{
    const uint8_t *p = view_read(view, object + (uint32_t)offsets->object_size, SEMLOCK_SIZE);

    if (!p)
        return false;
    *out = (struct semlock){
        .semaphore = load64(p),
        .last = load64(p + 8),
        .count = (int32_t)load32(p + 16),
        .max = (int32_t)load32(p + 20),
        .recursive = !load32(p + 24),
    };
    return true;
}
