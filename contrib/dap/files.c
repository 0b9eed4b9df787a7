#include "contrib/dap/files.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void reply_deinit(struct reply *reply)
{
    free(reply->text);
    reply->text = NULL;
}

char *reply_words(const struct reply *reply)
{
    static const char front[] = "error: ";
    const char *words = strstr(reply->text, front), *newline;

    if (words && (words == reply->text || words[-1] == '\n'))
        return strndup(words + sizeof front - 1, strcspn(words + sizeof front - 1, "\n"));
    words = reply->text;
    for (const char *p = words; (newline = strchr(p, '\n')); p = newline + 1)
        if (newline[1] && newline[1] != '\n')
            words = newline + 1;
    return strndup(words, strcspn(words, "\n"));
}

void files_init(struct files *files)
{
    *files = (struct files){0};
    pthread_mutex_init(&files->lock, NULL);
}

static void close_kept(struct kept *kept)
{
    close(kept->fd);
    free(kept->name);
}

void files_deinit(struct files *files)
{
    while (files->nkept)
        close_kept(&files->kept[--files->nkept]);
    free(files->directory);
    pthread_mutex_destroy(&files->lock);
}

int files_open(const struct files *files, const char *name, int flags)
{
    _cleanup_free_ char *path = NULL;

    if (asprintf(&path, "%s/%s", files->directory, name) < 0)
        return -ENOMEM;
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ---- kept ones ---- */

/* -1: there is none. */
static int take(struct files *files, const char *name)
{
    _guard_mutex_(&files->lock);

    for (size_t i = files->nkept; i-- > 0;) {
        struct kept kept = files->kept[i];
        if (strcmp(kept.name, name) != 0)
            continue;
        memmove(&files->kept[i], &files->kept[i + 1], (--files->nkept - i) * sizeof kept);
        free(kept.name);
        return kept.fd;
    }
    return -1;
}

static void keep(struct files *files, const char *name, int fd)
{
    _guard_mutex_(&files->lock);
    struct kept kept = {.name = strdup(name), .fd = fd};

    if (!kept.name) {
        close(fd);
        return;
    }
    if (files->nkept == KEPT_MAX) {
        close_kept(&files->kept[0]);
        memmove(&files->kept[0], &files->kept[1], --files->nkept * sizeof kept);
    }
    files->kept[files->nkept++] = kept;
}

/* ---- asking ---- */

static int slurp(int fd, struct reply *reply)
{
    size_t room = 0;
    ssize_t n;

    do {
        if (reply->size + 1 >= room) {
            if (room >= REPLY_MAX)
                return 0;
            room = room ? 4 * room : 64u << 10;
            char *larger = realloc(reply->text, room);
            if (!larger)
                return ENOMEM;
            reply->text = larger;
        }
        n = read(fd, reply->text + reply->size, room - reply->size - 1);
        if (n < 0 && errno != EINTR)
            return errno;
        reply->size += n > 0 ? (size_t)n : 0;
    } while (n != 0);
    return 0;
}

static void end_reply(struct reply *reply, int unread)
{
    if (!reply->error)
        reply->error = unread;
    if (reply->text)
        reply->text[reply->size] = '\0';
    if (reply->error && !reply->size) { /* it has no words of its own */
        free(reply->text);
        reply->text = strdup(strerror(reply->error));
    }
    if (!reply->text && !(reply->text = strdup(""))) {
        fputs("probefs-dap: out of memory\n", stderr);
        exit(1);
    }
}

void files_ask_open(int fd, struct reply *reply, const char *text)
{
    *reply = (struct reply){0};
    if (write(fd, text, strlen(text)) < 0)
        reply->error = errno;
    int unread = slurp(fd, reply);
    end_reply(reply, unread);
}

static void fail_open(const struct files *files, const char *name, int error, struct reply *reply)
{
    *reply = (struct reply){.error = error};
    if (asprintf(&reply->text, "%s/%s: %s", files->directory, name, strerror(error)) < 0)
        reply->text = NULL;
    reply->size = reply->text ? strlen(reply->text) : 0;
    end_reply(reply, 0);
}

/* The thread, or the frame, is another one by now. */
static bool has_gone(int error) { return error == ESRCH || error == ENOENT || error == EBADF; }

static void ask(struct files *files, const char *name, const char *text, struct reply *reply)
{
    int fd = take(files, name);

    if (fd >= 0) {
        files_ask_open(fd, reply, text);
        if (!has_gone(reply->error)) {
            keep(files, name, fd);
            return;
        }
        close(fd);
        reply_deinit(reply);
    }
    *reply = (struct reply){0};
    fd = files_open(files, name, O_RDWR | O_APPEND);
    if (fd < 0) {
        fail_open(files, name, -fd, reply);
        return;
    }
    files_ask_open(fd, reply, text);
    keep(files, name, fd);
}

static char *format(const char *words, va_list args)
{
    char *text;

    if (vasprintf(&text, words, args) >= 0)
        return text;
    fputs("probefs-dap: out of memory\n", stderr);
    exit(1);
}

void files_ask(struct files *files, struct reply *reply, const char *text, const char *name, ...)
{
    va_list args;

    va_start(args, name);
    _cleanup_free_ char *file = format(name, args);
    va_end(args);
    ask(files, file, text, reply);
}

void files_read(struct files *files, struct reply *reply, const char *name, ...)
{
    va_list args;

    va_start(args, name);
    _cleanup_free_ char *file = format(name, args);
    va_end(args);
    _cleanup_close_ int fd = files_open(files, file, O_RDONLY);
    if (fd < 0) {
        fail_open(files, file, -fd, reply);
        return;
    }
    *reply = (struct reply){0};
    int unread = slurp(fd, reply);
    end_reply(reply, unread);
}

void files_put_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (const char *p = text; *p; p++)
        fprintf(out, *p == '\'' ? "''" : "%c", *p);
    fputc('\'', out);
}

json_t *files_query(struct files *files, struct reply *reply, const char *statement, ...)
{
    _cleanup_free_ char *text = NULL;
    va_list args;

    va_start(args, statement);
    _cleanup_free_ char *sql = format(statement, args);
    va_end(args);
    if (asprintf(&text, "-- format: json\n%s;\n", sql) < 0)
        text = NULL;
    ask(files, "query", text ? text : "", reply);
    json_t *rows = reply->error ? NULL : json_loadb(reply->text, reply->size, 0, NULL);
    if (!rows && !reply->error)
        reply->error = EPROTO;
    return rows;
}
