#include "fs/tree/everywhere.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/base/worker.h"
#include "fs/link/lifetime.h"
#include "fs/proc/may_hang.h"
#include "fs/process/control.h"
#include "fs/process/registry.h"
#include "fs/tree/jobs.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#define THREADS 64                 /* they wait, mostly */
#define DEADLINE_NS 60000000000ull /* for all of them */
#define LOOK_NS 20000000u          /* how often it is looked whether the writer is interrupted */

struct everywhere_own {
    struct everywhere all; /* what the caller has */
    atomic_uint refs;
    struct registry *registry;
    const struct access *access;
    struct principals principals;
    struct credentials *opener; /* a reference to principals.opener */
    const char *file;
    int flags;
    bool clears;
    struct lifetime *lifetime; /* a reference; NULL: there is none */
    everywhere_run *run;
    void *of;
    void (*free_of)(void *of);
    struct interrupt interrupt; /* the writer is, or it is late */
    atomic_size_t next;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    size_t working; /* threads */
};

static void item_deinit(struct everywhere_item *item)
{
    who_deinit(&item->who);
    text_deinit(&item->said);
    text_deinit(&item->why);
}

static void own_unref(struct everywhere_own *own)
{
    if (atomic_fetch_sub(&own->refs, 1) > 1)
        return;
    for (size_t i = 0; i < own->all.n; i++)
        item_deinit(&own->all.items[i]);
    free(own->all.items);
    if (own->free_of)
        own->free_of(own->of);
    credentials_unref(own->opener);
    lifetime_unref(own->lifetime);
    if (own->interrupt.fd >= 0)
        close(own->interrupt.fd);
    pthread_cond_destroy(&own->changed);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

void everywhere_unref(struct everywhere *everywhere)
{
    if (everywhere)
        own_unref(everywhere->own);
}

int everywhere_new(const struct file_context *context, everywhere_run *run, void *of,
                   void (*free_of)(void *of), struct everywhere **out)
{
    struct everywhere_own *own = malloc(sizeof *own);

    if (!own) {
        if (free_of)
            free_of(of);
        return -ENOMEM;
    }
    *own = (struct everywhere_own){
        .refs = 1,
        .registry = context->registry,
        .access = context->access,
        .principals = *context->principals,
        .opener = credentials_ref(context->principals->opener),
        .file = context->file,
        .flags = context->flags,
        .clears = context->clears,
        .lifetime = context->lifetime ? lifetime_ref(context->lifetime) : NULL,
        .run = run,
        .of = of,
        .free_of = free_of,
        .interrupt.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    own->all.own = own;
    *out = &own->all;
    return 0;
}

/* ---- one process ---- */

static int run_in(const struct everywhere_own *own, struct everywhere_item *item,
                  struct principals *principals)
{
    struct process *process = item->who.process;
    struct file_context context = {
        .registry = own->registry,
        .replies = &process->replies,
        .access = own->access,
        .principals = principals,
        .process = process,
        .recording = process_recording(process),
        .file = own->file,
        .word = "",
        .interrupt = &own->interrupt,
        .flags = own->flags,
        .clears = own->clears,
        .lifetime = own->lifetime,
    };

    /* what is done there is the agent's; who reads the process tells what has to be known for it */
    context.target = process->examiner ? process_held(process) : process_target(process);
    int r = context.target ? own->run(own->of, &context, &item->said, &item->outcome) : -ESRCH;
    target_unref(context.target);
    item->why = context.why;
    return r;
}

/* One item as long as it is worked on: if that hangs, it is none of theirs any more. */
struct asking {
    struct may_hang work;
    struct everywhere_own *own; /* a reference */
    struct principals principals;
    struct everywhere_item item; /* so is its process */
};

static void asking_run(struct may_hang *work)
{
    struct asking *asking = (struct asking *)work;
    struct everywhere_item *item = &asking->item;

    item->error = run_in(asking->own, item, &asking->principals);
    if (item->error == 0)
        item->error = text_finish(&item->said);
}

static void asking_free(struct may_hang *work)
{
    struct asking *asking = (struct asking *)work;

    item_deinit(&asking->item);
    own_unref(asking->own);
    free(asking);
}

static int ask_apart(struct everywhere_own *own, struct everywhere_item *item)
{
    struct asking *asking = malloc(sizeof *asking);
    if (!asking)
        return -ENOMEM;
    *asking = (struct asking){
        .work = {.pid = item->who.process->pid, .run = asking_run, .free = asking_free},
        .own = own,
        .principals = own->principals,
    };
    who_init(&asking->item.who, item->who.process);
    atomic_fetch_add(&own->refs, 1);
    may_hang_init(&asking->work);
    int r = may_hang_run(&asking->work, &own->interrupt);
    if (r == 0) {
        r = asking->item.error;
        item->said = asking->item.said;
        item->why = asking->item.why;
        item->outcome = asking->item.outcome;
        asking->item.said = asking->item.why = TEXT_INIT;
    } else if (r != -EINTR) {
        may_hang_explain(r, &item->why);
    }
    may_hang_unref(&asking->work);
    return r;
}

static void *run_items(void *arg)
{
    struct everywhere_own *own = arg;
    size_t i;

    while ((i = atomic_fetch_add(&own->next, 1)) < own->all.n) {
        struct everywhere_item *item = &own->all.items[i];
        item->error = interrupted(&own->interrupt) ? -EINTR : ask_apart(own, item);
    }
    _guard_mutex_(&own->lock);
    own->working--;
    pthread_cond_broadcast(&own->changed);
    return NULL;
}

/* ---- all of them ---- */

/* Starts the threads. Where there is none to be had the work is done on this one. */
static size_t start_threads(struct everywhere_own *own, pthread_t threads[THREADS])
{
    size_t started = 0;

    own->working = THREADS;
    while (started < THREADS && started < own->all.n &&
           worker_start(run_items, own, "probefs-every", &threads[started]) == 0)
        started++;
    if (!started) {
        run_items(own);
        own->working++;
    }
    pthread_mutex_lock(&own->lock);
    own->working -= THREADS - started;
    pthread_mutex_unlock(&own->lock);
    return started;
}

/* Until all is done. True: it was late, and what was not done by then has been interrupted. */
static bool wait_for_all(struct everywhere_own *own, const struct interrupt *interrupt)
{
    uint64_t deadline = monotonic_ns() + DEADLINE_NS;
    bool late = false;

    _guard_mutex_(&own->lock);
    while (own->working) {
        const struct timespec t = timespec_of(monotonic_ns() + LOOK_NS);
        pthread_cond_clockwait(&own->changed, &own->lock, CLOCK_MONOTONIC, &t);
        if (interrupted(&own->interrupt))
            continue;
        late = monotonic_ns() > deadline;
        if (!late && !interrupted(interrupt))
            continue;
        atomic_store(&own->interrupt.raised, true);
        eventfd_write(own->interrupt.fd, 1);
    }
    return late;
}

static void explain_late(struct everywhere_item *item)
{
    item->error = -ETIMEDOUT;
    text_clear(&item->why);
    text_puts(&item->why, "it has not answered in time: all processes together have a minute");
}

static void run_all(struct everywhere_own *own, const struct interrupt *interrupt)
{
    pthread_t threads[THREADS];
    size_t started = start_threads(own, threads);
    bool late = wait_for_all(own, interrupt);

    while (started > 0)
        pthread_join(threads[--started], NULL);
    for (size_t i = 0; late && i < own->all.n; i++)
        if (own->all.items[i].error == -EINTR)
            explain_late(&own->all.items[i]);
}

static void note(const struct everywhere_own *own)
{
    for (size_t i = 0; i < own->all.n; i++) {
        const struct everywhere_item *item = &own->all.items[i];
        if (item->error < 0)
            error_ring_add(&item->who.process->errors, own->opener, own->file, item->error,
                           item->why.data);
    }
}

void everywhere_do(struct everywhere *everywhere, const struct interrupt *interrupt)
{
    run_all(everywhere->own, interrupt);
    for (size_t i = 0; i < everywhere->n; i++) {
        struct everywhere_item *item = &everywhere->items[i];
        bool told = item->error == -EIO && item->said.size; /* in a traceback */
        if (item->error < 0 && !item->why.size && !told)
            text_puts(&item->why, strerror(-item->error));
    }
    note(everywhere->own);
}

static int compare(const void *a, const void *b)
{
    return who_compare(&((const struct everywhere_item *)a)->who,
                       &((const struct everywhere_item *)b)->who);
}

struct choice {
    struct everywhere_own *own;
    const struct ranges *ranks;
    bool of_job;
    bool (*is_wanted)(struct process *process); /* NULL: those that may be controlled */
};

static bool is_chosen(const struct choice *choice, const struct who *who)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    if (choice->is_wanted)
        return choice->is_wanted(who->process);
    if (choice->of_job && who->worker)
        return false;
    if (choice->ranks && (who->worker || !ranges_have(choice->ranks, who->of.rank)))
        return false;
    return control_may_all(choice->own->access, &choice->own->principals, who->process, &why) == 0;
}

static int list(const struct choice *choice, const struct file_context *context)
{
    _cleanup_(process_list_deinit) struct process_list found = {0};
    struct everywhere *all = &choice->own->all;

    int r = context_processes(context, &found);
    if (r < 0)
        return r;
    all->items = calloc(found.n + 1, sizeof *all->items);
    if (!all->items)
        return -ENOMEM;
    for (size_t i = 0; i < found.n; i++) {
        struct who who;
        who_init(&who, found.items[i]);
        if (is_chosen(choice, &who))
            all->items[all->n++].who = who;
        else
            who_deinit(&who);
    }
    array_sort(all->items, all->n, sizeof *all->items, compare);
    for (size_t i = 0; i < all->n && all->items[i].who.of.rank >= 0; i++)
        all->njobs += i == 0 || !who_same_job(&all->items[i - 1].who, &all->items[i].who);
    return 0;
}

int everywhere_list(struct everywhere *everywhere, struct file_context *context,
                    const struct ranges *ranks)
{
    const struct choice choice = {
        .own = everywhere->own,
        .ranks = ranks,
        .of_job = context_job(context) != NULL,
    };

    int r = list(&choice, context);
    if (r < 0 || everywhere->n)
        return r;
    text_puts(&context->why, ranks ? "there is none of these ranks here that you may control"
                             : choice.of_job ? "there is no rank here that you may control"
                                             : "there is no Python process that you may control");
    return -ESRCH;
}

int everywhere_list_wanted(struct everywhere *everywhere, struct file_context *context,
                           bool (*is_wanted)(struct process *process))
{
    const struct choice choice = {.own = everywhere->own, .is_wanted = is_wanted};

    return list(&choice, context);
}

/* ---- what came of it ---- */

static bool is_same(const struct text *a, const struct text *b)
{
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static bool is_same_answer(const struct everywhere_item *a, const struct everywhere_item *b)
{
    return (a->error < 0) == (b->error < 0) && is_same(&a->said, &b->said) &&
           (a->error == 0 || is_same(&a->why, &b->why));
}

/* Adds an answer: one line stands behind who said it, more are indented below. */
static void add_answer(const struct everywhere_item *item, struct text *out)
{
    _cleanup_(text_deinit) struct text all = TEXT_INIT;

    text_add(&all, item->said.data, item->said.size);
    if (item->why.size && item->error < 0 && (!all.size || !strstr(all.data, item->why.data))) {
        if (all.size && all.data[all.size - 1] != '\n')
            text_putc(&all, '\n');
        text_printf(&all, "error: %s", item->why.data);
    }
    while (all.size && all.data[all.size - 1] == '\n')
        text_truncate(&all, all.size - 1);
    const char *before = all.size && memchr(all.data, '\n', all.size) ? "\n  " : " ";
    for (size_t i = 0; i < all.size; i++) {
        if (i == 0)
            text_puts(out, before);
        text_putc(out, all.data[i]);
        if (all.data[i] == '\n')
            text_puts(out, "  ");
    }
    text_putc(out, '\n');
}

static bool says_nothing(const struct everywhere_item *item)
{
    return item->error == 0 && !item->said.size;
}

/* Adds the answers in the order of the ranks. */
static int add_answers(struct everywhere *everywhere, struct text *out)
{
    _cleanup_free_ const struct who **some = calloc(everywhere->n + 1, sizeof *some);
    int r = some ? 0 : -ENOMEM;

    for (size_t i = 0; r == 0 && i < everywhere->n; i++) {
        struct everywhere_item *item = &everywhere->items[i];
        size_t n = 0;
        if (item->told || says_nothing(item))
            continue;
        for (size_t k = i; k < everywhere->n; k++) {
            struct everywhere_item *other = &everywhere->items[k];
            if (!other->told && is_same_answer(item, other)) {
                other->told = true;
                some[n++] = &other->who;
            }
        }
        r = who_add(some, n, everywhere->njobs > 1, out);
        text_printf(out, " (%zu):", n);
        add_answer(item, out);
    }
    return r;
}

/* Whether all have failed for one reason, and nothing else is to be told. */
static bool is_common(const struct everywhere *everywhere)
{
    const struct everywhere_item *first = everywhere->items;
    bool common = first->error < 0 && !first->said.size;

    for (size_t i = 1; i < everywhere->n && common; i++)
        common = is_same_answer(first, &everywhere->items[i]);
    return common;
}

int everywhere_tell(struct everywhere *everywhere, bool strict, struct text *said, struct text *why)
{
    int error = 0;
    size_t done = 0;

    for (size_t i = 0; i < everywhere->n; i++) {
        done += everywhere->items[i].error == 0;
        if (everywhere->items[i].error < 0 && !error)
            error = everywhere->items[i].error;
    }
    if (everywhere->n && is_common(everywhere)) {
        text_add(why, everywhere->items[0].why.data, everywhere->items[0].why.size);
        return error;
    }
    int r = add_answers(everywhere, said);
    if (r < 0 || error == 0 || (done && !strict))
        return r;
    if (done)
        text_printf(why, "it was done in %zu of %zu processes", done, everywhere->n);
    else
        text_puts(why, "it was done in no process");
    return error;
}

int everywhere_read_on(const char *line, size_t size, struct ranges *out, const char **rest,
                       const char **wrong)
{
    const char *p = line, *end = line + size;

    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    if (end - p < 3 || memcmp(p, "on", 2) || (p[2] != ' ' && p[2] != '\t'))
        return 0;
    for (p += 2; p < end && (*p == ' ' || *p == '\t'); p++)
        ;
    const char *ranks = p;
    while (p < end && *p != ' ' && *p != '\t')
        p++;
    if (!ranges_parse(ranks, (size_t)(p - ranks), out, wrong))
        return -EINVAL;
    *rest = p;
    return 1;
}
