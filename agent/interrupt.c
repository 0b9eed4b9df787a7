#include "agent/interrupt.h"

#include "agent/agent.h"
#include "agent/spawn.h"
#include "agent/thread.h"

#define STACK (64u * 1024)

static pthread_t thread; /* the last one; the channel's thread's business */
static bool joinable;

bool interrupt_own_thread(void) { return python_thread_self() != NULL; }

/* Whether the request runs in that interpreter; it can't finish without the GIL, which the caller has. */
static bool is_running(const struct interpreter *interpreter, uint64_t id, unsigned long *ident)
{
    _guard_agent_;
    struct request *running = agent.requests.running;
    if (!running || running->state != REQUEST_RUNNING || running->op == PROTO_DETACH ||
        running->eval.interp != interpreter->id || (id && running->id != id))
        return false;
    requests_interrupt(running);
    *ident = (unsigned long)running->runner;
    return true;
}

/* The lock is not held meanwhile: a thread that forks holds CPython's own lock of thread states when it
 * waits for ours. */
void interrupt_running(struct interpreter *interpreter, uint64_t id)
{
    unsigned long ident;

    if (is_running(interpreter, id, &ident))
        PyThreadState_SetAsyncExc(ident, PyExc_KeyboardInterrupt);
}

void interrupt_clear(void) { PyThreadState_SetAsyncExc((unsigned long)pthread_self(), NULL); }

/* The request to interrupt, and where it runs; 0: none, the thread ends. */
static uint64_t next(struct interpreter **interpreter)
{
    _guard_agent_;
    const struct request *running = agent.requests.running;
    uint64_t id = agent.interrupter.id;

    agent.interrupter.id = 0;
    *interpreter = NULL;
    if (id && running && running->id == id)
        *interpreter = interpreter_find(running->eval.interp);
    if (!*interpreter) {
        agent.interrupter.exists = false;
        pthread_cond_broadcast(&agent.changed);
        return 0;
    }
    return id;
}

static void *interrupt_main(void *arg)
{
    struct interpreter *interpreter;
    uint64_t id;

    thread_name("probe-interrupt");
    while ((id = next(&interpreter))) {
        PyThreadState *state = interpreter_visit(interpreter, 0);
        if (!state)
            continue; /* its end interrupts what runs */
        interrupt_running(interpreter, id);
        interpreter_visit_end(interpreter, state);
    }
    return NULL;
}

static void join_last(void)
{
    if (joinable)
        pthread_join(thread, NULL);
    joinable = false;
}

int interrupt_later(uint64_t id)
{
    {
        _guard_agent_;
        agent.interrupter.id = id;
        if (agent.interrupter.exists)
            return 0;
        agent.interrupter.exists = true;
    }
    join_last();
    int r = thread_spawn(STACK, false, interrupt_main, NULL, &thread);
    if (r < 0) {
        _guard_agent_;
        agent.interrupter.exists = false;
        return r;
    }
    joinable = true;
    return 0;
}

void interrupt_join(void)
{
    {
        _guard_agent_;
        while (agent.interrupter.exists)
            pthread_cond_wait(&agent.changed, &agent.lock);
    }
    join_last();
}

void interrupt_forget(void)
{
    joinable = false;
}
