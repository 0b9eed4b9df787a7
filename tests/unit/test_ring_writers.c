/* Writers that are in each other's way: each row is written whole, or dropped and counted. */
#include "tests/unit/ring_world.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#define THREAD_ROWS 200000

static struct ring *ring;

static bool append(struct ring *to, int64_t writer, int64_t number)
{
    struct gc_row row = {.ts = (double)number, .tid = writer, .collected = writer * number};
    return gc_append(to, &row, NULL);
}

/* Each writer's rows are whole and in order. Returns how many of `writer` there
 * are; *counts of all. */
static size_t check_rows(const struct ring *of, int64_t writer, struct ring_counts *counts)
{
    struct ring_reader *reader = open_ring(of, gc);
    struct ring_rows rows = copy_rows(reader);
    double last[3] = {-1, -1, -1};
    size_t n = 0;

    for (size_t i = 0; i < rows.n; i++) {
        int64_t who = integer_of(rows.items[i], GC_TID);
        double number = ring_real(rows.items[i], GC_TS);
        CHECK(who >= 0 && who < 3 && number > last[who]);
        CHECK_INT(integer_of(rows.items[i], GC_COLLECTED), who * (int64_t)number);
        last[who] = number;
        n += who == writer;
    }
    *counts = rows.counts;
    ring_rows_deinit(&rows);
    ring_reader_unref(reader);
    return n;
}

static void a_busy_ring_drops(void)
{
    struct ring_counts counts;
    struct ring_ticket ticket;

    ring = make_ring(gc, RING_SIZE_MIN);
    CHECK(append(ring, 0, 0));
    CHECK(gc_append(ring, &(struct gc_row){.ts = 1}, &ticket));
    struct ring_row *row = ring_begin(ring, 56);
    CHECK(row);
    CHECK(!append(ring, 1, 0) && !append(ring, 1, 1));
    CHECK(!gc_patch_duration(ring, &ticket, 1));
    CHECK_INT(check_rows(ring, 0, &counts), 2);
    CHECK_INT(counts.written, 2);
    CHECK_INT(counts.lost, 2);
    CHECK(!ring_close(ring)); /* waits in vain, and leaves it as it was */
    row->words[GC_TID] = row->words[GC_COLLECTED] = 0;
    ring_put_real(row, GC_TS, 2);
    ring_end(ring, NULL);
    CHECK(append(ring, 0, 3));
    CHECK_INT(check_rows(ring, 0, &counts), 4);
    CHECK_INT(counts.lost, 2);
    CHECK(ring_close(ring));
    CHECK(!append(ring, 0, 4));
    CHECK_INT(check_rows(ring, 0, &counts), 4);
    CHECK_INT(counts.lost, 3);
    ring_free(ring);
}

/* ---- threads ---- */

static void *write_rows(void *argument)
{
    int64_t writer = (int64_t)(intptr_t)argument;
    intptr_t written = 0;

    for (int64_t i = 0; i < THREAD_ROWS; i++)
        written += append(ring, writer, i);
    return (void *)written;
}

static void threads_write_at_once(void)
{
    pthread_t threads[3];
    struct ring_counts counts;
    intptr_t all = 0;

    ring = make_ring(gc, RING_SIZE_DEFAULT);
    for (intptr_t i = 0; i < 3; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_rows, (void *)i), 0);
    for (size_t i = 0; i < 3; i++) {
        void *written;
        CHECK_INT(pthread_join(threads[i], &written), 0);
        all += (intptr_t)written;
    }
    check_rows(ring, 0, &counts);
    CHECK_INT(counts.written, all);
    CHECK_INT(counts.kept + counts.lost, 3 * THREAD_ROWS);
    CHECK_INT(ring->header->dropped, 3 * THREAD_ROWS - all);
    ring_free(ring);
}

/* ---- signals ---- */

static int64_t handled, handled_written;

static void write_in_handler(int signal) { handled_written += append(ring, 1, handled++); }

static void signals_write_in_between(void)
{
    struct sigaction action = {.sa_handler = write_in_handler};
    struct itimerval often = {{0, 50}, {0, 50}};
    struct ring_counts counts;
    int64_t i = 0, written = 0;

    ring = make_ring(gc, RING_SIZE_DEFAULT);
    CHECK_INT(sigaction(SIGALRM, &action, NULL), 0);

    /* in the midst of a row */
    struct ring_row *row = ring_begin(ring, 56);
    CHECK_INT(raise(SIGALRM), 0);
    memset(row->words, 0, 48);
    ring_end(ring, NULL);
    written++;
    CHECK(handled == 1 && handled_written == 0);
    CHECK_INT(check_rows(ring, 0, &counts), 1);
    CHECK_INT(counts.lost, 1);

    /* wherever they come */
    CHECK_INT(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (i = 1; (i < 100000 || __atomic_load_n(&handled, __ATOMIC_RELAXED) < 500) && i < 1 << 30;
         i++)
        written += append(ring, 0, i);
    often = (struct itimerval){0};
    CHECK_INT(setitimer(ITIMER_REAL, &often, NULL), 0);
    signal(SIGALRM, SIG_DFL);
    check_rows(ring, 1, &counts);
    CHECK_INT(counts.written, written + handled_written);
    CHECK_INT(counts.kept + counts.lost, i + handled);
    CHECK(handled_written > 0);
    ring_free(ring);
}

/* ---- fork ---- */

static void forget_in_child(void)
{
    struct ring_counts counts;
    struct ring *own;

    ring_free(ring); /* the parent writes on */
    own = make_ring(gc, RING_SIZE_MIN);
    for (int64_t i = 0; i < 1000; i++)
        CHECK(append(own, 2, i));
    CHECK(check_rows(own, 2, &counts) > 500);
    CHECK_INT(own->header->pid, getpid());
    ring_free(own);
}

static void a_child_gives_up_its_share(void)
{
    struct ring_counts counts;
    int64_t number = 0;
    int status;

    ring = make_ring(gc, RING_SIZE_MIN);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++)
            CHECK(append(ring, 1, number++));
        struct ring_row *row = round % 2 ? ring_begin(ring, 56) : NULL;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            forget_in_child();
            _exit(0);
        }
        if (row) {
            row->words[GC_TID] = 1;
            row->words[GC_COLLECTED] = (uint64_t)number;
            ring_put_real(row, GC_TS, (double)number++);
            ring_end(ring, NULL);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK_INT(check_rows(ring, 1, &counts), (size_t)number);
        CHECK_INT(counts.lost, 0);
    }
    ring_free(ring);
}

/* ---- the process's limits, and its descriptors ---- */

static void limits_are_kept(void)
{
    struct rlimit all, small = {1 << 20, RLIM_INFINITY};
    struct ring *none = NULL;

    CHECK_INT(getrlimit(RLIMIT_FSIZE, &all), 0);
    small.rlim_max = all.rlim_max;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_INT(ring_new(gc, RING_SIZE_DEFAULT, 0, &none), -EFBIG); /* and no SIGXFSZ */
    ring = make_ring(gc, RING_SIZE_MIN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &all), 0);

    /* the program closes what it doesn't know, and opens something else there */
    int fd = ring->fd, other[2];
    CHECK_INT(pipe(other), 0);
    CHECK_INT(dup2(other[1], fd), fd);
    CHECK(append(ring, 0, 0));
    ring_free(ring);
    CHECK_INT(write(fd, "x", 1), 1); /* still open */
    close(fd);
    close(other[0]);
    close(other[1]);
}

/* What the kernel says of the ring's mapping: it is one, and no part of a core file. */
static void core_files_stay_small(void)
{
    char line[512];
    int mappings = 0, left_out = 0;
    bool ours = false;

    ring = make_ring(gc, 16 << 20);
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    while (fgets(line, sizeof line, smaps)) {
        if (line[0] >= '0' && line[0] <= 'f' && strchr(line, '-'))
            ours = strstr(line, "probefs-ring");
        mappings += ours && strstr(line, "probefs-ring");
        left_out += ours && !strncmp(line, "VmFlags:", 8) && strstr(line, " dd");
    }
    fclose(smaps);
    CHECK_INT(mappings, 1);
    CHECK_INT(left_out, 1);
    ring_free(ring);
}

int main(void)
{
    a_busy_ring_drops();
    threads_write_at_once();
    signals_write_in_between();
    a_child_gives_up_its_share();
    limits_are_kept();
    core_files_stay_small();
    return 0;
}
