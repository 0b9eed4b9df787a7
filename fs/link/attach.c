#include "fs/link/attach.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/inject/refusal.h"
#include "fs/inject/script/script.h"
#include "fs/link/agent_image.h"
#include "fs/link/agent_symbols.h"
#include "fs/link/attachment.h"
#include "fs/link/found.h"
#include "fs/remote/frames/frames.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- refusals: what can be known without touching ---- */

#define VERSION_LEAST 0x030a0000u         /* 3.10 */
#define VERSION_LATEST 0x030f0000u        /* 3.15 */
#define VERSION_FREE_THREADED 0x030d0000u /* 3.13 */

#define ATTACH_TRIES 3

/* Whether an interpreter has come as far as its first thread. The newest one comes first, and from
 * CPython 3.13 on those that nobody is in have none. */
static bool has_begun(const struct target *target)
{
    const struct offsets *o = &target->runtime.offsets;
    uint64_t at = target->runtime.addr + (uint64_t)o->rt_interpreters_head, thread;

    for (int i = 0; i < WALK_INTERPRETERS_MAX; i++) {
        uint64_t interp;
        if (memory_read(&target->memory, at, &interp, sizeof interp) < 0 || !interp ||
            memory_read(&target->memory, interp + (uint64_t)o->interp_threads_head, &thread,
                        sizeof thread) < 0)
            return false;
        if (thread)
            return true;
        at = interp + (uint64_t)o->interp_next;
    }
    return true; /* what only starts has not made so many */
}

static int refuse(struct target *target, struct text *why)
{
    const struct runtime *rt = &target->runtime;
    uint32_t minor = rt->version & 0xffff0000u;

    if (target_why_not(target) == -ESRCH) {
        text_puts(why, "the process has ended, or executes another program now");
        return -ESRCH;
    }
    int r = refusal_shared(target->pid, why);
    if (r < 0)
        return r;
    if (rt->free_threaded && minor != VERSION_FREE_THREADED)
        text_printf(why,
                    "of free-threaded builds an agent was tried in CPython 3.13 alone, this is "
                    "%u.%u; what is read from outside is shown",
                    minor >> 24, minor >> 16 & 0xff);
    else if (!minor)
        text_puts(why, rt->why);
    else if (minor < VERSION_LEAST || minor > VERSION_LATEST)
        text_printf(why, "an agent needs CPython 3.10 to 3.15, this is %u.%u", minor >> 24,
                    minor >> 16 & 0xff);
    else if (!rt->supported)
        text_puts(why, rt->why);
    else if (!has_begun(target))
        text_puts(why, "the interpreter is only starting, or has ended; try again in a moment");
    else
        return 0;
    return -EOPNOTSUPP;
}

/* ---- the way to an agent that runs ---- */

/* Takes a descriptor of the process. */
static int take_descriptor(struct target *target, int number, struct text *why, int *out)
{
    _cleanup_close_ int opened = -1;
    int pidfd = target->pidfd;

    if (pidfd < 0) { /* descriptors are scarce */
        pidfd = opened = (int)syscall(SYS_pidfd_open, target->pid, 0);
        if (pidfd < 0)
            return -errno;
        if (!target_alive(target))
            return -ESRCH; /* and the descriptor is a successor's */
    }
    *out = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (*out >= 0)
        return 0;
    if (errno == EPERM)
        text_puts(why, "pidfd_getfd(2) is refused, as ptrace(2) is: run the daemon as root, or "
                       "set kernel.yama.ptrace_scope to 0");
    else if (errno == ENOSYS)
        text_puts(why, "this kernel has no pidfd_getfd(2): it needs Linux 5.6");
    return errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

static void explain(int r, struct text *why)
{
    if (why->size)
        return;
    switch (r) {
    case -EBUSY: text_puts(why, "another daemon talks with its agent; unmount that first"); break;
    case -EPROTO: text_puts(why, "what it shows as its agent's channel is none"); break;
    case -ETIMEDOUT: text_puts(why, "its agent doesn't answer: is the process stopped?"); break;
    case -EINTR: text_puts(why, "interrupted"); break;
    case -ESRCH: text_puts(why, "the process has ended"); break;
    case -EOPNOTSUPP:
        text_puts(why, "an agent of another version of probefs is in it; detach it with that one");
        break;
    default: text_puts(why, strerror(-r)); break;
    }
}

/* Tries once. -EAGAIN: the agent is just changing something. */
static int try_channel(struct target *target, struct found_agent *found, struct text *why, int *out)
{
    int r = found_agent_refresh(&target->memory, found);
    if (r < 0)
        return r;
    if (!found->running)
        return -ENOTCONN;
    if (found->record.channel < 0)
        return -EAGAIN;
    r = take_descriptor(target, found->record.channel, why, out);
    return r == -EBADF ? -EAGAIN : r;
}

static int take_channel(struct target *target, struct found_agent *found,
                        const struct interrupt *interrupt, struct text *why,
                        struct agent_channel *out)
{
    uint64_t until = monotonic_ns() + ATTACH_RETRY_NS;
    int r;

    while ((r = try_channel(target, found, why, &out->fd)) == -EAGAIN) {
        if (monotonic_ns() >= until) {
            r = -EBUSY;
            break;
        }
        r = attachment_nap(interrupt);
        if (r < 0)
            break;
    }
    out->found = *found;
    if (r < 0 && r != -ENOTCONN)
        explain(r, why);
    return r;
}

/* The way to one that is there. */
static int find_channel(struct target *target, const struct interrupt *interrupt,
                        struct agent_channel *out, struct text *why)
{
    struct found_agent found;

    int r = refusal_shared(target->pid, why);
    if (r < 0)
        return r;
    r = found_agent_find(&target->memory, &found);
    if (r == 0 && found.running)
        r = take_channel(target, &found, interrupt, why, out);
    else if (r == 0 || r == -ENOENT)
        r = -ENOTCONN;
    if (r == -ENOTCONN)
        text_puts(why, "no agent runs in this process");
    return r;
}

/* ---- putting one in ---- */

/* Whether an interpreter that can't be borrowed a thread of may run a script instead (PEP 768). Not
 * where a thread was borrowed and the library didn't load in time: it may be loading still. */
static bool may_run_script(const struct target *target, int r, const struct inject_result *result)
{
    return (r == -EOPNOTSUPP || r == -EPERM || r == -EFBIG ||
            (r == -ETIMEDOUT && !result->borrowed)) &&
           target->runtime.version >= 0x030e0000u;
}

/* The second way; both reasons are said if it fails, too. */
static int put_in_by_script(struct target *target, const struct inject_image *image, int r,
                            const struct interrupt *interrupt, struct inject_result *result,
                            struct text *why)
{
    _cleanup_(text_deinit) struct text second = TEXT_INIT;

    int by_script = script_load(target, image, ATTACH_INJECT_NS, interrupt, result, &second);
    if (by_script == 0) {
        text_clear(why);
        return 0;
    }
    if (second.size && !(why->size && !strcmp(why->data, second.data)))
        text_printf(why, "%s%s", why->size ? "; by a script: " : "", second.data);
    return by_script == -EOPNOTSUPP ? r : by_script;
}

/* The first way: loads the library, or starts the one that is loaded. */
static int put_in_by_thread(struct attachment *attachment, struct target *target,
                            const struct inject_image *image, const struct found_agent *found,
                            const struct interrupt *interrupt, struct inject_result *result,
                            struct text *why)
{
    int r = attachment_injector(attachment, target);
    if (r < 0)
        return r;
    if (found)
        return inject_call(attachment->injector, found->start_addr, ATTACH_INJECT_NS, interrupt,
                           result, why);
    return inject_load(attachment->injector, image, ATTACH_INJECT_NS, interrupt, result, why);
}

/* Loads the library; or starts it (`found`), if the process has it from a parent, or detached
 * it. */
static int put_in(struct attachment *attachment, struct target *target, enum attach_way way,
                  const struct found_agent *found, const struct interrupt *interrupt,
                  uint64_t *pause_ns, struct text *why)
{
    struct inject_image image;
    struct inject_result result = {0};
    _cleanup_free_ char *linked = NULL;

    int r = agent_image(&image);
    if (r == 0 && !target->runtime.exported) {
        r = agent_symbols_link(target, &image, &linked, why);
        image.data = linked;
    }
    if (r < 0)
        return r;
    if (way == ATTACH_REMOTE_EXEC) {
        r = script_load(target, &image, ATTACH_INJECT_NS, interrupt, &result, why);
    } else {
        r = put_in_by_thread(attachment, target, &image, found, interrupt, &result, why);
        if (may_run_script(target, r, &result))
            r = put_in_by_script(target, &image, r, interrupt, &result, why);
    }
    if (r == 0 && result.result) {
        r = result.result > -4096 && result.result < 0 ? result.result : -EIO;
        text_printf(why, "the agent could not start: %s", strerror(-r));
    }
    if (r == 0)
        *pause_ns = result.pause_ns;
    return r;
}

/* Tries once to find the agent, or to put it in. -EAGAIN: the agent that was there is going, on an
 * order of an earlier daemon. */
static int find_or_put_in(struct attachment *attachment, struct target *target, enum attach_way way,
                          const struct interrupt *interrupt, struct text *why,
                          struct agent_channel *out)
{
    struct found_agent found;

    int r = found_agent_find(&target->memory, &found);
    out->ours = r == -ENOENT || (r == 0 && !found.running);
    if (out->ours) {
        r = put_in(attachment, target, way, r == 0 ? &found : NULL, interrupt, &out->pause_ns, why);
        if (r == 0)
            r = found_agent_find(&target->memory, &found);
    }
    if (r == 0)
        r = take_channel(target, &found, interrupt, why, out);
    return r == -ENOENT || r == -ENOTCONN ? -EAGAIN : r;
}

static int make_channel(struct attachment *attachment, struct target *target, enum attach_way way,
                        const struct interrupt *interrupt, struct agent_channel *out,
                        struct text *why)
{
    int r = refuse(target, why);
    if (r < 0)
        return r;
    for (int tries = 0; tries < ATTACH_TRIES; tries++) {
        text_clear(why);
        r = find_or_put_in(attachment, target, way, interrupt, why, out);
        if (r != -EAGAIN || attachment_nap(interrupt) < 0)
            break;
    }
    return r;
}

int agent_channel(struct target *target, enum attach_way way, const struct interrupt *interrupt,
                  struct agent_channel *out, struct text *why)
{
    struct attachment *attachment = attachment_of(target);
    struct agent_channel channel = {.fd = -1};

    if (!attachment)
        return -ENOMEM;
    int r = way == ATTACH_FOUND ? find_channel(target, interrupt, &channel, why)
                                : make_channel(attachment, target, way, interrupt, &channel, why);
    if (r == 0)
        *out = channel;
    else
        explain(r, why);
    return r;
}

/* ---- connecting ---- */

/* Whether it is no socket, or one that the process itself is at the other end of: one that it has
 * connected with somebody else's service would bring that a message of ours, with our credentials
 * (SCM_CREDENTIALS, unix(7)). */
static bool is_its_own(const struct target *target, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid == target->pid;
}

/* Says hello to what is at the other end. -EAGAIN: the agent, or another daemon, is just changing
 * something. */
static int open_session(struct target *target, int fd, const struct interrupt *interrupt,
                        struct session **out)
{
    if (!is_its_own(target, fd)) {
        worker_close(fd);
        return -EPROTO;
    }
    int r = session_open(fd, target->pidfd, interrupt, out);
    return r == -EPIPE || r == -EBUSY ? -EAGAIN : r;
}

static int channel_of(struct target *target, enum attach_way way, const struct interrupt *interrupt,
                      struct agent_channel *out, struct text *why)
{
    const struct attacher *attacher = target->attacher;

    return attacher ? attacher->channel(attacher->arg, target->pid, target->start_time, way,
                                        interrupt, out, why)
                    : agent_channel(target, way, interrupt, out, why);
}

static int connect_by(struct target *target, enum attach_way way, const struct interrupt *interrupt,
                      struct agent_channel *out, struct text *why, struct session **session)
{
    uint64_t until = monotonic_ns() + ATTACH_RETRY_NS;
    struct agent_channel channel;

    for (;;) {
        int r = channel_of(target, way, interrupt, &channel, why);
        if (r < 0) {
            explain(r, why);
            return r;
        }
        out->found = channel.found;
        out->ours |= channel.ours;
        out->pause_ns += channel.pause_ns;
        r = open_session(target, channel.fd, interrupt, session);
        if (r == -EAGAIN && monotonic_ns() >= until)
            r = -EBUSY;
        else if (r == -EAGAIN)
            r = attachment_nap(interrupt) < 0 ? -EINTR : -EAGAIN;
        if (r < 0 && r != -EAGAIN)
            explain(r, why);
        if (r != -EAGAIN)
            return r;
    }
}

/* Whoever asks holds the target. */
static int lend(void *arg, uint64_t duration_ns, const struct interrupt *interrupt)
{
    struct target *target = arg;
    const struct attacher *attacher = target->attacher;
    struct attachment *attachment = attachment_there(target);
    struct found_agent found;
    {
        _guard_mutex_(&attachment->lock);
        found = attachment->found;
    }
    return attacher ? attacher->lend(attacher->arg, target->pid, target->start_time, &found,
                                     duration_ns, interrupt)
                    : agent_lend(target, &found, duration_ns, interrupt);
}

static int attach(struct attachment *attachment, struct target *target, enum attach_way way,
                  const struct interrupt *interrupt, struct text *why, struct session **out)
{
    struct agent_channel channel = {0};
    uint64_t start = monotonic_ns();

    *out = attachment_session(attachment);
    if (*out)
        return 0;
    int r = connect_by(target, way, interrupt, &channel, why, out);
    if (r < 0)
        return r;
    session_on_wait(*out, lend, target);
    attachment_set(attachment, session_ref(*out), &channel.found);
    if (way == ATTACH_FOUND)
        return 0;
    _guard_mutex_(&attachment->lock);
    attachment->attach_ns = channel.ours ? monotonic_ns() - start : 0;
    attachment->pause_ns = channel.pause_ns;
    return 0;
}

int attachment_connect(struct attachment *attachment, struct target *target,
                       const struct interrupt *interrupt, struct text *why, struct session **out)
{
    return attach(attachment, target, ATTACH_FOUND, interrupt, why, out);
}

/* ---- what others call ---- */

int agent_attach(struct target *target, enum attach_way way, const struct interrupt *interrupt,
                 struct text *why, struct session **out)
{
    struct attachment *attachment = attachment_of(target);
    if (!attachment)
        return -ENOMEM;
    struct session *session = attachment_session(attachment);
    int r = session ? 0 : attachment_lock(attachment, interrupt, why);
    if (r == 0 && !session) {
        r = attach(attachment, target, way, interrupt, why, &session);
        pthread_mutex_unlock(&attachment->changing);
    }
    if (r == 0)
        *out = session;
    return r < 0 ? attachment_failure(target, r, why) : 0;
}

int agent_connect(struct target *target, struct text *why, struct session **out)
{
    struct attachment *attachment = attachment_of(target);
    if (!attachment)
        return -ENOMEM;
    struct session *session = attachment_session(attachment);
    int r = session ? 0 : attachment_lock(attachment, NULL, why);
    if (r == 0 && !session) {
        r = attachment_connect(attachment, target, NULL, why, &session);
        pthread_mutex_unlock(&attachment->changing);
    }
    if (r == 0)
        *out = session;
    return r;
}

struct session *agent_session(struct target *target)
{
    struct attachment *attachment = attachment_there(target);

    return attachment ? attachment_session(attachment) : NULL;
}

int agent_found(struct target *target, struct found_agent *out)
{
    struct attachment *attachment = attachment_there(target);
    struct found_agent found = {0};

    if (attachment) {
        _guard_mutex_(&attachment->lock);
        found = attachment->found;
    }
    int r = found.record_addr ? found_agent_refresh(&target->memory, &found) : -ENOENT;
    if (r < 0) /* who puts them in looks for them, too */
        return target->attacher ? r : found_agent_find(&target->memory, out);
    *out = found;
    return 0;
}

void agent_tell(struct target *target, const struct found_agent *found)
{
    struct attachment *attachment = attachment_of(target);

    if (!attachment)
        return;
    _guard_mutex_(&attachment->lock);
    if (!attachment->session)
        attachment->found = *found;
}

int agent_status(struct target *target, struct attach_status *out)
{
    struct attachment *attachment = attachment_there(target);
    struct attach_status status = {0};
    struct found_agent found;

    int r = agent_found(target, &found);
    if (r < 0 && r != -ENOENT && r != -EOPNOTSUPP)
        return r;
    status.loaded = r != -ENOENT;
    status.running = r == 0 && found.running;
    struct session *session = attachment ? attachment_session(attachment) : NULL;
    if (session) {
        status.connected = true;
        session_last_ready(session, &status.ready);
        if (status.running) { /* what it said is of then */
            status.ready.python_tid = found.record.python_tid;
            status.ready.evals = found.record.evals;
            status.ready.rings = found.record.ring_bytes;
        }
        _guard_mutex_(&attachment->lock);
        status.pause_ns = attachment->pause_ns;
        status.attach_ns = attachment->attach_ns;
    }
    session_unref(session);
    *out = status;
    return 0;
}
