/* openat2(2), which keeps within a directory. */
#pragma once

#include <errno.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN_WITHIN_TRIES 1000

/* Opens path below the directory as *how says: a descriptor, or -1 and errno. While something is
 * renamed or mounted anywhere the kernel can't tell where ".." leads, and wants to be asked again
 * (EAGAIN in openat2(2)). */
static inline int open_within(int directory, const char *path, const struct open_how *how)
{
    int fd, tries = 0;

    do
        fd = (int)syscall(SYS_openat2, directory, path, how, sizeof *how);
    while (fd < 0 && errno == EAGAIN && ++tries < OPEN_WITHIN_TRIES);
    return fd;
}
