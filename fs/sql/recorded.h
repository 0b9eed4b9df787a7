/* The rows of a ring, as those of a table. */
#pragma once

#include "fs/link/ring_reader.h"
#include "fs/sql/table.h"

/* Adds them, oldest first, but not all of those that the use of the table rules out. -ENOMEM. */
int recorded_add(struct ring_reader *ring, const struct table *table, const struct use *use,
                 struct rows *rows);
