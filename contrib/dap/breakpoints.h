/* The lines of the file `breakpoints` that are this session's, and live as long as that is open.
 *
 * A client says each time all that it wants for a source, or of a kind: what is there already
 * stays, since a line that is removed lets go what it holds. For the same reason one that holds a
 * thread is removed when that goes on. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define GONE_MAX 64 /* lines that are remembered */

struct session;

struct line {
    int64_t id;
    char *kind;    /* who wants it: a source's name, "function", "data", "exception", "program" */
    char *text;    /* as it was written */
    json_t *shown; /* as the client has it */
    bool logs;     /* it has a message */
    bool stays;    /* while a client says what it wants: it wants this one */
    bool goes;     /* it is taken out once it holds nobody */
    double
        gone; /* when it was taken out; what it did before that may still be told. 0: it is there */
};

struct breakpoints {
    int fd;     /* of the file, whose end is that of its lines; -1: it isn't open yet */
    int caught; /* of `ctl`, as long as what nobody catches stops; -1: that isn't asked for */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t added;
    struct line *lines;
    size_t n, alloc;
    bool adding; /* a line was written, and its number isn't known yet */
};

void breakpoints_init(struct breakpoints *breakpoints);
/* Takes all of them out of the process. */
void breakpoints_leave(struct breakpoints *breakpoints);

/* What is to be known of the line of an event. */
struct line_kind {
    bool is_ours;
    bool logs;
    bool is_function; /* its location is one */
    bool is_program;  /* it is the program's own breakpoint(), of which the client knows nothing */
    bool is_leaving;  /* of exceptions, as they leave the program's own code */
    bool goes;        /* it is to be taken out */
};
/* ts: when the event was. Waits while the number of a new line isn't known, unless this one is. */
struct line_kind breakpoints_find(struct breakpoints *breakpoints, int64_t id, double ts);
/* The body of what a client is told of a change of a line, as `events` has it: new, NULL:
 * nothing. */
json_t *breakpoints_changed(struct session *session, const json_t *event);
/* Has the file contain just these lines of a kind: objects with `text`, `line` (the client's, 0:
 * none), `logs`, or with `why` for one that can't be, or `stale` for one that can't be unless it is
 * there already. The body of an answer: as many as are
 * wanted, in their order. */
json_t *breakpoints_set(struct session *session, const char *kind, const json_t *wanted);
/* Whether exceptions that nobody catches stop: what the answer has for that. */
json_t *breakpoints_catch(struct session *session, bool wanted);
/* A thread has gone on: takes out the lines that were to go, and held it. */
void breakpoints_gone_on(struct session *session);
