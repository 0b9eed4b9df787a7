/* The files of the mount, as a user of the shell has them: one is read, or written to and then
 * asked for its answer.
 *
 * Each request has a thread with a table of descriptors of its own. So the daemon sees that nobody
 * else has the file open when it is closed, which is what ends a block of Python or a statement;
 * and it sees a signal where the browser has gone away, which interrupts what runs as Ctrl-C would.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of one file, or of one answer; what is behind that is left out. */
#define REPLY_MAX (64u << 20)

/* What is written to a file that stays open is whole lines: its close doesn't end them. */
struct question {
    const char *mount; /* where it is mounted */
    const char *path;  /* below it; "": the mount itself */
    const char *body;  /* what is written; NULL: the file is read */
    size_t size;       /* of that, in bytes */
    bool appends;      /* written as by >>, else as by > */
    int kept;          /* the file, open already and to stay so; 0: it is opened for this */
};

struct answer {
    int error;  /* errno; 0: it was done */
    char *text; /* what the file said, also where it failed; NULL: it could not be opened */
    size_t size;
    bool is_cut; /* it had more than REPLY_MAX */
};

/* Asks, and waits for the answer; a directory is read as its names, one a line, with / behind those
 * of directories. Where the client's connection ends before, what runs is interrupted. The text is
 * the caller's to free. */
void files_ask(const struct question *question, int client, struct answer *answer);

/* Opens a file of the mount to be read without waiting. Nothing outside of the mount is ever
 * opened: no .., no link out of it, no other file system. Returns a descriptor or -errno; -ENODEV:
 * no probefs is mounted there. */
int files_open(const char *mount, const char *path, int flags);
