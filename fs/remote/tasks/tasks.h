/* The asyncio tasks of a process: those of every interpreter, thread and event loop that are not
 * done, with their coroutines' stacks and who awaits whom. CPython 3.12 to 3.15.
 *
 * A task is found where asyncio.all_tasks() finds it: in the lists of the C implementation (3.14
 * on), and in asyncio.tasks' _scheduled_tasks and _eager_tasks. Reading is a pure function of the
 * target's memory at one moment. A thousand tasks are read in a few dozen calls: side by side, one
 * link of all their chains in each round. */
#pragma once

#include "fs/base/text.h"
#include "fs/remote/frames/code.h"
#include "fs/remote/frames/frames.h"
#include "fs/remote/moment/standing.h"
#include "fs/remote/moment/target.h"
#include "fs/remote/tasks/asyncio.h"

#define TASKS_OLDEST 0x030c0000u /* CPython 3.12: in older ones tasks can't be found */
#define TASKS_MAX 32768u         /* in one process */
#define TASK_FRAMES_MAX 256u     /* shown of one task, from its outermost one */
#define TASKS_FRAMES_TOTAL (1u << 18)
#define TASKS_EDGES_MAX (1u << 18) /* pairs of a task and one that awaits it */
#define TASK_NAME_MAX 256u         /* code points of a task's or coroutine's name */
#define TASK_LOOPS_MAX 4096u
/* The limits of one reading, which takes some 50 us + 3 us a task: processor time, of which a busy
 * machine may give little, and time in all, for the target's memory may be slow to come. */
#define TASKS_CPU_NS 500000000ull
#define TASKS_DEADLINE_NS 10000000000ull

#define TASKS_NONE UINT32_MAX /* no such index */

enum task_state {
    TASK_RUNNING, /* its code runs, or called what runs (another task's first step, say) */
    TASK_READY,   /* will be resumed by its loop: new, or what it waited for is done */
    TASK_WAITING,
    TASK_UNREADABLE, /* nothing but the address is valid */
};

struct task_frame {
    uint64_t addr; /* _PyInterpreterFrame */
    uint64_t code;
    int32_t lasti;     /* byte offset in the bytecode */
    struct code *info; /* of the code cache; NULL: unreadable */
    uint32_t next;     /* inwards: what this one awaits, or TASKS_NONE */
    bool jit;          /* raw_frame.jit */
};

struct task {
    uint64_t addr, coro_addr; /* of it, and of its coroutine */
    enum task_state state;
    bool cancelling; /* it was asked to cancel, and hasn't ended yet */
    bool torn;       /* what the innermost frame awaits could not be read */
    bool cut;        /* has more than TASK_FRAMES_MAX frames, or a limit on all was reached */
    uint32_t loop;   /* index, or TASKS_NONE */
    uint64_t waiter; /* the future or task whose end it waits for, its _fut_waiter; 0: none */
    uint32_t name;   /* tasks_string() */
    uint32_t coro;   /* its coroutine's qualified name, or its type for a foreign one */
    uint32_t awaits; /* what it waits for where that is no task of the list: as repr() would
                        name it; "" */
    uint32_t frames; /* the outermost frame, or TASKS_NONE */
    uint32_t nframes;
    uint32_t awaiting; /* the first of nawaiting in `edges`: the tasks that it awaits */
    uint32_t nawaiting;
    uint32_t nawaiters; /* how many await it */
    uint32_t order;     /* among those whose order of creation is known (the C implementation's
                           from 3.14 on, once they have been suspended); TASKS_NONE: it isn't */
    struct standing standing; /* set by remote/since/since.h */
};

struct task_loop {
    uint64_t addr, interp;
    uint32_t stack;           /* of the thread that runs it: index in the walk; or TASKS_NONE */
    pid_t tid;                /* that thread; 0: none, or unknown. The caller's to set before
                                 tasks_finish() */
    uint32_t type;            /* tasks_string() */
    struct task_frame at;     /* that thread's innermost frame; info NULL: none, or unreadable */
    struct standing standing; /* of that thread, set by remote/since/since.h */
};

struct task_edge {
    uint32_t awaiter, task;
};

struct tasks {
    struct task *items; /* by loop, then in the order of creation, then by name, with numbers in
                           names as numbers, where that order isn't known */
    size_t n, alloc;
    struct task_loop *loops; /* in the order of their threads */
    size_t nloops, loops_alloc;
    struct task_frame *frames;
    size_t nframes, frames_alloc;
    struct task_edge *edges; /* by awaiter, then by task */
    size_t nedges, edges_alloc;
    struct text strings;
    uint64_t read_ns; /* CLOCK_MONOTONIC: not before that */
    bool cut;         /* there are more: a limit was reached */
    bool torn;        /* some may be missing, or one of them is torn: a list or a frame is broken,
                         or was just being changed by a thread that was stopped there. Another
                         moment may help. */
};

/* What tasks_read() starts from. */
struct tasks_origin {
    const struct runtime *runtime;
    const struct asyncio *asyncio;
    struct code_cache *codes;
    const struct walk *walk; /* the stacks of all threads, through the same view */
};

/* Reads all tasks through the view. Code objects are looked up in the cache; call tasks_finish()
 * before the frames' names are used, when the target need not stand still any more. *out is
 * cleared first and reused from call to call (start with {0}). 0, also without any task or any
 * asyncio; -ESRCH, -EPERM, -ENOMEM. What can't be read is marked, not an error. */
int tasks_read(struct view *view, const struct tasks_origin *origin, struct tasks *out);

/* tasks_read() in a moment of a snapshot, and which threads run the loops: lwps. */
int tasks_read_along(struct target *target, const struct asyncio *asyncio,
                     const struct moment *moment, const struct lwp_list *lwps, struct tasks *out);

/* Loads the code objects met, and sorts. 0, -ESRCH, -EPERM, -ENOMEM. */
int tasks_finish(struct tasks *tasks, struct code_cache *codes, const struct memory *memory,
                 const struct offsets *offsets);
void tasks_deinit(struct tasks *tasks);

/* A string of these tasks, escaped UTF-8. Never NULL. */
const char *tasks_string(const struct tasks *tasks, uint32_t string);

/* Whether the thread of a loop stands in its selector. After tasks_finish(). */
bool task_loop_selects(const struct task_loop *loop);
/* The task that a loop runs, or TASKS_NONE: none that is known. */
uint32_t task_loop_runs(const struct tasks *tasks, uint32_t loop);

/* "running", "ready", "waiting", each with ", cancelling" where that holds; "unreadable". */
const char *task_state_name(const struct task *task);
