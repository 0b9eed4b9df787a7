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
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>

struct request {
    struct target *target;
    struct waits waits;
};

static int read_waits(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct request *request = arg;
    const struct waits_origin origin = {.target = request->target,
                                        .walk = moment->walk,
                                        .lwps = lwps};

    int r = waits_read(&origin, &request->waits);
    request->waits.torn = !moment->verified;
    return r;
}

static int finish_waits(void *arg)
{
    struct request *request = arg;

    view_reset(request->target->view);
    return waits_finish(&request->waits);
}

static void request_deinit(struct request *request) { waits_deinit(&request->waits); }

int locks_render(struct file_context *context, struct text *out)
{
    _cleanup_(request_deinit) struct request request = {.target = context->target};
    const struct snapshot_options options = {
        .work = read_waits, .still = true, .finish = finish_waits, .arg = &request};
    struct looker looker = {.access = context->access, .principals = *context->principals};
    const struct waits_reader reader = {looker_may_look, &looker};
    struct snapshot *snapshot;

    if (!context->target->runtime.supported) {
        text_puts(&context->why, context->target->runtime.why);
        return -EOPNOTSUPP;
    }
    int r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    r = waits_between(&request.waits, context->target->pid, &reader);
    if (r == 0)
        locks_add(&request.waits, snapshot, out);
    snapshot_free(snapshot);
    return r < 0 ? snapshot_error(context, r) : 0;
}
