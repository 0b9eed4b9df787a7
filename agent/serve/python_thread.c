#include "agent/serve/python_thread.h"

#include "agent/allocation/allocation.h"
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/thread.h"
#include "agent/breakpoint/change.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/exception_words.h"
#include "agent/cpython/gil.h"
#include "agent/crash/crash.h"
#include "agent/eval/eval.h"
#include "agent/eval/interrupt.h"
#include "agent/eval/requests.h"
#include "agent/interpreter/interpreter.h"
#include "agent/interpreter/own_threads.h"
#include "agent/interpreter/part.h"
#include "agent/record/recorder.h"
#include "agent/sample/sample.h"
#include "agent/serve/ending.h"
#include "agent/stop/hold.h"
#include "agent/stop/orders.h"
#include "agent/stop/step.h"
#include "agent/watch/watch.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How long code may take to end once it was told to, before another thread takes over. */
#define OVERDUE_NS 500000000ull
/* Bytes of output in one frame. */
#define PART (PROTO_FRAME_MAX - sizeof(struct proto_header))

/* What goes with each of own_threads; with the lock. */
static struct duty {
    bool retired;        /* it ends as soon as what it runs ends */
    uint64_t welcome_ns; /* since when it waits for the GIL for `import probing`; 0: it doesn't */
} duties[OWN_THREADS_MAX];
static struct own_thread *python_thread = &own_threads[0]; /* the one that serves, or would */
static bool replaced; /* one was retired: nobody waits for its last step inside the library */

static struct duty *duty_of(const struct own_thread *thread)
{
    return &duties[thread - own_threads];
}

static void say(struct proto_done *done, int error, const char *words)
{
    done->error = error;
    snprintf(done->words, sizeof done->words, "%s", words);
}

static void explain(struct proto_done *done, int r)
{
    switch (r) {
    case -EBUSY: say(done, EBUSY, "Python is not initialized yet"); break;
    case -ESHUTDOWN: say(done, ESHUTDOWN, "the interpreter is ending"); break;
    case -ENOENT: say(done, ENOENT, "no such interpreter"); break;
    case -EOPNOTSUPP: say(done, EOPNOTSUPP, "no CPython of a supported version"); break;
    default: say(done, ENOMEM, "no memory, or too many interpreters"); break;
    }
}

/* Says that it begins. The GIL is held, so this doesn't wait: where there is no room the GIL is
 * given up for as long as it takes. */
static void tell_started(const struct request *request)
{
    if (channel_send(request->generation, PROTO_STARTED, request->id, NULL, 0, NULL, 0, 0) !=
        -EAGAIN)
        return;
    PyThreadState *state = PyEval_SaveThread();
    channel_send(request->generation, PROTO_STARTED, request->id, NULL, 0, NULL, 0,
                 CHANNEL_SEND_NS);
    PyEval_RestoreThread(state);
}

static void answer(const struct request *request, const struct evaluation *evaluation)
{
    for (size_t at = 0; at < evaluation->size; at += PART) {
        size_t size = evaluation->size - at < PART ? evaluation->size - at : PART;
        if (channel_send(request->generation, PROTO_OUTPUT, request->id, evaluation->output + at,
                         size, NULL, 0, CHANNEL_SEND_NS) < 0)
            return;
    }
    channel_send(request->generation, PROTO_DONE, request->id, &evaluation->done,
                 sizeof evaluation->done, NULL, 0, CHANNEL_SEND_NS);
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

static void record_run(struct interpreter *interpreter, struct request *request, PyObject *here,
                       struct evaluation *out)
{
    finish_order(request, recorder_switch(interpreter, &request->record, out->done.words), out);
}

static void thread_run(struct interpreter *interpreter, struct request *request, PyObject *here,
                       struct evaluation *out)
{
    int r = order_run(interpreter, &request->thread, out->done.words);
    if (requests_forsaken(request))
        step_cancel(); /* those that came before it have been, when the daemon went */
    finish_order(request, r, out);
}

/* The end of the channel, or of the file that an order was for, found nothing to take back if it
 * came while the order ran, or waited to: that is done here. */
static void take_back(const struct request *request, uint64_t file, bool (*release)(uint64_t file))
{
    if ((requests_forsaken(request) && release(0)) || (hold_is_released(file) && release(file)))
        requests_tidy();
}

static void crash_run(struct interpreter *interpreter, struct request *request, PyObject *here,
                      struct evaluation *out)
{
    int r = crash_switch(interpreter, &request->on_crash, out->done.words);
    take_back(request, request->on_crash.here, crash_release);
    finish_order(request, r, out);
}

static void breakpoints_operate(struct interpreter *interpreter, struct request *request,
                                PyObject *here, struct evaluation *out)
{
    int r = breakpoints_run(interpreter, request, out);
    take_back(request, request->eval.thread, breakpoints_release);
    finish_order(request, r, out);
}

static void armed_run(struct interpreter *interpreter, struct request *request, PyObject *here,
                      struct evaluation *out)
{
    finish_order(request, watch_armed(interpreter, &request->armed, out->done.words), out);
}

static void allocations_run(struct interpreter *interpreter, struct request *request,
                            PyObject *here, struct evaluation *out)
{
    finish_order(request, allocation_switch(interpreter, &request->allocations, out->done.words),
                 out);
}

static void samples_run(struct interpreter *interpreter, struct request *request, PyObject *here,
                        struct evaluation *out)
{
    finish_order(request, sample_begin(interpreter, out->done.words), out);
}

/* What is run in an interpreter, with its GIL and its guest made; each leaves something
 * to answer, and no exception. */
static const struct {
    uint16_t op;
    void (*run)(struct interpreter *interpreter, struct request *request, PyObject *here,
                struct evaluation *out);
} operations[] = {
    {PROTO_EVAL, eval_run},
    {PROTO_RECORD, record_run},
    {PROTO_BREAKPOINTS, breakpoints_operate},
    {PROTO_THREAD, thread_run},
    {PROTO_ON_CRASH, crash_run},
    {PROTO_ARMED, armed_run},
    {PROTO_ALLOCATIONS, allocations_run},
    {PROTO_SAMPLES, samples_run},
};

static void operate(struct interpreter *interpreter, struct request *request, PyObject *here,
                    struct evaluation *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
        if (operations[i].op == request->op) {
            operations[i].run(interpreter, request, here, out);
            return;
        }
    say(&out->done, EOPNOTSUPP, "this agent doesn't know how to do that");
    finish_order(request, -EOPNOTSUPP, out);
}

/* Runs a request in the calling thread, whose GIL of the interpreter is held, unless it was
 * cancelled. Whether there is something to answer. */
static bool run_in(struct interpreter *interpreter, struct request *request, PyObject *here,
                   struct evaluation *out)
{
    pid_t pid = getpid();

    if (guest_make(&interpreter->guest, interpreter) < 0) {
        out->done.error = EIO;
        exception_words(out->done.words, sizeof out->done.words);
        return requests_claim(request);
    }
    if (!requests_begin(request)) {
        explain(&out->done, -ESHUTDOWN); /* unless it was cancelled: then it is answered */
        return requests_claim(request);
    }
    uint64_t begun = monotonic_ns();
    out->done.wait_ns = begun - request->since_ns;
    tell_started(request);
    operate(interpreter, request, here, out);
    if (getpid() != pid)
        _exit(0); /* the code forked, and this is the child: there is nothing to return to */
    out->done.run_ns = monotonic_ns() - begun;
    return true;
}

/* Whether it needs more than the calling thread and what it evaluates: frames of others, events,
 * rings or other interpreters, all of which the GIL keeps as they are. */
static bool needs_gil(const struct request *request)
{
    const uint32_t elsewhere = EVAL_ON_THREAD | EVAL_IN_FRAME | EVAL_IN_CRASH;

    return request->op != PROTO_EVAL || request->eval.flags & elsewhere || request->eval.interp;
}

/* Whether there is something to answer. */
static bool run_here(struct request *request, struct evaluation *out)
{
    struct interpreter *interpreter;
    bool to_answer;

    if (python.free_threaded && needs_gil(request)) {
        say(&out->done, EOPNOTSUPP,
            "a free-threaded interpreter only evaluates, in the main one's globals");
        return requests_claim(request);
    }
    int r = request->op == PROTO_RECORD ? recorder_prepare(&request->record, out->done.words) : 0;
    bool prepared = r == 0;
    if (prepared)
        r = interpreter_enter(request->eval.interp, request->eval.gil_interval, &interpreter);
    if (r == 0) {
        to_answer = run_in(interpreter, request, NULL, out);
        interpreter_leave(interpreter);
    } else {
        out->done.error = -r;
        if (prepared)
            explain(&out->done, r);
        to_answer = requests_claim(request);
    }
    return to_answer;
}

/* ---- in a held thread ---- */

struct held_run {
    struct request *request;
    struct evaluation *out;
    bool to_answer;
};

static void run_job(struct interpreter *interpreter, PyObject *here, void *arg)
{
    struct held_run *held = arg;
    held->to_answer = run_in(interpreter, held->request, here, held->out);
}

/* Whether it is for a held thread, and for which one. */
static bool is_for_held(const struct request *request, struct job_for *whose)
{
    uint32_t flags = request->eval.flags;

    if (request->op == PROTO_THREAD) {
        *whose = (struct job_for){.who = JOB_BY_TID, .tid = request->thread.tid};
        return request->thread.verb != THREAD_PAUSE;
    }
    if (flags & EVAL_IN_CRASH)
        *whose = (struct job_for){.who = JOB_OF_CRASH};
    else
        *whose = (struct job_for){.who = JOB_BY_THREAD,
                                  .thread = (pthread_t)request->eval.thread,
                                  .in_frames = flags & EVAL_IN_FRAME};
    return request->op == PROTO_EVAL && flags & (EVAL_ON_THREAD | EVAL_IN_FRAME | EVAL_IN_CRASH);
}

/* Says why it can't be run there. False: it may be run elsewhere. */
static bool refuse_held(const struct request *request, int r, struct proto_done *done)
{
    if (r == -EBUSY)
        say(done, EBUSY, "code that was interrupted still runs in the stopped thread");
    else if (request->op == PROTO_THREAD)
        say(done, ESRCH, "the thread isn't stopped");
    else if (request->eval.flags & EVAL_IN_CRASH)
        say(done, ENOENT, "no exception holds the process");
    else
        return false;
    return true;
}

/* False: it is for none, or none is held. */
static bool run_held(struct request *request, struct evaluation *out, bool *to_answer)
{
    struct held_run held = {.request = request, .out = out};
    struct job job = {.run = run_job, .arg = &held, .gil_interval = request->eval.gil_interval};
    struct job_for whose;

    if (!is_for_held(request, &whose))
        return false;
    int r = hold_run(&whose, &job);
    if (r < 0 && !refuse_held(request, r, &out->done))
        return false;
    *to_answer = r == 0 ? held.to_answer : requests_claim(request);
    return true;
}

/* ---- */

static void run(struct request *request)
{
    struct evaluation evaluation = {0};
    bool to_answer;

    if (!run_held(request, &evaluation, &to_answer))
        to_answer = run_here(request, &evaluation);
    if (to_answer) {
        if (request->op == PROTO_EVAL) {
            _guard_agent_;
            probe_agent_record.evals++;
        }
        answer(request, &evaluation);
    }
    free(evaluation.output);
    requests_free(request);
}

/* The stack of Python's thread; NULL: not known. */
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
static bool retire(struct own_thread *self)
{
    {
        _guard_agent_;
        if (!duty_of(self)->retired)
            return false;
    }
    interpreter_leave_main();
    _guard_agent_;
    pthread_detach(self->thread);
    *duty_of(self) = (struct duty){0};
    *self = (struct own_thread){0};
    return true;
}

/* Makes `import probing` work before anybody asks for anything. */
static void welcome(struct own_thread *self)
{
    struct interpreter *interpreter;

    /* a program that takes it again at once, time after time, would have it wait for long */
    if (interpreter_enter(0, GIL_USUAL, &interpreter) < 0)
        interpreter = NULL;
    bool wanted;
    {
        _guard_agent_;
        duty_of(self)->welcome_ns = 0;
        wanted = !duty_of(self)->retired;
        pthread_cond_broadcast(&agent_changed);
    }
    if (interpreter && wanted)
        guest_begin(&interpreter->guest, interpreter);
    if (interpreter)
        interpreter_leave(interpreter);
}

/* What was released (PROTO_RELEASE) is put away. */
static void tidy(struct request *request)
{
    struct interpreter *interpreter;

    requests_free(request); /* what is released from now on is for another time */
    if (interpreter_enter(0, 0, &interpreter) < 0)
        return;
    breakpoints_tidy(interpreter);
    step_tidy(interpreter);
    crash_tidy(interpreter);
    interpreter_leave(interpreter);
}

/* What nobody tells of is looked at from time to time. Whether a request came before it is time to
 * look again; also where there is nothing to look at. */
static bool look_until_request(void)
{
    uint64_t ns = parts_look();

    return !ns || requests_wait(ns);
}

static void *python_main(void *arg)
{
    struct own_thread *self = arg;

    self->thread = pthread_self();
    thread_name("probe-python");
    note_stack(__builtin_frame_address(0));
    if (!python.version)
        (void)python_bind(); /* else it is said when Python is to be entered */
    __atomic_store_n(&probe_agent_record.python_tid, gettid(), __ATOMIC_RELEASE);
    if (duty_of(self)->welcome_ns)
        welcome(self);
    for (;;) {
        if (retire(self))
            return NULL;
        if (self->state && !look_until_request())
            continue;
        struct request *request = requests_take(self->state != NULL);
        if (!request) {
            interpreter_leave_main(); /* it ends; what still comes is refused */
        } else if (request->op == PROTO_DETACH) {
            if (ending_detach(request))
                break;
        } else if (request->op == REQUEST_TIDY) {
            tidy(request);
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
    for (size_t i = 0; i < OWN_THREADS_MAX; i++) {
        if (own_threads[i].exists)
            continue;
        duty_of(python_thread)->retired = replaced = true;
        requests_leave_behind();
        python_thread = &own_threads[i];
        return;
    }
}

/* With the lock. */
static int need(void)
{
    if (python_thread->exists)
        return 0;
    python_thread->exists = true;
    int r = thread_spawn(0, true, python_main, python_thread, &python_thread->thread);
    if (r < 0)
        python_thread->exists = false;
    return r;
}

int python_thread_need(void)
{
    _guard_agent_;
    if (python_thread->exists && requests_overdue() > OVERDUE_NS)
        replace();
    return need();
}

void python_thread_welcome(void)
{
    _guard_agent_;
    if (python_thread->exists)
        return;
    duty_of(python_thread)->welcome_ns = monotonic_ns();
    if (need() < 0)
        duty_of(python_thread)->welcome_ns = 0;
}

void python_thread_give_up_welcome(void)
{
    _guard_agent_;
    if (!duty_of(python_thread)->welcome_ns)
        return;
    uint64_t end = duty_of(python_thread)->welcome_ns + OVERDUE_NS;
    struct timespec until = timespec_of(end);
    while (duty_of(python_thread)->welcome_ns)
        if (pthread_cond_clockwait(&agent_changed, &agent_lock, CLOCK_MONOTONIC, &until)) {
            replace();
            return;
        }
}

bool python_thread_stuck(void)
{
    _guard_agent_;
    bool stuck = requests_overdue() > OVERDUE_NS;
    for (size_t i = 0; i < OWN_THREADS_MAX; i++)
        stuck = stuck || duties[i].retired;
    return stuck;
}

void python_thread_join(void)
{
    if (python_thread->exists)
        pthread_join(python_thread->thread, NULL);
    python_thread->exists = false;
    probe_agent_record.evals = 0;
    stack_top = NULL;
    __atomic_store_n(&probe_agent_record.python_tid, 0, __ATOMIC_RELEASE);
}

uint64_t python_thread_memory(void)
{
    const void *top = __atomic_load_n(&stack_top, __ATOMIC_ACQUIRE);
    return python_thread->exists && top ? stack_resident(top, stack_bottom) : 0;
}

bool python_thread_was_replaced(void) { return replaced; }

void python_thread_forget(void)
{
    own_threads_forget();
    memset(duties, 0, sizeof duties);
    python_thread = &own_threads[0];
    probe_agent_record.evals = 0;
}
