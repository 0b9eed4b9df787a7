/* What threads wait for.
 *
 * A thread that sleeps in a futex waits in the lock whose futex that is: an object that its
 * innermost Python frame has in one of its slots (lock.h). What that lock is a part of follows from
 * the frames of the standard library around it: Condition.wait() in Queue.get() is a wait for a
 * Queue. Who holds a lock is written in it (an RLock, a mutex of glibc), or is the thread that
 * stands in a with block of it; likely it is the only one that has called its acquire() in a
 * function that it still runs, and not its release(). */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/remote/frames/lock_calls.h"
#include "fs/remote/frames/slots.h"
#include "fs/remote/frames/with_blocks.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/thread_stack.h"
#include "fs/remote/waits/lock.h"
#include "fs/remote/waits/lock_name.h"
#include "fs/remote/waits/waits.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>

#define LOOKS_MAX 4096u  /* objects that are looked through for names, of all waits */
#define LIBRARY_MAX 64   /* frames of the standard library above a lock */
#define RELEASED_MAX 16u /* conditions that one thread waits for: a nested loop's */
#define HOLDS_MAX 16384u
#define STEPS_MAX (1u << 21) /* instructions that are looked at for calls of locks */
#define MODULE_NAME_MAX 128u /* code points */

/* A kernel thread with its Python stack. */
struct waiter {
    const struct lwp *lwp;
    struct thread_stack python; /* n is 0: it runs no Python */
    uint64_t thread_id;         /* pthread_t, or 0 */
    bool torn;

    /* what it waits for */
    enum { WAITS_FOR_NOTHING, WAITS_FOR_LOCK, WAITS_FOR_GIL, WAITS_FOR_MUTEX } what;
    uint64_t object; /* that it waits for in the program's eyes: a Queue, say */
    enum lock_class class;
    uint64_t lock; /* that it sleeps in: a lock of C */
    enum lock_class lock_class;
    const char *call;
    size_t place;       /* the frame of the program that waits */
    uint64_t holder_id; /* pthread_t of who holds it; 0: not known that way */
    pid_t holder_tid;   /* the same as the kernel's inner number */
    const struct gil *gil;

    uint64_t future; /* that it runs, once futures_known; 0: none */
};

/* A thread in the block of a with statement, or behind a call of acquire(). */
struct hold {
    uint64_t lock; /* of C, or a Semaphore */
    size_t waiter;
    enum certainty certainty;
    struct raw_frame frame;
    int32_t at;
};

struct finding {
    struct waits *waits;
    const struct waits_origin *origin;
    struct view *view;
    const struct offsets *offsets;
    struct lock_cache classes;
    struct waiter *items; /* by tid */
    size_t n;
    struct hold *holds;
    size_t nholds, holds_alloc;
    unsigned looks;
    struct lock_calls_work calls;
    uint32_t entries; /* with_blocks.h */
    bool futures_known;
    bool cut; /* not all that the threads hold was found */
};

static struct actor thread_actor(pid_t tid)
{
    return (struct actor){.kind = ACTOR_THREAD, .id = tid};
}

static enum lock_class class_of(struct finding *f, uint64_t object)
{
    return lock_classify(f->view, f->offsets, &f->classes, object);
}

static uint64_t attribute(struct finding *f, uint64_t object, const char *name)
{
    uint64_t value;
    return instance_attribute(f->view, f->offsets, object, name, &value) == 0 ? value : 0;
}

static int64_t int_attribute(struct finding *f, uint64_t object, const char *name)
{
    uint64_t value = attribute(f, object, name);
    int64_t number;
    return value && int_to_i64(f->view, f->offsets, value, &number) == 0 ? number : 0;
}

/* ---- threads ---- */

static int by_tid(const void *a, const void *b)
{
    const struct stack *const *x = a, *const *y = b;
    return (*x)->tid != (*y)->tid ? ((*x)->tid < (*y)->tid ? -1 : 1) : *x < *y ? -1 : *x > *y;
}

/* Makes a waiter for each lwp. */
static int collect_threads(struct finding *f)
{
    const struct waits_origin *o = f->origin;
    size_t n = o->walk->n, at = 0;
    _cleanup_free_ const struct stack **stacks = calloc(n + 1, sizeof *stacks);
    int r = 0;

    f->items = calloc(o->lwps->n + 1, sizeof *f->items);
    if (!f->items || !stacks)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        o->walk->stacks[i].tid = moment_tid(o->target, o->lwps, &o->walk->stacks[i]);
        stacks[i] = &o->walk->stacks[i];
    }
    qsort(stacks, n, sizeof *stacks, by_tid);
    for (size_t i = 0; i < o->lwps->n && r == 0; i++) {
        struct waiter *w = &f->items[f->n++];
        w->lwp = &o->lwps->items[i];
        while (at < n && stacks[at]->tid < w->lwp->tid)
            at++;
        size_t from = at;
        while (at < n && stacks[at]->tid == w->lwp->tid)
            at++;
        r = thread_stack_collect(stacks + from, at - from, &w->python);
        w->torn = w->python.torn;
        w->thread_id = w->python.top ? w->python.top->thread_id : 0;
    }
    return r;
}

static bool sleeps_in_futex(const struct waiter *w)
{
    return w->lwp->state != 'R' && (w->lwp->syscall == LWP_FUTEX || w->lwp->syscall == LWP_RESTART);
}

static struct waiter *find_thread(struct finding *f, uint64_t thread_id)
{
    for (size_t i = 0; thread_id && i < f->n; i++)
        if (f->items[i].thread_id == thread_id)
            return &f->items[i];
    return NULL;
}

/* ---- the library's frames ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* Whether the frame is of a part of the standard library that is made of locks. */
static bool is_library(const struct raw_frame *frame)
{
    static const char *const files[] = {
        "/threading.py",
        "/queue.py",
        "/concurrent/futures/_base.py",
        "/multiprocessing/synchronize.py",
        "/multiprocessing/queues.py",
        "<frozen importlib._bootstrap>",
        "<frozen importlib._bootstrap_external>",
    };

    if (!frame->info || frame->info->state != CODE_LOADED)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (ends_with(frame->info->file, files[i]))
            return true;
    return false;
}

/* The last part of the function's name. */
static const char *function_of(const struct raw_frame *frame)
{
    const char *dot = strrchr(frame->info->name, '.');
    return dot ? dot + 1 : frame->info->name;
}

/* Whether a thread's function is called from here: what it calls by itself isn't the library's. */
static bool begins_thread(const char *function)
{
    return !strcmp(function, "run") || !strcmp(function, "_bootstrap") ||
           !strcmp(function, "_bootstrap_inner");
}

/* The name of a method as it is called, kept for good; NULL: none of those that wait. */
static const char *call_of(const char *function)
{
    static const char *const calls[] = {
        "acquire", "wait", "wait_for", "get", "put", "join", "result", "exception",
    };

    if (!strcmp(function, "__enter__"))
        return "acquire";
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (!strcmp(function, calls[i]))
            return calls[i];
    return NULL;
}

/* The first argument: of a method, whose it is. */
static uint64_t self_of(struct finding *f, const struct raw_frame *frame)
{
    struct frame_slots slots;

    if (frame_slots_find(f->view, f->offsets, frame, &slots) < 0)
        return 0;
    return frame_variable(f->view, f->offsets, &slots, 0);
}

/* The lock of C behind what a with statement enters, or whose acquire() was called; 0: none. A
 * Condition's own lock is no Condition. */
static uint64_t lock_behind(struct finding *f, uint64_t object, enum lock_class class)
{
    switch (class) {
    case LOCK_LOCK:
    case LOCK_RLOCK:
    case LOCK_SEMAPHORE: /* as itself: with blocks hold what it counts */
    case LOCK_BOUNDED_SEMAPHORE: return object;
    case LOCK_CONDITION:
        object = attribute(f, object, "_lock");
        class = object ? class_of(f, object) : LOCK_NONE;
        return class == LOCK_CONDITION ? 0 : lock_behind(f, object, class);
    case LOCK_PY_RLOCK: return attribute(f, object, "_block");
    case LOCK_MP_LOCK:
    case LOCK_MP_RLOCK:
    case LOCK_MP_SEMAPHORE: return attribute(f, object, "_semlock");
    default: return 0;
    }
}

/* Goes outward from the lock of C to the frame of the program. */
static void climb(struct finding *f, struct waiter *w)
{
    const struct thread_stack *python = &w->python;
    size_t i = 0;

    for (; i < python->n && i < LIBRARY_MAX && is_library(&python->frames[i]); i++) {
        const char *function = function_of(&python->frames[i]);
        if (begins_thread(function))
            break;
        uint64_t self = self_of(f, &python->frames[i]);
        enum lock_class class = class_of(f, self);
        const char *call = call_of(function);
        if (!strcmp(function, "_shutdown")) { /* up to 3.12: a lock stands for a thread's end */
            w->object = 0;
            w->class = LOCK_THREAD;
            w->call = NULL;
        }
        if (class == LOCK_NONE || class == LOCK_WORK_ITEM)
            continue;
        /* once it was notified, it waits for the lock as in acquire() */
        if (class == LOCK_CONDITION && call && !strcmp(call, "wait") &&
            lock_behind(f, self, class) == w->lock)
            call = "acquire";
        if (call || class != w->class) {
            w->object = self;
            w->class = class;
            w->call = call;
        }
    }
    w->place = i < python->n ? i : i ? i - 1 : 0;
}

/* ---- what a thread waits for ---- */

static const struct gil *gil_waited_for(const struct finding *f, const struct lwp *lwp)
{
    const struct walk *walk = f->origin->walk;
    uint64_t size = (uint64_t)f->offsets->gil_size;

    for (size_t i = 0; i < walk->ngils; i++)
        if (lwp->args[0] - walk->gils[i].addr < size)
            return &walk->gils[i];
    return NULL;
}

/* An object of the frame, or that a method in it is bound to, in which the thread waits. */
static bool waits_in(struct finding *f, struct waiter *w, uint64_t object)
{
    struct object_class class;
    enum lock_class is = class_of(f, object);

    if (is == LOCK_NONE && object && object_classify(f->view, f->offsets, object, &class) == 0 &&
        class.kind == OBJECT_BUILTIN &&
        object_field(f->view, object, f->offsets->object_size + BUILTIN_SELF, &object))
        is = class_of(f, object);
    if (is == LOCK_NONE || is > LOCK_HANDLE ||
        !lock_is_waited(f->view, f->offsets, object, is, w->lwp->args[0]))
        return false;
    w->object = w->lock = object;
    w->class = w->lock_class = is;
    return true;
}

static bool find_lock(struct finding *f, struct waiter *w)
{
    struct frame_slots slots;

    if (!w->python.n || w->torn ||
        frame_slots_find(f->view, f->offsets, &w->python.frames[0], &slots) < 0)
        return false;
    /* what is on the evaluation stack is likelier to be it */
    for (uint32_t i = slots.n; i-- > 0;)
        if (waits_in(f, w, frame_slot(f->view, f->offsets, &slots, i)))
            return true;
    return false;
}

static void look_at_lock(struct finding *f, struct waiter *w)
{
    static const char *const calls[] = {
        [LOCK_LOCK] = "acquire",     [LOCK_RLOCK] = "acquire", [LOCK_SEMLOCK] = "acquire",
        [LOCK_SIMPLE_QUEUE] = "get", [LOCK_HANDLE] = "join",   [LOCK_THREAD] = "join",
    };

    w->what = WAITS_FOR_LOCK;
    w->call = calls[w->class];
    climb(f, w);
}

/* The interpreter's end, or Thread.join(), waits for a thread without an object for it. */
static bool find_joined(struct finding *f, struct waiter *w)
{
    if (!w->python.n || w->torn || !is_library(&w->python.frames[0]))
        return false;
    uint64_t joined = lock_joined_thread(f->view, f->offsets, w->lwp->args[0]);
    if (!find_thread(f, joined))
        return false;
    w->class = LOCK_THREAD;
    w->holder_id = joined;
    return true;
}

/* glibc's mutex: nptl/lowlevellock.c sleeps in FUTEX_WAIT for the value 2, nothing else of it does;
 * sysdeps/MACHINE/nptl/bits/struct_mutex.h, where these fields lie alike */
#define FUTEX_COMMAND 0x7fu
#define MUTEX_CONTENDED 2u
#define MUTEX_OWNER 8
#define MUTEX_USERS 12
#define MUTEX_SIZE 24

static bool find_mutex(struct finding *f, struct waiter *w)
{
    const struct lwp *lwp = w->lwp;

    if (lwp->syscall != LWP_FUTEX || (lwp->args[1] & FUTEX_COMMAND) != FUTEX_WAIT ||
        (uint32_t)lwp->args[2] != MUTEX_CONTENDED || lwp->args[3])
        return false;
    const uint8_t *mutex = view_read(f->view, lwp->args[0], MUTEX_SIZE);
    if (!mutex || load32(mutex) != MUTEX_CONTENDED)
        return false;
    /* another kind of lock of glibc has something else there */
    pid_t owner = (pid_t)load32(mutex + MUTEX_OWNER);
    const struct lwp *holder = owner > 0 ? lwp_find_inner(f->origin->lwps, owner) : NULL;
    w->holder_tid = holder && load32(mutex + MUTEX_USERS) ? holder->tid : 0;
    w->object = lwp->args[0];
    return true;
}

static void look_at(struct finding *f, struct waiter *w)
{
    if (!sleeps_in_futex(w))
        return;
    w->gil = gil_waited_for(f, w->lwp);
    if (w->gil)
        w->what = WAITS_FOR_GIL;
    else if (find_lock(f, w) || find_joined(f, w))
        look_at_lock(f, w);
    else if (find_mutex(f, w))
        w->what = WAITS_FOR_MUTEX;
}

/* Copies what look_at() begins with, of all threads at once. */
static void prefetch(struct finding *f)
{
    struct frame_slots slots;
    uint64_t objects[64];
    const uint8_t *p;

    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < f->n; i++) {
            struct waiter *w = &f->items[i];
            if (!w->python.n || !sleeps_in_futex(w) ||
                frame_slots_find(f->view, f->offsets, &w->python.frames[0], &slots) < 0)
                continue;
            size_t n = 0;
            if (view_get(f->view, slots.addr, 8 * slots.n, &p) == 0)
                for (uint32_t k = slots.n; k-- > 0 && n < ARRAY_SIZE(objects);)
                    objects[n++] = frame_slot(f->view, f->offsets, &slots, k);
            objects_queue(f->view, f->offsets, objects, n);
        }
        (void)view_fill(f->view);
    }
}

/* ---- who holds a lock ---- */

/* A look at the frames of a thread, innermost first. */
struct looking_at_frame {
    struct finding *f;
    const struct raw_frame *frame;
    size_t waiter;
    struct lock_calls calls;         /* none, but where they are wanted */
    uint64_t released[RELEASED_MAX]; /* locks that an inner frame has given back ... */
    size_t nreleased;
    uint64_t doubtful[RELEASED_MAX]; /* ... or may have */
    size_t ndoubtful;
};

static bool is_among(const uint64_t *locks, size_t n, uint64_t lock)
{
    for (size_t i = 0; i < n; i++)
        if (locks[i] == lock)
            return true;
    return false;
}

static int add_hold(struct looking_at_frame *looking, uint64_t lock, enum certainty certainty,
                    int32_t at)
{
    struct finding *f = looking->f;

    if (f->nholds == HOLDS_MAX) {
        f->cut = true;
        return 0;
    }
    if (ARRAY_GROW(f->holds, f->holds_alloc, f->nholds + 1) < 0)
        return -ENOMEM;
    f->holds[f->nholds++] = (struct hold){lock, looking->waiter, certainty, *looking->frame, at};
    return 0;
}

static int visit_with_block(void *arg, uint64_t manager, bool async, int32_t at)
{
    struct looking_at_frame *looking = arg;
    struct finding *f = looking->f;
    enum certainty certainty = HELD_CERTAIN;

    if (async)
        return 0;
    uint64_t lock = lock_behind(f, manager, class_of(f, manager));
    if (!lock || is_among(looking->released, looking->nreleased, lock))
        return 0;
    if (looking->calls.n && at >= 0) {
        unsigned done = lock_calls_since(&looking->calls, lock, (uint32_t)at);
        if (done == LOCK_RELEASED)
            return 0;
        if (done != LOCK_UNTOUCHED)
            certainty = HELD_LIKELY;
    }
    if (looking->calls.unread || is_among(looking->doubtful, looking->ndoubtful, lock))
        certainty = HELD_LIKELY;
    return add_hold(looking, lock, certainty, at);
}

/* A thread in Condition.wait() doesn't hold the lock whose with block that stands in. */
static void note_released(struct looking_at_frame *looking)
{
    struct finding *f = looking->f;

    if (!is_library(looking->frame) || strcmp(function_of(looking->frame), "wait") ||
        looking->nreleased == RELEASED_MAX)
        return;
    uint64_t self = self_of(f, looking->frame);
    enum lock_class class = class_of(f, self);
    if (class == LOCK_CONDITION)
        looking->released[looking->nreleased++] = lock_behind(f, self, class);
}

/* The lock whose method was called, for its holder. Who calls a Semaphore's acquire() often leaves
 * release() to others: these have no holders. */
static uint64_t lock_called(void *arg, uint64_t object)
{
    struct finding *f = arg;
    uint64_t lock = lock_behind(f, object, class_of(f, object));
    enum lock_class class = class_of(f, lock);

    return class == LOCK_LOCK || class == LOCK_RLOCK ? lock : 0;
}

static int visit_lock(struct looking_at_frame *looking, uint64_t lock)
{
    int32_t at;
    unsigned done = lock_calls_of(&looking->calls, lock, &at);

    if (done == LOCK_ACQUIRED && !is_among(looking->released, looking->nreleased, lock) &&
        !is_among(looking->doubtful, looking->ndoubtful, lock))
        return add_hold(looking, lock, HELD_LIKELY, at);
    if (class_of(looking->f, lock) != LOCK_LOCK) /* an outer frame may have it as well */
        return 0;
    if (done == LOCK_RELEASED && looking->nreleased < RELEASED_MAX)
        looking->released[looking->nreleased++] = lock;
    else if (done & LOCK_RELEASED && looking->ndoubtful < RELEASED_MAX)
        looking->doubtful[looking->ndoubtful++] = lock;
    return 0;
}

/* Visits each lock of which the frame calls a method. */
static int visit_calls(struct looking_at_frame *looking)
{
    const struct lock_call *calls = looking->calls.items;
    int r = 0;

    for (size_t i = 0, first; i < looking->calls.n && r == 0; i++) {
        for (first = 0; calls[first].lock != calls[i].lock; first++)
            ;
        if (first == i && calls[i].lock)
            r = visit_lock(looking, calls[i].lock);
    }
    return r;
}

static int find_holds_in_frame(struct looking_at_frame *looking, bool calls)
{
    struct finding *f = looking->f;
    int r = 0;

    note_released(looking);
    if (calls && !is_library(looking->frame))
        r = lock_calls_read(f->view, f->offsets, looking->frame, lock_called, f, &f->calls,
                            &looking->calls);
    if (r != -ENOMEM)
        r = with_blocks_iterate(f->view, f->offsets, looking->frame, &f->entries, visit_with_block,
                                looking);
    if (r != -ENOMEM)
        r = visit_calls(looking);
    lock_calls_deinit(&looking->calls);
    looking->calls.n = 0;
    looking->calls.unread = false;
    return r;
}

/* calls: whether what acquire() and release() did is looked at, too. */
static int find_holds(struct finding *f, bool calls)
{
    int r = 0;

    for (size_t i = 0; i < f->n; i++)
        with_blocks_prefetch(f->view, f->offsets, f->items[i].python.frames, f->items[i].python.n);
    for (size_t i = 0; i < f->n && r != -ENOMEM; i++) {
        const struct thread_stack *python = &f->items[i].python;
        struct looking_at_frame looking = {.f = f, .waiter = i};
        for (size_t k = 0; k < python->n && r != -ENOMEM; k++) {
            looking.frame = &python->frames[k];
            r = find_holds_in_frame(&looking, calls && !f->items[i].torn);
        }
    }
    f->cut |= !f->entries || (calls && !f->calls.steps);
    if (f->waits)
        f->waits->cut |= f->cut;
    return r == -ENOMEM ? r : 0;
}

/* The outermost: there it took it. */
static const struct hold *find_hold(const struct finding *f, const struct waiter *of, uint64_t lock)
{
    for (size_t i = f->nholds; i-- > 0;)
        if (f->holds[i].lock == lock && &f->items[f->holds[i].waiter] == of)
            return &f->holds[i];
    return NULL;
}

static void set_place(struct wait_place *place, const struct raw_frame *frame, int32_t at)
{
    place->code = frame->info;
    place->lasti = at;
}

/* hold: its with block; NULL: it isn't known. */
static void add_holder_of(struct finding *f, const struct waiter *holder, const struct hold *hold,
                          enum certainty certainty)
{
    struct wait_holder *h = waits_add_holder(f->waits, thread_actor(holder->lwp->tid), certainty);
    if (h && hold && hold->at >= 0)
        set_place(&h->taken, &hold->frame, hold->at);
}

static void add_holder(struct finding *f, const struct waiter *holder, uint64_t lock,
                       enum certainty certainty)
{
    add_holder_of(f, holder, lock ? find_hold(f, holder, lock) : NULL, certainty);
}

static void add_gone(struct finding *f)
{
    (void)waits_add_holder(f->waits, (struct actor){.kind = ACTOR_GONE}, HELD_CERTAIN);
}

/* Adds a holder by the pthread_t that the lock keeps. */
static void add_owner(struct finding *f, const struct waiter *w, uint64_t owner, uint64_t lock)
{
    const struct waiter *holder = find_thread(f, owner);

    if (holder == w || !owner)
        return; /* it has just got it */
    if (holder)
        add_holder(f, holder, lock, HELD_CERTAIN);
    else if (f->origin->walk->cut || f->origin->lwps->cut)
        f->waits->items[f->waits->n - 1].note = "held by a thread beyond those that are read";
    else
        add_gone(f);
}

static int64_t count_holds(const struct finding *f, uint64_t lock)
{
    int64_t n = 0;

    for (size_t i = 0; i < f->nholds; i++)
        n += f->holds[i].lock == lock;
    return n;
}

/* False: nobody certainly stands in one. */
static bool add_with_blocks(struct finding *f, uint64_t lock, enum certainty certainty)
{
    bool found = false;

    for (size_t i = 0; i < f->nholds && f->waits->nholders < WAITS_MAX; i++) {
        if (f->holds[i].lock != lock || f->holds[i].certainty != HELD_CERTAIN)
            continue;
        add_holder_of(f, &f->items[f->holds[i].waiter], &f->holds[i], certainty);
        found = true;
    }
    f->waits->cut |= f->waits->nholders == WAITS_MAX;
    return found;
}

/* The thread that likely holds it: the only one of all of which something speaks for that. Not w:
 * one that waits for what it took itself often waits for another thread to give that back. */
static void add_likely(struct finding *f, const struct waiter *w)
{
    const struct waiter *holder = NULL;

    for (size_t i = 0; i < f->nholds; i++) {
        const struct waiter *of = &f->items[f->holds[i].waiter];
        if (f->holds[i].lock != w->lock)
            continue;
        if (holder && of != holder)
            return;
        holder = of;
    }
    if (holder && holder != w && !f->cut)
        add_holder(f, holder, w->lock, HELD_LIKELY);
}

/* The thread of a pool that runs what a Future stands for: in _WorkItem.run(). */
static uint64_t future_run(struct finding *f, const struct thread_stack *python)
{
    for (size_t k = 0; k < python->n; k++) {
        const struct raw_frame *frame = &python->frames[k];
        if (!frame->info || frame->info->state != CODE_LOADED ||
            strcmp(function_of(frame), "run") ||
            !ends_with(frame->info->file, "/concurrent/futures/thread.py"))
            continue;
        uint64_t self = self_of(f, frame);
        if (class_of(f, self) == LOCK_WORK_ITEM)
            return attribute(f, self, "future");
    }
    return 0;
}

static void add_worker(struct finding *f, uint64_t future)
{
    for (size_t i = 0; !f->futures_known && i < f->n; i++)
        f->items[i].future = future_run(f, &f->items[i].python);
    f->futures_known = true;
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].future == future)
            add_holder(f, &f->items[i], 0, HELD_CERTAIN);
}

/* The thread whose end a lock stands for (up to 3.12): its outermost frames are its Thread's. */
static void add_ending(struct finding *f, uint64_t lock)
{
    for (size_t i = 0; lock && i < f->n; i++) {
        const struct thread_stack *python = &f->items[i].python;
        if (!python->n)
            continue;
        uint64_t self = self_of(f, &python->frames[python->n - 1]);
        if (class_of(f, self) == LOCK_THREAD && attribute(f, self, "_tstate_lock") == lock) {
            add_holder(f, &f->items[i], 0, HELD_CERTAIN);
            return;
        }
    }
}

static void add_joined(struct finding *f, const struct waiter *w)
{
    uint64_t ident = w->holder_id;

    if (!ident && w->object)
        ident = (uint64_t)int_attribute(f, w->object, "_ident");
    const struct waiter *holder = find_thread(f, ident);
    if (holder && holder != w)
        add_holder(f, holder, 0, HELD_CERTAIN);
    else if (!w->object)
        add_ending(f, w->lock);
}

static bool is_acquired(const struct waiter *w) { return w->call && !strcmp(w->call, "acquire"); }

static void add_lock_holders(struct finding *f, const struct waiter *w)
{
    switch (w->class) {
    case LOCK_THREAD:
    case LOCK_HANDLE: add_joined(f, w); return;
    case LOCK_FUTURE: add_worker(f, w->object); return;
    case LOCK_MODULE: add_owner(f, w, (uint64_t)int_attribute(f, w->object, "owner"), 0); return;
    case LOCK_SEMAPHORE: /* others may have taken it without a with block */
        add_with_blocks(f, w->object, HELD_LIKELY);
        return;
    case LOCK_BOUNDED_SEMAPHORE: /* unless these are as many as there can be */
        add_with_blocks(f, w->object,
                        count_holds(f, w->object) == int_attribute(f, w->object, "_initial_value")
                            ? HELD_CERTAIN
                            : HELD_LIKELY);
        return;
    case LOCK_PY_RLOCK:
        add_owner(f, w, (uint64_t)int_attribute(f, w->object, "_owner"), w->lock);
        return;
    default: break;
    }
    if (w->lock_class == LOCK_RLOCK)
        add_owner(f, w, rlock_owner(f->view, f->offsets, w->lock), w->lock);
    else if (w->lock && !add_with_blocks(f, w->lock, HELD_CERTAIN))
        add_likely(f, w);
}

/* ---- the list ---- */

static uint32_t find_name(struct finding *f, const struct waiter *w)
{
    uint32_t name = waits_string_begin(f->waits);

    if (w->class == LOCK_MODULE) { /* it says itself of which module */
        uint64_t module = attribute(f, w->object, "name");
        bool said = module && str_decode(f->view, f->offsets, module, MODULE_NAME_MAX,
                                         &f->waits->strings) >= 0;
        waits_string_end(f->waits);
        return said ? name : 0;
    }
    bool found = lock_name_add(f->view, f->offsets, &w->python.frames[w->place], w->object,
                               &f->looks, &f->waits->strings);
    waits_string_end(f->waits);
    return found ? name : 0;
}

/* Many may wait for one. */
static uint32_t name_of(struct finding *f, const struct waiter *w)
{
    uint32_t name;

    if (waits_name_known(f->waits, w->object, &name))
        return name;
    name = find_name(f, w);
    waits_name_keep(f->waits, w->object, name);
    return name;
}

static void add_lock(struct finding *f, const struct waiter *w)
{
    struct wait *wait = waits_add(f->waits, thread_actor(w->lwp->tid), lock_class_name(w->class));

    if (!wait)
        return;
    wait->call = w->call;
    wait->address = w->object;
    wait->timed = w->lwp->args[3] != 0;
    set_place(&wait->place, &w->python.frames[w->place], w->python.frames[w->place].lasti);
    if (w->class == LOCK_THREAD || w->class == LOCK_HANDLE || w->class == LOCK_FUTURE)
        wait->held = "run by";
    if (w->object)
        wait->name = name_of(f, w);
    add_lock_holders(f, w);
}

static void add_gil(struct finding *f, const struct waiter *w)
{
    const struct waits_origin *o = f->origin;
    const struct stack *holder = w->gil->locked ? walk_find(o->walk, w->gil->holder) : NULL;
    struct wait *wait = waits_add(f->waits, thread_actor(w->lwp->tid), "GIL");

    if (!wait)
        return;
    wait->address = w->gil->addr;
    if (w->python.n)
        set_place(&wait->place, &w->python.frames[0], w->python.frames[0].lasti);
    if (!holder || !holder->tid || holder->tid == w->lwp->tid)
        return;
    (void)waits_add_holder(f->waits, thread_actor(holder->tid), HELD_CERTAIN);
}

static void add_mutex(struct finding *f, const struct waiter *w)
{
    struct wait *wait = waits_add(f->waits, thread_actor(w->lwp->tid), "mutex");

    if (!wait)
        return;
    wait->address = w->object;
    if (w->python.n)
        set_place(&wait->place, &w->python.frames[0], w->python.frames[0].lasti);
    if (w->holder_tid)
        (void)waits_add_holder(f->waits, thread_actor(w->holder_tid), HELD_CERTAIN);
}

/* Whether the with blocks of all threads have to be looked at. */
static bool wants_holds(const struct finding *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct waiter *w = &f->items[i];
        if (w->what == WAITS_FOR_LOCK && w->lock &&
            (is_acquired(w) || w->class == LOCK_QUEUE || w->class == LOCK_EVENT ||
             w->class == LOCK_FUTURE || w->class == LOCK_BARRIER))
            return true;
    }
    return false;
}

/* Whether what they call has to be looked at, too. */
static bool wants_calls(const struct finding *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].what == WAITS_FOR_LOCK && f->items[i].lock_class == LOCK_LOCK &&
            is_acquired(&f->items[i]))
            return true;
    return false;
}

static int find_waits(struct finding *f)
{
    int r = collect_threads(f);

    if (r < 0)
        return r;
    prefetch(f);
    for (size_t i = 0; i < f->n; i++)
        look_at(f, &f->items[i]);
    if (wants_holds(f))
        r = find_holds(f, wants_calls(f));
    for (size_t i = 0; i < f->n && r == 0 && !f->waits->strings.error; i++)
        switch (f->items[i].what) {
        case WAITS_FOR_NOTHING: break;
        case WAITS_FOR_LOCK: add_lock(f, &f->items[i]); break;
        case WAITS_FOR_GIL: add_gil(f, &f->items[i]); break;
        case WAITS_FOR_MUTEX: add_mutex(f, &f->items[i]); break;
        }
    return r;
}

static void finding_deinit(struct finding *f)
{
    for (size_t i = 0; i < f->n; i++)
        thread_stack_deinit(&f->items[i].python);
    free(f->items);
    free(f->holds);
}

int waits_of_threads(struct waits *waits, const struct waits_origin *origin)
{
    _cleanup_(finding_deinit) struct finding f = {
        .waits = waits,
        .origin = origin,
        .view = origin->target->view,
        .offsets = &origin->target->runtime.offsets,
        .looks = LOOKS_MAX,
        .calls.steps = STEPS_MAX,
        .entries = WITH_ENTRIES_MAX,
    };

    return find_waits(&f);
}

int waits_each_semlock(const struct waits_origin *origin, semlock_visit *visit, void *arg)
{
    _cleanup_(finding_deinit) struct finding f = {
        .origin = origin,
        .view = origin->target->view,
        .offsets = &origin->target->runtime.offsets,
        .entries = WITH_ENTRIES_MAX,
    };
    struct semlock lock;

    int r = collect_threads(&f);
    if (r == 0)
        r = find_holds(&f, false);
    for (size_t i = 0; i < f.nholds && r == 0; i++) {
        const struct hold *hold = &f.holds[i];
        const struct waiter *w = &f.items[hold->waiter];
        if (class_of(&f, hold->lock) == LOCK_SEMLOCK &&
            semlock_read(f.view, f.offsets, hold->lock, &lock) && lock.count > 0 &&
            lock.last == w->thread_id)
            r = visit(arg, &lock, w->lwp->tid, hold->frame.info, hold->at);
    }
    return r;
}
