#include "fs/sql/stop.h"

#include "agent/base/clock.h"

#include <errno.h>

int stop_reason(const struct stop *stop)
{
    if (interrupted(stop->interrupt))
        return -EINTR;
    return monotonic_ns() > stop->deadline_ns ? -ETIMEDOUT : 0;
}
