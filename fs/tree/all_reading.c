#include "fs/tree/all_reading.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/may_hang.h"
#include "fs/process/examiner.h"
#include "fs/tables/every_process.h"
#include "fs/trace/claims.h"

#include <errno.h>
#include <string.h>

/* One process while it is read. */
struct reading {
    struct may_hang work;
    struct process *process; /* a reference */
    stacks_text *render;
    const char *file; /* that shows it */
    struct text text, why;
    int error;
};

/* By who reads the process in the daemon's place: a text of format/stacks.h, or what the file is
 * told. */
static int ask_examiner(struct reading *reading)
{
    struct process *process = reading->process;
    const struct examiner *examiner = process->examiner;
    const struct asked_line asked = {.file = reading->file, .word = "", .line = ""};

    for (unsigned form = 0; form < STACKS_FORMS; form++)
        if (stacks_texts[form] == reading->render)
            return examiner->stacks(examiner->arg, process->pid, process->start_time,
                                    (enum stacks_form)form, &reading->why, &reading->text);
    return examiner->say(examiner->arg, process, &asked, &reading->work.unwanted, &reading->why,
                         &reading->text);
}

static void read_run(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;

    if (reading->process->examiner && !claim_exists(reading->process->pid)) {
        reading->error = ask_examiner(reading);
        return;
    }
    struct target *target = process_target(reading->process);
    reading->error = target ? reading->render(target, process_recording(reading->process),
                                              &reading->why, &reading->text)
                            : -ESRCH;
    target_unref(target);
}

static void reading_free(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;

    text_deinit(&reading->text);
    text_deinit(&reading->why);
    process_unref(reading->process);
    free(reading);
}

struct all {
    struct file_context *context;
    bool (*wants)(struct process *process);
    stacks_text *render;
    all_take *take;
    void *arg;
    struct process_list list;
    size_t bytes; /* that were taken */
};

/* NULL without memory. error: why it hasn't begun. */
static struct reading *reading_start(struct process *process, const struct all *all)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return NULL;
    reading->work = (struct may_hang){.pid = process->pid, .run = read_run, .free = reading_free};
    reading->process = process_ref(process);
    reading->render = all->render;
    reading->file = all->context->file;
    may_hang_init(&reading->work);
    reading->error = may_hang_start(&reading->work);
    return reading;
}

/* What a process says of its rank may change while they are sorted. */
struct ranked {
    struct process *process;
    uint64_t rank; /* the highest: it has none */
};

/* Orders processes by rank; those without one come behind the others, by number. */
static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->process->pid > y->process->pid) - (x->process->pid < y->process->pid);
}

static int sort(struct process_list *list)
{
    _cleanup_free_ struct ranked *ranked = calloc(list->n + 1, sizeof *ranked);

    if (!ranked)
        return -ENOMEM;
    for (size_t i = 0; i < list->n; i++)
        ranked[i] = (struct ranked){list->items[i], (uint64_t)list->items[i]->rank};
    array_sort(ranked, list->n, sizeof *ranked, by_rank);
    for (size_t i = 0; i < list->n; i++)
        list->items[i] = ranked[i].process;
    return 0;
}

static bool may_look(const struct all *all, const struct process *process)
{
    const struct file_context *context = all->context;

    return principals_look(context->access, context->principals, process->pid) == 0;
}

static int list(struct all *all)
{
    struct process_list *list = &all->list;

    size_t n = 0;

    int r = context_processes(all->context, list);
    if (r < 0)
        return r;
    for (size_t i = 0; i < list->n; i++) {
        if (!all->wants || all->wants(list->items[i]))
            list->items[n++] = list->items[i];
        else
            process_unref(list->items[i]);
    }
    list->n = n;
    return sort(list);
}

/* Why a process has no stacks here: also among its errors. */
static int take_failure(const struct all *all, struct process *process, int error, const char *why)
{
    const struct file_context *context = all->context;

    error_ring_add(&process->errors, context->principals->opener, context->file, error, why);
    return all->take(all->arg, process, NULL, why);
}

static int take_reading(struct all *all, struct reading *reading, int error)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct process *process = reading->process;

    if (error == 0 && !may_look(all, process))
        return 0; /* it has executed another program meanwhile */
    if (error == 0 && reading->error == 0) {
        all->bytes += reading->text.size;
        return all->take(all->arg, process, &reading->text, NULL);
    }
    if (error)
        may_hang_explain(error, &why);
    else
        text_add(&why, reading->why.data, reading->why.size);
    if (!why.size)
        text_puts(&why, strerror(error ? -error : -reading->error));
    if (error == -ESRCH || reading->error == -ESRCH)
        return 0;
    return take_failure(all, process, error ? error : reading->error, why.data);
}

/* So many of them at once. -ENOMEM. */
static int read_some(struct all *all, struct process **some, size_t n)
{
    struct may_hang *works[EVERY_PROCESS_THREADS] = {0};
    int errors[EVERY_PROCESS_THREADS], r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        struct reading *reading = reading_start(some[i], all);
        if (!reading) {
            r = -ENOMEM;
            break;
        }
        works[i] = &reading->work;
        errors[i] = reading->error;
    }
    struct may_hang *waited[EVERY_PROCESS_THREADS];
    for (size_t i = 0; i < EVERY_PROCESS_THREADS; i++)
        waited[i] = works[i] && errors[i] == 0 ? works[i] : NULL;
    may_hang_wait_all(waited, n);
    for (size_t i = 0; i < n && works[i]; i++) {
        if (r == 0 && waited[i] && works[i]->state != MAY_HANG_DONE)
            r = take_failure(all, some[i], -ETIMEDOUT, "it hangs, or some of its memory does");
        else if (r == 0)
            r = take_reading(all, (struct reading *)works[i], errors[i]);
        may_hang_unref(works[i]);
    }
    return r;
}

static int read_all(struct all *all)
{
    uint64_t until = monotonic_ns() + EVERY_PROCESS_DEADLINE_NS;

    int r = list(all);
    for (size_t i = 0, n; r == 0 && i < all->list.n; i += n) {
        n = all->list.n - i < EVERY_PROCESS_THREADS ? all->list.n - i : EVERY_PROCESS_THREADS;
        if (interrupted(all->context->interrupt))
            return -EINTR;
        if (monotonic_ns() < until && all->bytes < ALL_BYTES_MAX)
            r = read_some(all, &all->list.items[i], n);
        else
            for (size_t k = 0; k < n && r == 0; k++)
                r = take_failure(all, all->list.items[i + k], -ETIMEDOUT,
                                 "it was not read in time, or the others are too much already");
    }
    return r;
}

int all_read(struct file_context *context, bool (*wants)(struct process *process),
             stacks_text *render, all_take *take, void *arg)
{
    struct all all = {
        .context = context, .wants = wants, .render = render, .take = take, .arg = arg};

    int r = read_all(&all);
    process_list_deinit(&all.list);
    return r;
}
