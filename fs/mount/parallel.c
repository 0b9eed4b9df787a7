/* libfuse before 3.17 never tells the kernel FUSE_PARALLEL_DIROPS, whatever op_init() wants: so it
 * is added to the answer to the kernel's first request on its way out. A later one does, and may be
 * built without what that takes. */
#include "fs/mount/ops.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t send_reply(int fd, struct iovec *iov, int n, void *userdata)
{
    struct mount *mount = userdata;

    if (atomic_load(&mount->agreeing)) {
        atomic_store(&mount->agreeing, false);
        if (n == 2 && iov[1].iov_len >= offsetof(struct fuse_init_out, max_background))
            ((struct fuse_init_out *)iov[1].iov_base)->flags |= FUSE_PARALLEL_DIROPS;
    }
    return writev(fd, iov, n);
}

static ssize_t receive(int fd, void *buf, size_t size, void *userdata)
{
    return read(fd, buf, size);
}

int mount_look_up_in_parallel(struct fuse_session *session)
{
    static const struct fuse_custom_io io = {.writev = send_reply, .read = receive};

    if (fuse_version() >= FUSE_MAKE_VERSION(3, 17))
        return 0;
    return fuse_session_custom_io(session, &io, fuse_session_fd(session));
}
