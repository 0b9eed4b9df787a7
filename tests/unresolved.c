/* A library that can't be loaded. */
#include "agent/wire/proto.h"

int defined_nowhere(void);

__attribute__((visibility("default"))) int probe_agent_start(const struct agent_boot *boot)
{
    return defined_nowhere();
}
