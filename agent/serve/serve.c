#include "agent/serve/serve.h"

#include "agent/base/clock.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/base/thread.h"
#include "agent/eval/requests.h"
#include "agent/interpreter/part.h"
#include "agent/record/recorder.h"
#include "agent/record/rings.h"
#include "agent/serve/dispatch.h"
#include "agent/serve/lend.h"
#include "agent/serve/python_thread.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <poll.h>

#define STACK (64u * 1024)
#define RETRY_MS 1000 /* between tries to make a new pair where no descriptor is free */

_Static_assert(THREADS_OWN_MAX == PROTO_OWN_MAX, "the record shows all");

static uint64_t since_ns;       /* CLOCK_REALTIME of the start; with the lock */
static struct wire_frame frame; /* the thread's; too big for its stack */

/* The ends of the library in memory (GNU ld). */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

void serve_describe(struct proto_ready *out)
{
    const char *here = __builtin_frame_address(0);
    _guard_agent_;
    *out = (struct proto_ready){
        .version = PROTO_VERSION,
        .origin = (uint32_t)probe_agent_record.origin,
        .nonce = channel_nonce(),
        .since_ns = since_ns,
        .channel_tid = probe_agent_record.channel_tid,
        .python_tid = probe_agent_record.python_tid,
        .memory = (uint64_t)(_end - __ehdr_start) + requests_text_bytes() +
                  stack_resident(here, here - STACK / 2) + python_thread_memory(),
        .rings = recorder_memory(),
        .evals = probe_agent_record.evals,
        .agent_version = AGENT_VERSION,
    };
}

/* The daemon has gone, or is hung up on: what it asked for ends, and nobody sends to it any more.
 */
static void end_channel(void)
{
    {
        _guard_agent_;
        channel_daemon_gone(); /* no thread is held from now on */
    }
    parts_daemon_gone();
    requests_abandon();
    dispatch_interrupt(requests_running());
    dispatch_tidy();
    channel_end();
}

static void renew_channel(void)
{
    end_channel();
    for (;;) {
        {
            _guard_agent_;
            if (channel_open() == 0)
                return;
        }
        poll(NULL, 0, RETRY_MS);
    }
}

/* The thread's last act, after a detach: nothing of ours runs any more. */
static void end(void)
{
    _guard_agent_;
    channel_close();
    probe_agent_record.channel_tid = 0;
    record_set_state(RECORD_ENDED);
}

static void *serve(void *arg)
{
    thread_name("probe-agent");
    __atomic_store_n(&probe_agent_record.channel_tid, gettid(), __ATOMIC_RELEASE);
    for (;;) {
        int r = channel_receive(&frame);
        if (r == 0)
            r = dispatch(&frame);
        if (r == 0 || r == -EAGAIN)
            continue;
        if (dispatch_detached())
            break;
        renew_channel();
    }
    end();
    return NULL;
}

int serve_begin(enum proto_origin origin)
{
    pthread_t thread;

    since_ns = realtime_ns();
    agent_life.detaching = agent_life.detached = false;
    int r = channel_open();
    if (r < 0)
        return r;
    probe_agent_record.pid = getpid();
    probe_agent_record.origin = (int32_t)origin;
    probe_agent_record.own = (uint64_t)(uintptr_t)threads_own;
    probe_agent_record.lend.enter = (uint64_t)(uintptr_t)lend_enter;
    record_set_state(RECORD_RUNNING);
    r = thread_spawn(STACK, false, serve, NULL, &thread);
    if (r < 0) {
        channel_close();
        record_set_state(RECORD_IDLE);
        return r;
    }
    pthread_detach(thread);
    rings_begin();
    return 0;
}
