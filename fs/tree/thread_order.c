#include "fs/tree/thread_order.h"

#include "agent/base/clock.h"
#include "fs/link/lifetime.h"
#include "fs/process/registry.h"
#include "fs/tree/agent_session.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* So long a command waits for a thread to stop, which it does at its next line, if
 * it is not in a call into C. */
#define WAIT_NS 500000000u
#define NAP_MS 5

int thread_order_give(struct file_context *context, struct session *session, bool here,
                      struct proto_thread *order, struct text *said)
{
    struct proto_done done = {0};

    int r = here ? agent_session_here(context, session) : 0;
    if (r < 0)
        return r;
    order->here = here ? lifetime_number(context->lifetime) : 0;
    order->gil_interval = agent_session_gil_interval(context, 0);
    r = session_order(session, PROTO_THREAD, order, sizeof *order,
                      agent_session_patience(context, 0), context->interrupt, &done);
    if (here)
        lifetime_asked(context->lifetime, session);
    registry_watch(context->registry, context->process);
    if (r < 0) {
        bool running = r == -ESRCH && done.words[0];
        r = agent_session_explain(context, r, &done, "the thread stays where it is");
        return running ? -EBUSY : r;
    }
    if (done.words[0]) {
        text_add_escaped(said, done.words, strnlen(done.words, sizeof done.words));
        text_putc(said, '\n');
    }
    return 0;
}

int thread_order_wait(struct file_context *context,
                      bool (*enough)(struct file_context *context, void *arg), void *arg)
{
    struct pollfd p = {.fd = context->interrupt ? context->interrupt->fd : -1, .events = POLLIN};

    for (uint64_t end = monotonic_ns() + WAIT_NS;;) {
        bool late = monotonic_ns() >= end; /* then once more: there may have been no processor */
        if (enough(context, arg))
            return 1;
        if (late)
            return 0;
        (void)poll(&p, 1, NAP_MS);
        if (interrupted(context->interrupt))
            return -EINTR;
    }
}
