#include "agent/record/rings.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Rings that were replaced by one of another size. A thread may still have one in hand, so the
 * little that is left of them stays until there is nobody who could. */
#define RETIRED_MAX 16

union recorder_page recorder_page __attribute__((aligned(ARCH_PAGE_MAX)));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct {
    struct ring *ring; /* stays when nothing is recorded */
    uint64_t wanted;   /* its size, as it was asked for */
    unsigned switched; /* how often it was switched on or off by request */
} tables[RECORDED_TABLES];
static struct retired {
    enum recorded table;
    struct ring *ring;
} retired[RETIRED_MAX + 1]; /* two threads may find room for one */
static size_t n_retired;

#define _guard_rings_ _guard_mutex_(&lock)

void rings_lock(void) { pthread_mutex_lock(&lock); }
void rings_unlock(void) { pthread_mutex_unlock(&lock); }

uint64_t recorder_memory(void)
{
    return __atomic_load_n(&probe_agent_record.ring_bytes, __ATOMIC_RELAXED);
}

static void set_ring(enum recorded table, struct ring *ring)
{
    __atomic_store_n(&recorder_page.rings[table], ring, __ATOMIC_RELEASE);
}

static void set_waiting(enum recorded table, bool waiting)
{
    __atomic_store_n(&recorder_page.waiting[table], waiting, __ATOMIC_RELEASE);
}

/* Whether rows of a table are written with the GIL; else by a thread of ours, which `off` ends. */
static bool is_written_with_gil(enum recorded table)
{
    return recorders[table]->python || recorders[table]->by_itself;
}

/* ---- what daemons see; with the lock ---- */

static void write_place(enum recorded table, const struct probe_ring_place *now)
{
    struct probe_ring_place *place = &probe_agent_record.rings[table];
    uint32_t change = place->change | 1;

    __atomic_store_n(&place->change, change, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy((char *)place + sizeof change, (const char *)now + sizeof change,
           sizeof *now - sizeof change);
    __atomic_store_n(&place->change, change + 1, __ATOMIC_RELEASE);
}

/* rate 0: as it is. */
static void publish(enum recorded table, double rate, int error)
{
    const struct ring *ring = tables[table].ring;
    struct probe_ring_place now = {
        .on = recorder_ring(table) || recorder_page.waiting[table],
        .fd = ring ? ring->fd : -1,
        .error = error,
        .inode = ring ? ring->inode : 0,
        .size = ring ? (uint64_t)ring->blocks * ring->block_size : 0,
        .rate = rate > 0 ? rate : probe_agent_record.rings[table].rate,
    };
    write_place(table, &now);
    channel_tell_rings();
}

static void forget_places(void)
{
    const struct probe_ring_place none = {.fd = -1};

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        write_place(i, &none);
}

static void count_memory(void)
{
    uint64_t all = 0;

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        all += tables[i].ring ? tables[i].ring->mapped : 0;
    for (size_t i = 0; i < n_retired; i++)
        all += retired[i].ring->mapped;
    __atomic_store_n(&probe_agent_record.ring_bytes, all, __ATOMIC_RELAXED);
}

/* ---- making ---- */

/* Whether there is something to do: 1, and what is there now; 0; -EBUSY. */
static int look(enum recorded table, uint64_t size, struct ring **old)
{
    _guard_rings_;
    *old = tables[table].ring;
    if (*old && (!size || size == tables[table].wanted))
        return 0;
    return *old && n_retired >= RETIRED_MAX ? -EBUSY : 1;
}

/* -EEXIST: there is another one than the old one. */
static int install(enum recorded table, struct ring *ring, uint64_t size, struct ring *old)
{
    _guard_rings_;
    if (!recorder_page.alive)
        return -ESHUTDOWN;
    if (tables[table].ring != old)
        return -EEXIST;
    if (old)
        retired[n_retired++] = (struct retired){table, old};
    tables[table].ring = ring;
    tables[table].wanted = size;
    uint64_t taken_over = ring->header->dropped;
    if (recorder_ring(table))
        set_ring(table, ring);
    if (old) /* what came while its rows were moved */
        ring_lose(ring, __atomic_load_n(&old->header->dropped, __ATOMIC_RELAXED) - taken_over);
    count_memory();
    if (old) /* else it is told of once it is written */
        publish(table, 0, 0);
    return 0;
}

/* Makes a ring, and moves the rows of the old one there. */
static int make(enum recorded table, uint64_t size, struct ring *old)
{
    struct ring *ring;

    size = size ? size : RING_SIZE_DEFAULT;
    int r = ring_new(&recorded_layouts[table], size, realtime_s(), &ring);
    if (r < 0)
        return r;
    if (old && !ring_close(old))
        r = -EAGAIN;
    else if (old)
        ring_take_over(ring, old);
    if (r == 0)
        r = install(table, ring, size, old);
    if (r < 0)
        ring_free(ring);
    return r;
}

int rings_make(enum recorded table, uint64_t size)
{
    struct ring *old;
    int r;

    do {
        r = look(table, size, &old);
        if (r > 0)
            r = make(table, size, old);
    } while (r == -EEXIST); /* the program has just made it */
    return r;
}

void rings_switch(enum recorded table, bool on, double rate)
{
    _guard_rings_;
    if (!recorder_page.alive)
        return;
    set_waiting(table, false);
    set_ring(table, on ? tables[table].ring : NULL);
    tables[table].switched++;
    publish(table, rate, 0);
}

/* A table's ring is to be made at its first use. False: it doesn't wait for that any more.
 * *switched: by which it is seen whether somebody else switches it meanwhile. */
static bool begin_first(enum recorded table, unsigned *switched)
{
    _guard_rings_;
    bool waited = recorder_page.waiting[table];
    set_waiting(table, false);
    *switched = tables[table].switched;
    return waited;
}

struct ring *recorder_make_first(enum recorded table)
{
    unsigned switched;

    if (!begin_first(table, &switched))
        return recorder_ring(table);
    int r = rings_make(table, 0);
    _guard_rings_;
    if (!recorder_page.alive || tables[table].switched != switched)
        return recorder_ring(table);
    if (r == 0)
        set_ring(table, tables[table].ring);
    publish(table, 0, -r);
    return recorder_ring(table);
}

void recorder_gave_up(enum recorded table, int error)
{
    _guard_rings_;
    set_ring(table, NULL);
    publish(table, 0, error);
}

/* ---- giving back ---- */

bool rings_with_gil(void)
{
    _guard_rings_;
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (tables[i].ring && is_written_with_gil(i))
            return true;
    return false;
}

static void free_retired(bool with_gil)
{
    size_t kept = 0;

    for (size_t i = 0; i < n_retired; i++)
        if (is_written_with_gil(retired[i].table) == with_gil)
            ring_free(retired[i].ring);
        else
            retired[kept++] = retired[i];
    n_retired = kept;
    count_memory();
}

void rings_free_retired(bool with_gil)
{
    _guard_rings_;
    free_retired(with_gil);
}

/* ---- their life ---- */

static void stop(void)
{
    recorder_page.alive = false;
    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        set_waiting(i, false);
        set_ring(i, NULL);
    }
}

void rings_begin(void)
{
    /* else only rings_forget() empties it */
    (void)madvise(&recorder_page, sizeof recorder_page, MADV_WIPEONFORK);
    recorder_page.alive = true;
    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        bool waits = recorders[i] && recorders[i]->by_itself;
        if (waits)
            write_place(i, &(struct probe_ring_place){.on = 1, .fd = -1});
        set_waiting(i, waits);
    }
}

void rings_stop(void)
{
    _guard_rings_;
    stop();
}

void rings_end(bool nobody_writes)
{
    _guard_rings_;
    stop();
    forget_places();
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (tables[i].ring && (nobody_writes || !is_written_with_gil(i)))
            ring_free(tables[i].ring);
    memset(tables, 0, sizeof tables);
    free_retired(false);
    if (nobody_writes)
        free_retired(true);
    n_retired = 0;
    count_memory();
}

/* Whoever forked may have been interrupted while he wrote: that ring stays. */
void rings_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    stop();
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (tables[i].ring && !tables[i].ring->busy)
            ring_free(tables[i].ring);
    while (n_retired)
        ring_free(retired[--n_retired].ring);
    memset(tables, 0, sizeof tables);
    count_memory();
    forget_places();
}
