/* <pid>/tasks: the asyncio tasks that are not done, and what awaits what.
 *
 *   Loop 0x7f3a4c10 (asyncio.unix_events._UnixSelectorEventLoop) [thread 1234]
 *     Task 0x7f3a5e80 (Task-1) [waiting] main
 *       main (/w/app.py:20)
 *       TaskGroup.__aexit__ (/usr/lib/python3.13/asyncio/taskgroups.py:72)
 *       TaskGroup._aexit (/usr/lib/python3.13/asyncio/taskgroups.py:121)
 *       <_asyncio.Future object at 0x7f3a6010>
 *       Task 0x7f3a5f20 (fetch-1) [waiting] fetch
 *         fetch (/w/app.py:8)
 *         sleep (/usr/lib/python3.13/asyncio/tasks.py:718)
 *         <_asyncio.Future object at 0x7f3a6090>
 *
 * Each line is one thing that is awaited, and everything one step further right under a task is
 * what that task awaits: its coroutine, what that awaits (a frame a line, outermost first), the
 * object it waits for where that is no task, and the tasks it waits for, which have the same below
 * them. A task that several await stands in full under the first of them and as "(see above)"
 * under the others; one nested too deep stands further down, at the left. Nobody awaits the tasks
 * directly under a loop, unless they await each other in a circle. Tasks stand in the order of
 * their creation from 3.14 on, where the interpreter keeps it, and before by name.
 *
 * Behind a loop's thread stands where that is, if it isn't in its selector, by which task, and for
 * how long once that is a second: [thread 1234, blocked for 12.0 s in load (/w/app.py:31), by task
 * handler-3]; less than that is "busy in".
 *
 * In brackets: running (its code runs), ready (its loop will resume it), waiting; ", cancelling"
 * once it was asked to. `grep -F '[running'` and the like find tasks, `grep -w fetch` those
 * of a coroutine. A process without tasks, or without asyncio, has an empty file. */
#include "agent/base/cleanup.h"
#include "fs/format/tasks.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/since/since.h"
#include "fs/remote/tasks/tasks.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>

struct request {
    struct target *target;
    struct asyncio asyncio;
    struct tasks tasks;
    bool warm;    /* the view has what will be read, roughly */
    unsigned bad; /* moments that were not good enough */
    bool torn;    /* so is the one that was taken in the end */
};

#define BAD_MAX 16 /* then what was seen is shown and marked */

static int read_once(struct request *request)
{
    struct target *target = request->target;
    struct tasks_origin origin = {
        .runtime = &target->runtime,
        .asyncio = &request->asyncio,
        .codes = target->codes,
        .walk = &target->walk,
    };

    request->warm = true;
    return tasks_read(target->view, &origin, &request->tasks);
}

/* -EINPROGRESS: a thread stands still that should not have to wait for a first reading, in which
 * each copy leads to the next. */
static int read_tasks(struct moment *moment, void *arg)
{
    struct request *request = arg;
    struct target *target = request->target;

    if (moment->tracer && !request->warm)
        return -EINPROGRESS;
    int r = read_once(request);
    if (r == 0 && request->tasks.torn)
        r = -EAGAIN;
    if (r == 0 && !moment->verified)
        r = view_verify(target->view);
    request->torn = r == -EAGAIN;
    return r == -EAGAIN && ++request->bad >= BAD_MAX ? 0 : r;
}

static int read_in_moment(struct request *request)
{
    struct target *target = request->target;
    struct moment moment;

    int r = moment_run(target, read_tasks, request, &moment);
    if (r == -EINPROGRESS) { /* whatever comes of it: it tells what to copy */
        r = read_once(request);
        if (r == 0)
            r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
        if (r == 0)
            r = moment_run(target, read_tasks, request, &moment);
    }
    view_reset(target->view); /* thousands of pages that are of no use for the next stack */
    return r;
}

/* The kernel's numbers of the threads that run loops. */
static int name_threads(struct request *request)
{
    struct target *target = request->target;
    struct tasks *tasks = &request->tasks;
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};

    if (!tasks->nloops)
        return 0;
    int r = target_lwps(target, LWP_STATES, &lwps);
    if (r < 0)
        return r;
    for (size_t i = 0; i < tasks->nloops; i++)
        if (tasks->loops[i].stack < target->walk.n)
            tasks->loops[i].tid =
                moment_tid(target, &lwps, &target->walk.stacks[tasks->loops[i].stack]);
    return 0;
}

static int find_asyncio(struct file_context *context, struct asyncio *asyncio)
{
    struct target *target = context->target;
    const struct runtime *runtime = &target->runtime;

    if (!runtime->supported) {
        text_puts(&context->why, runtime->why);
        return -EOPNOTSUPP;
    }
    if (runtime->version < TASKS_OLDEST) {
        text_printf(&context->why, "asyncio tasks can be read from CPython 3.12 on; this is %u.%u",
                    runtime->version >> 24, runtime->version >> 16 & 0xff);
        return -EOPNOTSUPP;
    }
    int r = target_refresh_maps(target);
    if (r == 0)
        r = asyncio_find(&target->memory, &target->maps, runtime, asyncio);
    if (r == -EOPNOTSUPP)
        text_puts(&context->why, "where asyncio keeps its tasks is not known: the section "
                                 ".AsyncioDebug of the interpreter's files can't be read (were "
                                 "they replaced while it runs?)");
    return r;
}

bool tasks_listed(const struct file_context *context)
{
    const struct runtime *runtime = &context->target->runtime;

    return runtime->supported && runtime->version >= TASKS_OLDEST;
}

static void request_deinit(struct request *request) { tasks_deinit(&request->tasks); }

int tasks_render(struct file_context *context, struct text *out)
{
    struct target *target = context->target;
    _cleanup_(request_deinit) struct request request = {.target = target};

    if (!target)
        return -ESRCH;
    _guard_mutex_(&target->lock);
    int r = find_asyncio(context, &request.asyncio);
    if (r == 0)
        r = read_in_moment(&request);
    if (r == 0)
        r = name_threads(&request);
    if (r == 0)
        r = tasks_finish(&request.tasks, target->codes, &target->memory, &target->runtime.offsets);
    if (r == 0)
        since_tasks(target, &request.asyncio, &request.tasks);
    if (r == 0)
        r = tasks_tree_add(&request.tasks, out);
    if (r == 0 && request.torn)
        text_puts(out,
                  "[torn: the process changes its tasks too fast, or they are damaged; some may "
                  "be missing or wrong]\n");
    if (r == -EAGAIN)
        r = -ETIMEDOUT;
    return r < 0 && r != -EOPNOTSUPP ? snapshot_error(context, r) : r;
}
