/* Who reads processes where the daemon itself doesn't want to (owner/owners.h): what the known
 * processes have to be asked for is asked here. */
#pragma once

#include "fs/format/stacks.h"
#include "fs/link/found.h"
#include "fs/process/membership.h"

/* What is told of a process that runs CPython. */
struct examined {
    struct membership membership;
    struct found_agent agent; /* but for its record; record_addr 0: it has none */
};

/* What has to be known of a process, in numbers. */
enum asked_what {
    ASKED_THREAD = 1, /* of a thread: by which number Python knows it, and its interpreter's */
    ASKED_GIL,     /* of an interpreter: where the switch interval of its GIL is, or 0, and for how
                      many nanoseconds that is worth waiting for */
    ASKED_OWN,     /* whether a thread is the agent's own: 1, or 0 */
    ASKED_RUNNING, /* whether a GIL is held, and how many threads run, plus 2^32 for each that waits
                      for one */
    ASKED_WAIT,    /* what such a wait was in vain for: words alone */
};

struct asked_for {
    enum asked_what what;
    pid_t tid;        /* of ASKED_THREAD */
    int64_t interp;   /* of ASKED_GIL */
    unsigned seconds; /* of ASKED_WAIT: it lasted so long ... */
    const char *lost; /* ... and this didn't happen; at most NAME_MAX bytes */
};

struct attacher;
struct looker;
struct process;
struct ring_copy;
struct stop;
struct wanted;

struct examiner {
    void *arg;
    /* What runs in the process that was started then, in clock ticks since boot. now: its
     * membership is wanted as it is now, and not as it was when it began. Errors as target_open(),
     * and -ETIMEDOUT, -EAGAIN, -EIO: who reads it hangs, is busy, or has crashed. */
    int (*examine)(void *arg, pid_t pid, uint64_t start_time, bool now, struct examined *out);
    /* What program it is: adds lines of format/identity.h. */
    int (*identify)(void *arg, pid_t pid, uint64_t start_time, struct text *out);
    /* Its stacks: as stacks_text. */
    int (*stacks)(void *arg, pid_t pid, uint64_t start_time, enum stacks_form form,
                  struct text *why, struct text *out);
    /* Rows of its tables (sql/engine.h), all of one moment: adds them to wanted[i]->rows, which are
     * begun. looker: for whom. Errors as scene_fill(). */
    int (*rows)(void *arg, struct process *process, struct wanted *const *wanted, size_t n,
                const struct looker *looker, const struct stop *stop, struct text *why);
    /* What is asked for: two numbers in out, as far as there are any. Errors as
     * snapshot_find_thread() (tree/from_snapshot.h), and why says more. */
    int (*tell)(void *arg, struct process *process, const struct asked_for *asked, uint64_t out[2],
                struct text *why);
    /* What came in the rings that it has recorded, living or ended: as recording_copy(). */
    int (*rings)(void *arg, struct process *process, struct ring_copy *copies, size_t n,
                 struct text *answer);
    const struct attacher *attacher; /* who puts agents into them */
};
