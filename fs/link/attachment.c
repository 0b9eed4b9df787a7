#include "fs/link/attachment.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#include <errno.h>
#include <poll.h>

#define NAP_MS 3
/* Longer than one that attaches takes: it may inject, and wait for an agent. */
#define CHANGING_NS 15000000000ull
#define SLICE_NS 20000000u

static void free_attachment(struct target_kept *kept)
{
    struct attachment *attachment = (struct attachment *)kept;

    session_unref(attachment->session);
    injector_free(attachment->injector);
    injector_free(attachment->lender);
    pthread_mutex_destroy(&attachment->lending);
    pthread_mutex_destroy(&attachment->lock);
    pthread_mutex_destroy(&attachment->changing);
    free(attachment);
}

struct attachment *attachment_there(const struct target *target)
{
    return (struct attachment *)atomic_load(&target->kept[KEPT_BY_LINK]);
}

struct attachment *attachment_of(struct target *target)
{
    struct attachment *attachment = attachment_there(target);
    if (attachment)
        return attachment;

    attachment = calloc(1, sizeof *attachment);
    if (!attachment)
        return NULL;
    attachment->kept.free = free_attachment;
    pthread_mutex_init(&attachment->changing, NULL);
    pthread_mutex_init(&attachment->lending, NULL);
    pthread_mutex_init(&attachment->lock, NULL);
    struct target_kept *kept = target_keep(target, KEPT_BY_LINK, &attachment->kept);
    if (kept != &attachment->kept)
        free_attachment(&attachment->kept); /* another thread was faster */
    return (struct attachment *)kept;
}

struct session *attachment_session(struct attachment *attachment)
{
    _guard_mutex_(&attachment->lock);
    if (!attachment->session || !session_alive(attachment->session))
        return NULL;
    return session_ref(attachment->session);
}

void attachment_set(struct attachment *attachment, struct session *session,
                    const struct found_agent *found)
{
    struct session *old;
    {
        _guard_mutex_(&attachment->lock);
        old = attachment->session;
        attachment->session = session;
        attachment->found = found ? *found : (struct found_agent){0};
    }
    session_unref(old);
}

int attachment_lock(struct attachment *attachment, const struct interrupt *interrupt,
                    struct text *why)
{
    uint64_t until = monotonic_ns() + CHANGING_NS;

    for (uint64_t now; (now = monotonic_ns()) < until;) {
        struct timespec slice = timespec_of(now + SLICE_NS);
        if (interrupted(interrupt)) {
            text_puts(why, "interrupted");
            return -EINTR;
        }
        if (pthread_mutex_clocklock(&attachment->changing, CLOCK_MONOTONIC, &slice) == 0)
            return 0;
    }
    text_puts(why, "somebody else attaches or detaches just now; try again");
    return -EBUSY;
}

int attachment_injector(struct attachment *attachment, struct target *target)
{
    return attachment->injector ? 0 : injector_new(target, &attachment->injector);
}

int attachment_failure(const struct target *target, int r, struct text *why)
{
    if (r == -EINTR || target_why_not(target) != -ESRCH)
        return r;
    text_clear(why);
    text_puts(why, "the process has ended, or executes another program now");
    return -ESRCH;
}

int attachment_nap(const struct interrupt *interrupt)
{
    struct pollfd p = {.fd = interrupt ? interrupt->fd : -1, .events = POLLIN};

    (void)poll(&p, 1, NAP_MS);
    return interrupted(interrupt) ? -EINTR : 0;
}
