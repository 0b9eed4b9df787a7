/* Pages that are open, and the files that stay open as long as one is: what was written to them
 * with `here` is taken back by the kernel's release, whatever ends the browser. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#define VISIT_NAME_MAX 64 /* characters; a page chooses one that nobody guesses */

struct visit;

struct visits {
    pthread_mutex_t lock;
    struct visit *first;
};

#define VISITS_INIT                 \
 {                                  \
  .lock = PTHREAD_MUTEX_INITIALIZER \
 }

/* A page has come; visit_leave() ends it. NULL: there is one of that name, or no memory. */
struct visit *visit_begin(struct visits *visits, const char *name);

/* A visit has gone: its files are closed, once nobody uses one any more. */
void visit_leave(struct visits *visits, struct visit *visit);

struct visit_file {
    struct visit *visit;
    pthread_mutex_t lock; /* one writes, and reads the answer */
    char *path;
    int fd;
    struct visit_file *next;
};

/* The file of that path that stays open for the page, for the caller alone until visit_file_done().
 * Opened now, if it wasn't, to be written as by >>. Returns 0 or -errno; -ESTALE: there is no such
 * page (any more); -EMFILE: it has opened too many. */
int visit_file(struct visits *visits, const char *name, const char *mount, const char *path,
               struct visit_file **out);
void visit_file_done(struct visits *visits, struct visit_file *file);
