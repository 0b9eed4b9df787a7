/* Packets of a hostile process: each is a frame by the rules of agent/wire/proto.h, or refused. The
 * rules are told here a second time. */
#include "agent/wire/wire.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int fds[2] = {-1, -1};
static struct wire_frame frame;

static bool well_formed(const uint8_t *data, size_t size)
{
    struct proto_header header;

    if (size < sizeof header || size > PROTO_FRAME_MAX)
        return false;
    memcpy(&header, data, sizeof header);
    if (header.size != size || header.zero || !header.id != (header.op >= PROTO_RINGS))
        return false;
    size_t body = size - sizeof header;
    switch (header.op) {
    case PROTO_HELLO: return body == sizeof(struct proto_hello);
    case PROTO_EVAL:
    case PROTO_BREAKPOINTS: return body >= sizeof(struct proto_eval);
    case PROTO_TEXT:
    case PROTO_OUTPUT: return true;
    case PROTO_READY: return body == sizeof(struct proto_ready);
    case PROTO_RECORD: return body == sizeof(struct proto_record);
    case PROTO_THREAD: return body == sizeof(struct proto_thread);
    case PROTO_ON_CRASH: return body == sizeof(struct proto_on_crash);
    case PROTO_ARMED: return body == sizeof(struct proto_armed);
    case PROTO_ALLOCATIONS: return body == sizeof(struct proto_allocations);
    case PROTO_SAMPLES: return body == sizeof(struct proto_samples);
    case PROTO_RELEASE: return body == sizeof(struct proto_release);
    case PROTO_CRASHED: return body == sizeof(struct proto_crashed);
    case PROTO_DONE: return body == sizeof(struct proto_done);
    case PROTO_CANCEL:
    case PROTO_STATUS:
    case PROTO_DETACH:
    case PROTO_CRASH_SEEN:
    case PROTO_RINGS:
    case PROTO_WATCHES:
    case PROTO_HAPPENED:
    case PROTO_STARTED: return body == 0;
    default: return false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fds[0] < 0 && wire_pair(fds) < 0)
        abort();
    if (size == 0 || send(fds[0], data, size, MSG_DONTWAIT) != (ssize_t)size)
        return 0; /* longer than what a socket takes */

    int r = wire_receive(fds[1], &frame);
    if (r != (well_formed(data, size) ? 0 : -EPROTO))
        abort();
    if (r == 0 && (memcmp(&frame, data, size) ||
                   wire_body_size(&frame) != size - sizeof(struct proto_header)))
        abort();
    if (wire_receive(fds[1], &frame) != -EAGAIN)
        abort(); /* one packet is one frame */
    return 0;
}
