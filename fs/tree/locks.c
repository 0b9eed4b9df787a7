/* <pid>/locks: who waits for what, and who holds it.
 *
 *   deadlock: thread 63 (seller) holds Lock ledger.lock (shop.py:24) and waits for Lock
 *     inventory.lock (shop.py:25) held by thread 68 (buyer), which holds ...
 *   thread 63 (seller) waits for Lock inventory.lock in sell (shop.py:25), for 12.3 s, held by
 *     thread 68 (buyer) (shop.py:31), for at least 14.0 s
 *   thread 70 (idle) waits for Queue jobs in work (shop.py:50)
 *
 * One fact a line (here they are folded), deadlocks first. In brackets behind an object stands the
 * line that waits, behind a holder the line where it took it. "likely" stands before "held by"
 * where others may hold it as well: one place of a Semaphore.
 *
 * asyncio's tasks, from CPython 3.12 on, stand behind the threads: "task 0x7f3a5e80 (handler-3)
 * waits for asyncio.Queue jobs in fetch (shop.py:70)", and so on for what they await: asyncio.Lock,
 * Event, Condition, Semaphore, Barrier, Queue, Future, and Task for each task that one awaits. */
#include "agent/base/cleanup.h"
#include "fs/format/locks.h"
#include "fs/recording/held_threads.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>

int locks_render(struct file_context *context, struct text *out)
{
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = context->target};
    struct snapshot_options options = {0};
    struct looker looker = {.access = context->access, .principals = *context->principals};
    const struct waits_reader reader = {looker_may_look, &looker};
    struct snapshot *snapshot;

    if (!context->target->runtime.supported) {
        text_puts(&context->why, context->target->runtime.why);
        return -EOPNOTSUPP;
    }
    waits_read_along(&reading, &options);
    int r = waits_read_tasks(&reading);
    if (r == 0)
        r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    if (!context->target->core) /* nobody waits for it any more */
        r = waits_between(&reading.waits, context->target->pid, &reader);
    if (r == 0)
        locks_add(&reading.waits, snapshot, out);
    snapshot_free(snapshot);
    return r < 0 ? snapshot_error(context, r) : 0;
}
