#include "fs/recording/last_crash.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

static int keep(struct last_crash *crash, const struct ring_row *row)
{
    if (crash->size + row->size > LAST_CRASH_BYTES_MAX)
        return 0;
    if (crash->size + row->size > crash->alloc) {
        size_t alloc = (crash->size + row->size) * 2;
        char *rows = realloc(crash->rows, alloc);
        if (!rows)
            return -ENOMEM;
        crash->rows = rows;
        crash->alloc = alloc;
    }
    memcpy(crash->rows + crash->size, row, row->size);
    crash->size += row->size;
    return 0;
}

static int on_row(void *arg, const struct ring_row *row)
{
    struct last_crash *crash = arg;
    int64_t number;

    if (!row) {
        crash->number = 0;
        crash->size = 0;
        return 0;
    }
    if (!ring_integer(row, CRASH_CRASH, &number) || number < 1 || number < crash->number)
        return 0;
    if (number > crash->number) {
        crash->number = number;
        crash->size = 0;
    }
    return keep(crash, row);
}

int last_crash_read(struct recording *recording, struct last_crash *out)
{
    struct ring_counts counts;

    *out = (struct last_crash){0};
    return recording_scan(recording, RECORDED_CRASH, on_row, out, &counts);
}

void last_crash_deinit(struct last_crash *crash) { free(crash->rows); }

const struct ring_row *last_crash_next(const struct last_crash *crash, const struct ring_row *after)
{
    const char *next = after ? (const char *)after + after->size : crash->rows;
    return next && next < crash->rows + crash->size ? (const struct ring_row *)next : NULL;
}

enum crash_kind last_crash_kind(const struct ring_row *row)
{
    static const char *const kinds[] = {
        [CRASH_EXCEPTION] = "exception", [CRASH_SIGNAL] = "signal",  [CRASH_FRAME] = "frame",
        [CRASH_LOCAL] = "local",         [CRASH_CAUSE] = "cause",    [CRASH_CONTEXT] = "context",
        [CRASH_MEMBER] = "member",       [CRASH_EARLIER] = "earlier"};
    uint32_t size;
    bool cut;
    const char *kind = ring_text(row, CRASH_KIND, &size, &cut);

    for (enum crash_kind i = CRASH_EXCEPTION; kind && i < ARRAY_SIZE(kinds); i++)
        if (size == strlen(kinds[i]) && !memcmp(kind, kinds[i], size))
            return i;
    return CRASH_OTHER;
}

const struct ring_row *last_crash_frame(const struct last_crash *crash, int64_t depth)
{
    int64_t at;

    for (const struct ring_row *row = NULL; (row = last_crash_next(crash, row));)
        if (last_crash_kind(row) == CRASH_FRAME && ring_integer(row, CRASH_DEPTH, &at) &&
            at == depth)
            return row;
    return NULL;
}

void last_crash_add(const struct ring_row *row, enum crash_column column, const char *otherwise,
                    struct text *out)
{
    uint32_t size;
    bool cut;
    const char *bytes = ring_text(row, column, &size, &cut);

    if (!bytes) {
        text_puts(out, otherwise);
        return;
    }
    text_add_escaped(out, bytes, size);
    if (cut)
        text_puts(out, "...");
}
