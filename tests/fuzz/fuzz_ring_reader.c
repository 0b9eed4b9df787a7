/* A ring whose owner writes anything into it, also while it is read: the rows that are passed are
 * whole and lie within one block, and the counts make sense. */
#include "fs/recording/ring_reader.h"
#include "schema/rows.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (RING_HEADER_SIZE + RING_SIZE_MIN)
/* that fill() puts into a block */
#define ROWS_MAX ((RING_BLOCK_MIN - sizeof(struct ring_block)) / 96)

static const struct ring_layout *const layout = &recorded_layouts[RECORDED_SPANS];
static struct ring_header *header; /* of the owner's mapping */
static struct ring_reader *reader;

/* The scribbling that is left: done again and again by a thread, while the ring is read. */
static const uint8_t *later;
static size_t n_later;
static sem_t begin, ended;
static bool stop, quit;
static pthread_t scribbler;

static volatile unsigned read_text; /* the sanitizer knows where the copy ends */

static struct ring_block *block(uint8_t which)
{
    return (struct ring_block *)((char *)header + RING_HEADER_SIZE + which % 4 * RING_BLOCK_MIN);
}

/* Whole rows to begin with, in blocks that follow each other: they are what is
 * then scribbled over. */
static void fill(uint8_t rows)
{
    rows %= ROWS_MAX + 1;
    header->head = rows % 7;
    header->dropped = rows;
    for (uint64_t sequence = 1; sequence <= header->head; sequence++) {
        struct ring_block *b = block((uint8_t)(sequence - 1));
        *b = (struct ring_block){.sequence = sequence,
                                 .first = rows % 3 ? sequence * rows : 0,
                                 .used = rows * 96u};
        for (uint8_t i = 0; i < rows; i++) {
            struct ring_row *row = (struct ring_row *)(b->rows + i * 96u);
            *row = (struct ring_row){.size = 96};
            for (unsigned column = 0; column < layout->columns; column++)
                row->words[column] =
                    layout->types[column] == 'T' ? RING_TEXT_WORD(80 + column, i % 8) : i;
        }
    }
}

/* One instruction of five bytes: where, and what. */
static void scribble(const uint8_t *code)
{
    uint32_t value = code[3] | (uint32_t)code[4] << 8;
    struct ring_block *b = block(code[1]);
    uint64_t wide = code[2] & 1 ? ~(uint64_t)value : code[2] & 2 ? (uint64_t)value << 48 : value;

    switch (code[0] % 8) {
    case 0: header->head = wide; break;
    case 1: header->dropped = wide; break;
    case 2: b->sequence = wide; break;
    case 3: b->first = wide; break;
    case 4: b->used = (uint32_t)wide; break;
    case 5: memcpy(b->rows + code[2] * 8 % 4096, &wide, sizeof wide); break;
    case 6: memcpy(b->rows + (code[2] + code[1] * 64) % 16000, &value, 1 + code[1] % 4); break;
    case 7:
        *(uint64_t *)((char *)header + value % (SIZE / 8) * 8) = wide * 0x9e3779b97f4a7c15ull;
        break;
    }
}

/* libFuzzer's timer interrupts whichever thread it meets. */
static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0)
        if (errno != EINTR)
            abort();
}

static void *scribble_on(void *unused)
{
    for (;;) {
        await(&begin);
        if (quit)
            return NULL;
        do
            for (size_t at = 0; at + 5 <= n_later; at += 5)
                scribble(later + at);
        while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE));
        sem_post(&ended);
    }
}

/* LeakSanitizer looks at the threads that are left at the end, and may crash over one. */
static void end_scribbler(void)
{
    quit = true;
    sem_post(&begin);
    pthread_join(scribbler, NULL);
}

static void open_ring(void)
{
    int fd = memfd_create("ring", MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, SIZE) < 0)
        abort();
    header = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (header == MAP_FAILED ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) < 0)
        abort();
    *header = (struct ring_header){.magic = RING_MAGIC,
                                   .version = RING_VERSION,
                                   .layout = layout->hash,
                                   .table = "spans",
                                   .size = RING_SIZE_MIN,
                                   .block_size = RING_BLOCK_MIN,
                                   .blocks = RING_SIZE_MIN / RING_BLOCK_MIN};
    if (ring_reader_open(fd, layout, &reader) < 0)
        abort();
    close(fd);
    if (sem_init(&begin, 0, 0) < 0 || sem_init(&ended, 0, 0) < 0 ||
        pthread_create(&scribbler, NULL, scribble_on, NULL) != 0 || atexit(end_scribbler) != 0)
        abort();
}

struct looking {
    uint64_t n;
    uint8_t stop; /* after so many rows; 0: never */
};

static int look_at(void *arg, const struct ring_row *row)
{
    struct looking *looking = arg;

    if (!row) {
        looking->n = 0;
        return 0;
    }
    const char *end = (const char *)row + row->size;
    if (row->size < 80 || row->size > RING_BLOCK_MIN)
        abort();
    for (unsigned column = 0; column < layout->columns; column++) {
        uint32_t size;
        bool cut;
        const char *text = layout->types[column] == 'T' ? ring_text(row, column, &size, &cut)
                                                        : NULL;
        if (text && (text < (const char *)row + 80 || text + size > end || size > RING_TEXT_MAX))
            abort();
        for (uint32_t at = 0; text && at < size; at++)
            read_text += (unsigned char)text[at];
    }
    read_text += (unsigned char)end[-1];
    return ++looking->n == looking->stop ? 1 : 0;
}

static void check(const struct ring_counts *counts, const struct looking *looking)
{
    if (counts->kept != looking->n || counts->written < counts->kept ||
        counts->written > INT64_MAX || counts->lost > INT64_MAX ||
        counts->lost < counts->written - counts->kept)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ring_counts counts, scanned;
    struct looking looking = {0};

    if (!reader)
        open_ring();
    if (size < 3)
        return 0;
    memset(header, 0, SIZE);
    fill(data[0]);
    looking.stop = data[1] % 4 ? 0 : data[1];
    size_t now = data[2] % 32 * 5u;
    data += 3, size -= 3;
    now = now < size ? now : size / 5 * 5;
    for (size_t at = 0; at + 5 <= now; at += 5)
        scribble(data + at);
    later = data + now;
    n_later = size - now;
    __atomic_store_n(&stop, false, __ATOMIC_RELEASE);
    sem_post(&begin);
    ring_reader_count(reader, &counts);
    if (counts.written > INT64_MAX || counts.kept > RING_SIZE_MIN / 80 ||
        counts.kept > counts.written || counts.lost > INT64_MAX)
        abort();
    int r = ring_reader_scan(reader, look_at, &looking, &scanned);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    await(&ended);
    if (r < 0 || (r == 0 && looking.stop && looking.n >= looking.stop))
        abort();
    check(&scanned, &looking);
    return 0;
}
