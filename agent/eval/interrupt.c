#include "agent/eval/interrupt.h"

#include "agent/base/lock.h"
#include "agent/base/thread.h"
#include "agent/eval/requests.h"

#define STACK (64u * 1024)

static struct {
    bool exists;         /* the thread is under way */
    uint64_t id;         /* the request to interrupt; 0: none */
} interrupter;           /* with the lock */
static pthread_t thread; /* the last one; the channel's thread's business */
static bool joinable;

/* Whether the request runs in that interpreter; it can't finish without the GIL,
 * which the caller has. */
static bool is_running(const struct interpreter *interpreter, uint64_t id, unsigned long *ident)
{
    _guard_agent_;
    struct request *running = requests_now();
    if (!running || running->state != REQUEST_RUNNING || running->op == PROTO_DETACH ||
        running->eval.interp != interpreter->id || (id && running->id != id))
        return false;
    requests_interrupt(running);
    *ident = (unsigned long)running->runner;
    return true;
}

/* The lock is not held meanwhile: a thread that forks holds CPython's own lock of thread
 * states when it waits for ours. */
void interrupt_running(struct interpreter *interpreter, uint64_t id)
{
    unsigned long ident;

    if (is_running(interpreter, id, &ident))
        PyThreadState_SetAsyncExc(ident, PyExc_KeyboardInterrupt);
}

void interrupt_all(struct interpreter *interpreter) { interrupt_running(interpreter, 0); }

void interrupt_clear(void) { PyThreadState_SetAsyncExc((unsigned long)pthread_self(), NULL); }

/* The request to interrupt, and where it runs; 0: none, the thread ends. */
static uint64_t next(struct interpreter **interpreter)
{
    _guard_agent_;
    const struct request *running = requests_now();
    uint64_t id = interrupter.id;

    interrupter.id = 0;
    *interpreter = NULL;
    if (id && running && running->id == id)
        *interpreter = interpreter_find(running->eval.interp);
    if (!*interpreter) {
        interrupter.exists = false;
        pthread_cond_broadcast(&agent_changed);
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
        interrupter.id = id;
        if (interrupter.exists)
            return 0;
        interrupter.exists = true;
    }
    join_last();
    int r = thread_spawn(STACK, false, interrupt_main, NULL, &thread);
    if (r < 0) {
        _guard_agent_;
        interrupter.exists = false;
        return r;
    }
    joinable = true;
    return 0;
}

void interrupt_join(void)
{
    {
        _guard_agent_;
        while (interrupter.exists)
            pthread_cond_wait(&agent_changed, &agent_lock);
    }
    join_last();
}

void interrupt_forget(void)
{
    interrupter.id = 0;
    interrupter.exists = joinable = false;
}
