/* What threads wait for. */
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/waits/waits.h"

#include <errno.h>

struct finding {
    struct waits *waits;
    const struct waits_origin *origin;
};

static struct actor thread_actor(pid_t tid)
{
    return (struct actor){.kind = ACTOR_THREAD, .id = tid};
}

static const struct gil *gil_waited_for(const struct finding *f, const struct lwp *lwp)
{
    const struct walk *walk = f->origin->walk;
    uint64_t size = (uint64_t)f->origin->target->runtime.offsets.gil_size;

    for (size_t i = 0; i < walk->ngils; i++)
        if (lwp->arg0 - walk->gils[i].addr < size)
            return &walk->gils[i];
    return NULL;
}

static void set_place(struct wait_place *place, const struct stack *stack)
{
    if (stack->n) {
        place->code = stack->frames[0].info;
        place->lasti = stack->frames[0].lasti;
    }
}

static void add_gil(struct finding *f, const struct stack *stack, const struct lwp *lwp,
                    const struct gil *gil)
{
    const struct waits_origin *o = f->origin;
    const struct stack *holder = gil->locked ? walk_find(o->walk, gil->holder) : NULL;
    pid_t tid = holder ? moment_tid(o->target, o->lwps, holder) : 0;
    struct wait *wait = waits_add(f->waits, thread_actor(lwp->tid), "GIL");

    if (!wait)
        return;
    wait->address = gil->addr;
    set_place(&wait->place, stack);
    if (tid && tid != lwp->tid) {
        struct wait_holder *h = waits_add_holder(f->waits, thread_actor(tid), HELD_CERTAIN);
        if (h)
            set_place(&h->taken, holder);
    }
}

int waits_of_threads(struct waits *waits, const struct waits_origin *origin)
{
    struct finding f = {waits, origin};

    for (size_t i = 0; i < origin->walk->n && !waits->strings.error; i++) {
        const struct stack *stack = &origin->walk->stacks[i];
        pid_t tid = moment_tid(origin->target, origin->lwps, stack);
        const struct lwp *lwp = tid ? lwp_find(origin->lwps, tid) : NULL;
        if (!lwp || lwp->state == 'R' || (lwp->syscall != LWP_FUTEX && lwp->syscall != LWP_RESTART))
            continue;
        const struct gil *gil = gil_waited_for(&f, lwp);
        if (gil)
            add_gil(&f, stack, lwp, gil);
    }
    return 0;
}
