/* all/backtrace.python and all/stacks.python.folded: those of every process that the reader may
 * look at, by rank, then by pid. Of the first, each behind a line "host=node1 pid=1234 rank=0" (no
 * rank: it has none); the second is one text, a line a thread.
 *
 * Some are read side by side. The reading goes on without one that hangs, and ends when it has
 * taken too long or is too much; who is left out is named. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/format/stacks.h"
#include "fs/proc/may_hang.h"
#include "fs/tables/every_process.h"
#include "fs/tree/jobs.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#define BYTES_MAX (64u << 20) /* of the whole text */

/* One process while it is read. */
struct reading {
    struct may_hang work;
    struct process *process; /* a reference */
    stacks_text *render;
    struct text text, why;
    int error;
};

static void read_run(struct may_hang *work)
{
    struct reading *reading = (struct reading *)work;
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

/* NULL without memory. error: why it hasn't begun. */
static struct reading *reading_start(struct process *process, stacks_text *render)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return NULL;
    reading->work = (struct may_hang){.pid = process->pid, .run = read_run, .free = reading_free};
    reading->process = process_ref(process);
    reading->render = render;
    may_hang_init(&reading->work);
    reading->error = may_hang_start(&reading->work);
    return reading;
}

struct all {
    struct file_context *context;
    stacks_text *render;
    bool heads; /* a line above each */
    char host[HOST_NAME_MAX + 1];
    struct process_list list;
    struct text *out;
};

/* By rank; those without one come behind the others, by number. */
static int by_rank(const void *a, const void *b)
{
    const struct process *x = *(struct process *const *)a, *y = *(struct process *const *)b;
    uint64_t rank_x = (uint64_t)x->rank, rank_y = (uint64_t)y->rank; /* of -1 the highest */

    if (rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool may_look(const struct all *all, const struct process *process)
{
    const struct file_context *context = all->context;

    return principals_look(context->access, context->principals, process->pid) == 0;
}

static int list(struct all *all)
{
    struct process_list *list = &all->list;

    int r = context_processes(all->context, list);
    if (r == 0 && list->n)
        qsort(list->items, list->n, sizeof *list->items, by_rank);
    return r;
}

static void add_head(const struct all *all, const struct process *process)
{
    if (!all->heads)
        return;
    if (all->out->size)
        text_putc(all->out, '\n');
    text_printf(all->out, "host=%s pid=%d", all->host, (int)process->pid);
    if (process->rank >= 0)
        text_printf(all->out, " rank=%lld", (long long)process->rank);
    text_putc(all->out, '\n');
}

/* Why a process has no stacks here: above, and among its errors. */
static void add_failure(const struct all *all, struct process *process, int error, const char *why)
{
    const struct file_context *context = all->context;

    error_ring_add(&process->errors, context->principals->opener, context->file, error, why);
    add_head(all, process);
    if (all->heads)
        text_printf(all->out, "[not read: %s]\n", why);
}

static void add_reading(const struct all *all, const struct reading *reading, int error)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;
    struct process *process = reading->process;

    if (error == 0 && !may_look(all, process))
        return; /* it has executed another program meanwhile */
    if (error == 0 && reading->error == 0) {
        add_head(all, process);
        text_add(all->out, reading->text.data, reading->text.size);
        return;
    }
    if (error)
        may_hang_explain(error, &why);
    else
        text_add(&why, reading->why.data, reading->why.size);
    if (!why.size)
        text_puts(&why, strerror(error ? -error : -reading->error));
    if (error != -ESRCH && reading->error != -ESRCH) /* else it is gone, as if never listed */
        add_failure(all, process, error ? error : reading->error, why.data);
}

/* So many of them at once. -ENOMEM. */
static int read_some(struct all *all, struct process **some, size_t n)
{
    struct may_hang *works[ALL_THREADS] = {0};
    int errors[ALL_THREADS], r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        struct reading *reading = reading_start(some[i], all->render);
        if (!reading) {
            r = -ENOMEM;
            break;
        }
        works[i] = &reading->work;
        errors[i] = reading->error;
    }
    struct may_hang *waited[ALL_THREADS];
    for (size_t i = 0; i < ALL_THREADS; i++)
        waited[i] = works[i] && errors[i] == 0 ? works[i] : NULL;
    may_hang_wait_all(waited, n);
    for (size_t i = 0; i < n && works[i]; i++) {
        if (waited[i] && works[i]->state != MAY_HANG_DONE)
            add_failure(all, some[i], -ETIMEDOUT, "it hangs, or some of its memory does");
        else
            add_reading(all, (struct reading *)works[i], errors[i]);
        may_hang_unref(works[i]);
    }
    return r;
}

static int render_all(struct all *all)
{
    uint64_t until = monotonic_ns() + ALL_DEADLINE_NS;

    gethostname(all->host, sizeof all->host - 1);
    int r = list(all);
    for (size_t i = 0, n; r == 0 && i < all->list.n; i += n) {
        n = all->list.n - i < ALL_THREADS ? all->list.n - i : ALL_THREADS;
        if (interrupted(all->context->interrupt))
            return -EINTR;
        if (monotonic_ns() < until && all->out->size < BYTES_MAX)
            r = read_some(all, &all->list.items[i], n);
        else
            for (size_t k = 0; k < n; k++)
                add_failure(all, all->list.items[i + k], -ETIMEDOUT,
                            "it was not read in time, or the others are too much already");
    }
    return r;
}

static int render(struct file_context *context, stacks_text *text, bool heads, struct text *out)
{
    struct all all = {.context = context, .render = text, .heads = heads, .out = out};

    int r = render_all(&all);
    process_list_deinit(&all.list);
    return r;
}

int all_backtrace_python_render(struct file_context *context, struct text *out)
{
    return render(context, stacks_python_text, true, out);
}

int all_stacks_python_folded_render(struct file_context *context, struct text *out)
{
    return render(context, stacks_python_folded_text, false, out);
}
