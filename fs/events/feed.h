/* What happens in one process from the moment that somebody wants to know it: a log of lines, from
 * which each reader takes at its own pace. What it has no room for it forgets, the oldest first,
 * and a reader that comes too late is told how much it lost.
 *
 * Or what is sampled of it: a block of text for each second (live.h).
 *
 * All of it is seen from outside, without the process taking part: rows in the ring of its
 * events, its agent's record, its end. So it also works of one that hangs. Whoever uses a feed
 * from several threads locks. */
#pragma once

#include "fs/process/process.h"

#include <stdbool.h>

#define FEED_LINES_MAX 8192u
#define FEED_BYTES_MAX (1u << 20)
#define FEED_RINGS 5 /* that are followed */

struct feed;

/* A place in it. */
struct feed_cursor {
    uint64_t line;   /* lines before it */
    uint64_t events; /* what these told of */
};

enum feed_kind { FEED_EVENTS, FEED_LIVE };

/* Takes its own reference to the process. since: when that began to be of interest ([s] since
 * 1970), although it is found only now; 0: now. -ENOMEM. */
int feed_new(struct process *process, enum feed_kind kind, double since, struct feed **out);
void feed_free(struct feed *feed); /* NULL is fine */
/* Lets it keep that many bytes, at most FEED_BYTES_MAX, if it doesn't keep more; none at first. */
void feed_widen(struct feed *feed, size_t bytes);
struct process *feed_process(const struct feed *feed);
enum feed_kind feed_kind(const struct feed *feed);

/* Takes in what has happened. Whether there was anything. */
bool feed_look(struct feed *feed);

/* A look in three steps, as others may be asked for what is in the rings (process/examiner.h), and
 * may not answer: while feed_look_ask() goes on, no other look may, and the feed may be used. */
struct feed_look {
    bool ended, attached, asks;
    int error; /* of what was asked; then it is asked again by the next look */
    struct ring_mark marks[FEED_RINGS];
    struct ring_copy copies[FEED_RINGS + 1];
    struct text answer;
};
/* Whether there is anything to be looked for. Cheap. look is to be deinited in any case. */
bool feed_look_begin(struct feed *feed, struct feed_look *look);
void feed_look_ask(struct feed *feed, struct feed_look *look);
bool feed_look_end(struct feed *feed, struct feed_look *look); /* returns as feed_look() */
void feed_look_deinit(struct feed_look *look);
/* Whether others are asked. */
bool feed_is_asked_for(const struct feed *feed);
/* Adds lines that are made elsewhere, as of now; not with blocks. */
void feed_add(struct feed *feed, const struct text *lines);
/* Behind its last line. */
struct feed_cursor feed_end(const struct feed *feed);
/* Whether there is something to read from there on, be it the end: then nothing more is to come. */
bool feed_readable(const struct feed *feed, const struct feed_cursor *at);
/* Moves `at` behind the lines of what a ring had from before that time. */
void feed_skip(const struct feed *feed, struct feed_cursor *at, double since);
/* Whether nothing more is to come. */
bool feed_ended(const struct feed *feed);
/* Gives up the lines before that number: all who read have them. */
void feed_forget(struct feed *feed, uint64_t line);
/* Adds whole lines to out, of at most `size` bytes together, but at least one, and moves
 * `at` behind them. front: fields that each of them is to begin with, as JSON, each with a
 * comma and a blank behind it; not with blocks. */
void feed_take(struct feed *feed, struct feed_cursor *at, size_t size, const char *front,
               struct text *out);
