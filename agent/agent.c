#include "agent/agent.h"

#include "agent/breakpoints.h"
#include "agent/channel.h"
#include "agent/crash.h"
#include "agent/hit.h"
#include "agent/interrupt.h"
#include "agent/park.h"
#include "agent/recorder.h"
#include "agent/rings.h"
#include "agent/spawn.h"
#include "agent/thread.h"
#include "agent/trace.h"
#include "agent/watch.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define CHANNEL_STACK (64u * 1024)

#define EXPORT __attribute__((visibility("default")))

EXPORT struct probe_agent_record probe_agent_record = {
    .magic = RECORD_MAGIC,
    .version = PROTO_VERSION,
    .size = sizeof(struct probe_agent_record),
    .state = RECORD_IDLE,
    .channel = -1,
    .rings = {[0 ... PROTO_RINGS_MAX - 1] = {.fd = -1}},
};

struct agent agent = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .channel = {.fd = -1, .spare = -1},
    .requests.last = &agent.requests.first,
    .interpreters[0].used = true,
    .python = &agent.pythons[0],
};

/* The ends of the library in memory (GNU ld). */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t agent_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void set_state(enum record_state state)
{
    __atomic_store_n(&probe_agent_record.state, state, __ATOMIC_RELEASE);
}

static bool is_running(void)
{
    return __atomic_load_n(&probe_agent_record.state, __ATOMIC_ACQUIRE) == RECORD_RUNNING;
}

static int start(const struct agent_boot *boot)
{
    if (boot->handle)
        probe_agent_record.handle = boot->handle;
    if (is_running())
        return 0;
    agent.detaching = agent.detached = agent.unloadable = agent.nobody_writes = false;
    agent.origin = boot->origin;
    agent.since_ns = clock_ns(CLOCK_REALTIME);
    agent.evals = 0;
    int r = channel_open();
    if (r < 0)
        return r;
    probe_agent_record.pid = getpid();
    probe_agent_record.origin = (int32_t)boot->origin;
    set_state(RECORD_RUNNING);
    pthread_t thread;
    r = thread_spawn(CHANNEL_STACK, false, channel_main, NULL, &thread);
    if (r < 0) {
        channel_close();
        set_state(RECORD_IDLE);
        return r;
    }
    pthread_detach(thread);
    rings_begin();
    return 0;
}

EXPORT int probe_agent_start(const struct agent_boot *boot)
{
    if (is_running() && probe_agent_record.pid != getpid())
        agent_forget(); /* forked behind libc's back: its handlers did not run */
    _guard_agent_;
    return start(boot);
}

void agent_describe(struct proto_ready *out)
{
    const char *here = __builtin_frame_address(0);
    _guard_agent_;
    *out = (struct proto_ready){
        .version = PROTO_VERSION,
        .origin = agent.origin,
        .nonce = agent.channel.nonce,
        .since_ns = agent.since_ns,
        .channel_tid = probe_agent_record.channel_tid,
        .python_tid = probe_agent_record.python_tid,
        .memory = (uint64_t)(_end - __ehdr_start) + agent.requests.text_bytes +
                  stack_resident(here, here - CHANNEL_STACK / 2) + python_thread_memory(),
        .rings = recorder_memory(),
        .evals = agent.evals,
        .agent_version = AGENT_VERSION,
    };
}

void agent_ended(void)
{
    _guard_agent_;
    channel_close();
    probe_agent_record.channel_tid = 0;
    set_state(RECORD_ENDED);
}

void agent_forget(void)
{
    pthread_mutex_init(&agent.lock, NULL);
    pthread_cond_init(&agent.changed, NULL);
    if (!is_running())
        return;
    channel_close();
    requests_reset(&agent.requests);
    agent.channel.senders = 0;
    agent.detaching = agent.detached = false;
    memset(agent.pythons, 0, sizeof agent.pythons);
    agent.python = &agent.pythons[0];
    agent.interrupter = (struct interrupter){0};
    interrupt_forget();
    crash_forget();
    park_forget();
    breakpoints_forget();
    hit_forget();
    recorder_forget();
    trace_forget();
    watch_forget();
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        agent.interpreters[i].inside = 0;
    probe_agent_record.channel_tid = probe_agent_record.python_tid = 0;
    set_state(RECORD_IDLE);
}
