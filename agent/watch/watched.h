/* One watchpoint that is set, between the files that make watches of it: watch.c, which finds
 * how it is to be watched; by what follows, which tell when it may have changed; and
 * watch_seen(), where all that ends.
 *
 * All are the main interpreter's, under its GIL. Code of the program runs in a hit, and the GIL is
 * given up: whoever has one in hand then holds it. */
#pragma once

#include "agent/breakpoint/hit.h"
#include "agent/watch/storage.h"

#define WATCHES_MAX 256

enum watch_by { BY_NOTHING, BY_TRAP, BY_DICT, BY_LINE };

struct watch {
    struct watch *next;
    unsigned refs;
    uint32_t serial; /* of this watch: its breakpoint's id may be another one's later */
    struct breakpoint *breakpoint; /* a reference */
    PyObject *watched;             /* its expression; NULL: an address */
    /* in which its names are, kept by `watched`; NULL: none. With that it ends */
    PyFrameObject *frame;
    PyObject *frame_code; /* a reference */
    bool removed;         /* from the list: it must not begin again */
    bool plain; /* evaluating it again and again runs no code but that of attributes and items */
    struct storage storage;
    enum watch_by by;
    bool shared;       /* STORAGE_LOCAL: other functions than its own have it, too: a cell's */
    bool lines;        /* no debug register is to be had: compared at lines */
    PyObject *value;   /* as it was last seen, or a copy of that; NULL: unbound, or not known */
    unsigned replaced; /* how often another one took its place */
    char how[PROTO_WORDS_MAX]; /* what is to be said of that, besides: */
    unsigned moves;            /* how often its storage has moved */
    bool gone;                 /* it has no value, and no place, now */
    const PyObject *last;      /* BY_DICT: what is there, for comparing alone */
    /* BY_TRAP */
    unsigned slot;
    uint32_t change;              /* of the slot */
    uint64_t rate_ns, rate_traps; /* since when traps are counted, and how many there were */
    uint64_t muted_until_ns;      /* 0: it isn't */
    /* how often a second it was written when it was left alone last; 0: never */
    uint64_t muted_rate;
    uint64_t dropped; /* that were counted already */
    bool whole;       /* its value, when it was set, is one that can be changed in place */
};

extern struct watch *watches;

/* A holder's reference. */
static inline struct watch *watch_hold(struct watch *watch)
{
    watch->refs++;
    return watch;
}
void watch_drop(struct watch *watch);

/* A value may have become another one. last: where it is kept as it was last seen. new_value:
 * borrowed; NULL: unbound. change: where it was written, its values not yet. heard, with its frame,
 * and line: where this thread is. NULL, 0: another one wrote. False: as hit_reached(). */
bool watch_seen(struct interpreter *interpreter, struct watch *watch, PyObject **last,
                PyObject *new_value, struct change *change, const struct heard *heard, int line);
/* The value of a watch now, evaluated in a frame; NULL: as an eval sees it. A new reference; NULL:
 * there is none. None of these four leaves an exception. */
PyObject *watch_value(struct interpreter *interpreter, struct watch *watch, PyFrameObject *frame);
/* The value where it is kept, or else evaluated. A new reference; NULL: there is none. */
PyObject *watch_stored(struct interpreter *interpreter, struct watch *watch);
/* A copy of a value that can be changed in place, else itself: a new reference; NULL of NULL. */
PyObject *watch_copy(struct interpreter *interpreter, PyObject *value);
/* Whether a value can be changed in place. */
bool watch_is_changeable(struct interpreter *interpreter, PyObject *value);
/* Describes how a value is watched, for who reads the breakpoints. */
void watch_describe(const struct watch *watch, char note[PROTO_WORDS_MAX]);
/* Lets the daemon know how a value is watched now. */
void watch_publish(struct watch *watch);
/* Begins to watch a value in the way that its storage is for. 0; -EBUSY: no slot is
 * free; others, with words. */
int watch_begin(struct interpreter *interpreter, struct watch *watch, char words[PROTO_WORDS_MAX]);
void watch_end_one(struct interpreter *interpreter, struct watch *watch);
/* Ends a watch for good whose frame has returned, or whose thread has ended, as words say. An
 * exception that is set stays. */
void watch_frame_left(struct interpreter *interpreter, struct watch *watch, const char *words);
#define WATCH_RETURNED "its frame has returned"

/* ---- the thread that takes traps out of the queue (taker.c) ---- */

/* 0, or -errno with words. */
int watch_thread_begin(char words[PROTO_WORDS_MAX]);
/* Waits until it has taken what is in the queue, a tenth of a second at most. The GIL is given up.
 */
void watch_thread_wait(void);
/* Ends it, without the GIL. False: it doesn't get out of code of the program's. */
bool watch_thread_end(void);
void watch_thread_forget(void);

/* ---- dicts (by_dict.c) ---- */

/* -EOPNOTSUPP: this interpreter has no watchers, or none is free. */
int by_dict_begin(struct interpreter *interpreter, struct watch *watch);
void by_dict_end(struct interpreter *interpreter, struct watch *watch);

/* ---- lines (by_line.c) ---- */

int by_line_begin(struct interpreter *interpreter, struct watch *watch,
                  char words[PROTO_WORDS_MAX]);
void by_line_end(struct interpreter *interpreter, struct watch *watch);
/* Tells of the return of the frame of a watch that isn't watched by lines. 0, or -errno with words.
 */
int by_line_await(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
/* No more of those that ran code, unless others want to be told, too. */
void by_line_leave(struct interpreter *interpreter, PyObject *code);
