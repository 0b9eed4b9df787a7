#include "fs/owner/acting.h"

#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/owner/confine.h"
#include "fs/owner/message.h"
#include "fs/proc/may_hang.h"
#include "fs/trace/callers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_NS 40000000000u /* both ways of putting one in, and finding it (link/attach.c) */
#define END_NS 3000000000u     /* from an interrupt on */

/* ---- who does it ---- */

int acting_begin(const struct acting *acting)
{
    sigset_t all;

    sigfillset(&all); /* as those of the daemon's threads that do this: SIGXFSZ is an error, too */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    int r = callers_follow(OWNER_CALLERS);
    return r < 0 || acting->unbarred ? r : confine_calls(CONFINE_ACTING);
}

struct watching {
    int control;
    struct interrupt interrupt;
};

/* Whatever comes, or that nothing will, says that nobody waits any more. */
static void *watch_main(void *arg)
{
    struct watching *watching = arg;
    char byte;

    while (recv(watching->control, &byte, sizeof byte, 0) < 0 && errno == EINTR)
        continue;
    atomic_store(&watching->interrupt.raised, true);
    eventfd_write(watching->interrupt.fd, 1);
    return NULL;
}

static int make_channel(struct target *target, const struct acting *acting,
                        const struct interrupt *interrupt, struct acting_reply *reply, int *channel,
                        struct text *why)
{
    struct agent_channel made;

    int r = agent_channel(target, acting->way, interrupt, &made, why);
    if (r < 0)
        return r;
    reply->done = made.ours;
    reply->base = made.found.base;
    reply->bias = made.found.bias;
    reply->record_addr = made.found.record_addr;
    reply->start_addr = made.found.start_addr;
    reply->pid = made.found.pid;
    reply->pause_ns = made.pause_ns;
    *channel = made.fd;
    return 0;
}

static int take_out(struct target *target, const struct acting *acting,
                    const struct interrupt *interrupt, struct acting_reply *reply, struct text *why)
{
    const struct agent_ended ended = {.base = acting->base,
                                      .channel_tid = acting->channel_tid,
                                      .unloadable = acting->unloadable};
    bool unloaded;

    int r = agent_take_out(target, &ended, interrupt, &unloaded, why);
    reply->done = unloaded;
    return r;
}

static int lend(struct target *target, const struct acting *acting,
                const struct interrupt *interrupt)
{
    struct found_agent found;

    int r = found_agent_at(&target->memory, acting->base, &found);
    return r < 0 ? r : agent_lend(target, &found, acting->duration_ns, interrupt);
}

static int act(const struct acting *acting, const struct interrupt *interrupt,
               struct acting_reply *reply, int *channel, struct text *why)
{
    struct target *target;

    int r = target_open(acting->pid, &target);
    if (r < 0)
        return r;
    if (target->start_time != acting->start_time)
        r = -ESRCH;
    else if (acting->op == ACTING_CHANNEL)
        r = make_channel(target, acting, interrupt, reply, channel, why);
    else if (acting->op == ACTING_TAKE_OUT)
        r = take_out(target, acting, interrupt, reply, why);
    else
        r = lend(target, acting, interrupt);
    if (r == -ESRCH && !why->size)
        text_puts(why, "the process has ended, or executes another program now");
    target_unref(target);
    return r;
}

void acting_answer(int control, const struct acting *acting)
{
    struct watching watching = {.control = control,
                                .interrupt = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}};
    struct acting_reply reply = {0};
    struct text why = TEXT_INIT;
    pthread_t thread;
    int channel = -1;

    reply.error = worker_start(watch_main, &watching, "probefs-unasked", &thread);
    if (reply.error == 0)
        reply.error = act(acting, &watching.interrupt, &reply, &channel, &why);
    reply.why = (uint32_t)(why.error ? 0 : why.size < OWNER_PIECE ? why.size : OWNER_PIECE);
    if (owner_send(control, &reply, sizeof reply, channel) == 0 && reply.why)
        owner_send(control, why.data, reply.why, -1);
}

/* ---- who waits for it ---- */

struct waiting {
    int control;
    pid_t pid;
    const struct interrupt *interrupt;
    struct may_hang *work;
    unsigned stopped; /* looks in a row */
    uint64_t until;
    bool told; /* that nobody wants it any more */
    bool left; /* it hangs, and ends when the kernel lets it */
};

static void tell(struct waiting *waiting)
{
    if (waiting->told || !interrupted(waiting->interrupt))
        return;
    owner_send(waiting->control, "", 1, -1);
    waiting->told = true;
    waiting->until = monotonic_ns() + END_NS;
}

/* Waits for a message. -ETIMEDOUT, -EINTR. */
static int wait_message(struct waiting *waiting, struct text *why)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = waiting->control, .events = POLLIN},
                               {.fd = waiting->interrupt && !waiting->told ? waiting->interrupt->fd
                                                                           : -1,
                                .events = POLLIN}};
        if (poll(fds, ARRAY_SIZE(fds), MAY_HANG_LOOK_MS) > 0 && fds[0].revents)
            return 0;
        tell(waiting);
        int r = may_hang_look(waiting->work, NULL);
        waiting->left = r < 0;
        if (r < 0) {
            may_hang_explain(r, why);
            return r;
        }
        if (child_stays_stopped(waiting->pid, &waiting->stopped) || monotonic_ns() > waiting->until)
            return waiting->told ? -EINTR : -ETIMEDOUT;
    }
}

static bool is_sane(const struct acting *acting, const struct acting_reply *reply, int channel)
{
    return reply->error <= 0 && reply->error > -4096 && reply->why <= OWNER_PIECE &&
           reply->done <= 1 && reply->pid >= 0 && reply->pid <= INT32_MAX &&
           reply->pause_ns <= ANSWER_NS &&
           (channel >= 0) == (reply->error == 0 && acting->op == ACTING_CHANNEL);
}

static int receive_words(struct waiting *waiting, size_t size, struct text *why)
{
    _cleanup_free_ char *words = malloc(size);
    int passed = -1;

    if (!words)
        return -ENOMEM;
    int r = wait_message(waiting, why);
    if (r == 0)
        r = owner_receive(waiting->control, words, size, &passed);
    if (passed >= 0)
        worker_close(passed);
    if (r == 0) {
        text_add(why, words, size);
        owner_drop_controls(why, -1);
    }
    return r;
}

static int receive(struct waiting *waiting, const struct acting *acting, struct acting_reply *reply,
                   int *channel, struct text *why)
{
    int r = wait_message(waiting, why);
    if (r == 0)
        r = owner_receive(waiting->control, reply, sizeof *reply, channel);
    if (r == 0 && !is_sane(acting, reply, *channel))
        r = -EPROTO;
    return r == 0 && reply->why ? receive_words(waiting, reply->why, why) : r;
}

struct left {
    int control;
    struct may_hang *work;
};

static void *left_main(void *arg)
{
    struct left *left = arg;
    char byte;

    while (recv(left->control, &byte, sizeof byte, 0) < 0 && errno == EINTR)
        continue;
    close(left->control);
    may_hang_end(left->work);
    free(left);
    return NULL;
}

/* The work is over once the process is gone, which closes its end then. */
static void leave(struct waiting *waiting)
{
    struct left *left = malloc(sizeof *left);
    pthread_t thread;

    if (left)
        *left = (struct left){fcntl(waiting->control, F_DUPFD_CLOEXEC, 0), waiting->work};
    if (left && worker_start(left_main, left, "probefs-left", &thread) == 0) {
        pthread_detach(thread);
        return;
    }
    if (left && left->control >= 0)
        close(left->control);
    free(left);
    may_hang_end(waiting->work);
}

static void free_work(struct may_hang *work) { free(work); }

int acting_wait(int control, pid_t pid, const struct acting *acting,
                const struct interrupt *interrupt, struct acting_reply *reply, int *channel,
                struct text *why)
{
    struct may_hang *work = calloc(1, sizeof *work);
    struct waiting waiting = {.control = control,
                              .pid = pid,
                              .interrupt = interrupt,
                              .work = work,
                              .until = monotonic_ns() + ANSWER_NS};

    *channel = -1;
    if (!work)
        return -ENOMEM;
    *work = (struct may_hang){.pid = acting->pid, .free = free_work};
    may_hang_init(work);
    int r = may_hang_begin(work, pid);
    if (r == 0) {
        r = receive(&waiting, acting, reply, channel, why);
        if (waiting.left)
            leave(&waiting);
        else
            may_hang_end(work);
    } else {
        may_hang_explain(r, why);
    }
    may_hang_unref(work);
    if (r < 0 && *channel >= 0) {
        worker_close(*channel);
        *channel = -1;
    }
    return r < 0 ? r : reply->error;
}
