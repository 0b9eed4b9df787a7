#include "agent/thread.h"

#include "agent/agent.h"
#include "agent/breakpoints.h"
#include "agent/channel.h"
#include "agent/crash.h"
#include "agent/eval.h"
#include "agent/interrupt.h"
#include "agent/newcomers.h"
#include "agent/order.h"
#include "agent/park.h"
#include "agent/probing.h"
#include "agent/recorder.h"
#include "agent/rings.h"
#include "agent/spawn.h"
#include "agent/watch.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How long code may take to end once it was told to, before another thread takes over. */
#define OVERDUE_NS 500000000ull
/* Bytes of output in one frame. */
#define PART (PROTO_FRAME_MAX - sizeof(struct proto_header))

static void say(struct proto_done *done, int error, const char *words)
{
    done->error = error;
    snprintf(done->words, sizeof done->words, "%s", words);
}

static void explain(struct proto_done *done, int r)
{
    switch (r) {
    case -EBUSY:
        say(done, EBUSY, "Python is not initialized yet");
        break;
    case -ESHUTDOWN:
        say(done, ESHUTDOWN, "the interpreter is ending");
        break;
    case -ENOENT:
        say(done, ENOENT, "no such interpreter");
        break;
    case -EOPNOTSUPP:
        say(done, EOPNOTSUPP, "no CPython of a supported version");
        break;
    default:
        say(done, ENOMEM, "no memory, or too many interpreters");
        break;
    }
}

/* Says that it begins. The GIL is held, so this doesn't wait: where there is no room the GIL is given
 * up for as long as it takes. */
static void tell_started(const struct request *request)
{
    if (channel_send(request->generation, PROTO_STARTED, request->id, NULL, 0, NULL, 0, 0) != -EAGAIN)
        return;
    PyThreadState *state = PyEval_SaveThread();
    channel_send(request->generation, PROTO_STARTED, request->id, NULL, 0, NULL, 0, AGENT_SEND_NS);
    PyEval_RestoreThread(state);
}

static void answer(const struct request *request, const struct evaluation *evaluation)
{
    for (size_t at = 0; at < evaluation->size; at += PART) {
        size_t size = evaluation->size - at < PART ? evaluation->size - at : PART;
        if (channel_send(request->generation, PROTO_OUTPUT, request->id, evaluation->output + at,
                         size, NULL, 0, AGENT_SEND_NS) < 0)
            return;
    }
    channel_send(request->generation, PROTO_DONE, request->id, &evaluation->done,
                 sizeof evaluation->done, NULL, 0, AGENT_SEND_NS);
}

/* What an order came to. */
static void finish_order(struct request *request, int r, struct evaluation *out)
{
    if (requests_finish(request)) {
        interrupt_clear(); /* one that came late would strike what follows */
        if (r < 0)
            r = -EINTR;
    }
    out->done.error = -r;
}

static void record_run(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    finish_order(request, recorder_switch(interpreter, &request->record, out->done.words), out);
}

static void thread_run(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    finish_order(request, order_run(interpreter, &request->thread, out->done.words), out);
}

static void crash_run(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    finish_order(request, crash_switch(interpreter, &request->on_crash, out->done.words), out);
}

static void breakpoints_operate(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    finish_order(request, breakpoints_run(interpreter, request, out), out);
}

static void armed_run(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    finish_order(request, watch_armed(interpreter, &request->armed, out->done.words), out);
}

/* What is run in an interpreter, with its GIL and its guest made; each leaves something to answer, and no exception. */
static const struct {
    uint16_t op;
    void (*run)(struct interpreter *interpreter, struct request *request, struct evaluation *out);
} operations[] = {
    {PROTO_EVAL, eval_run},
    {PROTO_RECORD, record_run},
    {PROTO_BREAKPOINTS, breakpoints_operate},
    {PROTO_THREAD, thread_run},
    {PROTO_ON_CRASH, crash_run},
    {PROTO_ARMED, armed_run},
};

static void operate(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
        if (operations[i].op == request->op) {
            operations[i].run(interpreter, request, out);
            return;
        }
    say(&out->done, EOPNOTSUPP, "this agent doesn't know how to do that");
    finish_order(request, -EOPNOTSUPP, out);
}

bool python_run(struct interpreter *interpreter, struct request *request, struct evaluation *out)
{
    pid_t pid = getpid();

    if (guest_make(&interpreter->guest, interpreter) < 0) {
        out->done.error = EIO;
        eval_describe_exception(out->done.words, sizeof out->done.words);
        return requests_claim(request);
    }
    if (!requests_begin(request)) {
        explain(&out->done, -ESHUTDOWN); /* unless it was cancelled: then it is answered */
        return requests_claim(request);
    }
    uint64_t begun = agent_now_ns();
    out->done.wait_ns = begun - request->since_ns;
    tell_started(request);
    operate(interpreter, request, out);
    if (getpid() != pid)
        _exit(0); /* the code forked, and this is the child: there is nothing to return to */
    out->done.run_ns = agent_now_ns() - begun;
    return true;
}

/* Whether there is something to answer. */
static bool run_here(struct request *request, struct evaluation *out)
{
    struct interpreter *interpreter;
    bool to_answer;

    int r = request->op == PROTO_RECORD ? recorder_prepare(&request->record, out->done.words) : 0;
    bool prepared = r == 0;
    if (prepared)
        r = interpreter_enter(request->eval.interp, request->eval.gil_interval, &interpreter);
    if (r == 0) {
        to_answer = python_run(interpreter, request, out);
        interpreter_leave(interpreter);
    } else {
        out->done.error = -r;
        if (prepared)
            explain(&out->done, r);
        to_answer = requests_claim(request);
    }
    return to_answer;
}

static void run(struct request *request)
{
    struct evaluation evaluation = {0};
    bool to_answer;

    if (!park_run(request, &evaluation, &to_answer))
        to_answer = run_here(request, &evaluation);
    if (to_answer) {
        if (request->op == PROTO_EVAL) {
            _guard_agent_;
            agent.evals++;
        }
        answer(request, &evaluation);
    }
    free(evaluation.output);
    requests_free(request);
}

/* Gives up all that is Python's, for good. False: cancelled before there was the GIL. */
static bool detach(struct request *request)
{
    struct interpreter *interpreter;
    struct gave_up gave_up;

    bool all_left = park_end();
    bool wanted = python_thread_self()->state || rings_with_gil() || probing_installed();
    bool inside = wanted && interpreter_enter(0, 0, &interpreter) == 0;
    if (!requests_begin(request)) {
        if (inside)
            interpreter_leave(interpreter);
        requests_free(request);
        return false;
    }
    crash_end();
    if (inside) {
        gave_up = interpreter_give_up_all();
    } else {
        rings_stop();
        gave_up = (struct gave_up){interpreter_nothing_remains(), !rings_with_gil()};
    }
    requests_free(request);
    _guard_agent_;
    agent.nobody_writes = gave_up.nobody_inside && all_left;
    agent.unloadable = gave_up.everything && all_left && agent.origin == ORIGIN_INJECTED && !agent.replaced;
    agent.detached = true;
    return true;
}

/* Where the stack of the thread that is there is; NULL: not known. */
static void *stack_top, *stack_bottom;

static void note_stack(void *here)
{
    pthread_attr_t attr;
    size_t size;

    if (pthread_getattr_np(pthread_self(), &attr))
        return;
    pthread_attr_getstack(&attr, &stack_bottom, &size);
    pthread_attr_destroy(&attr);
    __atomic_store_n(&stack_top, here, __ATOMIC_RELEASE);
}

/* Whether another thread has taken over: then this one leaves Python, and nobody joins it. */
static bool retire(struct python_thread *self)
{
    {
        _guard_agent_;
        if (!self->retired)
            return false;
    }
    interpreter_leave_main();
    _guard_agent_;
    pthread_detach(self->thread);
    *self = (struct python_thread){0};
    return true;
}

/* Makes `import probing` work before anybody asks for anything. */
static void welcome(struct python_thread *self)
{
    struct interpreter *interpreter;

    if (interpreter_enter(0, 0, &interpreter) < 0)
        interpreter = NULL;
    bool wanted;
    {
        _guard_agent_;
        self->welcome_ns = 0;
        wanted = !self->retired;
        pthread_cond_broadcast(&agent.changed);
    }
    if (interpreter && wanted)
        guest_begin(&interpreter->guest, interpreter);
    if (interpreter)
        interpreter_leave(interpreter);
}

static void *python_main(void *arg)
{
    struct python_thread *self = arg;

    self->thread = pthread_self();
    thread_name("probe-python");
    note_stack(__builtin_frame_address(0));
    __atomic_store_n(&probe_agent_record.python_tid, gettid(), __ATOMIC_RELEASE);
    if (self->welcome_ns)
        welcome(self);
    for (;;) {
        if (retire(self))
            return NULL;
        if (self->state && newcomers_look() && !requests_wait(NEWCOMERS_NS))
            continue;
        struct request *request = requests_take(self->state != NULL);
        if (!request) {
            interpreter_leave_main(); /* it ends; what still comes is refused */
        } else if (request->op == PROTO_DETACH) {
            if (detach(request))
                break;
        } else {
            run(request);
        }
    }
    channel_wake();
    return NULL;
}

/* Another thread is to serve; if all have got stuck, none can. With the lock. */
static void replace(void)
{
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++) {
        if (agent.pythons[i].exists)
            continue;
        agent.python->retired = agent.replaced = true;
        agent.requests.running = NULL;
        agent.python = &agent.pythons[i];
        return;
    }
}

/* With the lock. */
static int need(void)
{
    if (agent.python->exists)
        return 0;
    agent.python->exists = true;
    int r = thread_spawn(0, true, python_main, agent.python, &agent.python->thread);
    if (r < 0)
        agent.python->exists = false;
    return r;
}

int python_thread_need(void)
{
    _guard_agent_;
    if (agent.python->exists && requests_overdue() > OVERDUE_NS)
        replace();
    return need();
}

void python_thread_welcome(void)
{
    _guard_agent_;
    if (agent.python->exists)
        return;
    agent.python->welcome_ns = agent_now_ns();
    if (need() < 0)
        agent.python->welcome_ns = 0;
}

void python_thread_give_up_welcome(void)
{
    _guard_agent_;
    if (!agent.python->welcome_ns)
        return;
    uint64_t end = agent.python->welcome_ns + OVERDUE_NS;
    struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    while (agent.python->welcome_ns)
        if (pthread_cond_clockwait(&agent.changed, &agent.lock, CLOCK_MONOTONIC, &until)) {
            replace();
            return;
        }
}

bool python_thread_stuck(void)
{
    _guard_agent_;
    bool stuck = requests_overdue() > OVERDUE_NS;
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++)
        stuck = stuck || agent.pythons[i].retired;
    return stuck;
}

struct python_thread *python_thread_self(void)
{
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++)
        if (agent.pythons[i].exists && pthread_equal(agent.pythons[i].thread, pthread_self()))
            return &agent.pythons[i];
    return NULL;
}

void python_thread_join(void)
{
    if (agent.python->exists)
        pthread_join(agent.python->thread, NULL);
    agent.python->exists = false;
    stack_top = NULL;
    __atomic_store_n(&probe_agent_record.python_tid, 0, __ATOMIC_RELEASE);
}

uint64_t python_thread_memory(void)
{
    const void *top = __atomic_load_n(&stack_top, __ATOMIC_ACQUIRE);
    return agent.python->exists && top ? stack_resident(top, stack_bottom) : 0;
}
