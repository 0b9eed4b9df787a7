#include "fs/process/process.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/format/identity.h"
#include "fs/link/attach.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"
#include "fs/process/examiner.h"
#include "fs/process/facts.h"
#include "fs/remote/memory/core.h"
#include "fs/sampler/profile.h"
#include "fs/watch/follow.h"

#include <errno.h>
#include <string.h>

#define FACTS_FRESH_NS 1000000000u

struct process *process_ref(struct process *process)
{
    atomic_fetch_add(&process->refs, 1);
    return process;
}

void process_unref(struct process *process)
{
    if (!process || atomic_fetch_sub(&process->refs, 1) > 1)
        return;
    target_unref(process->target);
    recording_unref(process->recording);
    watches_free(process->watches);
    profile_free(process->profile);
    replies_deinit(&process->replies);
    error_ring_free(process->errors);
    facts_free(process->facts);
    pthread_mutex_destroy(&process->lock);
    free(process);
}

struct target *process_held(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->target ? target_ref(process->target) : NULL;
}

/* Finding the interpreter of a process that others have examined. */
struct finding {
    struct may_hang work;
    struct target *target; /* a reference */
    int error;
};

static void find(struct may_hang *work)
{
    struct finding *finding = (struct finding *)work;

    finding->error = target_find(finding->target);
}

static void finding_free(struct may_hang *work)
{
    target_unref(((struct finding *)work)->target);
    free(work);
}

static bool is_found(struct target *target)
{
    struct finding *finding = atomic_load(&target->found) ? NULL : calloc(1, sizeof *finding);

    if (!finding)
        return atomic_load(&target->found);
    finding->work = (struct may_hang){.pid = target->pid, .run = find, .free = finding_free};
    finding->target = target_ref(target);
    may_hang_init(&finding->work);
    bool found = may_hang_run(&finding->work, NULL) == 0 && finding->error == 0;
    may_hang_unref(&finding->work);
    return found;
}

struct target *process_target(struct process *process)
{
    struct target *target = process_held(process);

    if (!target || is_found(target))
        return target;
    target_unref(target);
    return NULL;
}

struct target *process_to_sample(struct process *process)
{
    struct target *target = process_held(process);

    if (!target || target->sampled_by)
        return target;
    target_unref(target);
    return process_target(process);
}

bool process_alive(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->target && target_alive(process->target);
}

static bool has_facts(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->facts;
}

/* What program it is, which doesn't change. */
static int identify(struct process *process, struct target *target, struct text *out)
{
    const struct examiner *examiner = process->examiner;

    if (has_facts(process))
        return 0;
    if (examiner)
        return examiner->identify(examiner->arg, process->pid, process->start_time, out);
    identity_program(target, out);
    return out->error;
}

/* Takes down what will be wanted when it has ended, anew when some time has passed: who may
 * look at it may have changed. */
static void learn(struct process *process, struct target *target)
{
    unsigned long long last = atomic_load(&process->learned), now = monotonic_ns();
    _cleanup_(text_deinit) struct text program = TEXT_INIT;
    struct facts *facts;

    if ((last && now - last < FACTS_FRESH_NS) ||
        !atomic_compare_exchange_strong(&process->learned, &last, now))
        return;
    if (identify(process, target, &program) < 0 ||
        facts_new(target, &program, process->rank, &facts) < 0) {
        atomic_store(&process->learned, 0);
        return;
    }
    _guard_mutex_(&process->lock);
    if (process->facts && !process->ended)
        facts_merge_access(&process->facts->access, &facts->access);
    else if (!process->ended)
        process->facts = steal_pointer(facts);
    facts_free(facts);
}

/* Who reads the process has looked for an agent; NULL: there is none. */
static void tell_agent(struct process *process, struct target *target,
                       const struct found_agent *agent)
{
    recording_tell_agent(process->recording, agent);
    if (agent)
        agent_tell(target, agent);
}

struct watching {
    struct may_hang work;
    struct process *process; /* a reference */
};

/* Whether its agent is known by now, or there may be one. Who reads the process looks for it. */
static bool look_for_agent(struct process *process, struct target *target)
{
    struct examined now;

    if (!process->examiner || !recording_wants_agent(process->recording))
        return true;
    int r = process->examiner->examine(process->examiner->arg, process->pid, process->start_time,
                                       false, &now);
    bool is_there = r == 0 && now.agent.record_addr;
    tell_agent(process, target, is_there ? &now.agent : NULL);
    if (r == -ETIMEDOUT || r == -EAGAIN || r == -EIO) /* nobody has looked */
        recording_expect(process->recording, false);
    return is_there;
}

static void watch(struct may_hang *work)
{
    struct process *process = ((struct watching *)work)->process;
    struct target *target = process_held(process);

    if (!target)
        return;
    if (look_for_agent(process, target))
        recording_refresh(process->recording, target);
    if (recording_any(process->recording) || profile_any(process->profile))
        learn(process, target);
    target_unref(target);
}

static void watching_free(struct may_hang *work)
{
    process_unref(((struct watching *)work)->process);
    free(work);
}

bool process_watch(struct process *process)
{
    bool any = recording_any(process->recording) || profile_any(process->profile);
    if (!any && !recording_due(process->recording))
        return false;
    struct watching *watching = calloc(1, sizeof *watching);
    if (!watching)
        return any;
    watching->work = (struct may_hang){.pid = process->pid, .run = watch, .free = watching_free};
    watching->process = process_ref(process);
    may_hang_init(&watching->work);
    may_hang_run(&watching->work, NULL);
    may_hang_unref(&watching->work);
    return recording_any(process->recording) || profile_any(process->profile);
}

bool process_end(struct process *process)
{
    struct target *target;
    {
        _guard_mutex_(&process->lock);
        if (process->ended)
            return false;
        process->ended = true;
        target = steal_pointer(process->target);
        ending_see(process->pid, process->start_time, target ? target->pidfd : -1,
                   &process->ending);
        if (target && target_alive(target))
            process->ending.how = ENDING_EXECUTED;
    }
    profile_end(process->profile);
    target_unref(target);
    replies_clear(&process->replies);
    return process->facts && (recording_any(process->recording) || profile_any(process->profile));
}

bool process_ended(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->ended;
}

bool process_left(struct process *process, struct access_target *out)
{
    _guard_mutex_(&process->lock);
    if (!process->ended || !process->facts)
        return false;
    *out = process->facts->access;
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *x = *(struct process *const *)a, *y = *(struct process *const *)b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

void process_list_deinit(struct process_list *list)
{
    while (list->n)
        process_unref(list->items[--list->n]);
    free(list->items);
    *list = (struct process_list){0};
}

void process_list_sort(struct process_list *list)
{
    if (list->n)
        array_sort(list->items, list->n, sizeof *list->items, by_pid);
}

struct membership process_membership(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->membership;
}

bool process_is_worker(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->told ? process->worker : process->membership.inherited;
}

bool process_is_told(struct process *process)
{
    _guard_mutex_(&process->lock);
    return process->told;
}

void process_tell(struct process *process, const struct membership *membership, bool is_worker)
{
    _guard_mutex_(&process->lock);
    process->membership = *membership;
    process->worker = is_worker;
    process->told = true;
    atomic_store(&process->rank, membership->rank);
}

/* What its watches know of their owner. */
static void owner_ref(void *of) { process_ref(of); }
static void owner_unref(void *of) { process_unref(of); }
static struct target *owner_target(void *of) { return process_held(of); }

static int new_watches(struct process *process)
{
    const struct watches_owner owner = {
        .of = process,
        .ref = owner_ref,
        .unref = owner_unref,
        .target = owner_target,
    };

    return watches_new(&owner, &process->watches);
}

static struct timespec began(uint64_t start_time)
{
    double started, uptime;

    proc_started(start_time, &started, &uptime);
    return timespec_of((uint64_t)(started * 1e9));
}

static struct process *new_process(void)
{
    struct process *process = calloc(1, sizeof *process);
    if (!process)
        return NULL;
    atomic_init(&process->refs, 1);
    pthread_mutex_init(&process->lock, NULL);
    replies_init(&process->replies);
    return process;
}

/* Takes over the target. */
static int new_living(struct target *target, struct process **out)
{
    struct process *process = new_process();
    if (!process) {
        target_unref(target);
        return -ENOMEM;
    }
    process->pid = target->pid;
    process->target = target;
    int r = recording_new(&process->recording);
    if (r == 0)
        r = profile_new(process->pid, &process->profile);
    if (r == 0)
        r = new_watches(process);
    if (r < 0) {
        process_unref(process);
        return r;
    }
    process->start_time = target->start_time;
    process->started = began(process->start_time);
    *out = process;
    return 0;
}

static void begin_membership(struct process *process, const struct membership *of)
{
    process->membership = *of;
    atomic_store(&process->rank, of->rank);
}

int process_new(pid_t pid, struct process **out)
{
    struct membership membership;
    struct target *target;

    int r = target_open(pid, &target);
    if (r == 0)
        r = new_living(target, out);
    if (r < 0)
        return r;
    membership_of_start(pid, &membership);
    begin_membership(*out, &membership);
    return 0;
}

static int copy_rings(void *of, struct ring_copy *copies, size_t n, struct text *answer)
{
    struct process *process = of;

    return process->examiner->rings(process->examiner->arg, process, copies, n, answer);
}

int process_new_examined(pid_t pid, const struct examiner *examiner,
                         const struct examined *examined, struct process **out)
{
    struct target *target;

    int r = target_hold(pid, &target);
    if (r < 0)
        return r;
    target->attacher = examiner->attacher;
    target->sampled_by = examiner->sampled_by;
    r = new_living(target, out);
    if (r < 0)
        return r;
    (*out)->examiner = examiner;
    recording_decode_by((*out)->recording, &(struct ring_decoder){copy_rings, *out});
    tell_agent(*out, target, examined->agent.record_addr ? &examined->agent : NULL);
    begin_membership(*out, &examined->membership);
    return 0;
}

/* Facts that say who may look at a core file: its owner, as if it were a process of that user. */
static int new_owner(const struct core *core, const struct user_ns *ns, struct facts **out)
{
    struct facts *facts = calloc(1, sizeof *facts);
    if (!facts)
        return -ENOMEM;
    for (int i = 0; i < 3; i++) {
        facts->access.uid[i] = core->stat.st_uid;
        facts->access.gid[i] = core->stat.st_gid;
    }
    facts->access.dumpable = true;
    facts->access.ns[0] = *ns;
    facts->access.nns = 1;
    *out = facts;
    return 0;
}

int process_new_core(struct core *core, unsigned number, const struct user_ns *ns,
                     const struct examiner *examiner, struct process **out)
{
    struct process *process = new_process();
    if (!process) {
        core_free(core);
        return -ENOMEM;
    }
    process->rank = -1;
    process->examiner = examiner;
    process->ended = true;
    process->started = process->ending.when = core->stat.st_mtim;
    int r = new_owner(core, ns, &process->facts);
    if (r < 0)
        core_free(core);
    else
        r = examiner ? target_hold_core(core, number, &process->target)
                     : target_open_core(core, number, &process->target);
    if (r == 0)
        r = recording_new(&process->recording);
    if (r == 0)
        r = profile_new(process->target->pid, &process->profile); /* which stays empty */
    if (r < 0) {
        process_unref(process);
        return r;
    }
    process->pid = process->target->pid;
    *out = process;
    return 0;
}

pid_t process_number(const struct process *process)
{
    return process_is_core(process) ? target_number(process->target) : process->pid;
}
