/* SQL as it is written to a file: in any pieces. */
#pragma once

#include "fs/file.h"
#include "fs/sql/engine.h"

/* What file_run does, over the tables of a provider. */
int query_feed(const struct provider *provider, struct file_context *context,
               const struct input *input, size_t *consumed, struct text *said);
