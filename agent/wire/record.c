#include "agent/wire/record.h"

__attribute__((visibility("default"))) struct probe_agent_record probe_agent_record = {
    .magic = RECORD_MAGIC,
    .version = PROTO_VERSION,
    .size = sizeof(struct probe_agent_record),
    .state = RECORD_IDLE,
    .channel = -1,
    .lend.left = 1,
    .rings = {[0 ... PROTO_RINGS_MAX - 1] = {.fd = -1}},
};
