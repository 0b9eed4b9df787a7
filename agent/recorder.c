#include "agent/recorder.h"

#include "agent/agent.h"
#include "agent/channel.h"
#include "agent/eval.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Rings that were replaced by one of another size. A thread may still have one in hand, so the little that is left
 * of them stays until there is nobody who could. */
#define RETIRED_MAX 16

union recorder_page recorder_page __attribute__((aligned(4096)));

extern const struct recorder events_recorder, exceptions_recorder, gc_recorder, process_recorder, spans_recorder,
    torch_trace_recorder;
const struct recorder *const recorders[RECORDED_TABLES] = {
    [RECORDED_EVENTS] = &events_recorder,
    [RECORDED_EXCEPTIONS] = &exceptions_recorder,
    [RECORDED_GC] = &gc_recorder,
    [RECORDED_PROCESS_SAMPLES] = &process_recorder,
    [RECORDED_SPANS] = &spans_recorder,
    [RECORDED_TORCH_TRACE] = &torch_trace_recorder,
};

/* What belongs to a table; under the lock, which is held while a ring is made: never wait for it with the GIL. */
static struct {
    struct ring *ring;  /* stays when nothing is recorded */
    uint64_t wanted;    /* its size, as it was asked for */
} tables[RECORDED_TABLES];
static struct retired {
    enum recorded table;
    struct ring *ring;
} retired[RETIRED_MAX];
static size_t n_retired;
static uint64_t memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

double recorder_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t recorder_memory(void) { return __atomic_load_n(&memory, __ATOMIC_RELAXED); }

static void set_ring(enum recorded table, struct ring *ring)
{
    __atomic_store_n(&recorder_page.rings[table], ring, __ATOMIC_RELEASE);
}

static void set_waiting(enum recorded table, bool waiting)
{
    __atomic_store_n(&recorder_page.waiting[table], waiting, __ATOMIC_RELEASE);
}

/* ---- what daemons see ---- */

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

/* With the lock. rate 0: as it is. */
static void publish(enum recorded table, double rate, int error)
{
    const struct ring *ring = tables[table].ring;
    struct probe_ring_place now = {
        .on = recorder_ring(table) != NULL,
        .fd = ring ? ring->fd : -1,
        .error = error,
        .inode = ring ? ring->inode : 0,
        .size = ring ? (uint64_t)ring->blocks * ring->block_size : 0,
        .rate = rate > 0 ? rate : probe_agent_record.rings[table].rate,
    };
    write_place(table, &now);
    channel_tell_rings();
}

/* ---- rings; with the lock ---- */

static void count_memory(void)
{
    uint64_t all = 0;

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        all += tables[i].ring ? tables[i].ring->mapped : 0;
    for (size_t i = 0; i < n_retired; i++)
        all += retired[i].ring->mapped;
    __atomic_store_n(&memory, all, __ATOMIC_RELAXED);
}

/* The rows move; who writes meanwhile drops. */
static int replace(enum recorded table, struct ring *ring)
{
    struct ring *old = tables[table].ring;

    if (!ring_close(old))
        return -EAGAIN;
    ring_take_over(ring, old);
    retired[n_retired++] = (struct retired){table, old};
    return 0;
}

static int make(enum recorded table, uint64_t wanted)
{
    struct ring *ring;
    bool first = !tables[table].ring;

    if (!first && (!wanted || wanted == tables[table].wanted))
        return 0;
    if (!first && n_retired == RETIRED_MAX)
        return -EBUSY;
    wanted = wanted ? wanted : RING_SIZE_DEFAULT;
    int r = ring_new(&recorded_layouts[table], wanted, recorder_now(), &ring);
    if (r == 0 && !first && (r = replace(table, ring)) < 0)
        ring_free(ring);
    if (r < 0)
        return r;
    tables[table].ring = ring;
    tables[table].wanted = wanted;
    if (recorder_ring(table))
        set_ring(table, ring);
    count_memory();
    return 0;
}

/* Whoever writes there has the GIL; else it is a thread of ours, which `off` ends. */
static bool is_written_with_gil(enum recorded table)
{
    return recorders[table]->python || recorders[table]->by_itself;
}

bool recorder_needs_python(void)
{
    _guard_mutex_(&lock);
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (tables[i].ring && is_written_with_gil(i))
            return true;
    return false;
}

/* Those that nobody has in hand, which is true of all that are written so. */
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

/* Where there is one interpreter, who has its GIL knows that nobody is just writing. */
static bool is_alone(const struct interpreter *interpreter)
{
    return interpreter && !python.interpreter_next(python.interpreter_head());
}

struct ring *recorder_make_first(enum recorded table)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return NULL; /* not lost for good: the next row tries again */
    if (__atomic_exchange_n(&recorder_page.waiting[table], false, __ATOMIC_ACQ_REL)) {
        int r = make(table, 0);
        if (r == 0)
            set_ring(table, tables[table].ring);
        publish(table, 0, -r);
    }
    pthread_mutex_unlock(&lock);
    return recorder_ring(table);
}

void recorder_gave_up(enum recorded table, int error)
{
    set_ring(table, NULL);
    if (pthread_mutex_trylock(&lock) != 0)
        return; /* whoever holds it says how things are */
    publish(table, 0, error);
    pthread_mutex_unlock(&lock);
}

/* ---- requests ---- */

__attribute__((format(printf, 3, 4)))
static int refuse(int error, char words[PROTO_WORDS_MAX], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(words, PROTO_WORDS_MAX, format, args);
    va_end(args);
    return -error;
}

int recorder_check(const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    if (record->table >= RECORDED_TABLES || !recorders[record->table])
        return refuse(EOPNOTSUPP, words, "this agent has no recorder for that table");
    if (record->action != RECORD_ON && record->action != RECORD_OFF)
        return refuse(EINVAL, words, "on or off?");
    if (record->size && (record->size < RING_SIZE_MIN || record->size > RING_SIZE_MAX))
        return refuse(EINVAL, words, "the size must be %u KiB to %u MiB", RING_SIZE_MIN >> 10,
                      RING_SIZE_MAX >> 20);
    if (!(record->rate >= 0 && record->rate <= 1))
        return refuse(EINVAL, words, "the rate must be above 0, and at most 1");
    if (record->rate > 0 && recorders[record->table]->rate <= 0)
        return refuse(EINVAL, words, "%s has no rate", recorded_layouts[record->table].name);
    return 0;
}

static int explain(int r, const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    uint64_t size = record->size ? record->size : RING_SIZE_DEFAULT;

    if (r == -EBUSY)
        return refuse(EBUSY, words, "its size was changed too often; `detach` and `attach` to go on");
    if (r == -ENOMEM)
        return refuse(ENOMEM, words, "%lu KiB of rows are more than half of the memory that the process, its control "
                      "group or the machine has left", (unsigned long)(size >> 10));
    if (r == -EAGAIN)
        return refuse(EAGAIN, words, "a thread was just writing there, and didn't get on; try again");
    return refuse(-r, words, "no room for %lu KiB of rows: %s", (unsigned long)(size >> 10),
                  strerrordesc_np(-r));
}

int recorder_prepare(const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    _guard_mutex_(&lock);
    if (record->action == RECORD_OFF) {
        set_waiting(record->table, false);
        set_ring(record->table, NULL);
        publish(record->table, 0, 0);
        return 0;
    }
    const struct ring *before = tables[record->table].ring;
    int r = make(record->table, record->size);
    if (r < 0)
        return explain(r, record, words);
    if (tables[record->table].ring != before)
        publish(record->table, 0, 0);
    return 0;
}

static int switch_on(struct interpreter *interpreter, const struct proto_record *record,
                     char words[PROTO_WORDS_MAX])
{
    const struct recorder *recorder = recorders[record->table];
    struct proto_record filled = *record;

    if (!record->rate) {
        double before = probe_agent_record.rings[record->table].rate;
        filled.rate = before > 0 ? before : recorder->rate;
    }
    int r = recorder->on ? recorder->on(interpreter, &filled, words) : 0;
    if (r < 0)
        return r;
    _guard_mutex_(&lock);
    set_waiting(record->table, false);
    set_ring(record->table, tables[record->table].ring);
    publish(record->table, filled.rate, 0);
    return 0;
}

static void leave_table(struct interpreter *interpreter, enum recorded table,
                        char words[PROTO_WORDS_MAX])
{
    if (!interpreter->recorded[table])
        return;
    recorders[table]->off(interpreter, words);
    PyErr_Clear();
    python_clear(&interpreter->recorded[table]);
}

struct leaving {
    enum recorded table;
    char *words;
};

static void leave_one(struct interpreter *interpreter, void *arg)
{
    const struct leaving *leaving = arg;
    leave_table(interpreter, leaving->table, leaving->words);
}

static void switch_off(struct interpreter *interpreter, enum recorded table,
                       char words[PROTO_WORDS_MAX])
{
    struct leaving leaving = {table, words};

    if (!recorders[table]->off)
        return;
    if (!recorders[table]->python) {
        recorders[table]->off(NULL, words);
        _guard_mutex_(&lock);
        free_retired(false);
        return;
    }
    interpreter_each_other(leave_one, &leaving);
    leave_table(interpreter, table, words);
}

int recorder_switch(struct interpreter *interpreter, const struct proto_record *record,
                    char words[PROTO_WORDS_MAX])
{
    int r = 0;

    if (record->action == RECORD_ON)
        r = switch_on(interpreter, record, words);
    else
        switch_off(interpreter, record->table, words);
    if (interpreter && PyErr_Occurred() && !words[0])
        eval_describe_exception(words, PROTO_WORDS_MAX);
    if (interpreter)
        PyErr_Clear();
    if (is_alone(interpreter) && pthread_mutex_trylock(&lock) == 0) {
        free_retired(true);
        pthread_mutex_unlock(&lock);
    }
    return r;
}

/* ---- its life ---- */

void recorder_begin(void)
{
    /* else only agent_forget() empties it */
    (void)madvise(&recorder_page, sizeof recorder_page, MADV_WIPEONFORK);
    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        bool waits = recorders[i] && recorders[i]->by_itself;
        if (waits) /* before any other thread can */
            write_place(i, &(struct probe_ring_place){.on = 1, .fd = -1});
        set_waiting(i, waits);
    }
}

void recorder_stop_all(void)
{
    for (size_t i = 0; i < RECORDED_TABLES; i++) {
        set_waiting(i, false);
        set_ring(i, NULL);
    }
}

void recorder_leave(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX] = "";

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        leave_table(interpreter, i, words);
}

static void forget_places(void)
{
    const struct probe_ring_place none = {.fd = -1};

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        write_place(i, &none);
}

void recorder_end(bool nobody_writes)
{
    char words[PROTO_WORDS_MAX] = "";

    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (recorders[i] && !recorders[i]->python && recorders[i]->off)
            recorders[i]->off(NULL, words);
    _guard_mutex_(&lock);
    forget_places();
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (nobody_writes)
            ring_free(tables[i].ring);
    memset(tables, 0, sizeof tables);
    free_retired(false);
    if (nobody_writes)
        free_retired(true);
    n_retired = 0;
    count_memory();
}

/* Whoever forked may have been interrupted while he wrote: that ring stays. */
void recorder_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    recorder_stop_all();
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (recorders[i] && recorders[i]->forget)
            recorders[i]->forget();
    for (size_t i = 0; i < RECORDED_TABLES; i++)
        if (tables[i].ring && !tables[i].ring->busy)
            ring_free(tables[i].ring);
    while (n_retired)
        ring_free(retired[--n_retired].ring);
    memset(tables, 0, sizeof tables);
    count_memory();
    forget_places();
}
