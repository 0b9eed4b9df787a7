/* Contents rendered before a file is opened: those of tables/NAME.csv, whose size programs like tar
 * and DuckDB ask for first and then rely on.
 *
 * Looking such a name up renders it for the thread that asks, and its next open within moments gets
 * that very content. Few are kept, and not for long: most are opened at once, for open(2) looks the
 * name up, too. */
#pragma once

#include "fs/base/budget.h"
#include "fs/tree/file.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define DRAFTS_MAX 32
#define DRAFT_NS 2000000000u /* how long one may be used */

struct draft {
    uint64_t place;          /* place_number(); 0: none */
    struct credentials *who; /* of the thread that asked */
    struct text text;
    uint64_t made_ns; /* CLOCK_MONOTONIC */
};

struct drafts {
    pthread_mutex_t lock;
    struct budget *budget; /* what their bytes come out of */
    struct draft items[DRAFTS_MAX];
};

void drafts_init(struct drafts *drafts, struct budget *budget);
void drafts_deinit(struct drafts *drafts);

/* Keeps the content that was rendered for this thread with these credentials; takes it over, and a
 * reference of its own. The oldest goes. */
void drafts_put(struct drafts *drafts, uint64_t place, struct credentials *who, struct text *text);
/* The size of the one that is kept for it, in bytes; false: there is none. */
bool drafts_find(struct drafts *drafts, uint64_t place, const struct credentials *who,
                 size_t *size);
/* Takes it out; the text is the caller's to free. False: there is none. */
bool drafts_take(struct drafts *drafts, uint64_t place, const struct credentials *who,
                 struct text *out);
