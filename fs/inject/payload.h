/* The memfd of an injection, as the daemon has it: the library, the control page, the shim's code.
 *
 * It was made in the target, which can write to it, truncate or replace it: it is only read and
 * written by pread(2) and pwrite(2), never mapped here. */
#pragma once

#include "fs/inject/inject_abi.h"

#include <stdbool.h>
#include <sys/types.h>

struct payload {
    const void *library; /* stays the caller's; NULL: none */
    size_t library_size;
};

/* Bytes of the memfd; where in it the control page is. */
uint64_t payload_size(const struct payload *payload);
uint64_t payload_control(const struct payload *payload);
/* Offset of the shim's first function from the control page. */
uint64_t payload_work(void);

/* Takes the memfd with this number out of a process. -EPROTO: it isn't what it should be; -ESRCH,
 * -EPERM, -ENOSYS, -EMFILE. The caller owns *out. */
int payload_open(pid_t pid, int number, const struct payload *payload, int *out);
/* Writes all of it. -errno. */
int payload_fill(int fd, const struct payload *payload, const struct shim_control *control);
/* Reads the control page's structure. -EPROTO: there is less; -errno. */
int payload_read(int fd, const struct payload *payload, struct shim_control *out);
/* Tells the new thread not to call anything that it hasn't called yet. */
int payload_cancel(int fd, const struct payload *payload);
