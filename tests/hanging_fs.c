/* A file system that stops answering, as of a server that is gone: it shows the root, but while the
 * file HOLD exists whoever asks for anything waits.
 * hanging_fs HOLD -f MOUNTPOINT; cases/test_hung.py */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *hold;

static void wait_for_server(void)
{
    while (access(hold, F_OK) == 0)
        usleep(10000);
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *fi)
{
    wait_for_server();
    return lstat(path, out) < 0 ? -errno : 0;
}

static int read_link(const char *path, char *out, size_t size)
{
    wait_for_server();
    ssize_t n = readlink(path, out, size - 1);
    if (n < 0)
        return -errno;
    out[n] = 0;
    return 0;
}

static int list(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
                struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    struct dirent *entry;

    wait_for_server();
    DIR *dir = opendir(path);
    if (!dir)
        return -errno;
    while ((entry = readdir(dir)))
        fill(out, entry->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *fi)
{
    wait_for_server();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    fi->fh = (uint64_t)fd;
    return 0;
}

static int read_file(const char *path, char *out, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    wait_for_server();
    ssize_t n = pread((int)fi->fh, out, size, offset);
    return n < 0 ? -errno : (int)n;
}

static int release(const char *path, struct fuse_file_info *fi)
{
    close((int)fi->fh);
    return 0;
}

static const struct fuse_operations operations = {
    .getattr = get_attributes,
    .readlink = read_link,
    .readdir = list,
    .open = open_file,
    .read = read_file,
    .release = release,
};

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    hold = argv[1];
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
