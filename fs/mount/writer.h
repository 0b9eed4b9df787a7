/* An open file that is written to: what was written and isn't done with, and what it was answered.
 *
 * Shells cut what they write as they like, at each line or at a block, and that may not matter. So
 * the rest of a statement waits here for what follows, and once a write failed those after it fail
 * too, as the rest of a block would have been left out: a script that is written in pieces stops at
 * its first error, and a program that tries again what failed (Python's buffered files do) does
 * nothing twice. Closing a descriptor, or reading the reply, ends that. */
#pragma once

#include "fs/link/lifetime.h"
#include "fs/process/replies.h"
#include "fs/tree/file.h"

#define INPUT_MAX (1u << 20) /* bytes that may wait for what follows, and that with them */
/* bytes that the kernel brings at once: longer writes come in pieces, which with what waits
 * must be less than the above */
#define WRITE_MAX (128u << 10)
/* who wrote what waits, but who opened the file */
#define PENDING_BY_MAX (PRINCIPALS_MAX - 1)

struct writer {
    int flags; /* of its open(2) */
    struct reply_key key;
    char *word; /* key's */
    struct budget *budget;
    struct lifetime *lifetime; /* of what was asked for with `here` */
    pthread_mutex_t turn;      /* held while a command runs */
    struct text pending;       /* guarded by that */
    /* bytes at the reply's end that may be, and are, taken back; so, too */
    size_t passing, retaken;
    pthread_mutex_t lock; /* guards what follows, for moments */
    size_t npending;      /* bytes of it; 0 while a command runs */
    bool clears;          /* file_context.clears, from one command to the next */
    bool runs;            /* a command does */
    bool keeps;           /* one failed, or said so (outcome.keeps): closing it clears nothing */
    size_t lines;         /* of the text that are done with; 0 again once its reply is read */
    /* in whose name it waits, or is to be cleared, besides who opened the file; references */
    struct credentials *pending_by[PENDING_BY_MAX];
    size_t npending_by;
    int failed;          /* what the last write failed with */
    struct reply *reply; /* NULL: none yet */
    size_t read;         /* bytes of it that this file's reader has had */
};

/* clears: see tree/layout.h; key names who opens the file; number: as of lifetime_new(). -ENOMEM.
 * The budget must outlive it. */
int writer_new(int flags, bool clears, const struct reply_key *key, uint64_t number,
               struct budget *budget, struct writer **out);
void writer_free(struct writer *writer);

/* Has a command run, after those before it: with what is pending and with this, which may be
 * nothing when it is the last; acting: who wrote that or closes the file, NULL: nobody any more.
 * run is called with all those in whose name it acts as context->principals. 0 or -errno, which is
 * the answer to the write. The reply is the last one of `replies` then, and context->why, if set,
 * its last line. Waits as long as run does. */
int writer_run(struct writer *writer, file_run *run, struct file_context *context,
               struct credentials *acting, const struct input *input, struct replies *replies);
/* Answers a write that nothing is done with: as if run had failed with error at once. */
int writer_fail(struct writer *writer, int error, const struct text *why, struct replies *replies);

/* What the writes are answered until a descriptor is closed or the reply is read: 0, or the
 * error of one before. */
int writer_failed(struct writer *writer);
/* Whether something is pending that nobody works on now: also that it is to be cleared. */
bool writer_pending(struct writer *writer);
/* The file is to be cleared, as if it had been opened so, in the name of who says so, too. -EPERM:
 * so many have written to it that there is no room for more. */
int writer_truncate(struct writer *writer, struct credentials *acting);
/* A descriptor was closed: the next write is a new attempt. */
void writer_flushed(struct writer *writer);
/* Forgets what is pending: its writer was killed. */
void writer_drop(struct writer *writer);

/* Reads on in the reply, as in a pipe. Returns the number of bytes, 0: that was all. */
size_t writer_read(struct writer *writer, char *buf, size_t size);
