/* SQL as it is written to a file: in any pieces. */
#pragma once

#include "fs/sql/engine.h"
#include "fs/tables/every_process.h"
#include "fs/tables/scene.h"
#include "fs/tree/file.h"

/* The tables that a file shows: those of its process, or of all. */
struct tables_of {
    struct subject one;
    struct looker looker; /* of that */
    struct every_process every;
    struct attached_file history;
};

/* The provider of a file's tables. Fills in *of, which must outlive it, as context must. */
struct provider tables_provider(const struct file_context *context, struct tables_of *of);

/* What file_run does, over the tables of a provider. */
int query_feed(const struct provider *provider, struct file_context *context,
               const struct input *input, struct text *said, struct outcome *outcome);
