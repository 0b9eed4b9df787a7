#include "fs/link/attach.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/link/attachment.h"
#include "fs/link/found.h"
#include "fs/proc/lwp.h"

#include <errno.h>
#include <string.h>

/* The agent needs the GIL to give up what is Python's. */
#define DETACH_NS 10000000000ull
/* From its last word until its threads have left the library for good. */
#define LEAVE_NS 2000000000ull

/* Whether a thread of the process, by the number that it knows itself by, is still there. */
static bool thread_exists(struct target *target, pid_t inner_tid)
{
    struct lwp_list threads;

    if (!inner_tid || lwp_list_read(target->pid, LWP_STATES, &threads) < 0)
        return false;
    bool exists = lwp_find_inner(&threads, inner_tid) != NULL;
    lwp_list_deinit(&threads);
    return exists;
}

/* Waits until no thread of the agent, nor one that lends it the GIL, is in the library any more.
 * Its last one is that of the channel, which has joined the others before its last word. */
static int wait_left(struct target *target, struct found_agent *found, pid_t channel_tid,
                     const struct interrupt *interrupt)
{
    uint64_t until = monotonic_ns() + LEAVE_NS;

    for (;;) {
        int r = found_agent_refresh(&target->memory, found);
        if (r < 0)
            return r;
        if (found->record.state == RECORD_ENDED && found->record.lend.left &&
            !thread_exists(target, channel_tid))
            return 0;
        if (monotonic_ns() >= until)
            return -ETIMEDOUT;
        r = attachment_nap(interrupt);
        if (r < 0)
            return r;
    }
}

/* What dlopen() returned is a struct link_map, which begins with the load bias. */
static bool is_handle(struct target *target, const struct found_agent *found)
{
    uint64_t bias;

    return found->record.handle &&
           memory_read(&target->memory, found->record.handle, &bias, sizeof bias) == 0 &&
           bias == found->bias;
}

/* Takes the library out, if nothing needs it. True: it is gone; else why says what keeps it. */
static bool take_out(struct attachment *attachment, struct target *target,
                     struct found_agent *found, const struct interrupt *interrupt, struct text *why)
{
    struct inject_result result;
    struct found_agent after;

    if (!is_handle(target, found)) {
        text_puts(why, "the library stays: the program loaded it itself");
        return false;
    }
    text_puts(why, "the library stays: ");
    size_t begin = why->size;
    int r = attachment_injector(attachment, target);
    if (r == 0)
        r = inject_unload(attachment->injector, found->record.handle, ATTACH_INJECT_NS, interrupt,
                          &result, why);
    if (r == 0)
        r = found_agent_find(&target->memory, &after);
    if (r == -ENOENT || (r == 0 && after.base != found->base)) {
        text_clear(why);
        return true;
    }
    if (why->size == begin)
        text_puts(why, r < 0 ? strerror(-r) : "dlclose() found that something refers to it");
    return false;
}

int agent_take_out(struct target *target, const struct agent_ended *ended,
                   const struct interrupt *interrupt, bool *unloaded, struct text *why)
{
    struct attachment *attachment = attachment_of(target);
    struct found_agent found;

    *unloaded = false;
    if (!attachment)
        return -ENOMEM;
    int r = found_agent_at(&target->memory, ended->base, &found);
    if (r == 0)
        r = wait_left(target, &found, ended->channel_tid, interrupt);
    if (r == -ESRCH)
        return r;
    if (r < 0)
        text_printf(why, "the library stays: %s",
                    r == -EINTR       ? "interrupted"
                    : r == -ETIMEDOUT ? "a thread of it did not end"
                                      : "it can't be found any more");
    else if (!ended->unloadable)
        text_puts(why,
                  target->runtime.free_threaded
                      ? "the library stays, as in every free-threaded interpreter: nothing says "
                        "when the last thread has left it"
                      : "the library stays: Python objects of the agent are still in use, the "
                        "program forked meanwhile, or it loaded the library itself");
    else
        *unloaded = take_out(attachment, target, &found, interrupt, why);
    return 0;
}

static int take_out_of(struct target *target, const struct agent_ended *ended,
                       const struct interrupt *interrupt, bool *unloaded, struct text *why)
{
    const struct attacher *attacher = target->attacher;

    return attacher ? attacher->take_out(attacher->arg, target->pid, target->start_time, ended,
                                         interrupt, unloaded, why)
                    : agent_take_out(target, ended, interrupt, unloaded, why);
}

static int detach(struct attachment *attachment, struct target *target,
                  const struct interrupt *interrupt, bool *unloaded, struct text *why)
{
    struct agent_ended ended;
    struct proto_ready ready;
    struct proto_done done;
    struct session *session;

    int r = attachment_connect(attachment, target, interrupt, why, &session);
    if (r < 0)
        return r;
    session_last_ready(session, &ready);
    r = session_detach(session, DETACH_NS, interrupt, &done);
    session_unref(session);
    if (r < 0) {
        text_puts(why, done.words[0] ? done.words : "the agent did not get the GIL in time");
        return r;
    }
    {
        _guard_mutex_(&attachment->lock);
        ended = (struct agent_ended){.base = attachment->found.base,
                                     .channel_tid = ready.channel_tid,
                                     .unloadable = done.flags & DONE_UNLOADABLE};
    }
    attachment_set(attachment, NULL, NULL);
    return take_out_of(target, &ended, interrupt, unloaded, why);
}

int agent_detach(struct target *target, const struct interrupt *interrupt, bool *unloaded,
                 struct text *why)
{
    struct attachment *attachment = attachment_of(target);

    *unloaded = false;
    if (!attachment)
        return -ENOMEM;
    int r = attachment_lock(attachment, interrupt, why);
    if (r < 0)
        return r;
    r = detach(attachment, target, interrupt, unloaded, why);
    pthread_mutex_unlock(&attachment->changing);
    return r < 0 ? attachment_failure(target, r, why) : 0;
}
