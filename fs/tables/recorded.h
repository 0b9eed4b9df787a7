/* The rows of a ring, as those of a table. */
#pragma once

#include "fs/recording/ring_reader.h"
#include "fs/sql/table.h"

struct membership;
struct stop;

/* Adds those that the statement's use of the table doesn't rule out, oldest first. of: whose they
 * are; NULL: that isn't known. -ENOMEM, -EFBIG, or what stop_reason() says. */
int recorded_add(struct ring_reader *ring, const struct table *table, const struct use *use,
                 const struct membership *of, const struct stop *stop, struct rows *rows);
