/* The agent, seen from outside of the library: how it starts.
 *
 * Two threads live here. The channel's (serve/serve.c) talks with the daemon. Python's
 * (serve/python_thread.c) is made with the first request that needs it, has one thread state for
 * good, and runs one request after the other; if the code that it runs doesn't end when it is
 * interrupted, as in a call into C that waits for ever, it is retired and another one takes its
 * place. A third kind (eval/interrupt.c) lives for the moment in which running code is cancelled.
 * What they share is guarded by one lock (base/lock.h); each part keeps its own. */
#include "agent/base/lock.h"
#include "agent/crash/asked.h"
#include "agent/fork.h"
#include "agent/serve/serve.h"
#include "agent/wire/record.h"

static int begin(const struct agent_boot *boot)
{
    _guard_agent_;
    if (boot->handle)
        probe_agent_record.handle = boot->handle;
    return record_is_running() ? 0 : serve_begin(boot->origin);
}

__attribute__((visibility("default"))) int probe_agent_start(const struct agent_boot *boot)
{
    fork_begin();
    if (record_is_running() && probe_agent_record.pid != getpid())
        fork_forget(); /* forked behind libc's back: its handlers did not run */
    const bool by_program = boot->origin == ORIGIN_STARTUP || boot->origin == ORIGIN_IMPORTED;
    struct interpreter *interpreter =
        by_program && !record_is_running() && asked_anything() ? interpreter_begin_main() : NULL;
    int r = begin(boot);
    if (interpreter && r == 0)
        asked_begin(interpreter);
    return r;
}
