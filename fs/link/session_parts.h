/* What session.c (its life, receiving) and session_ask.c (asking, waiting) share. */
#pragma once

#include "fs/link/exchange.h"
#include "fs/link/session.h"

#include <pthread.h>
#include <stdatomic.h>

struct session {
    atomic_uint refs;
    int fd;                   /* our end of the channel; the target may share its description */
    int pidfd;                /* -1: none */
    int stop;                 /* an eventfd that ends the receiving thread */
    pthread_t receiver;
    pthread_mutex_t sending;  /* held while one request's frames go out; taken before lock */

    pthread_mutex_t listening; /* held while the listener is called; taken before lock */
    session_notice *notice;    /* the listener; NULL: none */
    void *notice_arg;
    uint64_t notice_key;

    pthread_mutex_t lock;     /* guards what follows */
    int ended;                /* 0, or why: -ESRCH, -EPROTO */
    struct proto_ready ready; /* the last one */
    struct exchange exchange;
};

/* The session is over because of `error`: who waits is told. The first reason stays. */
void session_end(struct session *session, int error);
