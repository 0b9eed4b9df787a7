/* In place of core_unpack.c where libarchive isn't there when probefs is built. */
#include "fs/remote/memory/core_unpack.h"

#include <errno.h>

int core_unpack(int fd, struct text *why)
{
    const char *packer = core_packer(fd);

    if (!packer)
        return -ENOENT;
    text_printf(why,
                "it is packed by %s, and this probefs was built without libarchive: unpack it "
                "first",
                packer);
    return -EOPNOTSUPP;
}
