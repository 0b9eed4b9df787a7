#include "fs/inject/payload.h"

#include "agent/base/cleanup.h"
#include "fs/base/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PAGE(n) (((uint64_t)(n) + SHIM_PAGE - 1) & ~(uint64_t)(SHIM_PAGE - 1))

static const uint8_t shim[] = {
#include "shim.inc"
};
_Static_assert(sizeof shim <= SHIM_PAGE, "the shim is one page");

uint64_t payload_control(const struct payload *payload) { return PAGE(payload->library_size); }

uint64_t payload_size(const struct payload *payload)
{
    return payload_control(payload) + SHIM_MAPPED;
}

uint64_t payload_work(void)
{
    struct shim_head head;

    __builtin_memcpy(&head, shim, sizeof head);
    return SHIM_PAGE + head.work;
}

int payload_open(pid_t pid, int number, const struct payload *payload, int *out)
{
    struct stat st;

    _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return -errno;
    int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (fd < 0)
        return errno == EBADF ? -EPROTO : -errno;
    /* another thread of the target may have put something else under the number: a file of a file
     * system that doesn't answer has no seals, and isn't asked for more */
    if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_nlink != 0 || (uint64_t)st.st_size != payload_size(payload) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        worker_close(fd);
        return -EPROTO;
    }
    *out = fd;
    return 0;
}

static int write_at(int fd, const void *data, size_t size, uint64_t offset)
{
    while (size) {
        ssize_t n = pwrite(fd, data, size, (off_t)offset);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data = (const char *)data + n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int payload_fill(int fd, const struct payload *payload, const struct shim_control *control)
{
    uint64_t at = payload_control(payload);

    int r = write_at(fd, payload->library, payload->library_size, 0);
    if (r == 0)
        r = write_at(fd, control, sizeof *control, at);
    if (r == 0)
        r = write_at(fd, shim, sizeof shim, at + SHIM_PAGE);
    return r;
}

int payload_read(int fd, const struct payload *payload, struct shim_control *out)
{
    ssize_t n = pread(fd, out, sizeof *out, (off_t)payload_control(payload));
    if (n < 0)
        return -errno;
    return n == (ssize_t)sizeof *out ? 0 : -EPROTO;
}

int payload_cancel(int fd, const struct payload *payload)
{
    uint32_t one = 1;
    return write_at(fd, &one, sizeof one,
                    payload_control(payload) + offsetof(struct shim_control, cancelled));
}
