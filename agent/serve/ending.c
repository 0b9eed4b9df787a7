#include "agent/serve/ending.h"

#include "agent/base/fork_count.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/cpython/gil.h"
#include "agent/eval/requests.h"
#include "agent/interpreter/own_threads.h"
#include "agent/interpreter/part.h"
#include "agent/probing/probing.h"
#include "agent/record/rings.h"
#include "agent/serve/python_thread.h"
#include "agent/stop/hold.h"
#include "agent/wire/record.h"

static bool unloadable, nobody_writes; /* with the lock */

bool ending_is_unloadable(void) { return unloadable; }

bool ending_nobody_writes(void) { return nobody_writes; }

static void disarm(struct interpreter *interpreter, void *unused) { parts_disarm(interpreter); }

static void give_up(struct interpreter *interpreter, void *unused)
{
    parts_give_up(interpreter);
    guest_drop(&interpreter->guest);
}

/* What could be given up. */
struct gave_up {
    bool everything;    /* nothing of ours is left that may refer to this library */
    bool nobody_inside; /* each interpreter's GIL was held since: nobody is in a function of ours */
};

/* Gives up whatever is ours in all interpreters, and leaves; main's GIL is held. */
static struct gave_up give_up_all(void)
{
    struct gave_up gave_up;

    interpreter_each_other(disarm, NULL);
    disarm(interpreter_main(), NULL);
    PyEval_SaveThread();
    bool left = parts_wait();
    gil_take(own_thread_self()->state, 0);
    gave_up.nobody_inside = interpreter_each_other(give_up, NULL) && left;
    give_up(interpreter_main(), NULL);
    parts_settle();
    interpreter_unsettle();
    gave_up.everything = interpreter_nothing_remains() && left;
    return gave_up;
}

bool ending_detach(struct request *request)
{
    struct interpreter *interpreter;
    struct gave_up gave_up;

    bool all_left = hold_end();
    bool wanted = own_thread_self()->state || rings_with_gil() || probing_installed();
    bool inside = wanted && interpreter_enter(0, 0, &interpreter) == 0;
    if (!requests_begin(request)) {
        if (inside)
            interpreter_leave(interpreter);
        requests_free(request);
        return false;
    }
    parts_begin_end();
    if (inside)
        gave_up = give_up_all();
    else
        gave_up = (struct gave_up){interpreter_nothing_remains(), !rings_with_gil()};
    requests_free(request);
    _guard_agent_;
    nobody_writes = gave_up.nobody_inside && all_left;
    /* without a GIL a thread may be on its way out of the destructor of our last object */
    unloadable = gave_up.everything && all_left && probe_agent_record.origin == ORIGIN_INJECTED &&
                 !python_thread_was_replaced() && !fork_begun && !python.free_threaded;
    agent_life.detached = true;
    return true;
}
