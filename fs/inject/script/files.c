#include "fs/inject/script/files.h"

#include "agent/base/cleanup.h"
#include "fs/inject/inject_abi.h"
#include "fs/inject/script/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static const char script_text[] =
#include "script_py.h"
    ;
static const char load_text[] =
#include "load_py.h"
    ;

/* Directories that every program may write to, most likely ones first. A library's name holds its
 * index, so that the path can be told from that of a mapping, which may have another root before
 * it. */
static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};

/* What the reply is until there is one: the room for it is taken now. */
static const char no_reply[SCRIPT_FILES_REPLY_MAX];

/* The caller owns the descriptor. */
static int make_file(const struct script_files *files, const char *name, mode_t mode)
{
    return open_beneath(files->directory, name, O_RDWR | O_CREAT | O_EXCL, mode, true);
}

static int make_directory(struct script_files *files, const struct target *target)
{
    uint64_t random[2];
    struct stat st;

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EAGAIN;
    snprintf(files->name, sizeof files->name, SCRIPT_FILES_PREFIX "%d-%lu-%016lx%016lx",
             target->pid, target->start_time, random[0], random[1]);
    if (mkdirat(files->parent, files->name, 0700) < 0)
        return -errno;
    files->directory = open_beneath(files->parent, files->name, O_RDONLY | O_DIRECTORY, 0, true);
    if (files->directory < 0)
        return files->directory;
    if (fstat(files->directory, &st) == 0 && st.st_uid == files->owner.uid &&
        (st.st_mode & 0777) == 0700)
        return 0;
    /* in a directory without the sticky bit somebody may have put another in its place */
    close(steal_fd(files->directory));
    return -EPERM;
}

static int make_text(const struct script_files *files, const char *name, const struct text *text)
{
    if (text->error)
        return text->error;
    _cleanup_close_ int fd = make_file(files, name, 0400);
    return fd < 0 ? fd : write_whole(fd, text->data, text->size);
}

static int make_scripts(const struct script_files *files, const char *old)
{
    _cleanup_(text_deinit) struct text script = TEXT_INIT;
    _cleanup_(text_deinit) struct text load = TEXT_INIT;

    /* none of these holds a quote or a backslash: all are names of ours */
    text_printf(&script, "directory = '%s'\n%s", files->path, script_text);
    text_printf(&load, "fresh = '%s/%s'\n", files->path, files->library_name);
    text_printf(&load, old ? "old = '%s'\n" : "old = None\n", old);
    text_puts(&load, load_text);
    int r = make_text(files, "load.py", &load);
    return r < 0 ? r : make_text(files, "script.py", &script);
}

static int fill(struct script_files *files, const struct inject_image *image, const char *old)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    files->library = make_file(files, files->library_name, 0500);
    if (files->library < 0)
        return files->library;
    /* of the open file, so that it ends with it and with nothing else */
    if (fcntl(files->library, F_OFD_SETLK, &lock) < 0)
        return -errno;
    int r = write_whole(files->library, image->data, image->size);
    if (r < 0)
        return r;
    files->reply = make_file(files, "reply", 0600);
    if (files->reply < 0)
        return files->reply;
    r = write_whole(files->reply, no_reply, sizeof no_reply);
    return r < 0 ? r : make_scripts(files, old);
}

static void remove_all(const struct script_files *files)
{
    const char *const names[] = {"script.py", "load.py", "reply", files->library_name};

    for (size_t i = 0; i < ARRAY_SIZE(names) && files->directory >= 0; i++)
        unlinkat(files->directory, names[i], 0);
    unlinkat(files->parent, files->name, AT_REMOVEDIR);
}

static void close_all(struct script_files *files)
{
    int *const all[] = {&files->reply, &files->library, &files->directory, &files->parent};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        cleanup_close(all[i]);
        *all[i] = -1;
    }
}

/* ---- as the process's user ---- */

struct putting {
    struct target *target;
    const struct inject_image *image;
    const char *old;
    struct script_files *files;
};

static int put(void *arg, int directory, size_t place)
{
    const struct putting *putting = arg;
    struct script_files *files = putting->files;

    files->parent = fcntl(directory, F_DUPFD_CLOEXEC, 0);
    if (files->parent < 0)
        return -errno;
    script_sweep(files->parent, files->owner.uid);
    int r = make_directory(files, putting->target);
    snprintf(files->path, sizeof files->path, "%s/%s", places[place], files->name);
    snprintf(files->library_name, sizeof files->library_name, MEMFD_NAME "%zu.so", place);
    if (r == 0)
        r = fill(files, putting->image, putting->old);
    if (r < 0) {
        remove_all(files);
        close_all(files);
    }
    return r;
}

static int remove_work(void *arg)
{
    remove_all(arg);
    return 0;
}

/* ---- what others call ---- */

int script_files_put(struct target *target, const struct inject_image *image, const char *old,
                     struct script_files *out, struct text *why)
{
    struct putting putting = {.target = target, .image = image, .old = old, .files = out};
    const struct library_places library = {
        places, ARRAY_SIZE(places), image->size + SCRIPT_FILES_REPLY_MAX, put, &putting,
    };

    out->parent = out->directory = out->library = out->reply = -1;
    _cleanup_close_ int root = root_open(target->pid);
    if (root < 0)
        return root;
    int r = file_user_read(target->pid, &out->owner, why);
    if (r < 0)
        return r;
    if (!target_alive(target)) /* the number may be another's by now */
        return -ESRCH;
    r = library_put(&out->owner, root, &library, why);
    return r == -EACCES ? -EOPNOTSUPP : r;
}

size_t script_files_reply(const struct script_files *files, char *buf, size_t cap)
{
    ssize_t n = pread(files->reply, buf, cap - 1, 0);

    if (n <= 0)
        return 0;
    buf[n] = 0;
    char *end = strchr(buf, '\n');
    if (!end)
        return 0;
    *end = 0;
    return (size_t)(end - buf);
}

void script_files_unlock(struct script_files *files)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(files->library, F_OFD_SETLK, &lock);
}

void script_files_remove(struct script_files *files)
{
    file_user_run(&files->owner, remove_work, files);
    close_all(files);
}

bool script_files_path(const char *mapped, char *out, size_t cap)
{
    static const char form[] = "/" SCRIPT_FILES_PREFIX "%*[0-9a-f-]/" MEMFD_NAME "%1u.so%n";
    const char *name = strstr(mapped, "/" SCRIPT_FILES_PREFIX);
    unsigned place;
    int size = 0;

    if (!name || sscanf(name, form, &place, &size) != 1 || !size || place >= ARRAY_SIZE(places))
        return false;
    if (name[size] && strcmp(name + size, " (deleted)"))
        return false;
    int n = snprintf(out, cap, "%s%.*s", places[place], size, name);
    return n > 0 && (size_t)n < cap;
}
