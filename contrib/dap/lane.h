/* Requests that are carried out one after the other, by a thread of their own: what a user's own
 * code takes long for doesn't hold up who looks. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

struct lane {
    pthread_t thread;
    void (*serve)(void *arg, json_t *request); /* in that thread */
    void *arg;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    json_t *waiting; /* the next first */
    int64_t running; /* the seq of the one that is carried out; 0: none is */
    bool cancelled;  /* that one was interrupted */
    bool is_over;    /* no further one is begun */
};

/* Begins; -ENOMEM, -EAGAIN. SIGUSR1 must have a handler that does nothing: a thread that waits for
 * a file is interrupted by it. */
int lane_start(struct lane *lane, void (*serve)(void *arg, json_t *request), void *arg);
/* Takes a reference of its own. */
void lane_add(struct lane *lane, json_t *request);
/* Interrupts the request with that seq as Ctrl-C would, or takes it out: then it is returned, the
 * caller's to answer. NULL: it wasn't waiting. */
json_t *lane_cancel(struct lane *lane, int64_t seq);
/* Whether the request that is carried out was interrupted. */
bool lane_is_cancelled(struct lane *lane);
/* Drops what waits, and interrupts what is carried out: that ends soon, unless a file heeds no
 * signal. The thread ends then; nobody waits for it. */
void lane_stop(struct lane *lane);
