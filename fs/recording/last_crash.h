/* The rows of the last crash that a process's agent has recorded, as of now. What they say is the
 * target's: it is escaped wherever it is shown. */
#pragma once

#include "fs/base/text.h"
#include "fs/recording/recording.h"

#include "schema/schema.h"

#define LAST_CRASH_BYTES_MAX (8u << 20) /* of its rows; later ones are left out */

enum crash_kind {
    CRASH_OTHER,
    CRASH_EXCEPTION,
    CRASH_SIGNAL,
    CRASH_FRAME,   /* of the exception; innermost first, each followed by ... */
    CRASH_LOCAL,   /* ... those for what it binds */
    CRASH_CAUSE,   /* an exception before it, which is said to be its cause ... */
    CRASH_CONTEXT, /* ... or was being handled, */
    CRASH_MEMBER,  /* or one in it, if it is a group; followed by ... */
    CRASH_EARLIER, /* ... its frames */
};

struct last_crash {
    int64_t number; /* 0: there is none */
    char *rows;     /* struct ring_row, one behind the other */
    size_t size, alloc;
};

/* -ENOMEM. *out is to be deinited in any case. */
int last_crash_read(struct recording *recording, struct last_crash *out);
void last_crash_deinit(struct last_crash *crash);

/* The row after `after` (NULL: the first); NULL: no more. */
const struct ring_row *last_crash_next(const struct last_crash *crash,
                                       const struct ring_row *after);
enum crash_kind last_crash_kind(const struct ring_row *row);
/* The row of a crash for the frame at that depth; NULL: there is none. */
const struct ring_row *last_crash_frame(const struct last_crash *crash, int64_t depth);

/* Adds a text of a row, escaped, with "..." where it was cut; `otherwise` if it is NULL. */
void last_crash_add(const struct ring_row *row, enum crash_column column, const char *otherwise,
                    struct text *out);
