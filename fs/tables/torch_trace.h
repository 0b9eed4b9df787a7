/* What a row of torch_trace says that isn't recorded. */
#pragma once

#include "fs/recording/ring_reader.h"
#include "fs/sql/rows.h"

#define TORCH_TRACE_MEMORY 4 /* columns of it: allocated, max_allocated, cached, max_cached */

struct membership;

/* A ring's rows one after another; zero: none yet. */
struct torch_trace_adding {
    bool known;                         /* some row has said how much memory was taken */
    int64_t memory[TORCH_TRACE_MEMORY]; /* bytes, as the last such row says */
    int64_t delta[TORCH_TRACE_MEMORY];  /* bytes since the one before; ROWS_NULL: unknown */
};

/* Takes the next row of the ring, wanted or not. */
void torch_trace_follow(struct torch_trace_adding *adding, const struct ring_row *row);
/* Sets the columns that are added of the row that was taken last. of: its process; NULL: it isn't
 * known. */
void torch_trace_add(const struct torch_trace_adding *adding, const struct membership *of,
                     struct rows *rows);
