/* The rows of a ring, as those of a table. */
#pragma once

#include "fs/recording/ring_reader.h"
#include "fs/sql/table.h"

struct stop;

/* Adds those that the statement's use of the table doesn't rule out, oldest first. -ENOMEM, -EFBIG,
 * or what stop_reason() says. */
int recorded_add(struct ring_reader *ring, const struct table *table, const struct use *use,
                 const struct stop *stop, struct rows *rows);
