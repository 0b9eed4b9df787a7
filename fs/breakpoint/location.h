/* The place of a breakpoint: LOCATION in the grammar of line.h. */
#pragma once

#include "fs/breakpoint/reader.h"

/* Takes it. 0 or -EINVAL, and reader->why says what is wrong. */
int reader_location(struct reader *reader);
