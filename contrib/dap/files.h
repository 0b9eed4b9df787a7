/* The files of one process in the mount, as a shell has them.
 *
 * What is asked often is asked of a descriptor that was kept: that saves the opening, and the
 * daemon finding out anew who asks. One that somebody asks at the moment is nobody else's. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define REPLY_MAX (64u << 20) /* bytes of one file, or answer; what is behind that is left out */
#define KEPT_MAX 32           /* descriptors */

/* What a file said; also where it failed. */
struct reply {
    int error;  /* errno; 0: it was done */
    char *text; /* NUL-terminated, never NULL after an ask; the caller's to free */
    size_t size;
};

struct kept {
    char *name;
    int fd;
};

struct files {
    char *directory; /* MOUNT/PID; NULL: there is no process (any more) */
    pthread_mutex_t lock;
    struct kept kept[KEPT_MAX]; /* the first nkept, the one that was used last behind */
    size_t nkept;
};

void reply_deinit(struct reply *reply);
#define _cleanup_reply_ _cleanup_(reply_deinit)
/* What a person is told of a failure: what is behind `error: `, else the last line, as of a
 * traceback. The caller's to free. */
char *reply_words(const struct reply *reply);

void files_init(struct files *files);
/* Closes what was kept; no thread asks any more. */
void files_deinit(struct files *files);

/* Writes a text to a file below the directory, and reads its answer. The name is made as by
 * printf(3). */
void files_ask(struct files *files, struct reply *reply, const char *text, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* Reads one. */
void files_read(struct files *files, struct reply *reply, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes a text as a statement has it, between quotes. */
void files_put_text(FILE *out, const char *text);
/* The rows of a statement, made as by printf(3): a new array of objects. NULL: *reply has the
 * words. */
json_t *files_query(struct files *files, struct reply *reply, const char *statement, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens one for its owner; flags of open(2). A descriptor, or -errno. */
int files_open(const struct files *files, const char *name, int flags);
/* Writes a text to an open one, and reads its answer. */
void files_ask_open(int fd, struct reply *reply, const char *text);
