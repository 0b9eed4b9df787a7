#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "fs/access/credentials.h"
#include "fs/format/backtrace.h"
#include "fs/proc/lwp.h"
#include "fs/process/examiner.h"
#include "fs/process/process.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/since/since.h"
#include "fs/trace/claims.h"

#include <errno.h>

#define BAD_MAX 16     /* moments; then what was seen is shown and marked */
#define DEPTH_MAX 1000 /* frames; of more all are read */

/* ---- planning ---- */

void plan_stacks(struct plan *plan, const struct use *use, int tid, int depth)
{
    const struct bound *t = tid < 0 ? NULL : &use->bounds[tid];
    const struct bound *d = depth < 0 ? NULL : &use->bounds[depth];
    pid_t only = t && t->bounded && t->low == t->high && t->low > 0 && t->low <= INT32_MAX
                     ? (pid_t)t->low
                     : 0;
    size_t frames = d && d->bounded && d->high < DEPTH_MAX ? (d->high < 0 ? 1 : (size_t)d->high + 1)
                                                           : 0;

    plan->moment = true;
    if (!plan->some) {
        plan->tid = only;
        plan->depth = frames;
    }
    plan->some = true;
    if (plan->tid != only)
        plan->tid = 0;
    if (!plan->depth || !frames)
        plan->depth = 0;
    else if (frames > plan->depth)
        plan->depth = frames;
}

static void make_plan(struct scene *scene)
{
    for (size_t i = 0; i < scene->nwanted; i++) {
        const struct row_source *source = scene->wanted[i]->table->rows;
        scene->passive |= !source->catalog && !source->recorded && !source->lasting;
        if (source->plan)
            source->plan(&scene->wanted[i]->use, &scene->plan);
    }
}

/* ---- the moment ---- */

static int read_waits(struct scene *scene, const struct moment *moment, const struct lwp_list *lwps)
{
    const struct waits_origin origin = {
        .target = scene->target,
        .walk = moment->walk,
        .lwps = lwps,
        .tasks = scene->plan.tasks ? &scene->tasks : NULL,
    };

    return waits_read(&origin, &scene->waits);
}

static int within(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct scene *scene = arg;
    int r = scene->plan.tasks
                ? tasks_read_along(scene->target, &scene->asyncio, moment, lwps, &scene->tasks)
                : 0;

    if (r == 0 && scene->plan.tasks && scene->tasks.torn)
        r = -EAGAIN;
    if (scene->plan.waits && (r == 0 || r == -EAGAIN)) {
        int done = read_waits(scene, moment, lwps);
        r = done < 0 ? done : r;
    }
    for (size_t i = 0; i < scene->nwanted && (r == 0 || r == -EAGAIN); i++) {
        struct wanted *w = scene->wanted[i];
        const struct row_source *source = w->table->rows;
        if (!source->within)
            continue;
        rows_clear(&w->rows);
        int done = source->within(scene, moment, lwps, &w->use, &w->rows);
        r = done < 0 ? done : r;
    }
    if (r == 0 && !moment->verified)
        r = view_verify(scene->target->view);
    scene->torn = r == -EAGAIN;
    return scene->torn && ++scene->bad >= BAD_MAX ? 0 : r;
}

static int gather(void *arg)
{
    struct scene *scene = arg;
    struct target *target = scene->target;
    int r = 0;

    view_reset(target->view); /* thousands of pages that are of no use for the next stack */
    target->along = NULL;
    if (scene->plan.tasks)
        r = tasks_finish(&scene->tasks, target->codes, &target->memory, &target->runtime.offsets);
    if (scene->plan.tasks && r == 0)
        since_tasks(target, &scene->asyncio, &scene->tasks);
    if (scene->plan.tasks && scene->plan.waits && r == 0)
        r = waits_note_tasks(&scene->waits, &scene->tasks);
    if (r == 0 && scene->plan.waits)
        r = waits_finish(&scene->waits);
    for (size_t i = 0; i < scene->nwanted && r == 0; i++) {
        struct wanted *w = scene->wanted[i];
        if (w->table->rows->gather)
            r = w->table->rows->gather(scene, &w->use, &w->rows);
    }
    return r;
}

/* Finds where asyncio keeps its tasks, but not in a moment when a thread stands still. */
static int prepare_tasks(struct scene *scene)
{
    struct target *target = scene->target;
    const struct runtime *runtime = &target->runtime;

    if (runtime->version < TASKS_OLDEST) {
        text_printf(scene->why, "asyncio tasks can be read from CPython 3.12 on; this is %u.%u",
                    runtime->version >> 24, runtime->version >> 16 & 0xff);
        return -EOPNOTSUPP;
    }
    _guard_mutex_(&target->lock);
    int r = target_refresh_maps(target);
    if (r == 0)
        r = asyncio_find(&target->memory, &target->maps, runtime, &scene->asyncio);
    if (r == -EOPNOTSUPP)
        text_puts(scene->why, "where asyncio keeps its tasks is not known: the section "
                              ".AsyncioDebug of the interpreter's files can't be read (were they "
                              "replaced while it runs?)");
    return r;
}

static bool has_within(const struct scene *scene)
{
    for (size_t i = 0; i < scene->nwanted; i++)
        if (scene->wanted[i]->table->rows->within)
            return true;
    return scene->plan.tasks || scene->plan.waits;
}

/* The looker is asked by a copy, since asking completes what it knows. */
int scene_find_ends(const struct process *process, const struct looker *of, struct waits *waits)
{
    const struct examiner *examiner = process->examiner;
    struct looker looker = *of;

    if (process_is_core(process))
        return 0; /* nobody waits for it any more */
    const struct waits_reader reader = {
        .may_look = looker_may_look,
        .arg = &looker,
        .ask = examiner ? examiner->end : NULL,
        .ask_arg = examiner ? examiner->arg : NULL,
    };

    return waits_between(waits, process->pid, &reader);
}

/* Finishes the waits, which were read, or hands them out. */
static int take_waits(struct scene *scene)
{
    struct waits *waits = &scene->waits;

    waits->torn |= scene->torn;
    int r = waits_note_threads(waits, scene->snapshot);
    if (r < 0)
        return r;
    if (!scene->told)
        return scene_find_ends(scene->process, scene->looker, waits);
    *scene->told = *waits;
    *waits = (struct waits){0};
    return 0;
}

static int read_moment(struct scene *scene)
{
    const struct plan *plan = &scene->plan;
    struct target *target = scene->target;
    bool more = has_within(scene);
    struct snapshot_options options = {
        .native = plan->native,
        .tid = plan->tid,
        .depth = plan->depth,
        .work = more ? within : NULL,
        .still = plan->waits,
        .finish = more ? gather : NULL,
        .arg = scene,
    };

    if (more && !target->runtime.supported) {
        text_printf(scene->why, "only native frames can be read: %s", target->runtime.why);
        return -EOPNOTSUPP;
    }
    int r = plan->tasks || plan->waits ? prepare_tasks(scene) : 0;
    if (r == -EOPNOTSUPP && !plan->tasks) { /* waits are those of threads alone */
        text_clear(scene->why);
        r = 0;
    } else if (plan->waits) {
        scene->plan.tasks = true;
    }
    if (r == 0 && scene->recording)
        (void)held_list_read(target, scene->recording, &scene->agent); /* else all are shown */
    if (scene->agent.n)
        options.depth = 0; /* what is evaluated in a held thread stands on top of its frames */
    if (r == 0)
        r = snapshot_take(target, &options, &scene->snapshot);
    if (r == 0)
        held_mark(&scene->agent, 0, scene->snapshot);
    if (r == 0 && plan->since)
        since_threads(target, scene->snapshot);
    if (r == -EAGAIN)
        r = -ETIMEDOUT;
    if (r == 0 && plan->waits)
        r = take_waits(scene);
    if (r == -ESRCH && plan->tid && target_alive(target))
        return 0; /* that thread has ended, or never was: no rows */
    return r;
}

/* ---- the whole ---- */

/* What a source has words for is left as it is. */
static int explain(const struct target *target, int error, struct text *why)
{
    return why->size || error == -EOPNOTSUPP ? error : snapshot_explain(target, 0, error, why);
}

static int has_ended(const struct scene *scene)
{
    text_puts(scene->why, "the process has ended; what was recorded of it can be asked:");
    for (size_t i = 0, n = 0; i < scene->tables->n; i++)
        if (scene->tables->items[i].recorded >= 0)
            text_printf(scene->why, "%s %s", n++ ? "," : "", scene->tables->items[i].name);
    return -ESRCH;
}

static int fill(struct scene *scene)
{
    int r = 0;

    for (size_t i = 0; i < scene->nwanted && r == 0; i++) {
        struct wanted *w = scene->wanted[i];
        scene->table = w->table;
        if (w->table->rows->fill && !(scene->told && w->table->rows->between))
            r = w->table->rows->fill(scene, &w->use, &w->rows);
    }
    return r;
}

static void scene_deinit(struct scene *scene)
{
    snapshot_free(scene->snapshot);
    held_list_deinit(&scene->agent);
    tasks_deinit(&scene->tasks);
    waits_deinit(&scene->waits);
    text_deinit(&scene->call_why);
}

static int fill_here(const struct tables *tables, const struct subject *of,
                     struct wanted *const *wanted, size_t n, const struct stop *stop,
                     struct text *why)
{
    _cleanup_(scene_deinit) struct scene scene = {
        .tables = tables,
        .process = of->process,
        .target = of->target,
        .recording = of->recording,
        .looker = of->looker,
        .left = of->left,
        .told = of->waits,
        .stop = stop,
        .why = why,
        .wanted = wanted,
        .nwanted = n,
    };

    make_plan(&scene);
    if (scene.passive && !of->target)
        return has_ended(&scene);
    int r = scene.plan.moment ? read_moment(&scene) : 0;
    if (r == 0)
        r = fill(&scene);
    if (r == 0 && scene.passive && !target_alive(of->target))
        r = -ESRCH; /* and what /proc said may be of another */
    return r < 0 ? explain(of->target, r, why) : 0;
}

/* ---- where others read the process ---- */

struct target *scene_target(struct process *process)
{
    return process->examiner ? process_held(process) : process_target(process);
}

/* Whether whoever reads the process adds the rows, of one that has ended those that it recorded.
 * The daemon adds those of what it keeps. */
static bool is_examined(const struct table *table, bool lives)
{
    const struct row_source *source = table->rows;

    if (table->recorded >= 0)
        return true;
    return lives && !source->catalog && !source->lasting && !source->recorded;
}

/* Has the rows read elsewhere; those of waits are made here, once their other ends are found. */
static int ask_for_rows(const struct subject *of, struct wanted *const *wanted, size_t n,
                        const struct stop *stop, struct text *why)
{
    const struct examiner *examiner = of->process->examiner;
    _cleanup_(scene_deinit) struct scene scene = {
        .process = of->process,
        .looker = of->looker,
    };
    bool between = false;

    int r =
        examiner->rows(examiner->arg, of->process, wanted, n, of->looker, stop, &scene.waits, why);
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct row_source *source = wanted[i]->table->rows;
        if (!source->between)
            continue;
        if (!between)
            r = scene_find_ends(of->process, of->looker, &scene.waits);
        between = true;
        if (r == 0)
            r = source->fill(&scene, &wanted[i]->use, &wanted[i]->rows);
    }
    return r;
}

static int fill_examined(const struct tables *tables, const struct subject *of, bool lives,
                         struct wanted *const *wanted, size_t n, const struct stop *stop,
                         struct text *why)
{
    _cleanup_free_ struct wanted **examined = calloc(n, sizeof *examined);
    _cleanup_free_ struct wanted **kept = calloc(n, sizeof *kept);
    size_t nexamined = 0, nkept = 0;
    int r = 0;

    if (!examined || !kept)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (is_examined(wanted[i]->table, lives))
            examined[nexamined++] = wanted[i];
        else
            kept[nkept++] = wanted[i];
    if (nexamined)
        r = ask_for_rows(of, examined, nexamined, stop, why);
    return r == 0 && nkept ? fill_here(tables, of, kept, nkept, stop, why) : r;
}

bool scene_is_examined(const struct process *process, const struct table *table)
{
    return process->examiner && !claim_exists(process->pid);
}

static bool is_read_here(const struct process *process, struct wanted *const *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!scene_is_examined(process, wanted[i]->table))
            return true;
    return false;
}

int scene_fill(const struct tables *tables, const struct subject *of, struct wanted *const *wanted,
               size_t n, const struct stop *stop, struct text *why)
{
    struct process *process = of->process;
    struct subject here = *of;

    if (!process || !process->examiner)
        return fill_here(tables, of, wanted, n, stop, why);
    bool lives = process_alive(process);
    if (!lives || !is_read_here(process, wanted, n)) {
        here.target = lives ? of->target : NULL;
        return fill_examined(tables, &here, lives, wanted, n, stop, why);
    }
    here.target = process_target(process); /* what is only held can't be read */
    int r = fill_here(tables, &here, wanted, n, stop, why);
    target_unref(here.target);
    return r;
}

int scene_provide(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                  struct text *why)
{
    for (size_t i = 0; i < n; i++)
        rows_init(&wanted[i]->rows, wanted[i]->table, wanted[i]->use.columns, NULL);
    return scene_fill(&python_tables, arg, wanted, n, stop, why);
}
