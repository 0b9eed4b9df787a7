/* A library that looks like an agent from outside: tests/targets/imposter.py says what is in it. */
#include "agent/wire/proto.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct probe_agent_record probe_agent_record = {
    .magic = RECORD_MAGIC,
    .version = PROTO_VERSION,
    .size = sizeof(struct probe_agent_record),
    .channel = -1,
};

EXPORT int probe_agent_start(const struct agent_boot *boot) { return -38; /* ENOSYS */ }
