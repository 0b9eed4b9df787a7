/* The rings of all tables, with threads that write, ask, and make them at once. What a daemon looks
 * at is looked at here: the place of each in the agent's record. */
#include "agent/interpreter/own_threads.h"
#include "agent/record/rings.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WRITERS 3
#define ROUNDS 100
#define SIZE RING_SIZE_MIN

/* ---- the parts of the agent around them ---- */

struct probe_agent_record probe_agent_record = {
    .rings = {[0 ... PROTO_RINGS_MAX - 1] = {.fd = -1}}};

static const struct recorder by_itself = {.by_itself = true}, with_python = {.python = true},
                             own_thread;
const struct recorder *const recorders[RECORDED_TABLES] = {
    [RECORDED_EVENTS] = &by_itself,
    [RECORDED_GC] = &with_python,
    [RECORDED_PROCESS_SAMPLES] = &own_thread,
};

static atomic_uint told;

void channel_tell_rings(void) { atomic_fetch_add(&told, 1); }

/* ---- one thread ---- */

static struct probe_ring_place place_of(enum recorded table)
{
    struct probe_ring_place place = probe_agent_record.rings[table];
    struct stat st;

    CHECK_INT(place.change % 2, 0);
    if (place.fd >= 0)
        CHECK(fstat(place.fd, &st) == 0 && st.st_ino == place.inode &&
              (uint64_t)st.st_size > place.size);
    return place;
}

static bool add(void)
{
    const struct events_row row = {.ts = 1, .tid = 2, .span = RING_NULL_INTEGER};
    struct ring *ring = recorder_first_use(RECORDED_EVENTS);

    return ring && events_append(ring, &row, NULL);
}

static uint64_t rows_of(enum recorded table)
{
    const struct ring *ring = recorder_ring(table);
    return ring ? ring->rows : 0;
}

static void test_first_use(void)
{
    CHECK(!add() && place_of(RECORDED_EVENTS).on == 0); /* there is no agent */
    rings_begin();
    CHECK(place_of(RECORDED_EVENTS).on == 1 && place_of(RECORDED_EVENTS).fd == -1);
    CHECK(place_of(RECORDED_GC).on == 0);
    atomic_store(&told, 0);
    CHECK(add() && add() && rows_of(RECORDED_EVENTS) == 2);
    CHECK(place_of(RECORDED_EVENTS).fd >= 0 && place_of(RECORDED_EVENTS).size == RING_SIZE_DEFAULT);
    CHECK_INT(atomic_load(&told), 1);

    rings_switch(RECORDED_EVENTS, false, 0);
    CHECK(!add() && place_of(RECORDED_EVENTS).on == 0 && place_of(RECORDED_EVENTS).fd >= 0);
    CHECK_INT(rings_make(RECORDED_EVENTS, 0), 0);
    rings_switch(RECORDED_EVENTS, true, 0.5);
    CHECK(add() && rows_of(RECORDED_EVENTS) == 3 && place_of(RECORDED_EVENTS).rate == 0.5);
    CHECK(rings_with_gil() && recorder_memory() > RING_SIZE_DEFAULT);
    recorder_gave_up(RECORDED_EVENTS, EIO);
    CHECK(!add() && place_of(RECORDED_EVENTS).error == EIO);

    rings_stop();
    rings_end(true);
    CHECK(!add() && place_of(RECORDED_EVENTS).fd == -1 && recorder_memory() == 0 &&
          !rings_with_gil());
}

static void test_switched_off_before(void)
{
    rings_begin();
    rings_switch(RECORDED_EVENTS, false, 0);
    CHECK(!add() && place_of(RECORDED_EVENTS).on == 0 && place_of(RECORDED_EVENTS).fd == -1);
    rings_end(true);
    CHECK_INT(rings_make(RECORDED_EVENTS, 0), -ESHUTDOWN);
    rings_switch(RECORDED_EVENTS, true, 0);
    CHECK(!add() && place_of(RECORDED_EVENTS).on == 0);
}

static void test_resize(void)
{
    rings_begin();
    CHECK(add());
    const struct ring *first = recorder_ring(RECORDED_EVENTS);
    CHECK_INT(rings_make(RECORDED_EVENTS, RING_SIZE_DEFAULT), 0);
    CHECK(recorder_ring(RECORDED_EVENTS) == first); /* that is what it is */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(rings_make(RECORDED_EVENTS, SIZE << i), 0);
        CHECK(place_of(RECORDED_EVENTS).size == SIZE << i && rows_of(RECORDED_EVENTS) == 1);
    }
    CHECK_INT(rings_make(RECORDED_EVENTS, 1), -EINVAL);
    CHECK(add() && rows_of(RECORDED_EVENTS) == 2); /* as it was */

    /* what is left of old ones goes with who may have them in hand */
    int r = 0;
    for (int i = 0; r == 0 && i < 100; i++)
        r = rings_make(RECORDED_PROCESS_SAMPLES, SIZE << (i % 2));
    CHECK_INT(r, -EBUSY);
    rings_free_retired(true); /* those of events */
    CHECK_INT(rings_make(RECORDED_EVENTS, SIZE), 0);
    rings_free_retired(false);
    for (int i = 0; i < 8; i++)
        CHECK_INT(rings_make(RECORDED_PROCESS_SAMPLES, SIZE << (i % 2)), 0);
    CHECK(rows_of(RECORDED_EVENTS) == 2);
    rings_end(true);
    CHECK_INT(recorder_memory(), 0);
}

/* In a child nothing is to be written, however that was made. */
static void test_children(void)
{
    int status;

    rings_begin();
    CHECK(add());
    for (int raw = 0; raw < 2; raw++) {
        pid_t child = raw ? (pid_t)syscall(SYS_fork) : fork();
        if (child == 0) {
            if (add() || recorder_ring(RECORDED_EVENTS) || recorder_page.alive)
                _exit(1);
            rings_forget();
            if (place_of(RECORDED_EVENTS).fd >= 0 || recorder_memory())
                _exit(2);
            rings_begin();
            _exit(add() && rows_of(RECORDED_EVENTS) == 1 ? 0 : 3);
        }
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK_INT(status, 0);
    }
    CHECK(add() && rows_of(RECORDED_EVENTS) == 2);
    rings_end(true);
}

/* ---- many ---- */

static atomic_bool over;
static atomic_uint written;

static void *write_all_the_time(void *unused)
{
    while (!atomic_load(&over))
        atomic_fetch_add(&written, add());
    return NULL;
}

static void *look_all_the_time(void *unused)
{
    const struct probe_ring_place *place = &probe_agent_record.rings[RECORDED_EVENTS];

    while (!atomic_load(&over)) {
        uint32_t before = __atomic_load_n(&place->change, __ATOMIC_ACQUIRE);
        uint64_t size = __atomic_load_n(&place->size, __ATOMIC_RELAXED);
        int32_t fd = __atomic_load_n(&place->fd, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before % 2 == 0 && before == __atomic_load_n(&place->change, __ATOMIC_RELAXED))
            CHECK((fd < 0) == (size == 0));
    }
    return NULL;
}

static void start(pthread_t threads[WRITERS + 1])
{
    atomic_store(&over, false);
    atomic_store(&written, 0);
    for (int i = 0; i < WRITERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_all_the_time, NULL), 0);
    CHECK_INT(pthread_create(&threads[WRITERS], NULL, look_all_the_time, NULL), 0);
}

static void stop(pthread_t threads[WRITERS + 1])
{
    atomic_store(&over, true);
    for (int i = 0; i <= WRITERS; i++)
        pthread_join(threads[i], NULL);
}

static void test_switching_while_many_write(void)
{
    pthread_t threads[WRITERS + 1];

    rings_begin();
    start(threads);
    for (int i = 0; i < ROUNDS; i++) {
        int r = rings_make(RECORDED_EVENTS, SIZE << (i % 3));
        CHECK(r == 0 || r == -EBUSY || r == -EAGAIN);
        rings_switch(RECORDED_EVENTS, i % 4 != 0, 0);
        poll(NULL, 0, 1);
        CHECK((recorder_ring(RECORDED_EVENTS) != NULL) == (i % 4 != 0)); /* off is off */
    }
    stop(threads);
    CHECK(atomic_load(&written) > 0);
    CHECK_INT(rows_of(RECORDED_EVENTS), atomic_load(&written));
    rings_end(true);
}

static void test_stopping_while_many_begin(void)
{
    pthread_t threads[WRITERS + 1];

    for (int i = 0; i < ROUNDS / 10; i++) {
        start(threads);
        rings_begin();
        if (i % 2)
            while (!atomic_load(&written))
                poll(NULL, 0, 1);
        rings_stop();
        for (int look = 0; look < 3; look++) {
            CHECK(!recorder_ring(RECORDED_EVENTS));
            poll(NULL, 0, 1);
        }
        stop(threads);
        rings_end(true);
    }
}

/* A fork in the midst of it leaves the child with rings that are whole, or none. */
static void test_forking_while_many_write(void)
{
    pthread_t threads[WRITERS + 1];
    int status;

    rings_begin();
    start(threads);
    for (int i = 0; i < ROUNDS / 4; i++) {
        (void)rings_make(RECORDED_GC, SIZE << (i % 3));
        rings_switch(RECORDED_GC, i % 2, 0);
        rings_free_retired(false);
        rings_lock();
        pid_t child = fork();
        rings_unlock();
        if (child == 0) {
            rings_forget();
            rings_begin();
            _exit(add() && rows_of(RECORDED_EVENTS) == 1 ? 0 : 1);
        }
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK_INT(status, 0);
    }
    stop(threads);
    rings_end(true);
}

int main(void)
{
    test_first_use();
    test_switched_off_before();
    test_resize();
    test_children();
    test_switching_while_many_write();
    test_stopping_while_many_begin();
    test_forking_while_many_write();
    return 0;
}
