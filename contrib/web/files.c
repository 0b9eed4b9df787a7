#include "contrib/web/files.h"

#include "agent/base/cleanup.h"
#include "fs/base/open_within.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#define LOOK_MS 50 /* how often it is looked whether the client is still there */

struct request {
    const struct question *question;
    struct answer *answer;
    atomic_bool interrupted; /* the client has gone away */
};

int files_open(const char *mount, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    _cleanup_close_ int top = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct statfs fs;

    /* a daemon that has died left a mount that says ENOTCONN */
    if (top < 0 || fstatfs(top, &fs) < 0 || fs.f_type != FUSE_SUPER_MAGIC ||
        faccessat(top, "help", F_OK, 0) < 0)
        return -ENODEV;
    int fd = open_within(top, *path ? path : ".", &how);
    return fd < 0 ? -errno : fd;
}

static int list(int fd, struct answer *answer)
{
    _cleanup_closedir_ DIR *directory = fdopendir(dup(fd));
    FILE *out = open_memstream(&answer->text, &answer->size);

    if (!directory || !out) {
        int error = errno;
        if (out)
            fclose(out);
        return error;
    }
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.')
            fprintf(out, "%s%s\n", entry->d_name, entry->d_type == DT_DIR ? "/" : "");
    return fclose(out) ? errno : 0;
}

static int slurp(struct request *request, int fd)
{
    struct answer *answer = request->answer;
    size_t room = 0;

    for (;;) {
        if (answer->size == room) {
            if (room == REPLY_MAX) {
                answer->is_cut = true;
                return 0;
            }
            room = room ? 2 * room : 64u << 10;
            char *larger = realloc(answer->text, room);
            if (!larger)
                return ENOMEM;
            answer->text = larger;
        }
        ssize_t n = read(fd, answer->text + answer->size, room - answer->size);
        if (n == 0)
            return 0;
        if (n > 0)
            answer->size += (size_t)n;
        else if (errno != EINTR || request->interrupted)
            return errno;
    }
}

static int write_all(struct request *request, int fd)
{
    const struct question *question = request->question;

    for (size_t done = 0; done < question->size;) {
        ssize_t n = write(fd, question->body + done, question->size - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR || request->interrupted)
            return errno;
    }
    return 0;
}

/* Closes the file, which ends what was written, and has it open again for its answer: meanwhile it
 * is on its way through a socket, where it is nobody's descriptor. Returns the errno of the close.
 */
static int close_and_keep(int *fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec byte = {.iov_base = &(char){0}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &byte,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    memcpy(CMSG_DATA(&control.header), fd, sizeof *fd);
    int error = sendmsg(pair[0], &message, 0) < 0 ? errno : 0;
    if (!error) {
        error = close(*fd) < 0 ? errno : 0;
        *fd = -1;
        if (recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) == 1)
            memcpy(fd, CMSG_DATA(&control.header), sizeof *fd);
    }
    close(pair[0]);
    close(pair[1]);
    return error;
}

/* On a handle that goes on: what it says is the answer to this. */
static int ask_kept(struct request *request)
{
    int error = write_all(request, request->question->kept);
    int unread = slurp(request, request->question->kept);
    return error ? error : unread;
}

static int ask(struct request *request)
{
    const struct question *question = request->question;
    int flags = !question->body     ? O_RDONLY | O_NONBLOCK
                : question->appends ? O_RDWR | O_APPEND
                                    : O_RDWR | O_TRUNC;
    struct stat st;

    _cleanup_close_ int fd = files_open(question->mount, question->path, flags);
    if (fd < 0)
        return -fd;
    if (!question->body)
        return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? list(fd, request->answer)
                                                          : slurp(request, fd);
    int error = write_all(request, fd);
    if (!error)
        error = close_and_keep(&fd);
    int unread = fd < 0 ? EIO : slurp(request, fd);
    return error ? error : unread;
}

static void *run(void *arg)
{
    struct request *request = arg;

    if (request->question->kept) {
        request->answer->error = ask_kept(request);
        return NULL;
    }
    close_range(3, ~0u, CLOSE_RANGE_UNSHARE);
    request->answer->error = ask(request);
    return NULL;
}

static bool has_gone(int client)
{
    struct pollfd poll_client = {.fd = client, .events = POLLRDHUP};
    return poll(&poll_client, 1, 0) > 0;
}

void files_ask(const struct question *question, int client, struct answer *answer)
{
    struct request request = {.question = question, .answer = answer};
    struct timespec until;
    pthread_t thread;

    *answer = (struct answer){0};
    if (pthread_create(&thread, NULL, run, &request)) {
        answer->error = EAGAIN;
        return;
    }
    do {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000L;
        }
        if (request.interrupted || has_gone(client)) {
            request.interrupted =
                true; /* and again, should the signal have come between two calls */
            pthread_kill(thread, SIGUSR1);
        }
    } while (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
}
