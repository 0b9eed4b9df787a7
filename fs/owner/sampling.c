#include "fs/owner/sampling.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/owner/child.h"
#include "fs/owner/confine.h"
#include "fs/owner/message.h"
#include "fs/owner/sampled.h"
#include "fs/proc/may_hang.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define START_NS 20000000000u   /* its source has begun */
#define COLLECT_NS 10000000000u /* it has told what it has */
#define LOOK_MS 1000            /* the mount's process looks at it so often, ... */
#define TRAPS_MS 20             /* ... and so often whether the agent may go on sampling, ... */
#define HURRY_MS 100            /* ... and it tells so often while somebody watches */
#define LISTEN_MS 200           /* it looks whether its source has ended so often */
#define MESSAGES_MAX 64         /* are taken at a time */
#define TAKE_SHARE 3            /* as much time is left to others as this often taking them took */

/* What it is told later. */
struct sampling_word {
    enum { WORD_OTHERS = 1, WORD_COLLECT, WORD_HURRY } op : 32;
    uint32_t value; /* samplers by a timer beside it; the number of a collection */
};

/* ---- who samples ---- */

int sampling_begin(void) { return confine_calls(CONFINE_READING); }

struct door {
    pthread_mutex_t lock; /* one question at a time */
    int fd;
};

static int ask_door(struct door *door, const void *ask, size_t size, void *told, size_t told_size,
                    int *passed)
{
    _guard_mutex_(&door->lock);
    int r = owner_send(door->fd, ask, size, -1);
    if (r == 0)
        r = owner_receive(door->fd, told, told_size, passed);
    if (r < 0)
        memset(told, 0, told_size);
    return r;
}

static void ask_kernel(void *arg, const struct kernel_ask *ask, struct kernel_told *told)
{
    int passed = -1;

    int r = ask_door(arg, ask, sizeof *ask, told, sizeof *told, &passed);
    if (r < 0)
        told->error = r;
    told->fd = passed;
}

static void ask_traps(void *arg, const struct trap_ask *ask, struct trap_told *told)
{
    int passed = -1;

    int r = ask_door(arg, ask, sizeof *ask, told, sizeof *told, &passed);
    if (r < 0)
        told->error = r;
    if (passed >= 0)
        close(passed);
}

static int start_source(const struct sampling *what, struct store *store,
                        const struct sampler_door *door, struct text *why, struct sampler **out)
{
    const struct sampler_source *source = sampler_sources[what->source - 1];
    const struct sampler_options options = {.modes = what->modes,
                                            .shown = (enum profile_mode)what->shown,
                                            .hz = what->hz,
                                            .native = what->native,
                                            .children = what->children,
                                            .tid = what->tid};
    struct target *target;

    int r = target_open(what->pid, &target);
    if (r < 0)
        return r;
    if (target->start_time == what->start_time)
        r = sampler_start_here(target, store, &options, source, door, why, out);
    else
        r = -ESRCH;
    target_unref(target);
    return r;
}

static void tell(struct sampled_writer *writer, struct sampler *sampler)
{
    struct sampler_figures figures;
    bool over = sampler_over(sampler);

    sampler_figures(sampler, &figures);
    sampled_write_figures(writer, &figures, over);
}

static void obey(struct sampled_writer *writer, struct sampler *sampler,
                 const struct sampling_word *word)
{
    if (word->op == WORD_OTHERS)
        atomic_store(&sampler->others, word->value);
    if (word->op == WORD_HURRY)
        sampler_hurry(sampler);
    if (word->op != WORD_COLLECT)
        return;
    sampler_collect(sampler);
    tell(writer, sampler);
    sampled_write_collected(writer, word->value);
    sampled_flush(writer);
}

/* Tells, and does what it is told. */
static void listen_to(int control, struct sampled_writer *writer, struct sampler *sampler)
{
    struct pollfd poll_fd = {.fd = control, .events = POLLIN};
    uint64_t told = monotonic_ns();
    struct sampling_word word;
    bool listened = true, over = false;
    int passed;

    while (listened) {
        bool hurries = sampler_hurries(sampler, monotonic_ns());
        if (poll(&poll_fd, 1, hurries ? HURRY_MS : LISTEN_MS) > 0) {
            if (owner_receive(control, &word, sizeof word, &passed) < 0)
                return;
            obey(writer, sampler, &word);
            continue;
        }
        bool ends = !over && sampler_over(sampler);
        uint64_t now = monotonic_ns();
        if (!ends && !hurries && now - told < LOOK_MS * UINT64_C(1000000))
            continue;
        over |= ends;
        told = now;
        tell(writer, sampler);
        listened = sampled_flush(writer);
    }
}

void sampling_run(int control, const struct sampling *what)
{
    static struct store_budget budget;
    struct door asked = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const struct sampler_door door = {.arg = &asked,
                                      .ask_kernel = ask_kernel,
                                      .ask_traps = ask_traps};
    struct text why = TEXT_INIT;
    struct sampler *sampler;
    struct sampled_writer writer;
    struct sampling_word word;
    struct store *store;

    if (owner_receive(control, &word, sizeof word, &asked.fd) < 0 ||
        store_new(what->pid, &budget, &store) < 0 ||
        sampled_writer_init(&writer, control, store) < 0)
        return;
    int r = start_source(what, store, &door, &why, &sampler);
    if (r == 0)
        obey(&writer, sampler, &word);
    sampled_write_begun(&writer, r, &why);
    if (sampled_flush(&writer) && r == 0)
        listen_to(control, &writer, sampler);
}

/* ---- who has it sample ---- */

static _Atomic unsigned timers; /* of those, by a timer */

struct elsewhere {
    const struct sampling_starter *starter;
    struct sampler *sampler;
    pid_t pid;
    int control, door;          /* -1: nothing is asked for */
    bool timed;                 /* it is one of `timers` */
    struct kernel_watch *watch; /* NULL: it has no use for it, ... */
    struct trap_watch *traps;   /* ... nor for this */
    pthread_mutex_t lock;       /* guards what follows */
    struct sampled told;
    const char *ended; /* why it was ended; NULL: it runs */
    const char *over;  /* why the agent may take no samples any more; NULL: it may */
    uint32_t asked;    /* number of the last collection */
    uint32_t others;   /* that it was told of */
    unsigned stopped;  /* looks in a row */
    uint64_t attended; /* CLOCK_MONOTONIC, ns: the last one of these, or when something came */
    uint64_t own_ns;   /* taking in what it tells has cost this process */
    char message[SAMPLED_PIECE];
};

/* It is of no use any more. Its descriptors stay, which others may wait for. */
static void lose(struct elsewhere *e, const char *why)
{
    if (e->ended)
        return;
    kill(e->pid, SIGKILL);
    e->ended = why;
}

static const char is_gone[] = "the profile has ended: what sampled the process has crashed, or was "
                              "killed";

/* With the lock, here and below. */
static void take_told(struct elsewhere *e)
{
    for (int i = 0; i < MESSAGES_MAX && !e->ended; i++) {
        ssize_t n = recv(e->control, e->message, sizeof e->message, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            lose(e, is_gone);
        else if (sampled_take(&e->told, e->message, (size_t)n) < 0)
            lose(e, "the profile has ended: what sampled the process said what can't be");
    }
}

/* Does what takes root's rights. False: nothing is asked. */
static bool answer_kernel(struct elsewhere *e)
{
    struct kernel_ask ask;
    struct kernel_told told;

    if (recv(e->door, &ask, sizeof ask, MSG_DONTWAIT | MSG_TRUNC) != sizeof ask)
        return false;
    kernel_watch_do(e->watch, &ask, &told);
    owner_send(e->door, &told, sizeof told, told.fd);
    if (told.fd >= 0)
        close(told.fd);
    return true;
}

static bool answer_traps(struct elsewhere *e)
{
    struct trap_ask ask;
    struct trap_told told;

    if (recv(e->door, &ask, sizeof ask, MSG_DONTWAIT | MSG_TRUNC) != sizeof ask)
        return false;
    trap_watch_do(e->traps, &ask, e->sampler->interrupt, &told);
    owner_send(e->door, &told, sizeof told, -1);
    return true;
}

static void answer_door(struct elsewhere *e)
{
    bool asked = e->door >= 0;

    for (int i = 0; i < MESSAGES_MAX && asked && !e->ended; i++)
        asked = e->watch ? answer_kernel(e) : answer_traps(e);
}

/* Takes what there is, and looks whether it still runs. waited: nothing came meanwhile. */
static void attend(struct elsewhere *e, bool waited)
{
    uint64_t cpu = thread_cpu_ns();

    answer_door(e);
    take_told(e);
    if (!waited)
        e->stopped = 0;
    else if (child_stays_stopped(e->pid, &e->stopped))
        lose(e, "the profile has ended: what sampled the process was stopped");
    e->own_ns += thread_cpu_ns() - cpu;
}

static void say(struct elsewhere *e, uint32_t op, uint32_t value)
{
    const struct sampling_word word = {.op = op, .value = value};

    owner_send(e->control, &word, sizeof word, -1); /* one that is full isn't listened to */
}

static int wait_for_it(struct elsewhere *e, int ms)
{
    struct pollfd fds[] = {{e->control, POLLIN, 0},
                           {e->door, POLLIN, 0},
                           {e->sampler->wakes, POLLIN, 0}};
    eventfd_t woken;
    int n = poll(fds, ARRAY_SIZE(fds), ms);

    if (n > 0 && fds[2].revents)
        eventfd_read(e->sampler->wakes, &woken);
    return n;
}

/* Waits until its source has begun. */
static int await_begin(struct elsewhere *e, struct text *why)
{
    uint64_t until = monotonic_ns() + START_NS;

    while (!e->told.begun && !e->ended) {
        attend(e, wait_for_it(e, MAY_HANG_LOOK_MS) == 0);
        if (interrupted(e->sampler->interrupt))
            return -EINTR;
        if (monotonic_ns() > until)
            lose(e, "what samples the process doesn't answer");
    }
    if (e->told.why.size)
        text_add(why, e->told.why.data, e->told.why.size);
    else if (!e->told.begun)
        text_puts(why, e->ended);
    return e->told.begun ? e->told.error : -EIO; /* one that can't sample says why, and ends */
}

static uint32_t number_of(const struct sampler_source *source)
{
    uint32_t n = 0;

    while (sampler_sources[n] != source)
        n++;
    return n;
}

static int begin(struct elsewhere *e, struct text *why)
{
    const struct sampler *sampler = e->sampler;
    const struct sampling_word word = {.op = WORD_OTHERS, .value = e->others};
    const struct sampling what = {.source = number_of(sampler->source) + 1,
                                  .pid = sampler->target->pid,
                                  .start_time = sampler->target->start_time,
                                  .modes = sampler->options.modes,
                                  .shown = sampler->options.shown,
                                  .hz = sampler->options.hz,
                                  .native = sampler->options.native,
                                  .children = sampler->options.children,
                                  .tid = sampler->options.tid};
    const struct kernel_wish wish = sampler_wish(sampler);
    int ends[2] = {-1, -1};

    int r = 0;
    if (sampler->source == &sampler_bpf)
        r = kernel_watch_new(&wish, &e->watch, why);
    else if (sampler->source == &sampler_inside)
        r = trap_watch_new(sampler->target, wish.tid, wish.hz, &e->traps, why);
    if (r == 0)
        r = e->starter->begin(e->starter->arg, &what, &e->pid, &e->control, why);
    if (r < 0)
        return r;
    if (e->watch || e->traps) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
            return -errno;
        e->door = ends[0];
    }
    r = owner_send(e->control, &word, sizeof word, ends[1]);
    if (ends[1] >= 0)
        close(ends[1]);
    return r < 0 ? -EIO : await_begin(e, why);
}

static void elsewhere_free(struct elsewhere *e)
{
    if (e->pid)
        e->starter->end(e->starter->arg, e->pid, e->control);
    if (e->door >= 0)
        close(e->door);
    kernel_watch_free(e->watch);
    trap_watch_free(e->traps);
    sampled_deinit(&e->told);
    if (e->timed)
        atomic_fetch_sub(&timers, 1);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static int start(struct sampler *sampler, struct text *why)
{
    struct elsewhere *e = calloc(1, sizeof *e);

    if (!e)
        return -ENOMEM;
    pthread_mutex_init(&e->lock, NULL);
    e->starter = (const struct sampling_starter *)sampler->by;
    e->sampler = sampler;
    e->door = e->control = -1;
    e->timed = sampler->source == &sampler_timer;
    if (e->timed)
        e->others = atomic_fetch_add(&timers, 1);
    e->told = (struct sampled){.store = sampler->store,
                               .since = monotonic_ns(),
                               .modes = sampler->options.modes,
                               .why = TEXT_INIT};
    int r = begin(e, why);
    if (r < 0) {
        elsewhere_free(e);
        return r;
    }
    sampler->of = e;
    return 0;
}

static void stop(struct sampler *sampler) { elsewhere_free(sampler->of); }

static uint64_t tick(struct sampler *sampler, uint64_t now)
{
    struct elsewhere *e = sampler->of;
    int look_ms = e->stopped ? MAY_HANG_LOOK_MS : LOOK_MS;
    int ms = e->traps ? TRAPS_MS : look_ms;

    if (sampler->until && sampler->until < now + (uint64_t)ms * 1000000)
        ms = sampler->until > now ? (int)((sampler->until - now) / 1000000) + 1 : 0;
    bool waited = wait_for_it(e, ms) == 0;
    uint64_t begun = monotonic_ns();
    _guard_mutex_(&e->lock);
    if (!waited || begun - e->attended >= (uint64_t)look_ms * 1000000) {
        e->attended = begun;
        attend(e, waited);
    }
    if (e->traps && !e->over)
        e->over = trap_watch_look(e->traps);
    if (sampler_hurries(sampler, begun))
        say(e, WORD_HURRY, 0);
    if (e->timed && e->others != atomic_load(&timers) - 1)
        say(e, WORD_OTHERS, e->others = atomic_load(&timers) - 1);
    uint64_t end = monotonic_ns(); /* one that tells too much is left waiting */
    return e->ended || e->told.over || e->over ? UINT64_MAX : end + (end - begun) * TAKE_SHARE;
}

static void collect(struct sampler *sampler)
{
    struct elsewhere *e = sampler->of;
    uint64_t until = monotonic_ns() + COLLECT_NS;
    struct pollfd fds[] = {{e->control, POLLIN, 0}, {e->door, POLLIN, 0}};
    _guard_mutex_(&e->lock);

    if (e->ended)
        return;
    say(e, WORD_COLLECT, ++e->asked);
    while (!e->ended && e->told.collected != e->asked) {
        attend(e, poll(fds, ARRAY_SIZE(fds), MAY_HANG_LOOK_MS) == 0);
        if (monotonic_ns() > until)
            lose(e, "the profile has ended: what sampled the process didn't answer");
    }
}

static void figures(struct sampler *sampler, struct sampler_figures *out)
{
    struct elsewhere *e = sampler->of;
    _guard_mutex_(&e->lock);

    *out = e->told.figures;
    out->daemon_ns += e->own_ns;
    if (e->ended)
        snprintf(out->note, sizeof out->note, "%s", e->ended);
    else if (e->over)
        snprintf(out->note, sizeof out->note, "it has ended: %s", e->over);
}

void sampling_init(struct sampling_starter *starter)
{
    starter->source = (struct sampler_source){.name = "elsewhere",
                                              .start = start,
                                              .stop = stop,
                                              .tick = tick,
                                              .collect = collect,
                                              .figures = figures};
}
