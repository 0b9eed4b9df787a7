/* Everything from on_fatal() on runs in a signal handler: no lock, no allocation, no
 * thread-local variable of ours. */
#include "agent/crash/fatal.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/record/recorder.h"
#include "agent/wire/channel.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* A program whose own handler goes on with it (a JVM's, for one) doesn't crash: the second time is
 * looked at only so much later, and each further one twice as much. */
#define QUIET_NS 10000000000ull

static struct {
    int number;
    const char *name;
    bool placed;             /* ours stands there, or behind another one */
    struct sigaction before; /* what it goes on to */
    uint64_t quiet_ns, quiet_until;
} signals[] = {
    {SIGSEGV, "SIGSEGV"},
    {SIGABRT, "SIGABRT"},
    {SIGBUS, "SIGBUS"},
    {SIGFPE, "SIGFPE"},
};

static const struct crash_sink *sink; /* set before a handler stands */

/* Whether the daemon was asked what to do: one thread asks it, others that come meanwhile wait with
 * it. */
enum asking { ASKING_NOT, ASKING, ASKED };
static uint32_t asking;
static unsigned inside; /* threads in the handler */

/* ---- telling ---- */

static void put(char **at, const char *text)
{
    size_t size = strlen(text);
    memcpy(*at, text, size);
    *at += size;
}

static void put_number(char **at, uint64_t number, unsigned base)
{
    char digits[24], *p = digits + sizeof digits;

    *--p = '\0';
    do
        *--p = "0123456789abcdef"[number % base];
    while (number /= base);
    put(at, p);
}

static bool is_sent(const siginfo_t *info) { return info->si_code <= 0; }

static void write_row(const char *name, const siginfo_t *info)
{
    struct ring *ring = recorder_ring(RECORDED_CRASH);
    char words[64], *end = words;

    if (!ring)
        return;
    if (is_sent(info)) {
        put(&end, info->si_pid == getpid() ? "raised by process " : "sent by process ");
        put_number(&end, (uint64_t)info->si_pid, 10);
    } else {
        put(&end, "at address 0x");
        put_number(&end, (uintptr_t)info->si_addr, 16);
    }
    const struct crash_row row = {
        .ts = realtime_s(),
        .crash = sink->number(),
        .tid = gettid(),
        .kind = {"signal", 6},
        .depth = RING_NULL_INTEGER,
        .lineno = RING_NULL_INTEGER,
        .name = {name, strlen(name)},
        .value = {words, (size_t)(end - words)},
    };
    crash_append(ring, &row, NULL);
}

static void wait_seen(void)
{
    uint64_t begun = monotonic_ns(), gone;

    while (__atomic_load_n(&asking, __ATOMIC_ACQUIRE) == ASKING &&
           (gone = monotonic_ns() - begun) < PROTO_CRASH_NS) {
        uint64_t left = PROTO_CRASH_NS - gone;
        const struct timespec t = timespec_of(left);
        syscall(SYS_futex, &asking, FUTEX_WAIT_PRIVATE, ASKING, &t, NULL, 0);
    }
}

static void wake(void) { syscall(SYS_futex, &asking, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static void tell(const char *name, const siginfo_t *info)
{
    const struct proto_crashed crashed = {.signal = info->si_signo,
                                          .tid = gettid(),
                                          .address = (uintptr_t)info->si_addr};
    uint32_t nobody = ASKING_NOT;

    if (!__atomic_compare_exchange_n(&asking, &nobody, ASKING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        wait_seen();
        return;
    }
    write_row(name, info);
    if (channel_tell_crashed(&crashed))
        wait_seen();
    __atomic_store_n(&asking, ASKING_NOT, __ATOMIC_RELEASE);
    wake();
}

void fatal_seen(void)
{
    uint32_t expected = ASKING;
    if (__atomic_compare_exchange_n(&asking, &expected, ASKED, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        wake();
}

/* ---- going on ---- */

static bool has_function(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static bool is_ignored(const struct sigaction *action, const siginfo_t *info)
{
    return action->sa_handler == SIG_IGN && is_sent(info);
}

static void set_default(int number)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(number, &action, NULL);
}

/* Sends the same signal again, with the same siginfo: once the handler returns, it ends the
 * process. */
static void die(int number, siginfo_t *info)
{
    set_default(number);
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, info) < 0)
        syscall(SYS_tgkill, getpid(), gettid(), number);
}

/* Calls a handler of the program as the kernel would have. */
static void call(const struct sigaction *action, int number, siginfo_t *info, void *context)
{
    sigset_t mask = ((const ucontext_t *)context)->uc_sigmask;

    sigorset(&mask, &mask, &action->sa_mask);
    if (!(action->sa_flags & SA_NODEFER))
        sigaddset(&mask, number);
    if (action->sa_flags & (int)SA_RESETHAND)
        set_default(number);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (action->sa_flags & SA_SIGINFO)
        action->sa_sigaction(number, info, context);
    else
        action->sa_handler(number);
}

/* ---- the handler ---- */

static size_t index_of(int number)
{
    size_t i = 0;
    while (i < ARRAY_SIZE(signals) - 1 && signals[i].number != number)
        i++;
    return i;
}

/* Whether a handler of the program that goes on has had the same lately. */
static bool is_quiet(size_t i)
{
    uint64_t now = monotonic_ns();

    if (!has_function(&signals[i].before))
        return false;
    if (now < signals[i].quiet_until)
        return true;
    signals[i].quiet_ns = signals[i].quiet_ns ? signals[i].quiet_ns * 2 : QUIET_NS;
    signals[i].quiet_until = now + signals[i].quiet_ns;
    return false;
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    size_t i = index_of(number);
    struct sigaction before = signals[i].before;
    int error = errno;

    __atomic_add_fetch(&inside, 1, __ATOMIC_ACQ_REL);
    if (sink->wanted() && !is_ignored(&before, info) && !is_quiet(i))
        tell(signals[i].name, info);
    errno = error;
    if (has_function(&before))
        call(&before, number, info, context);
    else if (!is_ignored(&before, info))
        die(number, info);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_ACQ_REL);
}

/* ---- on and off ---- */

static bool is_ours(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_fatal;
}

void fatal_on(const struct crash_sink *whom)
{
    sink = whom;
    struct sigaction ours = {.sa_sigaction = on_fatal,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};

    sigfillset(&ours.sa_mask);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        struct sigaction there;
        if (sigaction(signals[i].number, NULL, &there) < 0 || is_ours(&there))
            continue;
        /* one that came after ours may go on to it: in front of that ours would
         * go round in circles */
        if (signals[i].placed && has_function(&there))
            continue;
        signals[i].before = there;
        signals[i].placed = sigaction(signals[i].number, &ours, NULL) == 0;
    }
}

void fatal_off(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        struct sigaction there;
        if (!signals[i].placed || sigaction(signals[i].number, NULL, &there) < 0)
            continue;
        if (is_ours(&there))
            sigaction(signals[i].number, &signals[i].before, NULL);
        signals[i].placed = !is_ours(&there) && has_function(&there);
        signals[i].quiet_ns = signals[i].quiet_until = 0;
    }
}

bool fatal_remains(void)
{
    bool any = __atomic_load_n(&inside, __ATOMIC_ACQUIRE) > 0;

    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        any = any || signals[i].placed;
    return any;
}

void fatal_forget(void)
{
    asking = ASKING_NOT;
    inside = 0;
    fatal_off();
}
