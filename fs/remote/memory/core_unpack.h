/* Core files that were packed: systemd-coredump(8) does so. */
#pragma once

#include "fs/base/text.h"

#define CORE_UNPACKED_MAX (64ull << 30) /* bytes */

/* A file without a name, in TMPDIR or /var/tmp, to unpack into; the descriptor is the caller's.
 * -errno. */
int core_unpack_space(void);
const char *core_unpack_directory(void);
/* Loads what unpacks the file, if it is packed: for who can open no files later on. */
void core_unpack_prepare(int fd);
/* Unpacks a file that is packed by zstd, lz4, xz or gzip; out: of core_unpack_space(), or its
 * error. -errno, and why says what went wrong. Takes as long as that takes. */
int core_unpack(int fd, int out, struct text *why);
/* The name of what a file is packed with, "zstd" say; NULL: it isn't packed. */
const char *core_packer(int fd);
