/* A ring is hostile until checked: what is no ring is refused, and of one whose memory is scribbled
 * over only rows that are whole are seen. */
#include "tests/unit/ring_world.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>

#define ROWS 10
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)

/* ---- what is no ring ---- */

static struct ring_header good_header(void)
{
    struct ring_header header = {.magic = RING_MAGIC,
                                 .version = RING_VERSION,
                                 .layout = gc->hash,
                                 .table = "gc",
                                 .size = 4 * RING_BLOCK_MIN,
                                 .block_size = RING_BLOCK_MIN,
                                 .blocks = 4};
    return header;
}

static int make_file(const struct ring_header *header, size_t size, unsigned flags, int seals)
{
    int fd = memfd_create("ring", MFD_ALLOW_SEALING | flags);

    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 0, size);
    if (size >= sizeof *header)
        memcpy(memory, header, sizeof *header);
    CHECK_INT(munmap(memory, size), 0);
    CHECK(!seals || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* Closes fd. */
static int try_file(int fd, const struct ring_layout *layout)
{
    struct ring_reader *reader = NULL;
    int r = ring_reader_open(fd, layout, &reader);

    CHECK((r == 0) == (reader != NULL));
    ring_reader_unref(reader);
    if (fd >= 0)
        close(fd);
    return r;
}

static int try(struct ring_header header, size_t size, int seals)
{
    return try_file(make_file(&header, size, 0, seals), gc);
}

static void refuses_what_may_change_its_size(void)
{
    const size_t size = RING_HEADER_SIZE + 4 * RING_BLOCK_MIN;
    struct ring_header header = good_header();

    CHECK_INT(try(header, size, SEALS), 0);
    CHECK_INT(try(header, size, SEALS | F_SEAL_SEAL), 0);
    CHECK_INT(try(header, size, 0), -EPROTO);
    CHECK_INT(try(header, size, F_SEAL_SHRINK | F_SEAL_GROW), -EPROTO);
    CHECK_INT(try(header, size, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), -EPROTO);
    CHECK_INT(try(header, size, F_SEAL_GROW | F_SEAL_FUTURE_WRITE), -EPROTO);
    CHECK_INT(try(header, size - 8, SEALS), -EPROTO);
    CHECK_INT(try(header, size + 8, SEALS), -EPROTO);
    CHECK_INT(try(header, 8, SEALS), -EPROTO);

    int fd = make_file(&header, size, 0, 0);
    CHECK_INT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, RING_BLOCK_MIN, 4096), 0);
    CHECK_INT(fcntl(fd, F_ADD_SEALS, SEALS), 0);
    CHECK_INT(try_file(fd, gc), -EPROTO); /* a page that isn't there */

    fd = make_file(&header, size, 0, 0);
    CHECK_INT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, RING_BLOCK_MIN, 4096), 0);
    CHECK_INT(fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)size, 1 << 20), 0);
    CHECK_INT(fcntl(fd, F_ADD_SEALS, SEALS), 0);
    CHECK_INT(try_file(fd, gc), -EPROTO); /* while there are more behind the end */
}

static void refuses_other_files(void)
{
    const size_t size = RING_HEADER_SIZE + 4 * RING_BLOCK_MIN;
    struct ring_header header = good_header();
    char path[64];
    int ends[2];

    CHECK_INT(try_file(-1, gc), -EPROTO);
    CHECK_INT(try_file(open("/", O_RDONLY), gc), -EPROTO);
    CHECK_INT(try_file(open("/dev/null", O_RDWR), gc), -EPROTO);
    CHECK_INT(try_file(open("/proc/self/exe", O_RDONLY), gc), -EPROTO);
    CHECK_INT(pipe(ends), 0);
    CHECK_INT(try_file(ends[0], gc), -EPROTO);
    CHECK_INT(try_file(ends[1], gc), -EPROTO);
    int fd = make_file(&header, size, 0, SEALS);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK_INT(try_file(open(path, O_PATH), gc), -EPROTO);
    CHECK_INT(try_file(open(path, O_RDONLY), gc), 0);
    CHECK_INT(try_file(fd, gc), 0);
    fd = memfd_create("ring", MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd >= 0)
        CHECK_INT(try_file(fd, gc), -EPROTO);
}

static void refuses_other_headers(void)
{
    const struct ring_layout other_name = {"gd", gc->types, gc->columns, gc->hash};
    const size_t size = RING_HEADER_SIZE + 4 * RING_BLOCK_MIN;
    struct ring_header header;

#define REFUSED(field, value)                   \
 do {                                           \
  header = good_header();                       \
  CHECK(header.field != (value));               \
  header.field = (value);                       \
  CHECK_INT(try(header, size, SEALS), -EPROTO); \
 } while (0)
    REFUSED(magic, 0);
    REFUSED(version, RING_VERSION + 1);
    REFUSED(layout, gc->hash + 1);
    REFUSED(table[2], 'x');
    REFUSED(size, 3 * RING_BLOCK_MIN);
    REFUSED(size, UINT64_MAX);
    REFUSED(blocks, 0);
    REFUSED(blocks, 5);
    REFUSED(blocks, UINT32_MAX);
    REFUSED(block_size, 2 * RING_BLOCK_MIN);
    REFUSED(block_size, 0);
    header = good_header();
    header.block_size = RING_BLOCK_MIN / 2;
    header.blocks = 8;
    CHECK_INT(try(header, size, SEALS), -EPROTO);
    header.block_size = RING_BLOCK_MAX * 2;
    header.blocks = 2;
    header.size = RING_BLOCK_MAX * 4;
    CHECK_INT(try(header, RING_HEADER_SIZE + header.size, SEALS), -EPROTO);
    header.block_size = 24 << 10;
    header.blocks = 3;
    header.size = 72 << 10;
    CHECK_INT(try(header, RING_HEADER_SIZE + header.size, SEALS), -EPROTO);
    header.block_size = header.size = RING_BLOCK_MIN;
    header.blocks = 1;
    CHECK_INT(try(header, RING_HEADER_SIZE + header.size, SEALS), -EPROTO);
    header = good_header();
    CHECK_INT(try_file(make_file(&header, size, 0, SEALS), spans), -EPROTO);
    CHECK_INT(try_file(make_file(&header, size, 0, SEALS), &other_name), -EPROTO);
}

/* ---- what is scribbled over ---- */

static struct ring *ring;
static struct ring_reader *reader;

/* The nth of the rows, all of the same size, that begin() wrote. */
static struct ring_row *nth(unsigned n)
{
    return (struct ring_row *)(ring->block->rows + n * ring->used / ROWS);
}

static void begin(void)
{
    struct spans_row row = {.name = text_of("name"), .attrs = text_of("attributes")};

    ring = make_ring(spans, RING_SIZE_MIN);
    for (row.id = 0; row.id < ROWS; row.id++)
        CHECK(spans_append(ring, &row, NULL));
    reader = open_ring(ring, spans);
}

/* So many rows are good, and so many are said to be lost; then another ring is made. */
static void expect(size_t kept, uint64_t lost)
{
    struct ring_counts counts;
    struct ring_rows rows;
    uint32_t size;
    bool cut;

    ring_reader_count(reader, &counts);
    CHECK(counts.written <= INT64_MAX && counts.kept <= counts.written && counts.lost <= INT64_MAX);
    rows = scan_rows(reader);
    CHECK_INT(rows.n, kept);
    CHECK_INT(rows.counts.kept, kept);
    CHECK_INT(rows.counts.lost, lost);
    CHECK(rows.counts.written >= kept && rows.counts.written <= INT64_MAX);
    for (size_t i = 0; i < rows.n; i++) {
        CHECK_INT(integer_of(rows.items[i], SPANS_ID), i);
        const char *name = ring_text(rows.items[i], SPANS_NAME, &size, &cut);
        CHECK(name && size == 4 && memcmp(name, "name", 4) == 0);
    }
    ring_rows_deinit(&rows);
    close_ring(ring, reader);
    begin();
}

static void bad_rows_end_their_block(void)
{
    static const uint32_t sizes[] = {0,  8,          80 - 8,         81,
                                     84, UINT32_MAX, UINT32_MAX - 7, RING_BLOCK_MIN};
    const struct {
        uint32_t offset, size;
    } texts[] = {
        {80, RING_TEXT_MAX + 1},
        {80, 4096},
        {80, RING_TEXT_CUT | 4096},
        {0, 4},
        {8, 4},
        {79, 1},
        {97, 0},
        {96, 1},
        {80, 17},
        {UINT32_MAX, 0},
        {UINT32_MAX, 1},
        {UINT32_MAX - 3, 8},
        {80, UINT32_MAX},
        {0x80000000u, 0x80000000u},
    };
    begin();
    CHECK_INT(nth(1)->size, 96); /* 80 with the words, then 14 bytes of texts */
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        nth(6)->size = sizes[i];
        expect(6, 1); /* what follows it can't be found */
    }
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        nth(6)->words[SPANS_ATTRS] = RING_TEXT_WORD(texts[i].offset, texts[i].size);
        expect(6, 1);
    }
    nth(0)->size = 1;
    expect(0, 1);
    nth(6)->words[SPANS_ATTRS] = RING_TEXT_WORD(95, RING_TEXT_CUT | 1u);
    expect(10, 0);
    nth(6)->words[SPANS_ATTRS] = 0;
    expect(10, 0);
    close_ring(ring, reader);
}

static void blocks_say_nonsense(void)
{
    begin();
    ring->block->used = UINT32_MAX; /* as much as fits; there is nothing in it */
    expect(10, 1);
    ring->block->used -= 4;
    expect(9, 1);
    ring->block->used = 0;
    expect(0, 0);
    ring->block->sequence = 0; /* as if the writer had been killed while it made the block empty */
    expect(0, 0);
    ring->block->sequence = 5;
    expect(0, 0);
    ring->block->first = 100;
    expect(10, 100);
    ring->block->first = UINT64_MAX;
    expect(10, INT64_MAX - 10);
    ring->header->dropped = UINT64_MAX;
    expect(10, INT64_MAX);
    ring->header->head = 0;
    expect(0, 0);
    ring->header->head = 4; /* the newest isn't there, so it isn't known what is missing */
    expect(0, 0);
    ring->header->head = 5;
    expect(0, 0);
    ring->header->head = UINT64_MAX;
    expect(0, 0);
    /* what was read when it was opened is not read again */
    ring->header->blocks = UINT32_MAX;
    ring->header->block_size = 1;
    ring->header->size = 0;
    ring->header->magic = 0;
    expect(10, 0);
    close_ring(ring, reader);
}

static void blocks_contradict_each_other(void)
{
    struct ring_counts counts;
    struct ring_rows rows;

    begin();
    uint32_t full = ring->block_size - (uint32_t)sizeof *ring->block;
    /* the same rows, each block the first one */
    for (uint64_t sequence = 1; sequence <= 4; sequence++) {
        struct ring_block *block =
            (void *)((char *)ring->header + RING_HEADER_SIZE + (sequence - 1) * ring->block_size);
        memcpy(block->rows, ring->block->rows, ring->used);
        *block =
            (struct ring_block){.sequence = sequence, .first = 1000 * (5 - sequence), .used = full};
    }
    ring->header->head = 4;
    rows = scan_rows(reader);
    CHECK_INT(rows.counts.kept, 40);
    CHECK_INT(rows.counts.written, 4000 + 11);
    ring_rows_deinit(&rows);
    ring_reader_count(reader, &counts);
    CHECK(counts.kept <= 4 * full / 80 && counts.written >= 4000 &&
          counts.written < 4000 + full / 80);
    close_ring(ring, reader);
}

int main(void)
{
    refuses_what_may_change_its_size();
    refuses_other_files();
    refuses_other_headers();
    bad_rows_end_their_block();
    blocks_say_nonsense();
    blocks_contradict_each_other();
    return 0;
}
