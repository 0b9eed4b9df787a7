/* The file of the history: an SQLite database in WAL mode with one writer, so that any number of
 * programs may read it meanwhile. Its tables are those of tables.sql, and exceptions and crash with
 * the columns that the live ones have (schema/), behind the same six in front.
 *
 * What is appended in one go is one transaction: it is there as a whole or not at all, kill -9 or
 * not. Any of these functions may take as long as the disk does: they are for one thread, for which
 * nobody waits. */
#pragma once

#include "fs/base/text.h"
#include "fs/recording/ring_reader.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct history_limits {
    uint64_t age;      /* ns: what is older goes */
    uint64_t bytes;    /* of the file: then the oldest goes */
    uint64_t interval; /* ns between two times that something is appended */
};

#define HISTORY_AGE_MIN 60000000000ull
#define HISTORY_INTERVAL_MIN 1000000000ull
#define HISTORY_INTERVAL_MAX 3600000000000ull
#define HISTORY_BYTES_MIN (1u << 20)
#define HISTORY_BYTES_MAX (1ull << 40)
/* Bytes of the file's -wal, which somebody who reads for long keeps growing: then nothing is
 * appended. */
#define HISTORY_LOG_MAX (64u << 20)

/* What stands in front of each row. */
struct history_front {
    const char *host;
    pid_t pid;
    int64_t rank;    /* -1: none */
    const char *job; /* NULL: none */
    uid_t uid;       /* these, both 0: only root may look */
    gid_t gid;
};

struct history_sample {
    char state;
    double cpu_user, cpu_system; /* [s] */
    uint64_t rss;                /* [bytes] */
    unsigned threads;
    bool known; /* the following are */
    bool gil_held;
    unsigned running, gil_waiting;
};

/* What a stack of a thread came to in a while. */
struct history_stack {
    double ts, seconds;
    const char *mode, *thread, *stack;
    pid_t tid;
    int64_t weight, samples;
};

/* The tables whose rows are those of rings. */
enum history_recorded { HISTORY_EXCEPTIONS, HISTORY_CRASH, HISTORY_RECORDED };

/* The tables that say whose their rows are. */
#define HISTORY_TABLES "crash, events, exceptions, profile, samples"

struct history_file;

/* Opens the file, and makes it if there is none: with mode 0600, of the daemon's user. It must be
 * in a directory that nobody else may write to. path is absolute. On failure why says what is wrong
 * and what to do: -EINVAL, -EACCES, -EBUSY (another daemon appends to it), -EIO, ... */
int history_file_open(const char *path, const struct history_limits *limits, struct text *why,
                      struct history_file **out);
void history_file_close(struct history_file *file); /* NULL is fine */

/* Begins what is appended in one go. The functions below return -ENOSPC, -EBUSY, -EFBIG (a reader
 * keeps the -wal growing), -EIO or -ENOMEM; then nothing of it is kept, and history_file_why() says
 * it in words. */
int history_file_begin(struct history_file *file);
int history_file_commit(struct history_file *file);
/* Only between the two. After a failure they do nothing and return the same. */
int history_file_add_sample(struct history_file *file, const struct history_front *front, double ts,
                            const struct history_sample *sample);
/* line: one JSON object that has "ts" and "kind". */
int history_file_add_event(struct history_file *file, const struct history_front *front,
                           const char *line, size_t size);
int history_file_add_stack(struct history_file *file, const struct history_front *front,
                           const struct history_stack *stack);
/* A row of a ring. */
int history_file_add_row(struct history_file *file, enum history_recorded table,
                         const struct history_front *front, const struct ring_row *row);

/* How far a process, or a ring of it, has been followed, kept with what is appended: a daemon that
 * follows another one takes nothing twice. */
struct history_followed {
    const char *name; /* HISTORY_EVENTS, or of the table of a ring */
    double since;     /* tells one from another of that pid and name */
    struct ring_position at;
    double upto; /* [s] since 1970 */
};
#define HISTORY_EVENTS "events"

/* Between begin and commit. */
int history_file_put_followed(struct history_file *file, const struct history_front *front,
                              const struct history_followed *followed);
/* A process has ended. */
int history_file_drop_followed(struct history_file *file, const struct history_front *front);
/* Finds what is followed by its name and since, and sets the other members. Whether it is there;
 * any time. */
bool history_file_get_followed(struct history_file *file, const struct history_front *front,
                               struct history_followed *followed);

const char *history_recorded_name(enum history_recorded table);

/* Drops what is older than the limits allow, some of it each time. */
int history_file_trim(struct history_file *file, double now);
/* Bytes that it takes on the disk, without its -wal. */
uint64_t history_file_size(const struct history_file *file);
/* Why the last one failed, and what to do. */
const char *history_file_why(const struct history_file *file);
