/* What command files answered: the last reply to the same credentials at each place of a process,
 * for those who write with one command and read with another (`echo ... > eval; cat eval`).
 *
 * A reply is shared by the open file whose writes it answers and by the list of its process;
 * whoever closes first leaves it to the other. */
#pragma once

#include "fs/access/credentials.h"
#include "fs/base/budget.h"
#include "fs/base/text.h"

#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#define REPLY_MAX (32u << 20)         /* bytes of one; its beginning goes first */
#define REPLIES_MAX 64                /* kept for one process, and ... */
#define REPLIES_BYTES_MAX (32u << 20) /* ... their bytes, unless it is only one */

/* Whose a reply is, and where. */
struct reply_key {
    const char *file; /* path of the entry in the layout, compared as a pointer */
    pid_t tid;
    unsigned depth;
    const char *word;                /* of the place, "" or NULL: none; a reply copies it */
    struct credentials *credentials; /* of who opened the file; compared as a whole */
};

struct reply;

/* An empty one, with one reference; takes its own of the credentials. Its bytes come out of the
 * budget, which must outlive it. -ENOMEM. */
int reply_new(const struct reply_key *key, struct budget *budget, struct reply **out);
struct reply *reply_ref(struct reply *reply);
void reply_unref(struct reply *reply);

/* Takes `read` bytes off its beginning and `retaken` off its end, and adds to that. What doesn't
 * fit is said in it. */
void reply_add(struct reply *reply, size_t read, size_t retaken, const struct text *text);
/* Copies at most size bytes from `offset` on. Returns how many. */
size_t reply_copy(struct reply *reply, size_t offset, char *buf, size_t size);

/* The replies of one process, the newest first. */
struct replies {
    pthread_mutex_t lock;
    struct reply *first;
};

void replies_init(struct replies *replies);
/* Forgets all; may be used again. */
void replies_clear(struct replies *replies);
void replies_deinit(struct replies *replies);

/* Makes this the last reply to its credentials at its place; takes a reference of its own. The
 * oldest go where that makes too many, or too much. */
void replies_put(struct replies *replies, struct reply *reply);
/* Adds the last reply at key to out; nothing if there was none. */
void replies_render(struct replies *replies, const struct reply_key *key, struct text *out);
/* Whether any is kept: then it is worth finding out who asks. */
bool replies_any(struct replies *replies);
/* When the last reply at key was made, or last added to (CLOCK_REALTIME). False: there is none. */
bool replies_changed(struct replies *replies, const struct reply_key *key, struct timespec *out);
