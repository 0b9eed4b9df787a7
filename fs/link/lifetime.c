#include "fs/link/lifetime.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>

struct lifetime {
    atomic_uint refs;
    uint64_t number;
    pthread_mutex_t lock; /* guards what follows */
    bool ended;
    struct session **sessions; /* that were asked, each once, with a reference */
    size_t n, alloc;
};

struct lifetime *lifetime_new(uint64_t number)
{
    struct lifetime *lifetime = calloc(1, sizeof *lifetime);

    if (!lifetime)
        return NULL;
    atomic_init(&lifetime->refs, 1);
    lifetime->number = number;
    pthread_mutex_init(&lifetime->lock, NULL);
    return lifetime;
}

struct lifetime *lifetime_ref(struct lifetime *lifetime)
{
    atomic_fetch_add(&lifetime->refs, 1);
    return lifetime;
}

void lifetime_unref(struct lifetime *lifetime)
{
    if (!lifetime || atomic_fetch_sub(&lifetime->refs, 1) > 1)
        return;
    lifetime_end(lifetime);
    pthread_mutex_destroy(&lifetime->lock);
    free(lifetime);
}

uint64_t lifetime_number(const struct lifetime *lifetime) { return lifetime->number; }

/* Forgets the sessions that are over: they have taken everything back, and there may be a new one
 * of the same process. With the lock. */
static void forget_dead(struct lifetime *lifetime)
{
    size_t kept = 0;

    for (size_t i = 0; i < lifetime->n; i++)
        if (session_alive(lifetime->sessions[i]))
            lifetime->sessions[kept++] = lifetime->sessions[i];
        else
            session_unref(lifetime->sessions[i]);
    lifetime->n = kept;
}

int lifetime_begin(struct lifetime *lifetime, struct session *session)
{
    _guard_mutex_(&lifetime->lock);
    if (lifetime->ended)
        return -ECANCELED;
    for (size_t i = 0; i < lifetime->n; i++)
        if (lifetime->sessions[i] == session)
            return 0;
    forget_dead(lifetime);
    int r = ARRAY_GROW(lifetime->sessions, lifetime->alloc, lifetime->n + 1);
    if (r == 0)
        lifetime->sessions[lifetime->n++] = session_ref(session);
    return r;
}

void lifetime_asked(struct lifetime *lifetime, struct session *session)
{
    _guard_mutex_(&lifetime->lock);
    if (lifetime->ended) /* it was told before it had that, perhaps */
        session_release(session, lifetime->number);
}

void lifetime_end(struct lifetime *lifetime)
{
    struct session **sessions;
    size_t n;

    {
        _guard_mutex_(&lifetime->lock);
        lifetime->ended = true;
        sessions = lifetime->sessions;
        n = lifetime->n;
        lifetime->sessions = NULL;
        lifetime->n = lifetime->alloc = 0;
    }
    for (size_t i = 0; i < n; i++) {
        session_release(sessions[i], lifetime->number);
        session_unref(sessions[i]);
    }
    free(sessions);
}
