/* SQL as it is written to a file: in any pieces. */
#pragma once

#include "fs/sql/attached_file.h"
#include "fs/sql/engine.h"
#include "fs/tables/every_process.h"
#include "fs/tables/scene.h"
#include "fs/tree/file.h"

/* The tables that a file shows: those of its process, or of all. */
struct tables_of {
    struct subject one;
    struct looker looker; /* of that */
    struct every_process every;
    struct attached_file file; /* of the history */
    struct attached_schema history;
};

/* The provider of a file's tables. Fills in *of, which must outlive it, as context must. */
struct provider tables_provider(const struct file_context *context, struct tables_of *of);

/* Adds what a statement of our own selects from them. The errors of engine_run(), and the
 * context's why says more. */
int query_select(struct file_context *context, const struct provider *provider, const char *sql,
                 const char *format, struct text *out);

/* What file_run does, over the tables of a provider. */
int query_feed(const struct provider *provider, const struct interrupt *interrupt,
               const struct input *input, struct text *said, struct text *why,
               struct outcome *outcome);

/* The same, by an engine that has begun. */
int query_feed_engine(struct engine *engine, const struct input *input, struct text *said,
                      struct text *why, struct outcome *outcome);

/* Who runs statements where the daemon itself doesn't want to (owner/statements.h). */
struct statement_runner {
    void *arg;
    /* What query_feed() does, with its errors; -EIO: whoever ran it has ended. */
    int (*feed)(void *arg, const struct provider *provider, const struct interrupt *interrupt,
                const struct input *input, struct text *said, struct text *why,
                struct outcome *outcome);
};
