/* A client and the process that it debugs.
 *
 * The thread of the client reads requests and hands them to three others: one looks, one acts
 * (breakpoints, steps), and one runs what the user has typed, which may take its time. Another one
 * hears what happens in the process. Each answers, or tells, by itself. */
#pragma once

#include "contrib/dap/breakpoints.h"
#include "contrib/dap/files.h"
#include "contrib/dap/lane.h"
#include "contrib/dap/modules.h"
#include "contrib/dap/motion.h"
#include "contrib/dap/paths.h"
#include "contrib/dap/places.h"
#include "contrib/dap/request.h"

#include <stdio.h>

/* How long a thread is held, at most. It is as long as can be: whoever has it held says so with
 * `here`, and it goes on when that one has gone. */
#define HOLD "7d"

struct session {
    const char *mount;
    struct files files;
    pid_t pid;
    int events;      /* the file of that name, from `attach` on until it is heard; -1: none */
    json_t *process; /* as the client is told of it */
    struct paths paths;
    struct places places;
    struct breakpoints breakpoints;
    struct motion motion;
    struct modules modules;
    struct lane lanes[LANES];
    int first_line;     /* as the client counts lines: 1 or 0 */
    bool native;        /* native frames are shown, too */
    json_t *wanted;     /* what `attach` has said; NULL: nothing yet */
    bool begins_others; /* the client can begin further sessions, if it is asked to */
    bool own_code;      /* steps and exceptions are told in the program's own code only */

    pthread_mutex_t out_lock; /* guards what follows */
    int out;
    int64_t seq; /* of the last message */

    pthread_mutex_t lock; /* guards what follows */
    json_t *stops;        /* by thread: the `stop` of `events` that holds it */
    json_t *news;         /* by thread: the number of the last stop that was heard of */
    json_t *leaving;      /* threads that step out of the program's own code, and go on until it */
    json_t *stacks;       /* by thread that is held: its frames, as the client has them */
    json_t *attaching;    /* the request that is answered last; NULL: none */
    bool is_attached;
};

/* Serves a client until it leaves; then whoever was held by it goes on, and its breakpoints are
 * taken out. */
void session_run(const char *mount, FILE *in, int out);

/* Sends what the protocol calls an event; takes the body over, NULL: none. */
void session_tell(struct session *session, const char *event, json_t *body);
/* Asks the client for what the protocol calls a reverse request; takes the arguments over. What it
 * answers is for nobody. */
void session_ask(struct session *session, const char *command, json_t *arguments);
/* Shows a text to the user, with a newline behind it. */
void session_say(struct session *session, const char *words);
/* Answers a request: with a body, which is taken over, or, where that is NULL, with why not. */
void session_answer(struct session *session, const json_t *request, json_t *body, const char *why);

/* Whether a stop is heard of for the first time: one may be both seen and in `events`. */
bool session_hears(struct session *session, pid_t tid, const json_t *stop);
/* The agent has gone: another one counts its stops anew. */
void session_hears_anew(struct session *session);
/* A thread is held there. False: that was known, or another stop is newer. */
bool session_stops(struct session *session, pid_t tid, json_t *stop);
/* A thread goes on, or is about to: what the client knows of its frames is over. Whether a stop of
 * it was known. */
bool session_goes_on(struct session *session, pid_t tid);
/* A thread is held still, elsewhere: what the client knows of its frames is over. */
void session_moves(struct session *session, pid_t tid);
/* Has one of its threads do what no client asks for, and isn't answered. tid: a thread, 0: none;
 * stop: the number of the stop for which that is done, 0: of none. */
void session_order(struct session *session, enum lane_kind lane, const char *command,
                   json_int_t tid, json_int_t stop);
/* The stop of a thread that is held, a new reference; NULL: it isn't, as far as is known. */
json_t *session_stop_of(struct session *session, pid_t tid);
/* The stops of all threads that are held, by thread; new. */
json_t *session_stops_of_all(struct session *session);
/* Whether a thread steps out of the program's own code, and isn't there again: it was marked so,
 * and now isn't. */
bool session_is_leaving(struct session *session, pid_t tid);
void session_leaves(struct session *session, pid_t tid);
/* The frames that were kept of a thread, a new reference; NULL: none are. */
json_t *session_stack(struct session *session, pid_t tid);
/* Keeps them until it goes on; unless that isn't its stop any more. */
void session_keep_stack(struct session *session, pid_t tid, const json_t *stop, json_t *frames);
