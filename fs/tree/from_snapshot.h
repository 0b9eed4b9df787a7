/* What the files that are rendered from a snapshot share. */
#pragma once

#include "fs/process/examiner.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/file.h"

/* Takes a snapshot, of context->tid alone if that is set, and has each thread rendered. Returns
 * what the file's render function is to return. */
int snapshot_each_thread(struct file_context *context, bool native,
                         void (*add)(const struct thread *thread, struct text *out),
                         struct text *out);

/* Puts into context->why what snapshot_take() or snapshot_visit() failed with, why, and what to do;
 * returns error. */
int snapshot_error(struct file_context *context, int error);

/* Asks who reads the context's process what a command has to know of it. 1: this daemon reads it
 * itself, and context->target is there to be read; 0; -errno, with words. */
int snapshot_ask(struct file_context *context, const struct asked_for *asked, uint64_t out[2]);
/* As snapshot_ask(), for lines of text, which are added to out. */
int snapshot_ask_text(struct file_context *context, enum asked_what what, struct text *out);
/* As snapshot_ask(), for what `file` has to know to answer a line (file_say), which is added to
 * out.
 */
int snapshot_say(struct file_context *context, const char *file, const char *line, size_t size,
                 struct text *out);
/* Has this daemon itself read the context's process, of which nothing may have been read so far. 0;
 * -errno, with words. */
int snapshot_find(struct file_context *context);
/* Finds the pthread_t of a thread that runs Python, and the interpreter it is in. -EINVAL, with
 * words: it runs none; -ESRCH, -EPERM and the like, with words. */
int snapshot_find_thread(struct file_context *context, pid_t tid, uint64_t *thread,
                         int64_t *interp);
