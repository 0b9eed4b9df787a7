/* When whoever works for a statement is to give up. */
#pragma once

#include "fs/base/interrupt.h"

#include <stdint.h>

struct stop {
    const struct interrupt *interrupt;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC */
};

/* -EINTR, -ETIMEDOUT or 0. */
int stop_reason(const struct stop *stop);
