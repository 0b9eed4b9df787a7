#include "agent/watch/trap_queue.h"

#include "agent/base/clock.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define QUEUE_SIZE 256u /* a power of two */
#define WAIT_STEP_NS 100000
#define WAIT_STEPS 100
#define PATIENCE_STEPS 3
#define WAIT_AT_MOST_NS 100000000u
#define WAIT_SHARE 10 /* of the time one in so many parts, at most, is waited */

struct cell {
    /* position that may use it next: as it is, to be filled; one more, to be taken */
    uint64_t turn;
    uint64_t position; /* of who fills it */
    struct trap_hit hit;
};

static struct {
    struct cell *cells;
    uint64_t head, tail; /* taken, and begun */
    uint32_t bell;       /* grows when it is rung: a futex */
    bool sleeps, asking;
    uint64_t waits_ns[2]; /* from when on a writer may wait again, CLOCK_MONOTONIC; likely ones */
} queue;

struct trap_hit *trap_queue_begin(void)
{
    struct cell *cells = __atomic_load_n(&queue.cells, __ATOMIC_ACQUIRE);
    uint64_t at = __atomic_load_n(&queue.tail, __ATOMIC_RELAXED);

    while (cells) {
        struct cell *cell = &cells[at % QUEUE_SIZE];
        uint64_t turn = __atomic_load_n(&cell->turn, __ATOMIC_ACQUIRE);
        if ((int64_t)(turn - at) < 0)
            return NULL;
        if (turn == at && __atomic_compare_exchange_n(&queue.tail, &at, at + 1, false,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            cell->position = at;
            return &cell->hit;
        }
        if (turn != at)
            at = __atomic_load_n(&queue.tail, __ATOMIC_RELAXED);
    }
    return NULL;
}

void trap_queue_end(struct trap_hit *hit)
{
    struct cell *cell = (struct cell *)(void *)((char *)hit - offsetof(struct cell, hit));

    __atomic_store_n(&cell->turn, cell->position + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&queue.sleeps, __ATOMIC_SEQ_CST))
        trap_wake();
}

bool trap_push(uint32_t number, PyObject *object)
{
    struct trap_hit *hit = trap_queue_begin();
    bool gil = false;

    if (!hit)
        return false;
    *hit = (struct trap_hit){.slot = TRAP_NO_SLOT,
                             .change = number,
                             .address = (uint64_t)RING_NULL_INTEGER,
                             .object = object,
                             .tid = (int32_t)syscall(SYS_gettid),
                             .ts = realtime_s(),
                             .state = signal_stack_state(&gil)};
    Py_IncRef(object);
    signal_stack_capture(hit->state, &hit->writer);
    trap_queue_end(hit);
    return true;
}

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void trap_wake(void)
{
    __atomic_add_fetch(&queue.bell, 1, __ATOMIC_SEQ_CST);
    futex(&queue.bell, FUTEX_WAKE, 1, NULL);
}

bool trap_pending(void)
{
    const struct cell *cell = queue.cells ? &queue.cells[queue.head % QUEUE_SIZE] : NULL;
    return cell && __atomic_load_n(&cell->turn, __ATOMIC_SEQ_CST) == queue.head + 1;
}

void trap_wait(uint64_t ns)
{
    const struct timespec timeout = timespec_of(ns);
    uint32_t bell = __atomic_load_n(&queue.bell, __ATOMIC_SEQ_CST);

    __atomic_store_n(&queue.sleeps, true, __ATOMIC_SEQ_CST);
    if (!trap_pending())
        futex(&queue.bell, FUTEX_WAIT, bell, &timeout);
    __atomic_store_n(&queue.sleeps, false, __ATOMIC_SEQ_CST);
}

bool trap_take(struct trap_hit *out)
{
    if (!trap_pending())
        return false;
    struct cell *cell = &queue.cells[queue.head % QUEUE_SIZE];
    *out = cell->hit;
    __atomic_store_n(&cell->turn, queue.head + QUEUE_SIZE, __ATOMIC_RELEASE);
    queue.head++;
    return true;
}

void trap_asking(bool asking) { __atomic_store_n(&queue.asking, asking, __ATOMIC_SEQ_CST); }

void trap_queue_wait(bool likely)
{
    bool asked = false;
    uint64_t now = monotonic_ns();
    uint64_t *waits = &queue.waits_ns[likely], before = __atomic_load_n(waits, __ATOMIC_RELAXED);
    if (now < before || !__atomic_compare_exchange_n(waits, &before, now + WAIT_AT_MOST_NS, false,
                                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    for (unsigned i = 0; i < WAIT_STEPS && !asked; i++) {
        asked = __atomic_load_n(&queue.asking, __ATOMIC_SEQ_CST);
        nap_ns(WAIT_STEP_NS);
    }
    for (unsigned i = 0; i < PATIENCE_STEPS; i++) /* until its patience ends (cpython/gil.c) */
        nap_ns(WAIT_STEP_NS);
    uint64_t end = monotonic_ns();
    __atomic_store_n(waits, end + (likely ? 1 : WAIT_SHARE) * (end - now), __ATOMIC_RELAXED);
}

int trap_queue_make(void)
{
    if (queue.cells)
        return 0;
    struct cell *cells = mmap(NULL, QUEUE_SIZE * sizeof *cells, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cells == MAP_FAILED)
        return -ENOMEM;
    for (unsigned i = 0; i < QUEUE_SIZE; i++)
        cells[i].turn = i;
    queue.head = queue.tail = 0;
    __atomic_store_n(&queue.cells, cells, __ATOMIC_RELEASE);
    return 0;
}

void trap_queue_empty(void)
{
    queue.head = queue.tail = 0;
    for (unsigned i = 0; queue.cells && i < QUEUE_SIZE; i++)
        queue.cells[i].turn = i;
}
