/* A process as far as a reading looks at it: written by record_process.c, read by fuzz_process.c.
 *
 * A file is a head, its threads, its pieces of memory, and the bytes of these one behind the other.
 * Both programs are linked so that process_vm_readv(2) is a function of theirs. */
#pragma once

#include "fs/proc/lwp.h"
#include "fs/remote/frames/locals.h"
#include "fs/remote/frames/with_blocks.h"
#include "fs/remote/objects/values.h"
#include "fs/remote/waits/waits.h"

#include <sys/uio.h>

#define IMAGE_THREADS_MAX 32
#define IMAGE_PIECES_MAX 8192
#define IMAGE_BYTES_MAX (1u << 18)
#define ASYNCIO_WORDS (ASYNCIO_DEBUG_SIZE / 8)

struct image_head {
    uint64_t version, runtime, image_base, code_type;
    uint64_t asyncio[ASYNCIO_WORDS]; /* 3.14 on, as in the section .AsyncioDebug; 0: none */
    uint64_t threads, pieces, bytes;
};

struct image_thread {
    uint64_t tid, state, syscall, args[LWP_ARGUMENTS];
};

struct image_piece {
    uint64_t addr, size;
};

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                                const struct iovec *remote, unsigned long nremote,
                                unsigned long flags);

struct process {
    struct target target; /* memory, runtime, view and codes are set */
    struct asyncio asyncio;
    struct lwp_list lwps;
};

/* Reads all that is read of a process for `backtrace`, `locals`, `tasks` and `locks`, and returns
 * the length of the text that it makes, or -errno. */
ssize_t process_look(struct process *process);
