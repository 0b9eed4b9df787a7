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
#include "fs/process/process.h"
#include "fs/recording/held_threads.h"
#include "fs/tables/scene.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>

/* Reads the waits of the context's process, without who is at their other ends. */
static int read_waits(struct file_context *context, struct waits_reading *reading)
{
    struct snapshot_options options = {0};
    struct snapshot *snapshot;

    if (!context->target->runtime.supported) {
        text_puts(&context->why, context->target->runtime.why);
        return -EOPNOTSUPP;
    }
    waits_read_along(reading, &options);
    int r = waits_read_tasks(reading);
    if (r == 0)
        r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return r;
    r = waits_note_threads(&reading->waits, snapshot);
    snapshot_free(snapshot);
    return r;
}

int locks_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = context->target};

    int r = read_waits(context, &reading);
    if (r == 0)
        r = waits_write(&reading.waits, out);
    return r < 0 ? snapshot_error(context, r) : 0;
}

/* Reads them, or has them told. */
static int take_waits(struct file_context *context, struct waits_reading *reading)
{
    _cleanup_(text_deinit) struct text told = TEXT_INIT;
    int r = snapshot_say(context, "<pid>/locks", "", 0, &told);

    if (r > 0)
        return read_waits(context, reading);
    if (r == 0)
        r = told.size ? waits_parse(told.data, told.size, &reading->waits) : -EPROTO;
    if (r == -EPROTO) {
        text_puts(&context->why, "what reads this process said what makes no sense: read again");
        r = -EIO;
    }
    return r;
}

int locks_render(struct file_context *context, struct text *out)
{
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = context->target};
    const struct looker looker = {.access = context->access, .principals = *context->principals};

    int r = take_waits(context, &reading);
    if (r == 0)
        r = scene_find_ends(context->process, &looker, &reading.waits);
    if (r == 0)
        locks_add(&reading.waits, out);
    return r < 0 ? snapshot_error(context, r) : 0;
}
