#include "fs/remote/memory/core_unpack.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

const char *core_packer(int fd)
{
    static const struct {
        const char *name, *magic;
        size_t size;
    } packers[] = {
        {"zstd", "\x28\xb5\x2f\xfd", 4},
        {"lz4", "\x04\x22\x4d\x18", 4},
        {"xz", "\xfd\x37zXZ\0", 6},
        {"gzip", "\x1f\x8b\x08", 3},
    };
    char head[8] = "";

    if (pread(fd, head, sizeof head, 0) <= 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(packers); i++)
        if (!memcmp(head, packers[i].magic, packers[i].size))
            return packers[i].name;
    return NULL;
}

const char *core_unpack_directory(void)
{
    const char *named = getenv("TMPDIR");

    return named && *named ? named : "/var/tmp";
}

int core_unpack_space(void)
{
    int fd = open(core_unpack_directory(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : fd;
}
