/* What stat(2) can say of a content: how long it is, and when it was rendered. */
#pragma once

#include <stddef.h>
#include <time.h>

struct rendered {
    size_t size; /* bytes */
    struct timespec when;
};
