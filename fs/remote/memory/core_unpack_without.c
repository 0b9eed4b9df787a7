/* In place of core_unpack.c where libarchive isn't there when probefs is built. */
#include "fs/remote/memory/core_unpack.h"

#include <errno.h>

void core_unpack_prepare(int fd) {}

int core_unpack(int fd, int out, struct text *why)
{
    text_printf(why,
                "it is packed by %s, and this probefs was built without libarchive: unpack it "
                "first",
                core_packer(fd));
    return -EOPNOTSUPP;
}
