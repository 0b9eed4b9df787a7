#include "agent/crash/crash.h"

#include "agent/base/lock.h"
#include "agent/cpython/exception_words.h"
#include "agent/crash/fatal.h"
#include "agent/crash/rows.h"
#include "agent/crash/uncaught.h"
#include "agent/eval/requests.h"
#include "agent/monitor/hear.h"
#include "agent/probing/holder.h"
#include "agent/probing/probing.h"
#include "agent/record/recorder.h"
#include "agent/record/rings.h"
#include "agent/stop/hold.h"
#include "agent/stop/stop_row.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CRASH_RING (1u << 20) /* bytes of rows, unless the table has a ring already */

/* Exceptions that are being told of, each in a thread: where one hook calls another, ours may stand
 * in front of both. A thread may end in there, when the interpreter does: so nothing of its stack
 * is kept. More at once are told of twice. */
#define TELLINGS_MAX 64

static struct telling {
    const PyObject *exception; /* only compared; NULL: free */
    pid_t tid;
} tellings[TELLINGS_MAX]; /* under the agent's lock */
/* What reads exceptions, by interpreter, under its GIL; NULL: exceptions are not of interest
 * there. */
static struct crash_reader *readers[INTERPRETERS_MAX];
static int64_t numbers;
/* crash_begin() was the last that switched it; with the GIL of the main interpreter */
static bool alone, by_pdb;

/* Who wants what; the most that one of them wants is done. Under the agent's lock. */
#define FILES_MAX 64 /* open files that want something at once */
static struct wanted {
    uint64_t here; /* number of the open file that it is wanted as long as; 0: free, of the first
                      one: it is wanted until that is said otherwise */
    enum crash_mode mode;
    uint64_t stop_ns;
} wanted[1 + FILES_MAX];
static bool let_go; /* no exception holds any more because of an open file alone */

static struct crash_reader **reader_of(const struct interpreter *interpreter)
{
    return &readers[interpreter_index(interpreter)];
}

static int64_t number(void) { return __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED); }

static enum crash_mode mode(void)
{
    return __atomic_load_n(&probe_agent_record.on_crash, __ATOMIC_RELAXED);
}

/* The order that counts: the one that wants the most. With the lock. */
static const struct wanted *most(void)
{
    const struct wanted *most = &wanted[0];

    for (size_t i = 1; i <= FILES_MAX; i++)
        if (wanted[i].mode > most->mode)
            most = &wanted[i];
    return most;
}

/* With the lock. */
static void set_mode(void)
{
    __atomic_store_n(&probe_agent_record.on_crash, most()->mode, __ATOMIC_RELAXED);
    let_go = most()->mode != CRASH_STOP;
}

/* The entry of an open file, or a free one. With the lock. NULL: too many want something. */
static struct wanted *find_wanted(uint64_t here)
{
    struct wanted *room = NULL;

    if (!here)
        return &wanted[0];
    for (size_t i = FILES_MAX; i > 0; i--)
        if (wanted[i].here == here)
            return &wanted[i];
        else if (!wanted[i].here)
            room = &wanted[i];
    return room;
}

static bool is_wanted(void)
{
    return mode() != CRASH_OFF && probe_agent_record.state == RECORD_RUNNING &&
           probe_agent_record.pid == getpid();
}

/* ---- an exception ---- */

/* False: somebody further out tells of it already. */
static bool begin(const PyObject *exception)
{
    struct telling *free_one = NULL;

    _guard_agent_;
    for (size_t i = 0; i < TELLINGS_MAX; i++) {
        if (tellings[i].exception == exception && tellings[i].tid == gettid())
            return false;
        if (!tellings[i].exception)
            free_one = &tellings[i];
    }
    if (free_one)
        *free_one = (struct telling){exception, gettid()};
    return true;
}

static void told(const PyObject *exception)
{
    _guard_agent_;
    for (size_t i = 0; i < TELLINGS_MAX; i++)
        if (tellings[i].exception == exception && tellings[i].tid == gettid())
            tellings[i].exception = NULL;
}

/* The last entry of a traceback; new. */
static PyObject *innermost(PyObject *traceback)
{
    PyObject *entry = traceback;

    Py_IncRef(entry);
    for (unsigned n = 0; n < CRASH_TRACEBACK_MAX; n++) {
        PyObject *next = PyObject_GetAttrString(entry, "tb_next");
        if (!next || !is_exactly(next, &PyTraceBack_Type)) {
            Py_DecRef(next);
            break;
        }
        Py_DecRef(entry);
        entry = next;
    }
    PyErr_Clear();
    return entry;
}

/* Says on the program's own standard error that a thread is held: the program has asked for
 * that. */
static void say_held(struct ring_text type, uint64_t for_ns)
{
    const char *rank = getenv("RANK");
    int pid = getpid();

    if (!type.bytes)
        type = (struct ring_text){"an exception", strlen("an exception")};
    fprintf(stderr,
            "probing: %s%s%spid %d is held for %g s by %.*s: see /probe/%d/crash; "
            "echo continue > /probe/%d/ctl lets it go\n",
            rank ? "rank " : "", rank ? rank : "", rank ? ", " : "", pid, (double)for_ns * 1e-9,
            (int)type.size, type.bytes, pid, pid);
}

/* Sets for how long a thread is held, and whether only as long as some file is open. */
static void set_duration(struct hold *hold)
{
    _guard_agent_;
    hold->for_ns = most()->stop_ns;
    hold->removed = wanted[0].mode == CRASH_STOP ? NULL : &let_go;
}

static void hold(struct interpreter *interpreter, PyObject *exception, PyObject *traceback)
{
    _cleanup_unref_ PyObject *entry = traceback ? innermost(traceback) : NULL;
    _cleanup_unref_ PyObject *frame = entry ? PyObject_GetAttrString(entry, "tb_frame") : NULL;
    _cleanup_unref_ PyObject *number = entry ? PyObject_GetAttrString(entry, "tb_lineno") : NULL;
    _cleanup_unref_ PyObject *code = frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)frame)
                                           : NULL;
    const long line = number && number != Py_None ? PyLong_AsLong(number) : 0;
    struct exception_text *raised = &(*reader_of(interpreter))->raised;
    const struct exception_type *type = exception_text_type(raised, exception);
    _cleanup_unref_ PyObject *owner = NULL;
    struct hold hold = {
        .why = STOP_CRASH,
        .line = line > 0 ? (int)line : 0,
        .value = exception,
        .alone = alone,
        .exception = type->name,
    };

    PyErr_Clear();
    set_duration(&hold);
    if (alone)
        say_held(type->name, hold.for_ns);
    exception_text_message(raised, type, exception, &hold.message, &owner);
    /* without the exception: its repr() would be shown, which is the program's */
    stop_hold(interpreter, &hold, (PyFrameObject *)frame, code, NULL);
    PyErr_Clear(); /* what a signal handler raised, as Ctrl-C does, would be taken for a mistake of
                      the hook */
}

/* Has pdb look at it, in the process. Leaves no exception. */
static void ask_pdb(PyObject *exception)
{
    _cleanup_unref_ PyObject *capsule = NULL;
    struct probing *probing = probing_here(&capsule);
    _cleanup_unref_ PyObject *module = probing ? probing_module(probing) : NULL;
    _cleanup_unref_ PyObject *function = module ? PyObject_GetAttrString(module, "_post_mortem")
                                                : NULL;
    _cleanup_unref_ PyObject *done =
        function ? PyObject_CallFunctionObjArgs(function, exception, NULL) : NULL;

    if (!done)
        PyErr_Clear();
}

/* Whether contrib/probing.py had an exception looked at before it was raised again. */
static bool was_seen(PyObject *exception)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString("_probing_seen");
    _cleanup_unref_ PyObject *seen = name ? PyObject_GenericGetAttr(exception, name) : NULL;

    PyErr_Clear();
    return seen != NULL;
}

/* Whoever presses Ctrl-C wants the program to end. */
static bool is_held(PyObject *exception)
{
    return mode() == CRASH_STOP && !was_seen(exception) &&
           !PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_KeyboardInterrupt);
}

static bool uncaught(struct interpreter *interpreter, PyObject *exception, PyObject *traceback)
{
    if (!is_wanted() || !*reader_of(interpreter) ||
        Py_TYPE(exception) == (PyTypeObject *)PyExc_SystemExit || !begin(exception))
        return false;
    crash_rows_write(*reader_of(interpreter), number(), exception, traceback);
    if (is_held(exception) && by_pdb)
        ask_pdb(exception);
    else if (is_held(exception))
        hold(interpreter, exception, traceback);
    return true;
}

/* Holds this thread at an exception for attach_on_error() and the like, which raises it again. */
static bool hold_asked(PyObject *exception)
{
    struct interpreter *interpreter;

    {
        _guard_agent_;
        interpreter = interpreter_find(PyInterpreterState_GetID(PyInterpreterState_Get()));
    }
    if (!interpreter || !is_wanted() || !*reader_of(interpreter))
        return false;
    _cleanup_unref_ PyObject *traceback = PyException_GetTraceback(exception);
    crash_rows_write(*reader_of(interpreter), number(), exception, traceback);
    hold(interpreter, exception, traceback);
    return true;
}

const struct holder crash_holder = {hold_asked};

static const struct crash_sink sink = {
    .number = number, .wanted = is_wanted, .uncaught = uncaught, .told = told};

/* ---- on and off ---- */

void crash_leave(struct interpreter *interpreter)
{
    struct crash_reader *reader = *reader_of(interpreter);

    if (!reader)
        return;
    uncaught_off(interpreter);
    *reader_of(interpreter) = NULL;
    crash_reader_clear(reader);
    free(reader);
    PyErr_Clear();
}

static int make_reader(struct interpreter *interpreter)
{
    if (*reader_of(interpreter))
        return 0;
    struct crash_reader *reader = calloc(1, sizeof *reader);
    int r = reader ? crash_reader_init(reader) : -ENOMEM;
    if (r < 0)
        free(reader);
    else
        *reader_of(interpreter) = reader;
    return r;
}

static int enter(struct interpreter *interpreter)
{
    int r = guest_make(&interpreter->guest, interpreter);
    if (r == 0)
        r = make_reader(interpreter);
    if (r == 0)
        r = uncaught_on(interpreter, &sink);
    return r;
}

static void enter_other(struct interpreter *interpreter, void *unused)
{
    if (enter(interpreter) < 0)
        crash_leave(interpreter);
    PyErr_Clear();
}

static void leave_other(struct interpreter *interpreter, void *unused) { crash_leave(interpreter); }

/* There must be a ring before there is a crash: then nothing can be made any more. */
static int make_ring(void)
{
    int r = rings_make(RECORDED_CRASH, recorder_ring(RECORDED_CRASH) ? 0 : CRASH_RING);
    if (r == 0)
        rings_switch(RECORDED_CRASH, true, 0);
    return r;
}

static int switch_on(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    int r = make_ring();
    if (r < 0) {
        snprintf(words, PROTO_WORDS_MAX, "no room for %u KiB of rows: %s", CRASH_RING >> 10,
                 strerrordesc_np(-r));
        return r;
    }
    r = enter(interpreter);
    if (r < 0) {
        if (PyErr_Occurred())
            exception_words(words, PROTO_WORDS_MAX);
        else
            snprintf(words, PROTO_WORDS_MAX, "sys.excepthook could not be set: %s",
                     strerrordesc_np(-r));
        if (mode() == CRASH_OFF)
            crash_leave(interpreter);
        return r;
    }
    interpreter_each_there(enter_other, NULL);
    return 0;
}

static void switch_off(struct interpreter *interpreter)
{
    fatal_off();
    interpreter_each_other(leave_other, NULL);
    crash_leave(interpreter);
}

/* Takes down who wants what. -EBUSY: too many do. */
static int want(const struct proto_on_crash *order)
{
    {
        _guard_agent_;
        struct wanted *one = find_wanted(order->here);
        if (!one)
            return order->mode == CRASH_OFF ? 0 : -EBUSY;
        *one = order->mode == CRASH_OFF ? (struct wanted){0}
                                        : (struct wanted){order->here, order->mode, order->stop_ns};
        set_mode();
    }
    if (order->here && order->mode != CRASH_STOP)
        hold_let_go(&let_go);
    return 0;
}

int crash_switch(struct interpreter *interpreter, const struct proto_on_crash *order,
                 char words[PROTO_WORDS_MAX])
{
    if (order->mode > CRASH_STOP || order->stop_ns > PROTO_STOP_MAX_NS) {
        snprintf(words, PROTO_WORDS_MAX, "off, record or stop, for at most 7 days");
        return -EINVAL;
    }
    if (!interpreter_is_main(interpreter)) {
        snprintf(words, PROTO_WORDS_MAX, "it is for the whole process, by its main interpreter");
        return -EINVAL;
    }
    if (!order->here)
        alone = by_pdb = false;
    if (order->mode == CRASH_STOP)
        hear_learn(); /* who is held may be told to step */
    int r = order->mode == CRASH_OFF ? 0 : switch_on(interpreter, words);
    if (r == 0)
        r = want(order);
    if (r == -EBUSY)
        snprintf(words, PROTO_WORDS_MAX, "%d open files want it already", FILES_MAX);
    if (mode() == CRASH_OFF)
        switch_off(interpreter);
    else if (r == 0)
        fatal_on(&sink);
    return r;
}

int crash_begin(struct interpreter *interpreter, const struct proto_on_crash *order, bool pdb,
                char words[PROTO_WORDS_MAX])
{
    int r = crash_switch(interpreter, order, words);
    alone = r == 0 && order->mode == CRASH_STOP;
    by_pdb = alone && pdb;
    return r;
}

/* ---- its end ---- */

/* What is wanted as long as that file is open isn't any more; 0: as any is. Whether there was
 * something. */
static bool forget_wanted(uint64_t here)
{
    bool any = false;

    _guard_agent_;
    for (size_t i = 1; i <= FILES_MAX; i++) {
        if (!wanted[i].here || (here && wanted[i].here != here))
            continue;
        wanted[i] = (struct wanted){0};
        any = true;
    }
    set_mode();
    return any;
}

bool crash_release(uint64_t here)
{
    if (!forget_wanted(here))
        return false;
    hold_let_go(&let_go);
    return true;
}

void crash_tidy(struct interpreter *interpreter)
{
    if (mode() == CRASH_OFF && *reader_of(interpreter))
        switch_off(interpreter);
}

void crash_daemon_gone(void)
{
    fatal_seen();
    if (crash_release(0))
        requests_tidy();
}

static void forget_all(void)
{
    memset(wanted, 0, sizeof wanted);
    set_mode();
}

void crash_end(void)
{
    {
        _guard_agent_;
        forget_all();
    }
    fatal_off();
}

bool crash_remains(void) { return fatal_remains() || uncaught_pending(); }

void crash_forget(void)
{
    forget_all();
    memset(tellings, 0, sizeof tellings);
    fatal_forget();
}
