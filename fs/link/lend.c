/* The GIL of a thread that sleeps in C outside Python and keeps it, as uWSGI's worker does while it
 * waits for a request: nobody else can run Python then, for as long as it likes.
 *
 * That thread is borrowed, as one is for an injection, and gives the GIL up and takes it again by
 * CPython's own two functions for that (agent/serve/lend.c), for some milliseconds; meanwhile the
 * agent's own thread serves what is asked for, as it always does. Then it goes on with its system
 * call. Nothing of the program's Python runs in it, and none of its Python state is touched. What
 * has come for it meanwhile waits in the kernel, as do its signals.
 *
 * That may only be done where the program can't tell it from what may happen anyway. So the thread
 * must wait for something that isn't another thread's to do, must not have come there from within
 * the interpreter, and Python must have no other threads: one that got the GIL just then could wait
 * for a lock of the program's which this one has. Up to CPython 3.11 nothing says whether the
 * thread that a thread state was made for is the one that uses it, so that there the process must
 * have no other threads at all but the agent's. */
#include "fs/link/attach.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/link/attachment.h"
#include "fs/proc/lwp.h"
#include "fs/remote/frames/gil.h"

#include <errno.h>
#include <stddef.h>

#define ERRAND_NS 3000000000ull /* from the stop on: else it comes back by itself */
/* From this version on an attached thread state is known to the thread that has it. */
#define VERSION_BY_THREAD 0x030c0000u

pid_t agent_lend_sleeper(const struct target *target, int64_t interp)
{
    struct lwp_list list;
    pid_t inner, tid;

    if (gil_holder_find(&target->memory, &target->runtime, interp, &inner) < 0 || !inner)
        return 0;
    if (!target->foreign)
        return lwp_state(target->pid, inner) == 'S' ? inner : 0;
    if (lwp_list_read(target->pid, LWP_STATES, &list) < 0)
        return 0;
    const struct lwp *lwp = lwp_find_inner(&list, inner);
    tid = lwp && lwp->state == 'S' ? lwp->tid : 0;
    lwp_list_deinit(&list);
    return tid;
}

/* ---- whether it may be done ---- */

struct lending {
    struct target *target;
    struct found_agent found;
    pid_t tid;
};

static bool is_own(const int32_t own[PROTO_OWN_MAX], pid_t inner)
{
    for (size_t i = 0; i < PROTO_OWN_MAX; i++)
        if (own[i] == inner)
            return true;
    return false;
}

/* Whether the process has no threads but this one and the agent's. */
static bool is_alone(const struct lending *lending)
{
    const struct target *target = lending->target;
    int32_t own[PROTO_OWN_MAX];
    struct lwp_list list;
    bool alone = true;

    if (memory_read(&target->memory, lending->found.record.own, own, sizeof own) < 0 ||
        lwp_list_read(target->pid, LWP_STATES, &list) < 0)
        return false;
    for (size_t i = 0; i < list.n && alone; i++)
        alone = list.items[i].tid == lending->tid || is_own(own, list.items[i].inner_tid);
    alone = alone && !list.cut;
    lwp_list_deinit(&list);
    return alone;
}

/* The thread is stopped. */
static int agree(void *arg)
{
    struct lending *lending = arg;
    uint64_t enter = lending->found.record.lend.enter;

    bool may = found_agent_refresh(&lending->target->memory, &lending->found) == 0 &&
               lending->found.running && lending->found.record.lend.enter == enter &&
               lending->found.record.lend.left &&
               (lending->target->runtime.version >= VERSION_BY_THREAD || is_alone(lending));
    return may ? 0 : -EAGAIN;
}

/* ---- doing it ---- */

static int lend_once(struct attachment *attachment, struct lending *lending,
                     const struct interrupt *interrupt, enum lend_result *result)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct inject_result spent;
    const struct probe_lend *lend = &lending->found.record.lend;

    int r = found_agent_refresh(&lending->target->memory, &lending->found);
    if (r < 0 || !lend->enter)
        return r < 0 ? r : -EAGAIN;
    const struct inject_errand errand = {.tid = lending->tid,
                                         .function = lend->enter,
                                         .argument = lending->found.record_addr +
                                                     offsetof(struct probe_agent_record, lend),
                                         .agree = agree,
                                         .arg = lending};
    r = inject_errand(attachment->lender, &errand, ERRAND_NS, interrupt, &spent, &why);
    if (r == 0)
        r = found_agent_refresh(&lending->target->memory, &lending->found);
    if (r == 0)
        *result = (enum lend_result)lend->result;
    return r;
}

static pid_t sleeper(struct target *target)
{
    _guard_mutex_(&target->lock);
    return agent_lend_sleeper(target, 0);
}

/* Lends it again and again, so that the thread sees what has come for it in between. */
static int lend_all(struct attachment *attachment, struct lending *lending, uint64_t until,
                    const struct interrupt *interrupt)
{
    enum lend_result result = LEND_UNDONE;
    bool lent = false;
    int r = 0;

    while (r == 0 && result == LEND_UNDONE && (lending->tid = sleeper(lending->target))) {
        r = lend_once(attachment, lending, interrupt, &result);
        lent |= r == 0 && (result == LEND_DONE || result == LEND_UNDONE);
        if (attachment_nap(interrupt) < 0 || monotonic_ns() >= until)
            break;
    }
    return lent ? 0 : r < 0 ? r : lending->tid ? -EAGAIN : -EINPROGRESS;
}

int agent_lend(struct target *target, const struct found_agent *found, uint64_t duration_ns,
               const struct interrupt *interrupt)
{
    struct attachment *attachment = attachment_of(target);
    struct lending lending = {.target = target, .found = *found};
    uint64_t until = monotonic_ns() + duration_ns;

    if (!attachment)
        return -ENOMEM;
    if (pthread_mutex_trylock(&attachment->lending))
        return -EBUSY;
    int r = attachment->lender ? 0 : injector_new(target, &attachment->lender);
    if (r == 0)
        r = lend_all(attachment, &lending, until, interrupt);
    pthread_mutex_unlock(&attachment->lending);
    return r;
}
