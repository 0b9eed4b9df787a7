/* <pid>/locks: who waits for what, and who holds it.
 *
 *   deadlock: thread 63 (seller) holds Lock ledger.lock (shop.py:24) and waits for Lock
 *     inventory.lock (shop.py:25) held by thread 68 (buyer), which holds ...
 *   thread 63 (seller) waits for Lock inventory.lock in sell (shop.py:25), for 12.3 s, held by
 *     thread 68 (buyer) (shop.py:31), for 14.0 s
 *   thread 70 (idle) waits for Queue jobs in work (shop.py:50)
 *
 * One fact a line (here they are folded), deadlocks first. In brackets behind an object stands the
 * line that waits, behind a holder the line where it took it. "likely" stands before "held by"
 * where only the code of that thread speaks for it. */
#include "agent/base/cleanup.h"
#include "fs/format/locks.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/since/since.h"
#include "fs/remote/tasks/tasks.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>

struct request {
    struct target *target;
    struct waits waits;
    bool has_tasks;
    struct asyncio asyncio;
    struct tasks tasks;
};

/* Where it can't be told where asyncio keeps its tasks, waits are those of threads alone. */
static int find_tasks(struct request *request)
{
    struct target *target = request->target;

    if (target->runtime.version < TASKS_OLDEST)
        return 0;
    _guard_mutex_(&target->lock);
    int r = target_refresh_maps(target);
    if (r == 0)
        r = asyncio_find(&target->memory, &target->maps, &target->runtime, &request->asyncio);
    request->has_tasks = r == 0;
    return r == -EOPNOTSUPP ? 0 : r;
}

static int read_tasks(struct request *request, const struct moment *moment,
                      const struct lwp_list *lwps)
{
    struct target *target = request->target;
    struct tasks *tasks = &request->tasks;
    const struct tasks_origin origin = {
        .runtime = &target->runtime,
        .asyncio = &request->asyncio,
        .codes = target->codes,
        .walk = moment->walk,
    };

    int r = tasks_read(target->view, &origin, tasks);
    for (size_t i = 0; i < tasks->nloops && r == 0; i++)
        if (tasks->loops[i].stack < moment->walk->n)
            tasks->loops[i].tid =
                moment_tid(target, lwps, &moment->walk->stacks[tasks->loops[i].stack]);
    return r;
}

static int read_waits(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct request *request = arg;
    const struct waits_origin origin = {.target = request->target,
                                        .walk = moment->walk,
                                        .lwps = lwps,
                                        .tasks = request->has_tasks ? &request->tasks : NULL};

    int r = request->has_tasks ? read_tasks(request, moment, lwps) : 0;
    if (r == 0)
        r = waits_read(&origin, &request->waits);
    request->waits.torn = !moment->verified || request->tasks.torn;
    return r;
}

static int finish_waits(void *arg)
{
    struct request *request = arg;

    struct target *target = request->target;
    struct tasks *tasks = &request->tasks;

    view_reset(target->view);
    int r = request->has_tasks
                ? tasks_finish(tasks, target->codes, &target->memory, &target->runtime.offsets)
                : 0;
    if (r == 0 && request->has_tasks) {
        since_tasks(target, &request->asyncio, tasks);
        r = waits_note_tasks(&request->waits, tasks);
    }
    return r < 0 ? r : waits_finish(&request->waits);
}

static void request_deinit(struct request *request)
{
    waits_deinit(&request->waits);
    tasks_deinit(&request->tasks);
}

int locks_render(struct file_context *context, struct text *out)
{
    _cleanup_(request_deinit) struct request request = {.target = context->target};
    const struct snapshot_options options = {
        .work = read_waits, .still = true, .finish = finish_waits, .arg = &request};
    struct snapshot *snapshot;

    if (!context->target->runtime.supported) {
        text_puts(&context->why, context->target->runtime.why);
        return -EOPNOTSUPP;
    }
    int r = find_tasks(&request);
    if (r == 0)
        r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    locks_add(&request.waits, snapshot, out);
    snapshot_free(snapshot);
    return 0;
}
