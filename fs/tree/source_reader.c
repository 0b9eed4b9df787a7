#include "fs/tree/source_reader.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/open_within.h"
#include "fs/base/shares.h"
#include "fs/base/worker.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define KEPT_FDS 3  /* of the child: its answer, root, cwd */
#define REAP_MS 200 /* for a child that was killed to be gone */

/* What the child says before the lines. */
struct answer {
    int32_t error; /* 0 or negative errno */
    int32_t lines;
};

/* --- in the child: system calls only, for the daemon has other threads ------------------- */

/* The kernel's own calls, since glibc's change all threads at the same time. */
static int drop_rights(const struct credentials *as)
{
    const uid_t uid = as->who.fsuid;
    const gid_t gid = as->who.fsgid;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    uid_t real, effective, saved;

    if (geteuid() == 0 &&
        (syscall(SYS_setgroups, as->ngroups, as->groups) < 0 ||
         syscall(SYS_setresgid, gid, gid, gid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0))
        return -errno;
    if (syscall(SYS_capset, &header, none) < 0)
        return -errno;
    if (getresuid(&real, &effective, &saved) < 0)
        return -errno;
    /* a daemon that is not root has but its own rights to give, to root too */
    if (uid != 0 && (real != uid || effective != uid || saved != uid))
        return -EPERM;
    return 0;
}

static int open_file(const struct source_request *request)
{
    bool absolute = request->path[0] == '/';
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_NO_MAGICLINKS | (absolute ? RESOLVE_IN_ROOT : RESOLVE_BENEATH),
    };
    struct stat status;
    struct statfs system;
    char path[32];

    int at = open_within(absolute ? request->root : request->cwd, request->path, &how);
    if (at < 0 || fstat(at, &status) < 0 || fstatfs(at, &system) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || system.f_type == PROC_SUPER_MAGIC)
        return -EINVAL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", at);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

struct lines {
    char bytes[SOURCE_LINES_MAX * (SOURCE_LINE_BYTES + 1)];
    size_t size;
    int n;
};

/* Takes over what of a chunk belongs to the wanted lines; true once all were there. */
static bool take_lines(const struct source_request *request, const char *chunk, size_t size,
                       int *line, size_t *length, struct lines *lines)
{
    for (size_t i = 0; i < size; i++) {
        bool wanted = *line >= request->first;
        if (chunk[i] == '\n') {
            if (wanted) {
                lines->bytes[lines->size++] = '\n';
                lines->n++;
            }
            if (++*line > request->last)
                return true;
            *length = 0;
        } else if (wanted && (*length)++ < SOURCE_LINE_BYTES) {
            lines->bytes[lines->size++] = chunk[i];
        }
    }
    return false;
}

static int read_lines(const struct source_request *request, int fd, struct lines *lines)
{
    static char chunk[64 << 10]; /* of the child alone: the stack of a thread may be small */
    size_t total = 0, length = 0;
    int line = 1;

    while (total < SOURCE_FILE_BYTES) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0)
            return -errno;
        if (n == 0) {
            if (length) { /* a last line without a newline */
                lines->bytes[lines->size++] = '\n';
                lines->n++;
            }
            return 0;
        }
        if (take_lines(request, chunk, (size_t)n, &line, &length, lines))
            return 0;
        total += (size_t)n;
    }
    return -EFBIG;
}

static int read_whole(int fd, struct lines *lines)
{
    static_assert(sizeof lines->bytes > SOURCE_TEXT_BYTES, "a byte more tells");

    while (lines->size <= SOURCE_TEXT_BYTES) {
        ssize_t n = read(fd, lines->bytes + lines->size, SOURCE_TEXT_BYTES + 1 - lines->size);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        lines->size += (size_t)n;
    }
    return -EFBIG;
}

static _Noreturn void child(const struct source_request *request, int out)
{
    static struct lines lines;
    struct source_request mine = *request;
    struct answer answer;

    /* nothing of the daemon stays open here, above all not the mount */
    out = fcntl(out, F_DUPFD, KEPT_FDS);
    mine.root = fcntl(request->root, F_DUPFD, KEPT_FDS);
    mine.cwd = fcntl(request->cwd, F_DUPFD, KEPT_FDS);
    if (dup2(out, 0) < 0 || dup2(mine.root, 1) < 0 || dup2(mine.cwd, 2) < 0 ||
        syscall(SYS_close_range, 3u, ~0u, 0) < 0)
        _exit(1);
    mine.root = 1;
    mine.cwd = 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    answer.error = request->as ? drop_rights(request->as) : 0;
    if (!answer.error) {
        int fd = open_file(&mine);
        answer.error = fd < 0       ? fd
                       : mine.whole ? read_whole(fd, &lines)
                                    : read_lines(&mine, fd, &lines);
    }
    answer.lines = lines.n;
    if (write(0, &answer, sizeof answer) == sizeof answer && !answer.error)
        for (size_t at = 0; at < lines.size;) {
            ssize_t n = write(0, lines.bytes + at, lines.size - at);
            if (n <= 0)
                break;
            at += (size_t)n;
        }
    _exit(0);
}

/* --- in the daemon ------------------------------------------------------------------------ */

static int64_t now_ms(void) { return (int64_t)(monotonic_ns() / 1000000); }

/* Reads until the child is done. */
static int receive(int fd, char *buf, size_t cap, size_t *size)
{
    int64_t end = now_ms() + SOURCE_DEADLINE_MS;

    *size = 0;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left = end - now_ms();
        if (left <= 0 || *size == cap)
            return -ETIMEDOUT;
        int r = poll(&wait, 1, (int)left);
        if (r < 0 && errno != EINTR)
            return -errno;
        if (r <= 0)
            continue;
        ssize_t n = read(fd, buf + *size, cap - *size);
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        *size += (size_t)n;
    }
}

/* Children are the whole process's, and so is their number. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shares children = {
    .all = SOURCE_CHILDREN_MAX,
    .each = SOURCE_CHILDREN_EACH,
    .kept = SOURCE_CHILDREN_KEPT,
};

static bool enter(uid_t uid)
{
    _guard_mutex_(&lock);
    return shares_take(&children, uid) == 0;
}

static void leave(uid_t uid)
{
    _guard_mutex_(&lock);
    shares_give(&children, uid);
    if (!children.n)
        shares_deinit(&children);
}

struct straggler {
    pid_t pid;
    uid_t uid;
};

static void *reap_straggler(void *arg)
{
    struct straggler *straggler = arg;

    while (waitpid(straggler->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    leave(straggler->uid);
    free(straggler);
    return NULL;
}

/* Ends and reaps a process. One in a file system that doesn't even let it die is waited for by a
 * thread of its own. */
static void reap(pid_t pid, uid_t uid)
{
    int64_t end = now_ms() + REAP_MS;
    struct straggler *straggler;
    pthread_t thread;

    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (now_ms() < end) {
            nap_ns(1000000);
            continue;
        }
        straggler = malloc(sizeof *straggler);
        if (straggler)
            *straggler = (struct straggler){pid, uid};
        if (straggler && worker_start(reap_straggler, straggler, "probefs-reap", &thread) == 0) {
            pthread_detach(thread);
            return;
        }
        free(straggler);
        end = now_ms() + REAP_MS; /* there is no other way to be rid of it */
    }
    leave(uid);
}

int source_read(const struct source_request *request, struct text *out, int *lines)
{
    size_t cap = sizeof(struct answer) + sizeof(struct lines) + 1, size;
    _cleanup_free_ char *buf = malloc(cap);
    uid_t uid = request->as ? request->as->who.fsuid : getuid();
    _cleanup_close_ int from = -1;
    struct answer answer;
    int ends[2];

    if (!buf)
        return -ENOMEM;
    if ((!request->whole && (request->first < 1 || request->last < request->first ||
                             request->last - request->first >= SOURCE_LINES_MAX)) ||
        (request->as &&
         (request->as->who.fsuid == (uid_t)-1 || request->as->who.fsgid == (gid_t)-1)))
        return -EINVAL;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    from = ends[0];
    if (!enter(uid)) {
        close(ends[1]);
        return -EDQUOT;
    }
    pid_t pid = fork();
    if (pid == 0)
        child(request, ends[1]);
    int error = pid < 0 ? -errno : 0;
    close(ends[1]);
    if (error) {
        leave(uid);
        return error;
    }
    error = receive(from, buf, cap, &size);
    reap(pid, uid);
    if (error)
        return error;
    if (size < sizeof answer)
        return -EIO;
    memcpy(&answer, buf, sizeof answer);
    if (answer.error)
        return answer.error;
    text_add(out, buf + sizeof answer, size - sizeof answer);
    *lines = answer.lines;
    return 0;
}
