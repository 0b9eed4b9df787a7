/* What asyncio tasks wait for. From CPython 3.12 on: in older ones tasks aren't found (tasks.h).
 *
 * The coroutine that a task stands in says it: a method of asyncio.locks or asyncio.queues awaits
 * nothing but its own object's turn, and what that is a part of follows from the frames of asyncio
 * around it, as in waits_threads.c. Where the program's code itself awaits, it waits for tasks, or
 * for a future. Waits for time, and for input and output, are none of these.
 *
 * asyncio's locks don't say who holds them: it is the task that stands in an `async with` block of
 * it. Who has called acquire() without one isn't known. */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/frames/slots.h"
#include "fs/remote/frames/with_blocks.h"
#include "fs/remote/tasks/tasks.h"
#include "fs/remote/waits/lock.h"
#include "fs/remote/waits/lock_name.h"
#include "fs/remote/waits/waits.h"

#include <errno.h>
#include <string.h>

#define LOOKS_MAX 4096u /* objects that are looked through for names, of all waits */
#define FILES 64        /* code objects whose file is remembered */
#define FILE_MAX 512    /* code points of a file's name that are looked at */
#define HOLDS_MAX 16384u
#define AWAITED_MAX 16u /* tasks that one awaits, of which each is a wait */

enum library { NO_LIBRARY, ASYNCIO_OTHER, ASYNCIO_LOCKS, ASYNCIO_TASKS };

/* A task in the block of an `async with`. */
struct hold {
    uint64_t lock;
    uint32_t task;
    struct raw_frame frame;
    int32_t at;
    uint32_t next; /* of that lock; ADDRESSES_NONE: it is the last */
};

struct finding {
    struct waits *waits;
    const struct waits_origin *origin;
    const struct tasks *tasks;
    struct view *view;
    const struct offsets *offsets;
    struct lock_cache classes;
    struct {
        uint64_t code;
        enum library library;
    } files[FILES];
    struct hold *holds;
    size_t nholds, holds_alloc;
    struct addresses first_holds; /* by lock */
    uint32_t *first_edge,
        *next_edge; /* of a task, and behind an edge of the same awaiter: index + 1 */
    bool *timed;    /* of a task */
    unsigned looks;
    uint32_t entries; /* with_blocks.h */
};

/* A task's frames, innermost first. */
struct frames {
    struct raw_frame items[TASK_FRAMES_MAX];
    size_t n;
};

/* What a task waits for. */
struct waiting {
    uint64_t object; /* 0: a future, or nothing that is told */
    enum lock_class class;
    uint64_t lock; /* the Lock that is behind a Condition, or the object itself */
    const char *call;
    size_t place; /* the frame of the program that waits */
};

static enum lock_class class_of(struct finding *f, uint64_t object)
{
    return object ? lock_classify(f->view, f->offsets, &f->classes, object) : LOCK_NONE;
}

static struct actor task_actor(struct finding *f, uint32_t t)
{
    const struct task *task = &f->tasks->items[t];
    struct actor actor = {.kind = ACTOR_TASK, .task = task->addr};

    if (task->loop != TASKS_NONE)
        actor.id = f->tasks->loops[task->loop].tid;
    actor.name = waits_string_begin(f->waits);
    text_puts(&f->waits->strings, tasks_string(f->tasks, task->name));
    waits_string_end(f->waits);
    return actor;
}

static void collect_frames(const struct tasks *tasks, const struct task *task, struct frames *out)
{
    uint32_t f = task->frames;

    out->n = 0;
    if (task->cut || task->torn)
        return;
    for (size_t i = task->nframes; i-- > 0 && f != TASKS_NONE; f = tasks->frames[f].next) {
        const struct task_frame *frame = &tasks->frames[f];
        out->items[i] = (struct raw_frame){.addr = frame->addr,
                                           .code = frame->code,
                                           .lasti = frame->lasti,
                                           .of_generator = true,
                                           .info = frame->info};
    }
    out->n = task->nframes;
}

/* ---- asyncio's frames ---- */

/* Tells a library by the file of its code: names of code objects aren't loaded yet. */
static enum library read_library(struct finding *f, uint64_t code)
{
    static const struct {
        const char *file;
        enum library library;
    } known[] = {
        {"locks.py", ASYNCIO_LOCKS}, {"queues.py", ASYNCIO_LOCKS},     {"mixins.py", ASYNCIO_LOCKS},
        {"tasks.py", ASYNCIO_TASKS}, {"taskgroups.py", ASYNCIO_TASKS},
    };
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    uint64_t file;

    if (!object_field(f->view, code, f->offsets->code_filename, &file) ||
        str_decode(f->view, f->offsets, file, FILE_MAX, &text) != 0 || !text.data)
        return NO_LIBRARY;
    const char *base = strrchr(text.data, '/');
    const size_t folder = strlen("/asyncio");
    if (!base || (size_t)(base - text.data) < folder ||
        memcmp(base - folder, "/asyncio", folder) != 0)
        return NO_LIBRARY;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (!strcmp(base + 1, known[i].file))
            return known[i].library;
    return ASYNCIO_OTHER;
}

static enum library library_of(struct finding *f, const struct raw_frame *frame)
{
    size_t slot = (frame->code >> 4) % FILES;

    if (f->files[slot].code != frame->code) {
        f->files[slot].library = read_library(f, frame->code);
        f->files[slot].code = frame->code;
    }
    return f->files[slot].library;
}

static bool is_function(struct finding *f, const struct raw_frame *frame, const char *name)
{
    uint64_t str;

    return object_field(f->view, frame->code, f->offsets->code_name, &str) &&
           str_equals(f->view, f->offsets, str, name);
}

/* The name of a method as it is called, kept for good; NULL: none of those that wait. */
static const char *call_of(struct finding *f, const struct raw_frame *frame)
{
    static const char *const calls[] = {"acquire", "wait", "wait_for", "get", "put", "join"};

    if (is_function(f, frame, "__aenter__"))
        return "acquire";
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (is_function(f, frame, calls[i]))
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

/* The Lock or Semaphore behind what an `async with` enters; 0: none. */
static uint64_t lock_behind(struct finding *f, uint64_t object)
{
    uint64_t lock;

    switch (class_of(f, object)) {
    case LOCK_AIO_LOCK:
    case LOCK_AIO_SEMAPHORE:
    case LOCK_AIO_BOUNDED_SEMAPHORE: return object;
    case LOCK_AIO_CONDITION:
        return instance_attribute(f->view, f->offsets, object, "_lock", &lock) == 0 ? lock : 0;
    default: return 0;
    }
}

/* Goes outward to the frame of the program. */
static void climb(struct finding *f, const struct frames *frames, struct waiting *w)
{
    size_t i = 0;

    for (; i < frames->n && library_of(f, &frames->items[i]) != NO_LIBRARY; i++) {
        const struct raw_frame *frame = &frames->items[i];
        const char *call = call_of(f, frame);
        uint64_t self = library_of(f, frame) == ASYNCIO_LOCKS ? self_of(f, frame) : 0;
        enum lock_class class = class_of(f, self);
        if (class < LOCK_AIO_LOCK || (i && !w->object))
            continue;
        if (!i)
            w->lock = self;
        /* once it was notified, it waits for the lock as in acquire() */
        if (i && class == LOCK_AIO_CONDITION && lock_behind(f, self) == w->lock)
            call = "acquire";
        if (call || class != w->class) {
            w->object = self;
            w->class = class;
            w->call = class == LOCK_AIO_BARRIER ? "wait" : call;
        }
    }
    w->place = i < frames->n ? i : i ? i - 1 : 0;
}

/* ---- who holds a lock ---- */

struct looking_at_frame {
    struct finding *f;
    const struct raw_frame *frame;
    uint32_t task;
    uint64_t released; /* a task in Condition.wait() doesn't hold the lock whose block that is in */
};

/* A timeout that has a time. */
static bool ends_by_itself(struct finding *f, uint64_t manager)
{
    struct object_class class;
    uint64_t when;

    return class_of(f, manager) == LOCK_AIO_TIMEOUT &&
           instance_attribute(f->view, f->offsets, manager, "_when", &when) == 0 &&
           object_classify(f->view, f->offsets, when, &class) == 0 && class.kind != OBJECT_NONE;
}

static int add_hold(void *arg, uint64_t manager, bool async, int32_t at)
{
    struct looking_at_frame *looking = arg;
    struct finding *f = looking->f;
    uint64_t lock = async ? lock_behind(f, manager) : 0;

    if (async && ends_by_itself(f, manager))
        f->timed[looking->task] = true;

    if (!lock || lock == looking->released || f->nholds == HOLDS_MAX)
        return 0;
    if (ARRAY_GROW(f->holds, f->holds_alloc, f->nholds + 1) < 0)
        return -ENOMEM;
    f->holds[f->nholds++] = (struct hold){lock, looking->task, *looking->frame, at, ADDRESSES_NONE};
    return 0;
}

static int find_holds_of(struct finding *f, uint32_t t, const struct frames *frames)
{
    struct looking_at_frame looking = {.f = f, .task = t};
    int r = 0;

    with_blocks_prefetch(f->view, f->offsets, frames->items, frames->n);
    for (size_t i = 0; i < frames->n && r != -ENOMEM; i++) {
        looking.frame = &frames->items[i];
        if (library_of(f, looking.frame) == ASYNCIO_LOCKS &&
            is_function(f, looking.frame, "wait") &&
            class_of(f, self_of(f, looking.frame)) == LOCK_AIO_CONDITION)
            looking.released = lock_behind(f, self_of(f, looking.frame));
        r = with_blocks_iterate(f->view, f->offsets, looking.frame, &f->entries, add_hold,
                                &looking);
    }
    return r == -ENOMEM ? r : 0;
}

static int find_holds(struct finding *f)
{
    struct frames frames;
    int r = 0;

    for (uint32_t t = 0; t < f->tasks->n && r == 0; t++) {
        if (f->tasks->items[t].state == TASK_UNREADABLE)
            continue;
        collect_frames(f->tasks, &f->tasks->items[t], &frames);
        r = find_holds_of(f, t, &frames);
    }
    f->waits->cut |= !f->entries;
    for (size_t i = f->nholds; i-- > 0 && r == 0;) { /* in the order in which they were found */
        f->holds[i].next = addresses_find(&f->first_holds, f->holds[i].lock);
        r = addresses_set(&f->first_holds, f->holds[i].lock, (uint32_t)i);
    }
    return r;
}

static void add_holders(struct finding *f, const struct waiting *w)
{
    bool counts = w->class == LOCK_AIO_SEMAPHORE || w->class == LOCK_AIO_BOUNDED_SEMAPHORE;

    for (uint32_t i = addresses_find(&f->first_holds, w->lock);
         i != ADDRESSES_NONE && f->waits->nholders < WAITS_MAX; i = f->holds[i].next) {
        struct actor who = task_actor(f, f->holds[i].task);
        struct wait_holder *holder =
            waits_add_holder(f->waits, who, counts ? HELD_LIKELY : HELD_CERTAIN);
        if (!holder)
            return;
        holder->taken.code = f->holds[i].at >= 0 ? f->holds[i].frame.info : NULL;
        holder->taken.lasti = f->holds[i].at;
    }
    f->waits->cut |= f->waits->nholders == WAITS_MAX;
}

/* ---- the list ---- */

static uint32_t name_of(struct finding *f, const struct raw_frame *frame, uint64_t object)
{
    uint32_t name;

    if (waits_name_known(f->waits, object, &name)) /* many wait for one queue */
        return name;
    name = waits_string_begin(f->waits);
    bool found = lock_name_add(f->view, f->offsets, frame, object, &f->looks, &f->waits->strings);
    waits_string_end(f->waits);
    name = found ? name : 0;
    waits_name_keep(f->waits, object, name);
    return name;
}

static struct wait *add_wait(struct finding *f, uint32_t t, const struct raw_frame *frame,
                             const char *kind, uint64_t address)
{
    struct actor who = task_actor(f, t);
    struct wait *wait = waits_add(f->waits, who, kind);

    if (wait) {
        wait->address = address;
        wait->timed = f->timed[t];
        wait->place.code = frame->info;
        wait->place.lasti = frame->lasti;
    }
    return wait;
}

/* Whether it awaits tasks, of which each that is known is a wait. */
static bool add_tasks(struct finding *f, uint32_t t, const struct raw_frame *frame)
{
    uint32_t added[AWAITED_MAX];
    size_t n = 0;

    for (uint32_t i = f->first_edge[t]; i && n < AWAITED_MAX; i = f->next_edge[i - 1]) {
        uint32_t awaited = f->tasks->edges[i - 1].task;
        size_t k = 0;
        while (k < n && added[k] != awaited)
            k++;
        if (k < n) /* it was found in two ways */
            continue;
        added[n++] = awaited;
        struct actor who = task_actor(f, awaited);
        struct wait *wait = add_wait(f, t, frame, "Task", who.task);
        if (!wait)
            continue;
        wait->held = "run by";
        wait->name = who.name;
        (void)waits_add_holder(f->waits, who, HELD_CERTAIN);
    }
    return n > 0;
}

/* Room by task. The edges are in no order before tasks_finish(). */
static int prepare(struct finding *f)
{
    const struct tasks *tasks = f->tasks;

    f->first_edge = calloc(tasks->n + 1, sizeof *f->first_edge);
    f->next_edge = calloc(tasks->nedges + 1, sizeof *f->next_edge);
    f->timed = calloc(tasks->n + 1, sizeof *f->timed);
    if (!f->first_edge || !f->next_edge || !f->timed)
        return -ENOMEM;
    for (size_t i = tasks->nedges; i-- > 0;) {
        uint32_t *first = &f->first_edge[tasks->edges[i].awaiter];
        f->next_edge[i] = *first;
        *first = (uint32_t)i + 1;
    }
    return 0;
}

/* A future that the program's own code awaits, or hands to wait_for() and the like. */
static bool is_told(struct finding *f, const struct frames *frames)
{
    enum library library = library_of(f, &frames->items[0]);

    return library == NO_LIBRARY ||
           (library == ASYNCIO_TASKS && !is_function(f, &frames->items[0], "sleep"));
}

static void add_task(struct finding *f, uint32_t t, struct frames *frames)
{
    const struct task *task = &f->tasks->items[t];
    struct waiting w = {0};

    collect_frames(f->tasks, task, frames);
    if (!frames->n)
        return;
    climb(f, frames, &w);
    const struct raw_frame *place = &frames->items[w.place];
    if (w.object) {
        struct wait *wait = add_wait(f, t, place, lock_class_name(w.class), w.object);
        if (!wait)
            return;
        wait->call = w.call;
        wait->name = name_of(f, place, w.object);
        add_holders(f, &w);
    } else if (!add_tasks(f, t, place) && is_told(f, frames)) {
        struct wait *wait = add_wait(f, t, place, "asyncio.Future", task->waiter);
        if (wait)
            wait->name = name_of(f, place, task->waiter);
    }
}

int waits_of_tasks(struct waits *waits, const struct waits_origin *origin)
{
    struct finding f = {
        .waits = waits,
        .origin = origin,
        .tasks = origin->tasks,
        .view = origin->target->view,
        .offsets = &origin->target->runtime.offsets,
        .looks = LOOKS_MAX,
        .entries = WITH_ENTRIES_MAX,
    };
    struct frames frames;

    if (!f.tasks || !f.tasks->n)
        return 0;
    int r = prepare(&f);
    if (r == 0)
        r = find_holds(&f);
    for (uint32_t t = 0; t < f.tasks->n && r == 0 && !waits->strings.error; t++)
        if (f.tasks->items[t].state == TASK_WAITING)
            add_task(&f, t, &frames);
    free(f.holds);
    addresses_deinit(&f.first_holds);
    free(f.first_edge);
    free(f.next_edge);
    free(f.timed);
    return r;
}

/* The tasks of a process by their addresses. */
struct ranking {
    const struct tasks *tasks;
    const struct task **sorted;
};

static int by_address(const void *a, const void *b)
{
    const struct task *const *x = a, *const *y = b;
    return (*x)->addr < (*y)->addr ? -1 : (*x)->addr > (*y)->addr;
}

/* NULL: it is none of theirs. */
static const struct task *find_task(const struct ranking *ranking, uint64_t addr)
{
    const struct task key = {.addr = addr}, *wanted = &key;
    const struct task **found = addr ? bsearch(&wanted, ranking->sorted, ranking->tasks->n,
                                               sizeof *ranking->sorted, by_address)
                                     : NULL;
    return found ? *found : NULL;
}

/* Orders waits as tasks are told elsewhere; those of one task that waits for several, as they were
 * found. */
static int by_rank(const void *a, const void *b, void *arg)
{
    const struct wait *x = a, *y = b;
    const struct task *first = find_task(arg, x->who.task), *second = find_task(arg, y->who.task);

    if (first != second)
        return first < second ? -1 : 1;
    return x->holders < y->holders ? -1 : x->holders > y->holders;
}

int waits_note_tasks(struct waits *waits, const struct tasks *tasks)
{
    _cleanup_free_ const struct task **sorted = calloc(tasks->n + 1, sizeof *sorted);
    struct ranking ranking = {tasks, sorted};

    if (!sorted)
        return -ENOMEM;
    if (!waits->n)
        return 0;
    for (size_t t = 0; t < tasks->n; t++)
        sorted[t] = &tasks->items[t];
    qsort(sorted, tasks->n, sizeof *sorted, by_address);
    size_t first = 0, n = 0;
    while (first < waits->n && waits->items[first].who.kind != ACTOR_TASK)
        first++;
    struct wait *items = waits->items + first;
    for (; first + n < waits->n && items[n].who.kind == ACTOR_TASK; n++) {
        const struct task *task = find_task(&ranking, items[n].who.task);
        if (task && task->standing.kind != STANDS_NOT)
            items[n].since_ns = (int64_t)task->standing.ns;
    }
    if (n)
        qsort_r(items, n, sizeof *items, by_rank, &ranking);
    return 0;
}
