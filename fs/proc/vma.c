#include "fs/proc/vma.h"

#include "fs/proc/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* struct procmap_query of linux/fs.h, which the headers of older systems lack. */
struct query {
    uint64_t size, flags, addr;
    uint64_t start, end, vma_flags, page_size, offset, inode;
    uint32_t dev_major, dev_minor;
    uint32_t name_size, build_id_size;
    uint64_t name, build_id;
};
_Static_assert(sizeof(struct query) == 104, "procmap_query");
#define QUERY _IOWR('f', 17, struct query)

struct vmas {
    pid_t pid;
    int fd;        /* /proc/PID/maps; -1: not open */
    bool no_query; /* this kernel doesn't know it */
    bool read;     /* maps is of this moment */
    struct maps maps;
};

int vmas_new(pid_t pid, struct vmas **out)
{
    struct vmas *vmas = calloc(1, sizeof *vmas);

    if (!vmas)
        return -ENOMEM;
    vmas->pid = pid;
    vmas->fd = -1;
    *out = vmas;
    return 0;
}

void vmas_forget(struct vmas *vmas) { vmas->read = false; }

void vmas_free(struct vmas *vmas)
{
    if (!vmas)
        return;
    if (vmas->fd >= 0)
        close(vmas->fd);
    maps_deinit(&vmas->maps);
    free(vmas);
}

static int find_in_text(struct vmas *vmas, uint64_t addr, struct vma *out)
{
    if (!vmas->read) {
        maps_deinit(&vmas->maps);
        int r = maps_read(vmas->pid, &vmas->maps);
        if (r < 0)
            return r;
        vmas->read = true;
    }
    const struct mapping *m = maps_find(&vmas->maps, addr);
    if (!m)
        return -ENOENT;
    *out = (struct vma){m->start, m->end, m->offset, m->inode};
    return 0;
}

int vma_find(struct vmas *vmas, uint64_t addr, struct vma *out)
{
    struct query query = {.size = sizeof query, .addr = addr};

    if (vmas->fd < 0 && !vmas->no_query) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/maps", (int)vmas->pid);
        vmas->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (vmas->fd < 0)
        return find_in_text(vmas, addr, out);
    if (ioctl(vmas->fd, QUERY, &query) < 0) {
        int error = errno;
        if (error == ENOENT)
            return -ENOENT;
        close(vmas->fd); /* a process that runs another program now has new ones */
        vmas->fd = -1;
        vmas->no_query = error == ENOTTY || error == EINVAL;
        return vmas->no_query ? find_in_text(vmas, addr, out) : -error;
    }
    *out = (struct vma){query.start, query.end, query.offset, query.inode};
    return 0;
}
