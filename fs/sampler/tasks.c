#include "fs/sampler/tasks.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/profile/index.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/objects/object.h"
#include "fs/remote/objects/unicode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FIND_NS 1000000000u      /* asyncio is looked for so long after the start, ... */
#define FIND_MAX_NS 10000000000u /* ... then after twice as long each time, up to that */
#define TRIES 3                  /* of a list of tasks that changes while it is read */
#define LINEAGE_MAX 32           /* tasks above each other */
#define VIEW_KEPT (16u << 20)    /* bytes of copies that are kept between two censuses */
#define NAME_BYTES (SAMPLER_TASKS_NAME * 6 + 8)
#define NAME_OBJECT 128 /* bytes of the object that is a name */
#define RUNNING_MAX 64  /* event loops looked at */
#define NONE UINT32_MAX

/* One task of a census. */
struct lineage {
    uint64_t task, coro, name; /* name: a hash of it */
    uint32_t word;             /* the frame [task NAME] */
    uint32_t first, n;         /* its coroutine's frames, in `ids` */
    uint32_t above;            /* the first one that awaits it, or NONE */
};

struct census {
    struct lineage *items;
    size_t n, alloc;
    struct index by_task;
    uint32_t *ids;
    size_t nids, ids_alloc;
};

/* Tasks that wait with the same stack. */
struct row {
    uint64_t hash, count;
    pid_t tid;
    enum sample_kind kind;
    size_t first, n; /* in rows.ids */
};
struct rows {
    struct row *items;
    size_t n, alloc;
    struct index by_hash;
    uint32_t *ids;
    size_t nids, ids_alloc;
};

struct known_name {
    uint64_t hash;
    uint32_t word;
};

struct sampler_tasks {
    struct target *target;
    struct sampler_names *names;
    struct store *store;

    /* used by sampler_tasks_look() alone */
    struct view *view;
    struct walk walk;
    struct tasks read[2]; /* two readings in a row; the last one is complete */
    bool *agreed;         /* of the last one: tasks that both have, unchanged */
    size_t agreed_alloc;
    uint64_t find_at, find_wait, due, last; /* CLOCK_MONOTONIC, ns */

    pthread_mutex_t lock; /* guards what follows */
    bool known;           /* asyncio is there */
    bool wanted;          /* there was none yet, or a task ran since the last one */
    struct asyncio asyncio;
    uint64_t running;
    struct census now, before;
    uint64_t censuses; /* so far */
    struct known_name *words;
    size_t nwords, words_alloc, unnamed, named;
    struct index by_name;
    uint64_t type_str, type_int; /* once they are known */
};

int sampler_tasks_new(struct target *target, struct sampler_names *names, struct store *store,
                      struct sampler_tasks **out)
{
    struct sampler_tasks *t = calloc(1, sizeof *t);

    if (!t)
        return -ENOMEM;
    if (view_new(&target->memory, &t->view) < 0) {
        free(t);
        return -ENOMEM;
    }
    t->target = target;
    t->names = names;
    t->store = store;
    t->find_wait = FIND_NS;
    t->wanted = true;
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return 0;
}

static void census_deinit(struct census *census)
{
    free(census->items);
    free(census->ids);
    index_clear(&census->by_task);
    *census = (struct census){0};
}

void sampler_tasks_free(struct sampler_tasks *t)
{
    if (!t)
        return;
    view_free(t->view);
    walk_deinit(&t->walk);
    tasks_deinit(&t->read[0]);
    tasks_deinit(&t->read[1]);
    free(t->agreed);
    census_deinit(&t->now);
    census_deinit(&t->before);
    free(t->words);
    index_clear(&t->by_name);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- names ---- */

static int intern_word(struct sampler_tasks *t, const char *word, uint32_t *id)
{
    const struct profile_frame frame = {.kind = PROFILE_WORD, .func = word, .file = ""};

    return store_intern(t->store, &frame, id);
}

/* What asyncio calls a task that nobody named. */
static bool is_unnamed(const char *name)
{
    return !strncmp(name, "Task-", 5) && name[5] && !name[5 + strspn(name + 5, "0123456789")];
}

/* Shows each number in it as *. */
static void fold_numbers(char *name)
{
    char *to = name;

    for (const char *from = name; *from;) {
        size_t digits = strspn(from, "0123456789");
        *to++ = digits ? '*' : *from;
        from += digits ? digits : 1;
    }
    *to = 0;
}

/* A name that is shown as it is: the first ones are. NULL: it isn't. */
static const struct known_name *find_name(struct sampler_tasks *t, const char *name)
{
    uint64_t hash = hash_text(name);
    size_t step = 0;
    uint32_t i;

    while (index_next(&t->by_name, hash, &step, &i))
        if (t->words[i].hash == hash)
            return &t->words[i];
    return NULL;
}

/* The frame [task NAME]. The caller holds lock, here as below. */
static int task_word(struct sampler_tasks *t, const char *name, uint32_t *id)
{
    bool unnamed = is_unnamed(name);
    size_t *count = unnamed ? &t->unnamed : &t->named;
    char shown[NAME_BYTES], word[NAME_BYTES + 8];

    snprintf(shown, sizeof shown, "%s", name);
    const struct known_name *known = find_name(t, shown);
    if (!known && *count >= (unnamed ? SAMPLER_TASKS_UNNAMED : SAMPLER_TASKS_NAMED)) {
        fold_numbers(shown);
        known = find_name(t, shown);
        if (!known && t->nwords >= SAMPLER_TASKS_FOLDED) {
            strcpy(shown, "*");
            known = find_name(t, shown);
        }
    } else if (!known) {
        ++*count;
    }
    if (known) {
        *id = known->word;
        return 0;
    }
    snprintf(word, sizeof word, "[task %s]", shown);
    int r = intern_word(t, word, id);
    if (r < 0)
        return r;
    if (ARRAY_GROW(t->words, t->words_alloc, t->nwords + 1) < 0 ||
        index_add(&t->by_name, hash_text(shown), (uint32_t)t->nwords) < 0)
        return -ENOMEM;
    t->words[t->nwords++] = (struct known_name){hash_text(shown), *id};
    return 0;
}

/* A census that has more new names than may be shown as they are shows none of them so. */
static int count_names(struct sampler_tasks *t, const struct tasks *tasks)
{
    struct index seen = {0};
    size_t counts[2] = {t->named, t->unnamed}, step;
    uint32_t i;
    int r = 0;

    for (uint32_t k = 0; k < tasks->n && r == 0; k++) {
        const char *name = tasks_string(tasks, tasks->items[k].name);
        uint64_t hash = hash_text(name);
        step = 0;
        if (find_name(t, name) || index_next(&seen, hash, &step, &i))
            continue;
        counts[is_unnamed(name)]++;
        r = index_add(&seen, hash, k);
    }
    index_clear(&seen);
    if (counts[false] > SAMPLER_TASKS_NAMED)
        t->named = SAMPLER_TASKS_NAMED;
    if (counts[true] > SAMPLER_TASKS_UNNAMED)
        t->unnamed = SAMPLER_TASKS_UNNAMED;
    return r;
}

/* A task's name as it is shown and compared: not all of a long one. */
static void shorten(const char *name, char out[NAME_BYTES])
{
    size_t points = 0, size = 0;

    for (; name[size] && points < SAMPLER_TASKS_NAME; points++) {
        size_t n = utf8_length((const unsigned char *)name + size, 4);
        size += n ? n : 1;
    }
    if (size >= NAME_BYTES - 4)
        size = NAME_BYTES - 5;
    snprintf(out, NAME_BYTES, "%.*s%s", (int)size, name, name[size] ? "..." : "");
}

/* What kind of object it is, by its type. */
static bool is_of_type(struct sampler_tasks *t, uint64_t type, uint64_t *known, uint64_t flag)
{
    uint64_t flags = 0;

    if (*known && type == *known)
        return true;
    if (!type ||
        memory_read(&t->target->memory, type + (uint64_t)t->target->runtime.offsets.type_flags,
                    &flags, sizeof flags) < 0 ||
        !(flags & flag))
        return false;
    *known = type;
    return true;
}

/* The name as the sample has it: a str, or the number in "Task-%d". False: it can't be told. */
static bool read_name(struct sampler_tasks *t, const struct running_task *running,
                      char out[NAME_BYTES])
{
    const struct offsets *o = &t->target->runtime.offsets;
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    struct unicode u;

    if (running->size < 64)
        return false;
    uint64_t type = load64(running->name + o->object_type);
    if (is_of_type(t, type, &t->type_int, TPFLAGS_LONG_SUBCLASS)) {
        uint64_t digits = o->long_tag >= 0 ? load64(running->name + o->long_tag) >> 3 : 0;
        if (digits != 1 && digits != 2)
            return false;
        uint64_t number = load32(running->name + o->long_digits);
        if (digits == 2)
            number |= (uint64_t)load32(running->name + o->long_digits + 4) << 30;
        snprintf(out, NAME_BYTES, "Task-%llu", (unsigned long long)number);
        return true;
    }
    if (!is_of_type(t, type, &t->type_str, TPFLAGS_UNICODE_SUBCLASS) ||
        !unicode_head(o, running->name, &u) || !u.compact || !u.kind || u.data > running->size)
        return false;
    uint64_t room = (running->size - u.data) / u.kind;
    uint64_t n = u.length < room ? u.length : room;
    unicode_add(&u, running->name + u.data, n, &text);
    if (n < u.length)
        text_puts(&text, "...");
    if (text.error)
        return false;
    shorten(text.data ? text.data : "", out);
    return true;
}

/* ---- lineage ---- */

static const struct lineage *find_task(const struct census *census, uint64_t task)
{
    size_t step = 0;
    uint32_t i;

    while (index_next(&census->by_task, hash_add(0, task), &step, &i))
        if (census->items[i].task == task)
            return &census->items[i];
    return NULL;
}

static const struct lineage *above(const struct census *census, const struct lineage *lineage)
{
    return lineage->above == NONE ? NULL : &census->items[lineage->above];
}

/* Adds a task that awaits another one and those that await it, the outermost one first, and their
 * frames; of very many the nearest. How many; -ENOMEM. awaiter: or NULL; out: room for `most`. */
static ssize_t add_above(struct sampler_tasks *t, const struct census *census,
                         const struct lineage *awaiter, uint32_t *out, size_t most)
{
    const struct lineage *path[LINEAGE_MAX];
    size_t depth = 0, total = 1, n = 0;

    for (; awaiter && depth < LINEAGE_MAX; awaiter = above(census, awaiter)) {
        size_t i = 0;
        while (i < depth && path[i] != awaiter)
            i++;
        if (i < depth)
            awaiter = NULL; /* they await each other in a circle */
        if (!awaiter || total + awaiter->n + 1 > most)
            break;
        total += awaiter->n + 1;
        path[depth++] = awaiter;
    }
    if (awaiter && intern_word(t, "[deeper]", &out[n++]) < 0)
        return -ENOMEM;
    while (depth-- > 0) {
        out[n++] = path[depth]->word;
        memcpy(out + n, census->ids + path[depth]->first, path[depth]->n * sizeof *out);
        n += path[depth]->n;
    }
    return (ssize_t)n;
}

/* The task that awaits another one: as it was in the very moment, or as the census has it, where
 * that has the same task. NULL: nobody, as far as is known. */
static const struct lineage *find_awaiter(const struct census *census,
                                          const struct running_task *running, const char *name)
{
    const struct lineage *found = running->awaiter ? find_task(census, running->awaiter) : NULL;

    if (found && found->coro == running->awaiter_coro)
        return found;
    found = find_task(census, running->task);
    if (!found || !name || found->coro != running->coro || found->name != hash_text(name))
        return NULL;
    return above(census, found);
}

void sampler_tasks_key(struct sampler_tasks *t, const struct running_task *running,
                       struct task_key *out)
{
    char name[NAME_BYTES];
    _guard_mutex_(&t->lock);

    *out = (struct task_key){running->task, running->coro, running->awaiter,
                             read_name(t, running, name) ? hash_text(name) : 0, t->censuses};
}

ssize_t sampler_tasks_show(struct sampler_tasks *t, const struct running_task *running,
                           const uint32_t *ids, size_t n, size_t at, uint32_t *out)
{
    char name[NAME_BYTES];
    size_t loop = 0, to;
    _guard_mutex_(&t->lock);
    bool named = read_name(t, running, name);

    while (loop < at && !sampler_names_of_loop(t->names, ids[loop]))
        loop++;
    memcpy(out, ids, loop * sizeof *out);
    to = loop;
    t->wanted = true;
    const struct census *census = &t->now;
    const struct lineage *awaiter = find_awaiter(census, running, named ? name : NULL);
    if (!awaiter) {
        census = &t->before;
        awaiter = find_awaiter(census, running, named ? name : NULL);
    }
    ssize_t added = add_above(t, census, awaiter, out + to, SAMPLER_TASKS_ABOVE - 1);
    if (added < 0)
        return added;
    to += (size_t)added;
    int r = task_word(t, named ? name : "?", &out[to++]);
    if (r < 0)
        return r;
    memcpy(out + to, ids + at, (n - at) * sizeof *out);
    return (ssize_t)(to + n - at);
}

/* ---- finding asyncio ---- */

struct candidates {
    uint64_t tasks[RUNNING_MAX];
    size_t n;
};

static int add_candidate(void *arg, uint64_t key, uint64_t value)
{
    struct candidates *c = arg;

    c->tasks[c->n++] = value;
    return c->n == RUNNING_MAX;
}

/* Whether a task's coroutine is on the stack: *at is its frame's index. */
static bool is_on_stack(struct sampler_tasks *t, struct view *view, const struct stack *stack,
                        struct running_task *running, size_t *at)
{
    const struct offsets *o = &t->target->runtime.offsets;
    uint64_t frame;

    if (!object_field(view, running->task, t->asyncio.coro, &running->coro))
        return false;
    frame = running->coro + (uint64_t)o->gen_iframe;
    if (o->gen_iframe < 0 && !object_field(view, running->coro, o->gen_frame, &frame))
        return false;
    for (*at = 0; *at < stack->n; ++*at)
        if (stack->frames[*at].addr == frame)
            return true;
    return false;
}

bool sampler_tasks_find(struct sampler_tasks *t, struct view *view, const struct stack *stack,
                        struct running_task *running, size_t *at)
{
    struct candidates c = {.n = 0};
    bool found = false;
    uint64_t name;
    _guard_mutex_(&t->lock);

    if (!t->known)
        return false;
    if (t->asyncio.tstate_task < 0)
        (void)dict_iterate(view, &t->target->runtime.offsets, t->running, add_candidate, &c, NULL);
    else if (object_field(view, stack->tstate, t->asyncio.tstate_task, &c.tasks[0]))
        c.n = 1;
    for (size_t i = 0; i < c.n && !found; i++) {
        *running = (struct running_task){.task = c.tasks[i]};
        found = running->task && is_on_stack(t, view, stack, running, at);
    }
    if (!found || !object_field(view, running->task, t->asyncio.name, &name))
        return found;
    for (running->size = NAME_OBJECT; running->size >= 64 && !running->name; running->size /= 2)
        running->name = view_read(view, name, (uint32_t)running->size);
    running->size *= running->name ? 2 : 0;
    return true;
}

bool sampler_tasks_where(struct sampler_tasks *t, struct asyncio *asyncio, uint64_t *running)
{
    _guard_mutex_(&t->lock);

    *asyncio = t->asyncio;
    *running = t->running;
    return t->known;
}

/* The caller holds target->lock. False: it isn't there, or can't be read. */
static bool find_asyncio(struct sampler_tasks *t, struct asyncio *asyncio, uint64_t *running)
{
    struct target *target = t->target;
    const struct offsets *o = &target->runtime.offsets;
    uint64_t modules, module, dict;

    *running = 0;
    t->walk.depth = 1;
    view_reset(t->view);
    if (walk_run(&t->walk, t->view, &target->runtime, target->codes) < 0 || !t->walk.n ||
        !object_field(t->view, t->walk.stacks[0].interp, o->interp_modules, &modules) ||
        dict_lookup_str(t->view, o, modules, "asyncio.tasks", &module) < 0)
        return false;
    if (target_refresh_maps(target) < 0 ||
        asyncio_find_running(&target->memory, &target->maps, &target->runtime, asyncio) < 0 ||
        !asyncio->known)
        return false;
    if (asyncio->tstate_task < 0 &&
        (!object_field(t->view, module, o->module_dict, &dict) ||
         dict_lookup_str(t->view, o, dict, "_current_tasks", running) < 0))
        return false;
    return true;
}

/* True: it was found just now. */
static bool find_now_and_then(struct sampler_tasks *t, uint64_t now)
{
    struct asyncio asyncio;
    uint64_t running;

    if (t->known || now < t->find_at || !t->target->runtime.supported)
        return false;
    pthread_mutex_lock(&t->target->lock);
    bool found = find_asyncio(t, &asyncio, &running);
    pthread_mutex_unlock(&t->target->lock);
    t->find_at = now + t->find_wait;
    t->find_wait = t->find_wait < FIND_MAX_NS / 2 ? 2 * t->find_wait : FIND_MAX_NS;
    if (!found)
        return false;
    _guard_mutex_(&t->lock);
    t->asyncio = asyncio;
    t->running = running;
    t->known = true;
    return true;
}

/* ---- a census ---- */

static int read_once(struct sampler_tasks *t, struct tasks *out)
{
    struct target *target = t->target;
    const struct tasks_origin origin = {.runtime = &target->runtime,
                                        .asyncio = &t->asyncio,
                                        .codes = target->codes,
                                        .walk = &t->walk};
    int r = -EAGAIN;

    for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
        r = view_refresh(t->view);
        if (r == 0)
            r = walk_run(&t->walk, t->view, &target->runtime, target->codes);
        if (r == 0)
            r = tasks_read(t->view, &origin, out);
        if (r == 0 && out->torn && i + 1 < TRIES)
            r = -EAGAIN;
    }
    return r;
}

static bool same_frames(const struct tasks *x, uint32_t i, const struct tasks *y, uint32_t k)
{
    while (i != TASKS_NONE && k != TASKS_NONE) {
        const struct task_frame *a = &x->frames[i], *b = &y->frames[k];
        if (a->addr != b->addr || a->code != b->code || a->lasti != b->lasti)
            return false;
        i = a->next;
        k = b->next;
    }
    return i == k;
}

static bool same_task(const struct tasks *x, const struct task *a, const struct tasks *y,
                      const struct task *b)
{
    return a->state == b->state && a->waiter == b->waiter &&
           !strcmp(tasks_string(x, a->name), tasks_string(y, b->name)) &&
           same_frames(x, a->frames, y, b->frames);
}

/* What of the last reading the one before it has, too. all: nothing has changed. */
static int compare(struct sampler_tasks *t, struct tasks *last, const struct tasks *before,
                   bool all)
{
    struct index by_addr = {0};
    int r = 0;

    if (ARRAY_GROW(t->agreed, t->agreed_alloc, last->n + 1) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < before->n && !all && r == 0; i++)
        r = index_add(&by_addr, hash_add(0, before->items[i].addr), i);
    for (size_t i = 0; i < last->n && r == 0; i++) {
        struct task *task = &last->items[i];
        size_t step = 0;
        uint32_t k;
        t->agreed[i] = all;
        while (!all && index_next(&by_addr, hash_add(0, task->addr), &step, &k))
            if (before->items[k].addr == task->addr)
                t->agreed[i] = same_task(last, task, before, &before->items[k]);
        /* the reading is sorted yet: what is certain is told by the state */
        if (!t->agreed[i] || task->torn)
            task->state = TASK_UNREADABLE;
    }
    index_clear(&by_addr);
    return r;
}

static void set_tids(struct sampler_tasks *t, struct tasks *tasks)
{
    struct lwp_list lwps = {0};

    if (t->target->foreign && lwp_list_read(t->target->pid, LWP_STATES, &lwps) < 0)
        return;
    for (size_t i = 0; i < tasks->nloops; i++) {
        struct task_loop *loop = &tasks->loops[i];
        if (loop->stack >= t->walk.n)
            continue;
        const struct stack *stack = &t->walk.stacks[loop->stack];
        loop->tid = t->target->foreign ? moment_tid(t->target, &lwps, stack) : stack->native_id;
    }
    lwp_list_deinit(&lwps);
}

/* All tasks, as *out: those that are certain have a state. The caller holds target->lock. */
static int read_tasks(struct sampler_tasks *t, struct tasks **out)
{
    struct target *target = t->target;
    bool all;

    code_cache_trim(target->codes);
    t->walk.depth = 1;
    int r = read_once(t, &t->read[0]);
    if (r == 0)
        r = view_verify(t->view);
    all = r == 0;
    *out = &t->read[!all];
    if (r == -EAGAIN)
        r = read_once(t, *out);
    if (r == 0)
        r = compare(t, *out, &t->read[0], all);
    if (r == 0) {
        set_tids(t, *out);
        r = tasks_finish(*out, target->codes, &target->memory, &target->runtime.offsets);
    }
    if (view_size(t->view) > VIEW_KEPT)
        view_reset(t->view);
    return r;
}

static int add_frames(struct sampler_tasks *t, const struct tasks *tasks, const struct task *task,
                      struct census *census)
{
    for (uint32_t f = task->frames; f != TASKS_NONE; f = tasks->frames[f].next) {
        const struct task_frame *frame = &tasks->frames[f];
        const struct raw_frame raw = {
            .addr = frame->addr, .code = frame->code, .lasti = frame->lasti, .info = frame->info};
        if (ARRAY_GROW(census->ids, census->ids_alloc, census->nids + 1) < 0)
            return -ENOMEM;
        int r = sampler_names_raw(t->names, &raw, &census->ids[census->nids]);
        if (r < 0)
            return r;
        census->nids++;
    }
    return 0;
}

/* The frames that a task had when it was seen to wait before. */
static int keep_frames(const struct census *before, const struct lineage *task,
                       struct census *census)
{
    const struct lineage *known = find_task(before, task->task);

    if (!known || known->coro != task->coro || known->name != task->name)
        return 0;
    if (ARRAY_GROW(census->ids, census->ids_alloc, census->nids + known->n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < known->n; i++)
        census->ids[census->nids++] = before->ids[known->first + i];
    return 0;
}

/* Takes down who awaits whom, and where. */
static int fill_census(struct sampler_tasks *t, const struct tasks *tasks, struct census *census)
{
    char name[NAME_BYTES];

    census->n = census->nids = 0;
    index_clear(&census->by_task);
    if (ARRAY_GROW(census->items, census->alloc, tasks->n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < tasks->n; i++) {
        const struct task *task = &tasks->items[i];
        struct lineage *lineage = &census->items[i];
        shorten(tasks_string(tasks, task->name), name);
        *lineage = (struct lineage){.task = task->addr,
                                    .coro = task->coro_addr,
                                    .name = hash_text(name),
                                    .first = (uint32_t)census->nids,
                                    .above = NONE};
        int r = task_word(t, name, &lineage->word);
        if (r == 0 && (task->state == TASK_WAITING || task->state == TASK_READY))
            r = add_frames(t, tasks, task, census);
        else if (r == 0)
            r = keep_frames(&t->before, lineage, census);
        if (r == 0)
            r = index_add(&census->by_task, hash_add(0, task->addr), i);
        if (r < 0)
            return r;
        lineage->n = (uint32_t)census->nids - lineage->first;
    }
    census->n = tasks->n;
    for (size_t i = 0; i < tasks->nedges; i++) {
        struct lineage *awaited = &census->items[tasks->edges[i].task];
        if (awaited->above == NONE)
            awaited->above = tasks->edges[i].awaiter;
    }
    return 0;
}

/* ---- waits ---- */

static int add_row(struct rows *rows, pid_t tid, enum sample_kind kind, size_t n)
{
    const uint32_t *ids = rows->ids + rows->nids;
    uint64_t hash = hash_add(hash_add(1, (uint64_t)tid), kind);
    size_t step = 0;
    uint32_t i;

    for (size_t k = 0; k < n; k++)
        hash = hash_add(hash, ids[k]);
    while (index_next(&rows->by_hash, hash, &step, &i)) {
        struct row *row = &rows->items[i];
        if (row->hash == hash && row->n == n &&
            !memcmp(rows->ids + row->first, ids, n * sizeof *ids)) {
            row->count++;
            return 0;
        }
    }
    if (ARRAY_GROW(rows->items, rows->alloc, rows->n + 1) < 0 ||
        index_add(&rows->by_hash, hash, (uint32_t)rows->n) < 0)
        return -ENOMEM;
    rows->items[rows->n++] = (struct row){hash, 1, tid, kind, rows->nids, n};
    rows->nids += n;
    return 0;
}

static int add_waits(struct sampler_tasks *t, const struct tasks *tasks, pid_t tid,
                     struct rows *rows)
{
    uint32_t awaiting, ready;
    int r = intern_word(t, "[awaiting]", &awaiting);

    if (r == 0)
        r = intern_word(t, "[ready]", &ready);
    for (size_t i = 0; i < tasks->n && r == 0; i++) {
        const struct task *task = &tasks->items[i];
        const struct lineage *lineage = &t->now.items[i];
        pid_t own = task->loop != TASKS_NONE ? tasks->loops[task->loop].tid : 0;
        if ((task->state != TASK_WAITING && task->state != TASK_READY) || (tid && own != tid))
            continue;
        if (ARRAY_GROW(rows->ids, rows->ids_alloc,
                       rows->nids + SAMPLER_TASKS_ABOVE + lineage->n + 3) < 0)
            return -ENOMEM;
        uint32_t *ids = rows->ids + rows->nids;
        size_t n = 0;
        ids[n++] = awaiting;
        ssize_t added =
            add_above(t, &t->now, above(&t->now, lineage), ids + n, SAMPLER_TASKS_ABOVE);
        if (added < 0)
            return (int)added;
        n += (size_t)added;
        ids[n++] = lineage->word;
        memcpy(ids + n, t->now.ids + lineage->first, lineage->n * sizeof *ids);
        n += lineage->n;
        if (task->state == TASK_READY)
            ids[n++] = ready;
        r = add_row(rows, own ? own : t->target->pid,
                    task->state == TASK_READY ? SAMPLE_PREEMPTED : SAMPLE_OFF, n);
    }
    return r;
}

/* Stores the waits of tasks, each of which has waited since the census before, as far as is
 * known. */
static void store_waits(struct sampler_tasks *t, const struct rows *rows, uint64_t now)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->items[i];
        const struct sample sample = {.when = now,
                                      .tid = row->tid,
                                      .kind = row->kind,
                                      .weight = (int64_t)(row->count * (now - t->last)),
                                      .count = row->count,
                                      .frames = rows->ids + row->first,
                                      .n = row->n};
        store_add(t->store, &sample);
    }
}

static int take_census(struct sampler_tasks *t, uint64_t now, bool waits, pid_t tid)
{
    struct rows rows = {0};
    struct tasks *tasks;

    pthread_mutex_lock(&t->target->lock);
    int r = read_tasks(t, &tasks);
    if (r == 0) {
        pthread_mutex_lock(&t->lock);
        struct census oldest = t->before;
        t->before = t->now;
        t->now = oldest;
        t->wanted = false;
        t->censuses++;
        r = count_names(t, tasks);
        if (r == 0)
            r = fill_census(t, tasks, &t->now);
        if (r < 0)
            t->now.n = 0, index_clear(&t->now.by_task);
        if (r == 0 && waits)
            r = add_waits(t, tasks, tid, &rows);
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_unlock(&t->target->lock);
    if (r == 0 && waits && t->last)
        store_waits(t, &rows, now);
    if (r == 0)
        t->last = waits ? now : 0;
    free(rows.items);
    free(rows.ids);
    index_clear(&rows.by_hash);
    return r;
}

static bool is_due(struct sampler_tasks *t, uint64_t now, bool waits)
{
    _guard_mutex_(&t->lock);
    return t->known && t->target->runtime.version >= TASKS_OLDEST && now >= t->due &&
           (waits || t->wanted);
}

bool sampler_tasks_look(struct sampler_tasks *t, uint64_t now, bool waits, pid_t tid)
{
    bool found = find_now_and_then(t, now);

    if (is_due(t, now, waits)) {
        uint64_t cpu = thread_cpu_ns();
        take_census(t, now, waits, tid);
        uint64_t wait = (thread_cpu_ns() - cpu) * SAMPLER_TASKS_SHARE;
        t->due = now + (wait > SAMPLER_TASKS_NS ? wait : SAMPLER_TASKS_NS);
    }
    return found;
}
