/* Unpacking by libarchive, whose raw format is any file. */
#include "fs/remote/memory/core_unpack.h"

#include "agent/base/cleanup.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BLOCK (64u << 10) /* what of it is zero is left as a hole */

static void cleanup_archive(struct archive **archive) { archive_read_free(*archive); }

static const char *directory(void)
{
    const char *named = getenv("TMPDIR");

    return named && *named ? named : "/var/tmp";
}

static bool is_zero(const char *block, size_t size)
{
    return !*block && !memcmp(block, block + 1, size - 1);
}

static int write_block(int fd, const char *block, size_t size, off_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, block + done, size - done, at + (off_t)done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n < 0 ? 0 : (size_t)n;
    }
    return 0;
}

/* Up to the end, or to where the file was cut. */
static int copy(struct archive *archive, int fd)
{
    _cleanup_free_ char *block = malloc(BLOCK);
    uint64_t at = 0;
    ssize_t n;

    if (!block)
        return -ENOMEM;
    while ((n = archive_read_data(archive, block, BLOCK)) > 0) {
        int r = is_zero(block, (size_t)n) ? 0 : write_block(fd, block, (size_t)n, (off_t)at);
        at += (size_t)n;
        if (r == 0 && at > CORE_UNPACKED_MAX)
            r = -EFBIG;
        if (r < 0)
            return r;
    }
    if (n < 0 && !at)
        return -EBADMSG;
    return ftruncate(fd, (off_t)at) < 0 ? -errno : 0;
}

int core_unpack(int fd, struct text *why)
{
    _cleanup_(cleanup_archive) struct archive *archive = archive_read_new();
    const char *packer = core_packer(fd);
    struct archive_entry *entry;

    if (!packer)
        return -ENOENT;
    if (!archive)
        return -ENOMEM;
    archive_read_support_filter_zstd(archive);
    archive_read_support_filter_lz4(archive);
    archive_read_support_filter_xz(archive);
    archive_read_support_filter_gzip(archive);
    archive_read_support_format_raw(archive);
    _cleanup_close_ int out = open(directory(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int r = out < 0 ? -errno : 0;
    if (r == 0 && (archive_read_open_fd(archive, fd, BLOCK) != ARCHIVE_OK ||
                   archive_read_next_header(archive, &entry) != ARCHIVE_OK))
        r = -EBADMSG;
    if (r == 0)
        r = copy(archive, out);
    if (r == 0)
        return steal_fd(out);
    if (r == -EBADMSG)
        text_printf(why, "it is packed by %s, and damaged: %s", packer,
                    archive_error_string(archive));
    else
        text_printf(why,
                    "it is packed by %s, and can't be unpacked into %s (name another "
                    "directory with TMPDIR): %s",
                    packer, directory(), strerror(-r));
    return r;
}
