/* Frames over the channel: sending and receiving them whole, and checking what is the same for all.
 *
 * Compiled into the daemon and into the agent; needs nothing but libc, never allocates. */
#pragma once

#include "agent/wire/proto.h"

#include <stddef.h>

/* A frame as it came. */
struct wire_frame {
    struct proto_header header;
    uint8_t body[PROTO_FRAME_MAX - sizeof(struct proto_header)];
};

/* Bytes of a received frame's body. */
static inline size_t wire_body_size(const struct wire_frame *frame)
{
    return frame->header.size - sizeof frame->header;
}

/* Makes a connected pair; both ends close on exec. 0 or -errno. */
int wire_pair(int fds[2]);

/* Sends one frame whose body is `body` followed by `more` (either may be NULL with size 0).
 * Waits at most deadline_ns for room, 0: not at all. -EMSGSIZE: longer than a frame; -EAGAIN: no
 * room in time; -EPIPE: the other side is gone; other -errno. Never raises SIGPIPE. */
int wire_send(int fd, uint16_t op, uint64_t id, const void *body, size_t size, const void *more,
              size_t more_size, uint64_t deadline_ns);

/* Receives one frame without waiting. -EAGAIN: none there; -EPIPE: the other side is gone;
 * -EPROTO: not a well-formed frame (its length is wrong, its op unknown, its body not as long as
 * the op's is, its id 0 where it must not be, descriptors came along); other -errno. */
int wire_receive(int fd, struct wire_frame *out);

/* Whether a packet of `size` bytes is a well-formed frame: the check of wire_receive(), for
 * fuzzing. */
int wire_check(const struct proto_header *header, size_t size);
