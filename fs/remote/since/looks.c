#include "fs/remote/since/looks.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/proc/may_hang.h"
#include "fs/remote/since/since.h"

static struct {
    pthread_mutex_t lock;
    bool running; /* the thread that looks */
    struct asked {
        struct target *target; /* a reference */
        uint64_t ns;           /* when somebody asked last, CLOCK_MONOTONIC */
    } items[SINCE_PROCESSES_MAX];
    size_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct look {
    struct may_hang work;
    struct target *target; /* a reference */
};

static void look_run(struct may_hang *work)
{
    struct target *target = ((struct look *)work)->target;

    if (target_same_program(target))
        since_look(target);
}

static void look_free(struct may_hang *work)
{
    target_unref(((struct look *)work)->target);
    free(work);
}

/* NULL: not this time. */
static struct may_hang *look_start(struct target *target)
{
    struct look *look = calloc(1, sizeof *look);
    if (!look)
        return NULL;
    look->work = (struct may_hang){.pid = target->pid, .run = look_run, .free = look_free};
    look->target = target_ref(target);
    may_hang_init(&look->work);
    if (may_hang_start(&look->work) == 0)
        return &look->work;
    may_hang_unref(&look->work);
    return NULL;
}

/* Lists the targets that are still asked about, with references; the others are let go. False: none
 * is left, and the thread ends. */
static bool list_asked(struct target **out, size_t *n)
{
    struct target *gone[SINCE_PROCESSES_MAX];
    uint64_t now = monotonic_ns();
    size_t ngone = 0, left = 0;

    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < all.n; i++) {
        struct asked *asked = &all.items[i];
        if (now > asked->ns + SINCE_KEPT_NS || !target_alive(asked->target)) {
            gone[ngone++] = asked->target;
            continue;
        }
        out[left] = target_ref(asked->target);
        all.items[left++] = *asked;
    }
    all.n = *n = left;
    all.running = left > 0;
    pthread_mutex_unlock(&all.lock);
    while (ngone)
        target_unref(gone[--ngone]);
    return left > 0;
}

static void *looks_main(void *arg)
{
    struct target *targets[SINCE_PROCESSES_MAX];
    size_t n;

    for (;;) {
        struct may_hang *works[SINCE_PROCESSES_MAX];
        nap_ns(SINCE_LOOK_NS);
        if (!list_asked(targets, &n))
            return NULL;
        for (size_t i = 0; i < n; i++)
            works[i] = look_start(targets[i]);
        may_hang_wait_all(works, n);
        for (size_t i = 0; i < n; i++) {
            may_hang_unref(works[i]);
            target_unref(targets[i]);
        }
    }
}

/* The entry of a target, or the one that was asked about longest ago. With the lock. */
static struct asked *find(const struct target *target)
{
    struct asked *oldest = &all.items[0];

    for (size_t i = 0; i < all.n; i++) {
        if (all.items[i].target == target)
            return &all.items[i];
        if (all.items[i].ns < oldest->ns)
            oldest = &all.items[i];
    }
    return all.n < SINCE_PROCESSES_MAX ? &all.items[all.n] : oldest;
}

void looks_ask(struct target *target)
{
    struct target *other = NULL;
    pthread_t thread;
    {
        _guard_mutex_(&all.lock);
        struct asked *asked = find(target);
        if (asked == &all.items[all.n])
            *asked = (struct asked){0}, all.n++;
        if (asked->target != target) {
            other = asked->target;
            asked->target = target_ref(target);
        }
        asked->ns = monotonic_ns();
        if (!all.running && worker_start(looks_main, NULL, "probefs-since", &thread) == 0) {
            all.running = true;
            pthread_detach(thread);
        }
    }
    target_unref(other);
}
