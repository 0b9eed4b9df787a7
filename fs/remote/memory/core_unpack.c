/* Unpacking by libarchive, whose raw format is any file. It is loaded when it is needed, and stays
 * then: with it come a dozen libraries more, which would take most of the time that it takes to
 * begin a process, or to fork one. */
#include "fs/remote/memory/core_unpack.h"

#include "agent/base/cleanup.h"

#include <archive.h>
#include <archive_entry.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BLOCK (64u << 10) /* what of it is zero is left as a hole */

#define LIBRARY "libarchive.so.13" /* of all versions 3 */
#define FUNCTIONS(F)                 \
 F(archive_error_string)             \
 F(archive_read_data)                \
 F(archive_read_free)                \
 F(archive_read_new)                 \
 F(archive_read_next_header)         \
 F(archive_read_open_fd)             \
 F(archive_read_support_filter_gzip) \
 F(archive_read_support_filter_lz4)  \
 F(archive_read_support_filter_xz)   \
 F(archive_read_support_filter_zstd) \
 F(archive_read_support_format_raw)

/* Its functions that are called here. */
struct library {
#define MEMBER(name) typeof(name) *name;
    FUNCTIONS(MEMBER)
};

static int library_load(struct library *library)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!handle)
        return -ELIBACC;
#define FIND(name)                                     \
 library->name = (typeof(name) *)dlsym(handle, #name); \
 if (!library->name)                                   \
  return -ELIBACC;
    FUNCTIONS(FIND)
    return 0;
}

static bool is_zero(const char *block, size_t size)
{
    return !*block && !memcmp(block, block + 1, size - 1);
}

/* By system calls that a confined process has. */
static int write_block(int fd, const char *block, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, block + done, size - done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n < 0 ? 0 : (size_t)n;
    }
    return 0;
}

/* Up to the end, or to where the file was cut. */
static int copy(const struct library *library, struct archive *archive, int fd)
{
    _cleanup_free_ char *block = malloc(BLOCK);
    uint64_t at = 0;
    bool hole = false;
    ssize_t n;

    if (!block)
        return -ENOMEM;
    while ((n = library->archive_read_data(archive, block, BLOCK)) > 0) {
        hole = is_zero(block, (size_t)n);
        at += (size_t)n;
        if (at > CORE_UNPACKED_MAX)
            return -EFBIG;
        int r = !hole ? write_block(fd, block, (size_t)n) : lseek(fd, n, SEEK_CUR) < 0 ? -errno : 0;
        if (r < 0)
            return r;
    }
    if (n < 0 && !at)
        return -EBADMSG;
    return !hole ? 0 : lseek(fd, -1, SEEK_CUR) < 0 ? -errno : write_block(fd, "", 1);
}

/* Unpacks it into a file. -EBADMSG: it is damaged. */
static int unpack(const struct library *library, struct archive *archive, int fd, int out)
{
    struct archive_entry *entry;

    library->archive_read_support_filter_zstd(archive);
    library->archive_read_support_filter_lz4(archive);
    library->archive_read_support_filter_xz(archive);
    library->archive_read_support_filter_gzip(archive);
    library->archive_read_support_format_raw(archive);
    if (library->archive_read_open_fd(archive, fd, BLOCK) != ARCHIVE_OK ||
        library->archive_read_next_header(archive, &entry) != ARCHIVE_OK)
        return -EBADMSG;
    return copy(library, archive, out);
}

void core_unpack_prepare(int fd)
{
    struct library library;

    if (core_packer(fd))
        (void)library_load(&library); /* core_unpack() says what is wrong */
}

int core_unpack(int fd, int out, struct text *why)
{
    struct library library;
    const char *packer = core_packer(fd);

    int r = library_load(&library);
    if (r < 0) {
        text_printf(why,
                    "it is packed by %s, and " LIBRARY " can't be loaded, which unpacks it: %s",
                    packer, dlerror());
        return r;
    }
    struct archive *archive = library.archive_read_new();
    if (!archive)
        return -ENOMEM;
    r = out < 0 ? out : unpack(&library, archive, fd, out);
    if (r == -EBADMSG)
        text_printf(why, "it is packed by %s, and damaged: %s", packer,
                    library.archive_error_string(archive));
    else if (r < 0)
        text_printf(why,
                    "it is packed by %s, and can't be unpacked into %s (name another "
                    "directory with TMPDIR): %s",
                    packer, core_unpack_directory(), strerror(-r));
    library.archive_read_free(archive);
    return r;
}
