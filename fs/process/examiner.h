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
    ASKED_WAIT,    /* what such a wait was in vain for: words alone */
    ASKED_OWN,     /* whether a thread is the agent's own: 1, or 0 */
    ASKED_RUNNING, /* whether a GIL is held, and how many threads run, plus 2^32 for each that waits
                      for one */
    ASKED_FREE_THREADED, /* whether its interpreter is: 0 or 1 */
    ASKED_HELD,          /* of a thread: since when it is held, realtime_ns(), or 0 */
    ASKED_ALL_HELD,      /* whether all threads that run Python are, but for the agent's: 0 or 1 */
    /* lines of text: */
    ASKED_AGENT,        /* how its agent is, as far as it can be seen: agent_text_passive() */
    ASKED_STOPPED,      /* which threads are held: held_text_all() ... */
    ASKED_STOPPED_MANY, /* ... or how many: held_text_count() */
    ASKED_STATE,        /* of a thread: how it is held (tree/thread_order.h) */
    ASKED_TIMEOUTS,     /* for how long its groups wait: ctl_add_timeouts() (tree/ctl.h) */
};

struct asked_for {
    enum asked_what what;
    pid_t tid;        /* of what is asked of a thread */
    int64_t interp;   /* of ASKED_GIL */
    unsigned seconds; /* of ASKED_WAIT: it lasted so long ... */
    const char *lost; /* ... and this didn't happen; at most NAME_MAX bytes */
};

/* What a file has to know of its process, which its own .c asks and answers. */
struct asked_line {
    const char *file; /* path of its entry in the layout */
    pid_t tid;        /* of its place, as in struct file_context */
    unsigned depth;
    const char *word;
    const char *line; /* of bytes that the file knows; "": none */
    size_t size;
};

struct attacher;
struct interrupt;
struct looker;
struct process;
struct ring_copy;
struct sampler_source;
struct stop;
struct waits;
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
     * begun. looker: for whom. waits: where one of them is of waits, these, instead of its rows,
     * without who is at their other ends; zero at first, and else. Errors as scene_fill(). */
    int (*rows)(void *arg, struct process *process, struct wanted *const *wanted, size_t n,
                const struct looker *looker, const struct stop *stop, struct waits *waits,
                struct text *why);
    /* What has to be read of any process at another end of a wait (remote/waits/asked.h): adds the
     * answer. */
    int (*end)(void *arg, pid_t pid, const char *question, struct text *answer);
    /* What is asked for: two numbers in out, as far as there are any, and words or lines in
     * why. Errors as snapshot_find_thread() (tree/from_snapshot.h), and why says more. */
    int (*tell)(void *arg, struct process *process, const struct asked_for *asked, uint64_t out[2],
                struct text *why);
    /* What a file asks for: adds text to out. -errno, and why says more. */
    int (*say)(void *arg, struct process *process, const struct asked_line *asked,
               const struct interrupt *interrupt, struct text *why, struct text *out);
    /* What came in the rings that it has recorded, living or ended: as recording_copy(). */
    int (*rings)(void *arg, struct process *process, struct ring_copy *copies, size_t n,
                 struct text *answer);
    const struct attacher *attacher;         /* who puts agents into them */
    const struct sampler_source *sampled_by; /* who samples them */
};
