/* All stacks of a process at one moment.
 *
 * What is shown has been: either nothing that was read changed between two readings while no
 * thread held the GIL (or its holder slept), or the GIL's holder was stopped for the time of the
 * copy. What could not be read consistently is marked, never guessed. */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/moment/standing.h"
#include "fs/remote/moment/target.h"

#define SNAPSHOT_FRAMES_MAX 1024         /* shown of one stack from its innermost end, and ... */
#define SNAPSHOT_FRAMES_TAIL 128         /* ... from its outermost one */
#define SNAPSHOT_FRAMES_TOTAL (1u << 19) /* of all threads; beyond, 8 and 8 of each are shown */

enum frame_kind {
    FRAME_PYTHON,
    FRAME_NATIVE,
    FRAME_UNREADABLE, /* `func` says why */
    FRAME_CUT,        /* `line` frames were left out here */
};

struct frame {
    enum frame_kind kind;
    int line;                 /* Python: current line, or -1 where the line table has none */
    struct position position; /* Python: the same with columns */
    const char *func; /* Python: qualified name; native: demangled symbol, NULL if there is none;
                         escaped UTF-8, owned by the snapshot */
    const char *file; /* Python: co_filename; native: the module's base name, "" if unknown */
    uint64_t address; /* Python: of the frame; native: the program counter */
    uint64_t code;    /* Python: of the code object */
    uint64_t offset;  /* native: of the program counter in the module's file addresses */
    bool apart;       /* native: where it belongs among the Python frames isn't known (merge.h) */
    bool jit;         /* Python: `line` is near where it is (raw_frame.jit); no columns are known */
};

enum thread_state {
    THREAD_RUNNING,  /* on a processor or ready for one */
    THREAD_IDLE,     /* waits; `wait` says in which system call, "futex" and the like */
    THREAD_GIL_WAIT, /* waits for the GIL */
    THREAD_STOPPED,  /* by a job control signal */
    THREAD_TRACED,   /* stopped by a debugger */
    THREAD_DEAD,     /* has ended, or its kernel thread is unknown */
    THREAD_FAULTED,  /* of a core file: it got the signal in `wait`, of which the process died */
};

#define THREAD_HELD_MAX 24

struct thread {
    pid_t tid;
    uint64_t tstate;    /* 0: no Python thread */
    uint64_t thread_id; /* pthread_t */
    int64_t interp_id;
    bool is_main; /* the process's first thread */
    bool holds_gil, waits_gil;
    bool handles_exception; /* an except or finally block of it runs, or it raises */
    enum collecting {
        COLLECTING_NO,
        COLLECTING_YES,
        COLLECTING_UNKNOWN, /* its interpreter collects garbage, in which thread isn't known */
    } collecting;
    enum thread_state state;
    char wait[80];              /* THREAD_IDLE: the system call's name */
    char held[THREAD_HELD_MAX]; /* what holds it, set by recording/held_threads.h; "": nothing */
    const char *waits;    /* "waits for inventory.lock held by 68", set by format/locks.h; NULL: it
                             isn't known to; owned by the snapshot */
    const char *name;     /* threading's name, else the kernel's; escaped; owned by the snapshot */
    struct frame *frames; /* innermost first */
    size_t nframes;
    size_t depth; /* Python frames that it has, shown or cut */
    uint64_t cpu_user_ns, cpu_system_ns;
    struct standing standing; /* set by remote/since/since.h */
};

struct snapshot {
    pid_t pid;
    const struct core *core; /* the target's, if it is a core file; NULL: a living process */
    uint32_t version;
    bool supported; /* else only native frames, and `why` */
    char why[160];
    struct thread *threads; /* by interpreter, then the main thread first, then by tid;
                               threads that never ran Python last */
    size_t nthreads;
    bool cut;                 /* there are more threads, or interpreters, than the limits allow */
    bool gil_held;            /* by any thread, of any interpreter */
    bool gil_off;             /* no interpreter needs one to run Python (free-threaded builds) */
    struct reading_cost cost; /* what taking it took */
    struct strings *strings;  /* what names and files point into */
};

struct lwp_list;
struct moment;

struct snapshot_options {
    bool native;  /* native frames too */
    pid_t tid;    /* only this thread; 0: all */
    size_t depth; /* only so many Python frames of each stack, the innermost; 0: all. Then
                     threads' depth is void, and more than these may be there */
    /* Further reading in the same moment, of stacks that may be those of more threads than tid:
     * what moment_work (moment.h) may do. NULL: none. Runs once before any thread is stopped for
     * it, too, so that the view has what it will read. Not called where Python can't be read. */
    int (*work)(void *arg, const struct moment *moment, const struct lwp_list *lwps);
    bool still; /* work needs to know which threads it saw asleep, and which have run: `moved` of
                   its lwps, once finish is called */
    /* After that, when nothing stands still any more and the target's lock is
     * still held. NULL: none */
    int (*finish)(void *arg);
    void *arg;
};

/* Takes one. -ESRCH: the process (or the thread asked for) is gone; -EPERM; -ENOMEM; -ETIMEDOUT:
 * no consistent moment found and nothing could be marked; what work or finish returned. The caller
 * owns *out. */
int snapshot_take(struct target *target, const struct snapshot_options *options,
                  struct snapshot **out);
void snapshot_free(struct snapshot *snapshot);
/* For _cleanup_(). */
static inline void cleanup_snapshot(struct snapshot **snapshot) { snapshot_free(*snapshot); }

/* "running", "idle", "gil-wait", "stopped", "traced", "dead" or "faulted". */
const char *thread_state_name(enum thread_state state);
/* "running, gil", "idle, futex", "gil-wait", "held, breakpoint 3": what stands in brackets behind a
 * thread's name, before for how long. */
void thread_describe(const struct thread *thread, struct text *out);

/* The Python stack of one thread, as it lies in the target. */
struct raw_stack {
    pid_t tid;
    uint64_t tstate, interp;
    const struct raw_frame *frames; /* innermost first; `depth` of the tree is the index here */
    size_t nframes;
};

/* Runs `visit` on the stack of one thread at a moment when nothing of it changes (moment.h), to
 * decode what its frames refer to. It may run several times: each run starts afresh. It reads
 * only through the view, so that what it read can be verified, and stays within a few
 * milliseconds, for the GIL's holder may be stopped meanwhile. Returns what visit returned, or
 * -ESRCH (no such thread), -EPERM, -EOPNOTSUPP (unknown version), -ETIMEDOUT. */
int snapshot_visit(struct target *target, pid_t tid,
                   int (*visit)(void *arg, struct view *view, const struct raw_stack *stack),
                   void *arg);
