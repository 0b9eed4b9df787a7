/* Core files that were packed: systemd-coredump(8) does so. */
#pragma once

#include "fs/base/text.h"

#define CORE_UNPACKED_MAX (64ull << 30) /* bytes */

/* If the file is packed by zstd, lz4, xz or gzip: unpacks it into a file without a name, in TMPDIR
 * or /var/tmp, and returns that; the descriptor is the caller's. -ENOENT: it isn't packed. Else
 * -errno, and why says what went wrong. Takes as long as that takes. */
int core_unpack(int fd, struct text *why);
/* The name of what a file is packed with, "zstd" say; NULL: it isn't packed. */
const char *core_packer(int fd);
