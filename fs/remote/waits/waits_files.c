/* Threads that wait in system calls: which they are, and where in the program. Who is at the other
 * end is found later (waits_between.c): that takes too long for a moment. */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/waits/waits.h"

#include <errno.h>
#include <string.h>

const char *waits_does(const struct blocking *blocking)
{
    switch (blocking->kind) {
    case BLOCKING_READ: return "reads";
    case BLOCKING_WRITE: return "writes to";
    case BLOCKING_ACCEPT: return "accepts at";
    case BLOCKING_CONNECT: return "connects";
    case BLOCKING_POLL:
    case BLOCKING_SELECT:
    case BLOCKING_EPOLL: return "polls";
    case BLOCKING_SLEEP: return blocking->timed ? "sleeps" : "waits for a signal";
    case BLOCKING_FLOCK:
    case BLOCKING_FCNTL:
    case BLOCKING_CHILD: return "waits for";
    case BLOCKING_FUTEX:
    case BLOCKING_UNKNOWN: break;
    }
    return NULL;
}

static const char *kind(const struct blocking *blocking)
{
    switch (blocking->kind) {
    case BLOCKING_FLOCK:
    case BLOCKING_FCNTL: return "file lock";
    case BLOCKING_CHILD: return "child";
    case BLOCKING_POLL:
    case BLOCKING_SELECT:
    case BLOCKING_EPOLL: return "descriptors";
    case BLOCKING_SLEEP: return "sleep";
    default: return "file";
    }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* The innermost frame that isn't one of the standard library's, in which programs wait. */
static const struct raw_frame *program_frame(const struct stack *stack)
{
    static const char *const files[] = {
        "/multiprocessing/connection.py",
        "/multiprocessing/queues.py",
        "/multiprocessing/popen_fork.py",
        "/multiprocessing/process.py",
        "/selectors.py",
        "/socket.py",
        "/ssl.py",
        "/subprocess.py",
    };

    for (size_t i = 0; i < stack->n; i++) {
        const struct raw_frame *frame = &stack->frames[i];
        bool library = false;
        for (size_t k = 0; k < ARRAY_SIZE(files) && frame->info; k++)
            library |= frame->info->state == CODE_LOADED && ends_with(frame->info->file, files[k]);
        if (!library)
            return frame;
    }
    return stack->frames;
}

static int note_asleep(struct waits *waits, const struct lwp *lwp, struct wait *wait)
{
    if (ARRAY_GROW(waits->asleep, waits->asleep_alloc, waits->nasleep + 1) < 0)
        return -ENOMEM;
    waits->asleep[waits->nasleep++] = (struct wait_asleep){lwp->blocking, lwp->ran};
    wait->asleep = (uint32_t)waits->nasleep;
    return 0;
}

static int add(struct waits *waits, const struct lwp *lwp, const struct stack *stack)
{
    struct wait *wait = waits_add(waits, (struct actor){.kind = ACTOR_THREAD, .id = lwp->tid},
                                  kind(&lwp->blocking));
    if (!wait)
        return 0;
    wait->does = waits_does(&lwp->blocking);
    wait->call = syscall_name(lwp->blocking.number);
    wait->timed = lwp->blocking.timed && lwp->blocking.kind != BLOCKING_SLEEP;
    if (stack) {
        const struct raw_frame *frame = program_frame(stack);
        wait->place.code = frame->info;
        wait->place.lasti = frame->lasti;
    }
    return note_asleep(waits, lwp, wait);
}

int waits_of_files(struct waits *waits, const struct waits_origin *origin)
{
    const struct lwp_list *lwps = origin->lwps;
    _cleanup_free_ const struct stack **stacks = calloc(lwps->n + 1, sizeof *stacks);
    const size_t n = waits->n; /* of these threads, ascending by tid: waits_of_threads() */
    size_t at = 0;
    int r = stacks ? 0 : -ENOMEM;

    for (size_t i = 0; i < origin->walk->n && r == 0; i++) {
        const struct stack *stack = &origin->walk->stacks[i];
        pid_t tid = stack->n ? moment_tid(origin->target, lwps, stack) : 0;
        const struct lwp *lwp = tid ? lwp_find(lwps, tid) : NULL;
        if (lwp)
            stacks[lwp - lwps->items] = stack;
    }
    for (size_t i = 0; i < lwps->n && r == 0; i++) {
        const struct lwp *lwp = &lwps->items[i];
        while (at < n && waits->items[at].who.id < lwp->tid)
            at++;
        if (lwp->blocking.kind == BLOCKING_FUTEX && lwp->blocking.shared) {
            /* a lock that processes share: who holds it is looked for with the others */
            if (at < n && waits->items[at].who.id == lwp->tid)
                r = note_asleep(waits, lwp, &waits->items[at]);
        } else if (lwp->blocking.number >= 0 && waits_does(&lwp->blocking)) {
            r = add(waits, lwp, stacks[i]);
        }
    }
    return r;
}
