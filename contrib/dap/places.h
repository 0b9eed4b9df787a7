/* What the numbers stand for that a client has: frames, and values in them.
 *
 * A number is good as long as its thread stays where it is. Numbers are never given twice. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PLACES_MAX 100000 /* then the older half is forgotten */

enum place_kind {
    PLACE_FRAME,
    PLACE_NOTHING, /* a native frame */
    PLACE_LOCALS,  /* of the frame */
    PLACE_GLOBALS, /* of its module */
    PLACE_HELD,    /* what `path`, of value() in SQL, leads to in it: read from outside */
    PLACE_VALUE,   /* what the expression `path` gives in it */
    PLACE_TARGET,  /* line `depth` of the source `path`, to jump to */
    PLACE_SHOWN,   /* what the expression `path` gave: `rows` are its children, as eval's JSON has
                    * them */
};

struct place {
    enum place_kind kind;
    pid_t tid;   /* 0: no thread's */
    int depth;   /* of the Python frame, or of a crash's */
    bool global; /* of the Globals of the frame */
    char *path;
    json_t *rows;
    int64_t crash; /* not of a stack, but of what is left of one: the exception's number; else 0 */
};

struct places {
    pthread_mutex_t lock;
    int64_t last; /* number that was given */
    struct numbered {
        int64_t number;
        struct place place;
        json_t *names;
    } * items; /* by number */
    size_t n, alloc;
};

void places_init(struct places *places);

/* A number for it, from 1 on; 0: out of memory. Takes path and a reference of rows over. */
int64_t places_add(struct places *places, struct place place);
/* What a number stands for; the caller's to deinit. False: nothing, or nothing any more. */
bool places_find(struct places *places, int64_t number, struct place *out);
/* What the children of a value are called, and the expressions that lead to them: an object, of
 * which a reference is taken over. */
void places_name(struct places *places, int64_t number, json_t *names);
/* The expression for a child of that name; NULL: there is none. The caller's. */
char *places_child(struct places *places, int64_t number, const char *name);
/* Forgets those of a thread, which goes on. */
void places_forget(struct places *places, pid_t tid);

void place_deinit(struct place *place);
#define _cleanup_place_ _cleanup_(place_deinit)
