/* The last errors that opening a process's files ended in, with their words: what <pid>/errors
 * shows to those whose errors they are. */
#pragma once

#include "fs/access/credentials.h"
#include "fs/base/text.h"

#include <pthread.h>
#include <time.h>

#define ERROR_RING_LINES 8
#define ERROR_WORDS_MAX 1024 /* bytes; longer words are cut */

struct error_line {
    struct timespec when;
    struct credentials *whose;
    int error;     /* positive errno; 0: no line yet */
    char file[64]; /* below <pid>/ */
    char words[ERROR_WORDS_MAX];
};

struct error_ring {
    pthread_mutex_t lock;
    unsigned next;
    struct error_line lines[ERROR_RING_LINES];
};

/* Adds a line of somebody's, with a reference of its own: file is relative to <pid>/, error -errno,
 * words may be NULL. *ring is made when it is first needed, since most processes never need one;
 * without memory the line is dropped. */
void error_ring_add(_Atomic(struct error_ring *) *ring, struct credentials *whose, const char *file,
                    int error, const char *words);
void error_ring_free(struct error_ring *ring);

/* Theirs, one line each, oldest first: time, file, errno's name, words. ring may be NULL. */
void error_ring_render(struct error_ring *ring, const struct credentials *whose, struct text *out);
