#include "fs/sampler/trap_watch.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/wire/proto.h"
#include "fs/inject/seccomp.h"
#include "fs/link/attach.h"
#include "fs/proc/procfs.h"
#include "fs/sampler/bpf/perf_events.h"
#include "fs/trace/tracer.h"
#include "fs/watch/by_perf.h"
#include "fs/watch/registers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define GIL_NS 10000000000ull  /* for the agent to get the GIL */
#define END_NS 1000000000u     /* ... and to hear that nothing comes any more */
#define FILTERS_NS 1000000000u /* the filters of all threads are counted so often */

struct trap_watch {
    struct target *target; /* a reference */
    pid_t tid;             /* 0: all threads */
    unsigned hz;
    struct session *session;
    bool asked, handled;    /* to have its handler stand; and it does */
    struct by_perf *events; /* NULL: there are none */
    int stat;               /* for watch_handled() */
    int filters;            /* of seccomp that each thread has */
    uint64_t counted;       /* CLOCK_MONOTONIC, ns: when they were, last */
    const char *over;       /* why there may be no events any more */
};

static pthread_once_t cost_once = PTHREAD_ONCE_INIT;
static uint64_t cost_ns; /* of a SIGTRAP, and of what makes it come */

static void measure(void) { cost_ns = perf_events_cost(true); }

/* Another process traces it, as a debugger does: it would be told of each SIGTRAP. */
static bool is_debugged(pid_t pid)
{
    pid_t tracer = proc_tracer(pid);

    return tracer && !proc_has_thread(getpid(), tracer) && !tracer_brief(tracer);
}

/* Since Linux 5.18 a thread that blocks SIGTRAP is told later; before, the process was killed. */
static bool kernel_waits(void)
{
    struct utsname system;
    unsigned major = 0, minor = 0;

    return uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 18));
}

/* ---- seccomp filters ---- */

static const char own_filters[] =
    "threads of it have seccomp filters of their own, which may forbid what a handler calls";

struct filters {
    pid_t tid; /* whose */
    struct text *why;
};

static int stop_and_check(struct tracer *tracer, void *arg)
{
    struct filters *filters = arg;
    uint64_t ns;

    int r = tracer_stop(tracer, filters->tid);
    if (r == 0)
        r = seccomp_check(filters->tid, SECCOMP_SAMPLE, 0, filters->why);
    tracer_resume(tracer, &ns);
    return r;
}

/* Whether each thread has so many filters. */
static bool all_have(pid_t pid, int filters)
{
    _cleanup_free_ pid_t *tids = NULL;
    size_t n;
    bool same = watch_threads(pid, &tids, &n) == 0;

    for (size_t i = 0; same && i < n; i++) {
        int count = seccomp_count(tids[i]);
        same = count == filters || count == -ESRCH;
    }
    return same;
}

/* Whether the filters of all threads let the handler make its calls: they are read in the agent's
 * own thread, whose calls nobody misses, and all have as many as that. */
static int check_filters(struct trap_watch *w, pid_t agent, struct text *why)
{
    struct filters filters = {.tid = agent, .why = why};
    pid_t pid = w->target->pid;
    int count = seccomp_count(pid);

    w->filters = count;
    if (count < 0 || !all_have(pid, count)) {
        text_puts(why, own_filters);
        return -EPERM;
    }
    if (!count)
        return 0;
    int r = agent > 0 && proc_has_thread(pid, agent) ? 0 : -ESRCH;
    if (r == 0) {
        _guard_mutex_(&w->target->tracing);
        r = tracer_run(stop_and_check, &filters);
    }
    if (r == 0 && seccomp_count(agent) != count) {
        text_puts(why, own_filters);
        r = -EPERM;
    }
    if (r < 0 && !why->size)
        text_printf(why, "its seccomp filters can't be read: %s", strerror(-r));
    return r;
}

/* ---- what is asked ---- */

static struct perf_event_attr event_of(const struct trap_watch *w, bool disabled)
{
    return (struct perf_event_attr){
        .size = sizeof(struct perf_event_attr),
        .disabled = disabled,
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .sample_period = 1000000000u / w->hz,
        .exclude_kernel = 1, /* no system call is ever interrupted */
        .exclude_hv = 1,
        .inherit = !w->tid,
        .inherit_thread = !w->tid,
        .remove_on_exec = 1,
        .sigtrap = 1,
        .sig_data = PROTO_SAMPLE_DATA,
    };
}

/* Before the agent's handler is put in place for nothing. */
static int try_event(const struct trap_watch *w, struct text *why)
{
    const struct perf_event_attr attr = event_of(w, true);
    struct by_perf *event = NULL;
    pid_t pid = w->target->pid;

    int r = by_perf_open(pid, pid, &attr, false, &event, why);
    by_perf_free(event);
    return r;
}

static int order(struct trap_watch *w, bool on, uint64_t gil_interval,
                 const struct interrupt *interrupt, struct proto_done *done)
{
    const struct proto_samples order = {.on = on, .gil_interval = gil_interval};

    *done = (struct proto_done){0};
    return session_order(w->session, PROTO_SAMPLES, &order, sizeof order, on ? GIL_NS : END_NS,
                         interrupt, done);
}

static int handle(struct trap_watch *w, const struct trap_ask *ask,
                  const struct interrupt *interrupt, struct text *why)
{
    struct proto_done done;

    if (w->asked)
        return -EINVAL;
    w->asked = true;
    int r = try_event(w, why);
    if (r == 0)
        r = check_filters(w, ask->tid, why);
    if (r < 0)
        return r;
    r = order(w, true, ask->gil_interval, interrupt, &done);
    w->handled = r == 0;
    if (r < 0 && done.words[0])
        text_add_escaped(why, done.words, strnlen(done.words, sizeof done.words));
    else if (r < 0)
        text_printf(why, "the agent isn't ready for it: %s", strerror(-r));
    return r;
}

/* Why no event may be open; NULL: they may. */
static const char *why_not(const struct trap_watch *w)
{
    if (!session_alive(w->session))
        return "the agent has ended, or another daemon has it";
    if (!watch_handled(w->stat))
        return "SIGTRAP has no handler of the agent's any more";
    if (seccomp_count(w->target->pid) != w->filters)
        return own_filters;
    return is_debugged(w->target->pid) ? "the process is traced by a debugger" : NULL;
}

static int send(struct trap_watch *w, struct text *why)
{
    const struct perf_event_attr attr = event_of(w, false);

    if (!w->handled || w->events || w->over)
        return -EINVAL;
    if (w->stat < 0)
        w->stat = watch_open_stat(w->target->pid);
    if (w->stat < 0)
        return w->stat;
    const char *words = why_not(w);
    if (words) {
        text_puts(why, words);
        return -EBUSY;
    }
    return by_perf_open(w->target->pid, w->tid, &attr, true, &w->events, why);
}

static void silence(struct trap_watch *w) { by_perf_free(steal_pointer(w->events)); }

const char *trap_watch_look(struct trap_watch *w)
{
    uint64_t now = monotonic_ns();

    if (w->over || !w->events)
        return w->over;
    w->over = why_not(w);
    if (!w->over && now - w->counted > FILTERS_NS) {
        w->counted = now;
        if (!all_have(w->target->pid, w->filters))
            w->over = own_filters;
    }
    if (w->over)
        silence(w);
    else
        by_perf_follow(w->events);
    return w->over;
}

/* ---- the whole ---- */

int trap_watch_new(struct target *target, pid_t tid, unsigned hz, struct trap_watch **out,
                   struct text *why)
{
    if (!kernel_waits()) {
        text_puts(why, "before Linux 5.18 a thread that blocks SIGTRAP would be killed");
        return -EOPNOTSUPP;
    }
    struct trap_watch *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    *w = (struct trap_watch){.target = target_ref(target), .tid = tid, .hz = hz, .stat = -1};
    int r = agent_connect(target, why, &w->session);
    if (r == -ENOTCONN) {
        text_clear(why);
        text_puts(why, "no agent is in the process; `profile cpu inside` puts one in");
    }
    if (r < 0)
        trap_watch_free(w);
    else
        *out = w;
    return r;
}

void trap_watch_free(struct trap_watch *w)
{
    struct proto_done done;

    if (!w)
        return;
    silence(w);
    if (w->handled)
        (void)order(w, false, 0, NULL, &done);
    session_unref(w->session);
    if (w->stat >= 0)
        close(w->stat);
    target_unref(w->target);
    free(w);
}

static int do_asked(struct trap_watch *w, const struct trap_ask *ask,
                    const struct interrupt *interrupt, struct trap_told *told, struct text *why)
{
    switch ((enum trap_op)ask->op) {
    case TRAP_HANDLE: return handle(w, ask, interrupt, why);
    case TRAP_SEND:
        pthread_once(&cost_once, measure);
        told->cost_ns = cost_ns;
        return send(w, why);
    case TRAP_SILENCE: silence(w); return 0;
    }
    return -EINVAL;
}

void trap_watch_do(struct trap_watch *w, const struct trap_ask *ask,
                   const struct interrupt *interrupt, struct trap_told *told)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    memset(told, 0, sizeof *told);
    told->error = do_asked(w, ask, interrupt, told, &why);
    if (why.size)
        snprintf(told->why, sizeof told->why, "%s", text_finish(&why) == 0 ? why.data : "");
}
