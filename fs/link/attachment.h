/* What attach.c and detach.c keep of one process. */
#pragma once

#include "fs/inject/inject.h"
#include "fs/link/attach.h"

/* Until a library is in, out, or one of its functions has been called. */
#define ATTACH_INJECT_NS 10000000000ull
/* An agent whose daemon has just died needs a moment to be there for the next one. */
#define ATTACH_RETRY_NS 2000000000ull

struct attachment {
    struct target_kept kept;   /* the first member: the target frees it */
    pthread_mutex_t changing;  /* held while it attaches or detaches; taken before lock */
    struct injector *injector; /* guarded by changing; NULL: not needed yet */

    pthread_mutex_t lending; /* held while the GIL is lent */
    struct injector *lender; /* guarded by lending; NULL: not needed yet */

    pthread_mutex_t lock;     /* guards what follows */
    struct session *session;  /* the last one; it may have ended; NULL */
    struct found_agent found; /* its agent */
    uint64_t pause_ns, attach_ns;
};

/* The attachment of a target, made at first use. NULL: no memory. */
struct attachment *attachment_of(struct target *target);
/* The attachment of a target, if it was made; else NULL. */
struct attachment *attachment_there(const struct target *target);
/* The session if it is alive, with a reference; else NULL. */
struct session *attachment_session(struct attachment *attachment);
/* Puts another one in its place, of that agent; takes over the caller's reference. NULL, NULL: none
 * is there any more. */
void attachment_set(struct attachment *attachment, struct session *session,
                    const struct found_agent *found);
/* Waits until nobody else attaches or detaches. -EINTR; -EBUSY: it takes too long. */
int attachment_lock(struct attachment *attachment, const struct interrupt *interrupt,
                    struct text *why);
int attachment_injector(struct attachment *attachment, struct target *target);
/* What a failure is: -ESRCH, and why says so, if the process has ended meanwhile, however that
 * looked; else r. */
int attachment_failure(const struct target *target, int r, struct text *why);
/* Sleeps for a moment. -EINTR. */
int attachment_nap(const struct interrupt *interrupt);

/* The session, or one with an agent that runs already; caller holds changing. */
int attachment_connect(struct attachment *attachment, struct target *target,
                       const struct interrupt *interrupt, struct text *why, struct session **out);
