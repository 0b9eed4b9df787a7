#include "agent/watch/trap.h"

#include "agent/arch/arch.h"
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/record/recorder.h"
#include "agent/watch/trap_guard.h"
#include "agent/watch/trap_queue.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define OBJECT_SIZE sizeof(PyObject *)

/* What the handler looks at. Whoever changes one makes `change` odd meanwhile. */
struct slot {
    uint32_t change;
    bool used, stop;
    struct trap_memory memory;
    uint64_t last; /* what was there, as the handler last saw it */
    uint64_t traps, dropped;
    uint64_t writes; /* that changed it */
};

static struct {
    struct slot slots[PROTO_WATCHES_MAX];
    /* a tracer may have armed some since all were last cleared */
    bool traced;
    bool stands, kept;
    void (*sample)(bool late);
    /* what the program wants done, for what isn't ours; the other is for the next change of it */
    struct sigaction wanted[2];
    unsigned now;
} trap;

/* What the kernel fills in for TRAP_PERF, which glibc's siginfo_t does not name everywhere. */
struct perf_fault {
    int signo, error, code, pad;
    void *address;
    unsigned long data;
    uint32_t type, flags;
};
#define TRAP_PERF_CODE 6
#define PERF_FLAG_ASYNC 1u

/* ---- the handler ---- */

static uint64_t load(const struct trap_memory *memory)
{
    uint64_t bytes = 0;
    memcpy(&bytes, (const void *)(uintptr_t)memory->address,
           memory->length <= sizeof bytes ? memory->length : 0);
    return bytes;
}

/* NaN is what is mostly waited for, and comes seldom. */
static bool is_nan(const struct trap_memory *memory, uint64_t bytes)
{
    if (!memory->floating)
        return false;
    return memory->length == 8 ? (bytes & INT64_MAX) > 0x7ff0000000000000
                               : (bytes & INT32_MAX) > 0x7f800000;
}

/* Whether there may be an object at an address: what is there can be read, or it is NULL. An
 * allocator that gets memory back writes there, too, before what it belonged to says that it is
 * elsewhere: what was written then may be no address at all. */
static bool is_address(uint64_t address)
{
    char bytes[32];
    struct iovec to = {bytes, sizeof bytes}, from = {(void *)(uintptr_t)address, sizeof bytes};

    return !address || process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)sizeof bytes;
}

static void fill(struct trap_hit *hit, const struct slot *slot, uint64_t stack, bool late,
                 bool *gil)
{
    hit->state = late ? NULL : signal_stack_state(gil);
    hit->tid = (int32_t)syscall(SYS_gettid);
    hit->ts = realtime_s();
    hit->object = NULL;
    hit->lost = false;
    if (slot->memory.object) {
        hit->lost = !*gil || !trap_is_there(&slot->memory) ||
                    (slot->memory.base && !is_address(hit->new_bytes));
        if (!hit->lost)
            trap_value_copy(hit->new_bytes, &hit->value);
    }
    hit->callers.n = 0;
    if (slot->memory.version && !late)
        torch_callers_capture(stack, &hit->callers);
    signal_stack_capture(hit->state, &hit->writer);
}

/* Adds a hit if what is in a slot has changed. */
static void look(unsigned number, uint64_t ip, uint64_t stack, bool late)
{
    struct slot *slot = &trap.slots[number];
    uint32_t change = __atomic_load_n(&slot->change, __ATOMIC_ACQUIRE);
    bool gil = false;

    if (!slot->used || change & 1)
        return;
    struct trap_memory memory = slot->memory;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&slot->change, __ATOMIC_ACQUIRE) != change)
        return;
    uint64_t bytes = load(&memory),
             before = __atomic_exchange_n(&slot->last, bytes, __ATOMIC_ACQ_REL);
    if (bytes == before)
        return;
    uint64_t writes = __atomic_add_fetch(&slot->writes, 1, __ATOMIC_ACQ_REL);
    struct trap_hit *hit = trap_queue_begin();
    if (!hit) {
        __atomic_add_fetch(&slot->dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    hit->slot = number;
    hit->change = change;
    hit->number = writes;
    hit->old_bytes = before;
    hit->new_bytes = bytes;
    hit->address = ip;
    fill(hit, slot, stack, late, &gil);
    trap_queue_end(hit);
    if (slot->stop && gil)
        trap_queue_wait(is_nan(&memory, bytes));
}

static const struct sigaction *wanted(void)
{
    return &trap.wanted[__atomic_load_n(&trap.now, __ATOMIC_ACQUIRE)];
}

static void want(const struct sigaction *action)
{
    unsigned next = !trap.now;

    trap.wanted[next] = *action;
    __atomic_store_n(&trap.now, next, __ATOMIC_RELEASE);
}

/* Does what the program wants done about a SIGTRAP that isn't ours. */
static void chain(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = wanted();

    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler == SIG_DFL ||
               (before->sa_handler == SIG_IGN && info->si_code > 0)) {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(number, &plain, NULL);
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
    } else if (before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    }
}

/* Whether a watched write that the kernel can't name: which one it was is seen by what is there. */
static bool is_unnamed(const siginfo_t *info, const ucontext_t *context)
{
    uint8_t byte = 0;
    struct iovec to = {&byte, 1}, from = {(char *)context_pc(context) - 1, 1};

    return info->si_code == TRAP_BRKPT && process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 &&
           arch_is_unnamed_hit(byte);
}

static bool is_ours(const siginfo_t *info, const ucontext_t *context)
{
    const struct perf_fault *fault = (const struct perf_fault *)info;

    if (info->si_code == TRAP_HWBKPT || is_unnamed(info, context))
        return true;
    return info->si_code == TRAP_PERF_CODE && fault->type == PERF_TYPE_BREAKPOINT &&
           (fault->data & 0xff) < PROTO_WATCHES_MAX && fault->data >> 8 <= UINT32_MAX;
}

/* Whether a SIGTRAP is a sample, by its data alone: for an event that a thread has inherited the
 * kernel tells another type, the one that it has for that clock. */
static bool is_sample(const siginfo_t *info)
{
    const struct perf_fault *fault = (const struct perf_fault *)info;

    return info->si_code == TRAP_PERF_CODE && fault->data == PROTO_SAMPLE_DATA;
}

/* Whether a signal for the process came to a thread of ours, which without us wouldn't be there to
 * take it: the main thread gets it, whose system call it interrupts. */
static bool is_handed_on(int number, const siginfo_t *info)
{
    return info->si_code == SI_USER && threads_own_has((pid_t)syscall(SYS_gettid)) &&
           syscall(SYS_tgkill, getpid(), getpid(), number) == 0;
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    const struct perf_fault *fault = (const struct perf_fault *)info;
    bool late = info->si_code == TRAP_PERF_CODE && fault->flags & PERF_FLAG_ASYNC;
    int before = errno;

    if (is_sample(info)) {
        void (*sample)(bool late) = __atomic_load_n(&trap.sample, __ATOMIC_ACQUIRE);
        if (sample)
            sample(late);
    } else if (is_ours(info, context)) {
        uint64_t ip = context_pc(context), stack = context_sp(context);
        if (info->si_code == TRAP_PERF_CODE)
            __atomic_add_fetch(&trap.slots[fault->data & 0xff].traps, 1, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) /* one instruction may write to several */
            look(i, ip, stack, late);
    } else if (!is_handed_on(number, info)) {
        chain(number, info, context);
    }
    errno = before;
}

/* ---- slots ---- */

static void publish(unsigned number, uint32_t id, enum watch_route route,
                    const struct trap_memory *memory)
{
    struct probe_watch *watch = &probe_agent_record.watches[number];
    uint32_t change = watch->change;

    __atomic_store_n(&watch->change, change + 1, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    watch->id = id;
    watch->address = memory->address;
    watch->length = memory->length;
    watch->route = route;
    __atomic_store_n(&watch->change, change + 2, __ATOMIC_RELEASE);
}

static void change_slot(unsigned number, uint32_t change, bool stop,
                        const struct trap_memory *memory)
{
    struct slot *slot = &trap.slots[number];

    __atomic_store_n(&slot->change, change | 1, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    slot->used = memory;
    slot->stop = stop;
    slot->traps = slot->dropped = 0;
    if (memory) {
        slot->memory = *memory;
        slot->last = load(memory);
    }
    __atomic_store_n(&slot->change, change, __ATOMIC_RELEASE);
}

uint32_t trap_set(unsigned number, uint32_t id, enum watch_route route, bool stop,
                  const struct trap_memory *memory)
{
    uint32_t change = probe_agent_record.watches[number].change + 2;

    change_slot(number, change, stop, memory);
    if (route != ROUTE_PERF)
        trap_set_traced(true);
    publish(number, id, route, memory);
    return change;
}

void trap_clear(unsigned number)
{
    if (!trap.slots[number].used)
        return;
    change_slot(number, probe_agent_record.watches[number].change + 2, false, NULL);
    publish(number, 0, ROUTE_ANY, &(struct trap_memory){0});
}

bool trap_may_be_traced(void) { return __atomic_load_n(&trap.traced, __ATOMIC_ACQUIRE); }

void trap_set_traced(bool traced) { __atomic_store_n(&trap.traced, traced, __ATOMIC_RELEASE); }

uint64_t trap_count(unsigned number, uint64_t *dropped)
{
    *dropped = __atomic_load_n(&trap.slots[number].dropped, __ATOMIC_RELAXED);
    return __atomic_load_n(&trap.slots[number].traps, __ATOMIC_RELAXED);
}

bool trap_is_last(const struct trap_hit *hit)
{
    const struct slot *slot = &trap.slots[hit->slot];
    return slot->change == hit->change &&
           __atomic_load_n(&slot->writes, __ATOMIC_ACQUIRE) == hit->number;
}

/* ---- its life ---- */

static int install(void)
{
    /* nested: what it writes may be watched, too */
    struct sigaction ours = {.sa_sigaction = on_trap,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    const struct sigaction *before = wanted();

    ours.sa_flags |= before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN
                         ? SA_RESTART
                         : before->sa_flags &
                               SA_RESTART; /* signals that aren't ours interrupt as they did */
    return sigaction(SIGTRAP, &ours, NULL) < 0 ? -errno : 0;
}

/* As sigaction(2), for the interpreter: our handler stays. */
static int change_wanted(const struct sigaction *action, struct sigaction *old)
{
    struct sigaction before = *wanted();

    if (action) {
        want(action);
        install();
    }
    if (old)
        *old = before;
    return 0;
}

static int stand(void)
{
    struct sigaction now;

    if (sigaction(SIGTRAP, NULL, &now) < 0)
        return -errno;
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_trap)
        want(&now);
    int r = install();
    if (r < 0)
        return r;
    trap.stands = true;
    trap_guard_begin(change_wanted);
    __atomic_store_n(&probe_agent_record.trap, 1, __ATOMIC_RELEASE);
    return 0;
}

static int explain(int r, char words[PROTO_WORDS_MAX])
{
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "no handler of SIGTRAP: %s", strerrordesc_np(-r));
    return r;
}

int trap_stand(char words[PROTO_WORDS_MAX])
{
    if (!signal_stack_bind()) {
        snprintf(words, PROTO_WORDS_MAX,
                 "this interpreter's frames can't be read where the program is interrupted");
        return -EOPNOTSUPP;
    }
    return explain(trap.stands && trap_check() ? 0 : stand(), words);
}

void trap_on_sample(void (*take)(bool late))
{
    __atomic_store_n(&trap.sample, take, __ATOMIC_RELEASE);
}

void trap_keep(bool keep) { trap.kept = keep; }

int trap_begin(char words[PROTO_WORDS_MAX])
{
    int r = explain(trap_queue_make(), words);

    return r == 0 ? trap_stand(words) : r;
}

bool trap_check(void)
{
    struct sigaction now;

    if (!trap.stands)
        return false;
    if (sigaction(SIGTRAP, NULL, &now) < 0 ||
        (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_trap))
        return true;
    return stand() == 0;
}

bool trap_end(void)
{
    struct sigaction now;

    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        trap_clear(i);
    if (trap.kept)
        return false;
    if (trap.stands) {
        trap_guard_end();
        __atomic_store_n(&probe_agent_record.trap, 0, __ATOMIC_RELEASE);
        if (sigaction(SIGTRAP, NULL, &now) < 0 || !(now.sa_flags & SA_SIGINFO) ||
            now.sa_sigaction != on_trap)
            return false; /* one that the program has set since may call ours */
        sigaction(SIGTRAP, wanted(), NULL);
        trap.stands = false;
    }
    return true;
}

void trap_forget(void)
{
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        trap_clear(i);
    trap.traced = false;
    trap_queue_empty();
}
