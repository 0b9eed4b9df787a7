/* The objects that threads wait in: which class each is of, and what of it the kernel sees.
 *
 * A thread that waits in a lock of CPython sleeps in a futex. Up to 3.12 that is the semaphore that
 * the lock points to; a lock that is a PyMutex (3.14 on, and late releases of 3.13) parks the
 * thread, which sleeps in a semaphore on its own stack, behind the address that it is parked for.
 * So the futex proves which lock it is. Sources: Modules/_threadmodule.c, Modules/_queuemodule.c,
 * Modules/_multiprocessing/semaphore.c, Python/thread_pthread.h, Python/parking_lot.c. */
#pragma once

#include "fs/remote/objects/object.h"

enum lock_class {
    LOCK_NONE,
    LOCK_LOCK, /* of C, as those up to LOCK_HANDLE */
    LOCK_RLOCK,
    LOCK_SEMLOCK,
    LOCK_SIMPLE_QUEUE,
    LOCK_HANDLE,
    LOCK_PY_RLOCK,
    LOCK_CONDITION,
    LOCK_EVENT,
    LOCK_SEMAPHORE,
    LOCK_BOUNDED_SEMAPHORE,
    LOCK_BARRIER,
    LOCK_THREAD,
    LOCK_QUEUE,
    LOCK_FUTURE,
    LOCK_WORK_ITEM, /* of a ThreadPoolExecutor: what calls for a future */
    LOCK_MODULE,
    LOCK_MP_LOCK, /* multiprocessing's, as those that follow */
    LOCK_MP_RLOCK,
    LOCK_MP_SEMAPHORE,
    LOCK_MP_CONDITION,
    LOCK_MP_EVENT,
    LOCK_MP_QUEUE,
    LOCK_AIO_LOCK, /* asyncio's, as those that follow */
    LOCK_AIO_CONDITION,
    LOCK_AIO_EVENT,
    LOCK_AIO_SEMAPHORE,
    LOCK_AIO_BOUNDED_SEMAPHORE,
    LOCK_AIO_BARRIER,
    LOCK_AIO_QUEUE,
    LOCK_AIO_TIMEOUT, /* asyncio.timeout(), in which wait_for() waits */
};

/* Classes looked at already; one that another pushed out is looked at again. Zero it first, and
 * again for another target or another moment. */
#define LOCK_CACHE 256
struct lock_cache {
    struct {
        uint64_t type;
        enum lock_class class;
    } slots[LOCK_CACHE];
};

/* The class that an object is of or derives from; LOCK_NONE for what is unreadable too. */
enum lock_class lock_classify(struct view *view, const struct offsets *offsets,
                              struct lock_cache *cache, uint64_t object);
/* The name of a class of locks as it is called: "Lock", "BoundedSemaphore". */
const char *lock_class_name(enum lock_class class);

/* Whether a thread that sleeps in the futex waits in this object, of a class up to LOCK_HANDLE. */
bool lock_is_waited(struct view *view, const struct offsets *offsets, uint64_t object,
                    enum lock_class class, uint64_t futex);

/* The thread that holds an RLock of C: a pthread_t; 0: nobody, or not readable. */
uint64_t rlock_owner(struct view *view, const struct offsets *offsets, uint64_t object);

/* The thread whose end another one sleeps for in the futex, by its threading._shutdown() or its
 * Thread.join() (3.13 on): a pthread_t, if the memory there is what it should be; else 0. */
uint64_t lock_joined_thread(struct view *view, const struct offsets *offsets, uint64_t futex);

/* What a SemLock of multiprocessing's has (SemLockObject, Modules/_multiprocessing/semaphore.c). */
struct semlock {
    uint64_t semaphore; /* where its process has mapped it, and sleeps for it */
    uint64_t last;      /* pthread_t of who took it last, of this process */
    int32_t count;      /* how often this process has taken it, and not given it back */
    int32_t max;        /* how many may have it */
    bool recursive;
};
bool semlock_read(struct view *view, const struct offsets *offsets, uint64_t object,
                  struct semlock *out);
