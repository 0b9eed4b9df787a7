/* A writer at full speed, eight readers, and what they see: each row bears a checksum of itself,
 * and none is torn, stale, out of order or uncounted. Then writers that are killed at any moment.
 * PROBEFS_TEST_FULL in the environment: a minute and 100 million rows at least, and 500 kills. */
#include "tests/unit/ring_world.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define READERS 8
#define LATER 40 /* rows that are written before one's duration is known */

/* Memory of all processes of this test. */
static struct {
    int64_t published; /* rows; written by the writer */
    bool stop;
    struct reading {
        uint64_t copies, rows, empty, torn, disorder, stale, uncounted;
    } readings[READERS];
} * shared;

static char letters[8192]; /* what texts are cut out of */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fill_letters(void)
{
    unsigned state = 1;

    for (size_t i = 0; i < sizeof letters; i++) {
        state = state * 1103515245u + 12345u;
        letters[i] = (char)(state >> 16);
    }
}

/* ---- rows ---- */

static uint64_t mix(uint64_t sum, const char *bytes, size_t size)
{
    uint64_t word;

    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
        sum ^= sum >> 29;
    }
    for (; size; bytes++, size--)
        sum = (sum ^ (unsigned char)*bytes) * 0x100000001b3ull;
    return sum;
}

static int64_t checksum(int64_t id, double start, struct ring_text name, struct ring_text attrs)
{
    uint64_t sum = (uint64_t)id * 0xff51afd7ed558ccdull + (uint64_t)start;

    sum = mix(sum + name.size, name.bytes, name.size);
    return (int64_t)(mix(sum + attrs.size, attrs.bytes, attrs.size) >> 1); /* never NULL */
}

static bool append_row(struct ring *ring, int64_t id, size_t longest, struct ring_ticket *ticket)
{
    struct spans_row row = {
        .id = id,
        .tid = 1,
        .start = (double)(id * 3),
        .duration = NAN,
        .failed = RING_NULL_INTEGER,
        .name = {letters + id * 7 % 1021, (size_t)id * 5 % 37},
        .attrs = {letters + id * 13 % 2039, (size_t)id * 11 % longest},
    };

    row.parent = checksum(id, row.start, row.name, row.attrs);
    return spans_append(ring, &row, ticket);
}

static bool row_is_whole(const struct ring_row *row)
{
    struct ring_text name, attrs;
    int64_t id = integer_of(row, SPANS_ID), unused;
    double duration = ring_real(row, SPANS_DURATION);
    uint32_t size;
    bool cut;

    name.bytes = ring_text(row, SPANS_NAME, &size, &cut);
    name.size = size;
    attrs.bytes = ring_text(row, SPANS_ATTRS, &size, &cut);
    attrs.size = size;
    return name.bytes && attrs.bytes && !cut && !ring_text(row, SPANS_TASK, &size, &cut) &&
           checksum(id, ring_real(row, SPANS_START), name, attrs) ==
               integer_of(row, SPANS_PARENT) &&
           integer_of(row, SPANS_TID) == 1 && !ring_integer(row, SPANS_FAILED, &unused) &&
           (isnan(duration) || duration == (double)id / 4);
}

static void write_rows(struct ring *ring, size_t longest)
{
    struct ring_ticket tickets[LATER] = {0};

    for (int64_t id = 0; !__atomic_load_n(&shared->stop, __ATOMIC_RELAXED); id++) {
        struct ring_ticket *ticket = &tickets[id % LATER];
        if (id % 3 == 0)
            spans_patch_duration(ring, ticket, (double)(id - LATER) / 4);
        if (!append_row(ring, id, longest, ticket))
            abort(); /* nobody else writes */
        __atomic_store_n(&shared->published, id + 1, __ATOMIC_RELEASE);
    }
}

/* ---- readers ---- */

/* The number of a row is how many were written before it. `published`: before the copy was made. */
static void judge(const struct ring_rows *rows, int64_t published, uint64_t ring_holds,
                  int64_t *oldest, struct reading *out)
{
    int64_t before = *oldest - 1;

    out->copies++;
    out->rows += rows->n;
    for (size_t i = 0; i < rows->n; i++) {
        int64_t id = integer_of(rows->items[i], SPANS_ID);
        out->torn += !row_is_whole(rows->items[i]);
        if (i == 0) {
            out->stale += id < *oldest; /* had been overwritten when the last copy was made */
            *oldest = id;
        } else {
            out->disorder += id != before + 1;
        }
        before = id;
    }
    const struct ring_counts *counts = &rows->counts;
    out->uncounted += counts->kept != rows->n || counts->kept + counts->lost != counts->written ||
                      (int64_t)counts->written <= before ||
                      counts->written + ring_holds < (uint64_t)published;
    out->empty += rows->n == 0 && published > 0;
}

static void read_rows(int fd, struct reading *out)
{
    struct ring_reader *reader;
    struct ring_counts counts;
    uint64_t counted = 0;
    int64_t oldest = 0;

    CHECK_INT(ring_reader_open(fd, spans, &reader), 0);
    uint64_t holds = ring_reader_size(reader) / 88;
    while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        int64_t published = __atomic_load_n(&shared->published, __ATOMIC_ACQUIRE);
        struct ring_rows rows = scan_rows(reader);
        judge(&rows, published, holds, &oldest, out);
        ring_rows_deinit(&rows);
        ring_reader_count(reader, &counts);
        out->uncounted += counts.written < counted || counts.kept + counts.lost != counts.written;
        counted = counts.written > holds ? counts.written - holds : 0;
    }
    ring_reader_unref(reader);
}

static pid_t start(struct ring *ring, size_t longest, int reader)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    if (reader < 0)
        write_rows(ring, longest);
    else
        read_rows(ring->fd, &shared->readings[reader]);
    _exit(0);
}

static void wait_for(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Until so much time has passed and so many rows are written. Returns how many were. */
static int64_t read_while_writing(uint64_t size, size_t longest, double seconds, int64_t enough)
{
    struct ring *ring = make_ring(spans, size);
    pid_t readers[READERS], writer;
    struct reading all = {0};

    memset(shared, 0, sizeof *shared);
    writer = start(ring, longest, -1);
    for (int i = 0; i < READERS; i++)
        readers[i] = start(ring, 0, i);
    double until = now() + seconds;
    while ((now() < until || __atomic_load_n(&shared->published, __ATOMIC_RELAXED) < enough) &&
           waitpid(writer, NULL, WNOHANG) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    __atomic_store_n(&shared->stop, true, __ATOMIC_RELAXED);
    wait_for(writer);
    for (int i = 0; i < READERS; i++) {
        const struct reading *reading = &shared->readings[i];
        wait_for(readers[i]);
        all.copies += reading->copies;
        all.rows += reading->rows;
        all.empty += reading->empty;
        all.torn += reading->torn;
        all.stale += reading->stale;
        all.disorder += reading->disorder;
        all.uncounted += reading->uncounted;
    }
    printf("%llu KiB: %lld rows written, %llu read in %llu copies (%llu empty): %llu torn, %llu "
           "stale, %llu out of "
           "order, %llu counts wrong\n",
           (unsigned long long)size >> 10, (long long)shared->published,
           (unsigned long long)all.rows, (unsigned long long)all.copies,
           (unsigned long long)all.empty, (unsigned long long)all.torn,
           (unsigned long long)all.stale, (unsigned long long)all.disorder,
           (unsigned long long)all.uncounted);
    CHECK(all.rows > 0);
    CHECK(!all.torn && !all.stale && !all.disorder && !all.uncounted);
    ring_free(ring);
    return shared->published;
}

/* ---- writers that are killed ---- */

static void kill_writer(int round)
{
    struct ring *ring = make_ring(spans, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, spans);
    struct reading reading = {0};
    int64_t oldest = 0;
    int status;

    memset(shared, 0, sizeof *shared);
    /* long rows, so that many die between two blocks */
    pid_t pid = start(ring, round % 2 ? 2000 : 60, -1);
    nanosleep(&(struct timespec){.tv_nsec = 100000 + round * 7919L % 2000 * 1000}, NULL);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    struct ring_rows rows = copy_rows(reader);
    judge(&rows, shared->published, 0, &oldest, &reading);
    CHECK(!reading.torn && !reading.disorder && !reading.uncounted);
    CHECK((int64_t)rows.counts.written == shared->published ||
          (int64_t)rows.counts.written == shared->published + 1);
    CHECK(rows.n == 0 ||
          integer_of(rows.items[rows.n - 1], SPANS_ID) == (int64_t)rows.counts.written - 1);
    CHECK(rows.n >= 20 || rows.n == rows.counts.written);
    ring_rows_deinit(&rows);
    close_ring(ring, reader);
}

int main(void)
{
    bool full = getenv("PROBEFS_TEST_FULL") != NULL;
    double seconds = full ? 20 : 0.4;
    int64_t enough = full ? 34000000 : 10000, written = 0;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    fill_letters();
    written += read_while_writing(RING_SIZE_MIN, 60, seconds, enough);
    written += read_while_writing(RING_SIZE_DEFAULT, 60, seconds, enough);
    written += read_while_writing(300000, 200, seconds, enough);
    printf("%lld rows\n", (long long)written);
    for (int round = 0; round < (full ? 500 : 60); round++)
        kill_writer(round);
    return 0;
}
