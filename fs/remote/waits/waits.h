/* The waits of the threads and asyncio tasks of a process, at one moment: who waits for what, and
 * who holds it.
 *
 * Several finders fill one list, each in its own .c: waits_of_threads() and so on. They run within
 * a moment (remote/moment/moment.h), read only through the target's view, and say nothing that
 * they don't know: what only speaks for a holder is HELD_LIKELY, and who can't be told is left
 * out. waits_finish() then looks up lines and finds those that wait for each other in a circle. */
#pragma once

#include "fs/base/addresses.h"
#include "fs/base/text.h"
#include "fs/proc/blocking.h"
#include "fs/remote/frames/code.h"
#include "fs/remote/moment/standing.h"
#include "fs/remote/moment/target.h"
#include "fs/remote/tasks/tasks.h"

#define WAITS_MAX 32768u        /* of one process, and as many holders */
#define WAITS_NONE UINT32_MAX   /* no such index */
#define WAITS_CYCLES_MAX 256u   /* deadlocks that are told */
#define WAITS_UNKNOWN_NS (-1ll) /* for how long isn't known */

struct lwp_list;
struct snapshot;
struct snapshot_options;

enum actor_kind {
    ACTOR_THREAD,
    ACTOR_TASK,
    ACTOR_PROCESS,
    ACTOR_GONE, /* a thread that has ended, or that fork left behind: nobody will give back what it
                   holds */
};

/* One who waits, or who is waited for. */
struct actor {
    enum actor_kind kind;
    pid_t id;      /* of a thread: its tid; of a process: its pid; of a task: the tid of the thread
                      that runs its loop. 0: not known */
    uint64_t task; /* of a task: its address; else 0 */
    uint32_t name; /* waits_string(): of a task or process. 0: none; of threads: wait_thread */
};

/* A line of the program. Finders set code and lasti, or code to NULL; waits_finish() the others. */
struct wait_place {
    struct code *code; /* of the target's cache; void after waits_finish() */
    int32_t lasti;
    uint32_t func, file; /* waits_string(); 0: not known */
    int line;            /* 0: not known */
};

enum certainty { HELD_CERTAIN, HELD_LIKELY };

struct wait_holder {
    struct actor who;
    enum certainty certainty;
    struct wait_place taken; /* where it took it */
    int64_t since_ns;        /* for how long it has had it, or WAITS_UNKNOWN_NS */
    const char *state;       /* static: "which is dead (zombie)"; NULL: nothing is to be said */
};

struct wait {
    struct actor who;
    struct wait_place
        place;         /* the line that waits: of the program, not of threading and the like */
    const char *kind;  /* static: the class ("Lock", "RLock", "Queue"), "GIL", "mutex" */
    const char *call;  /* static: what was called of it ("acquire", "get"); NULL: nothing */
    const char *does;  /* static: in place of "waits for": "reads"; NULL: that */
    const char *held;  /* static: how the holders stand to it: "held by", "run by" */
    const char *note;  /* static: what to say where no holder is known; NULL: nothing */
    uint64_t address;  /* of the object, or of the mutex; 0: it has none */
    uint32_t name;     /* waits_string(): how the program finds it ("inventory.lock",
                          "self._lock of <shop.Shop object at 0x7f12>"); 0: not known */
    int64_t since_ns;  /* for how long it has waited, or WAITS_UNKNOWN_NS */
    uint32_t holders;  /* the first of nholders in waits->holders */
    uint32_t nholders; /* several: one of them is enough to end the wait */
    bool timed;        /* it has a timeout, and ends by itself */
    uint32_t asleep;   /* in waits->asleep, + 1; 0: it isn't one of those */
    uint32_t cycle;    /* of waits->cycles, set by waits_finish(); WAITS_NONE: not in one */
};

/* A deadlock: each of these waits has the holder that waits in the next one, the last the first. */
struct wait_cycle {
    uint32_t first, n; /* in waits->links: indices of waits */
    bool likely;       /* one of the holders is only likely */
    bool timed;        /* one of the waits has a timeout */
    bool between;      /* of processes: waits_between.c found it */
};

/* What a thread slept in when it was seen. */
struct wait_asleep {
    struct blocking blocking;
    uint64_t ran; /* as in struct lwp */
};

/* A thread of the snapshot. */
struct wait_thread {
    pid_t tid;
    uint32_t name; /* waits_string() */
    struct standing standing;
};

struct waits {
    struct wait *items;
    size_t n, alloc;
    struct wait_holder *holders;
    size_t nholders, holders_alloc;
    struct wait_cycle *cycles;
    size_t ncycles, cycles_alloc;
    uint32_t *links;
    size_t nlinks, links_alloc;
    struct wait_asleep *asleep; /* of threads that wait in system calls, for waits_between() */
    size_t nasleep, asleep_alloc;
    struct wait_thread *threads; /* ascending by tid: waits_note_threads() */
    size_t nthreads;
    struct text strings;
    char *words; /* where those strings are that are static elsewhere: of waits that were told */
    struct addresses names;      /* waits_string(), 0: none was found; by what is waited for */
    const struct lwp_list *lwps; /* of waits_read(); void after waits_finish() */
    bool cut;                    /* a limit was reached: waits or holders are missing */
    bool late;                   /* waits_between() took too long, and has left some out */
    bool torn;                   /* some may be missing: the moment was not good enough */
};

/* What the finders start from, all of the same moment. */
struct waits_origin {
    struct target *target;
    const struct walk *walk;
    const struct lwp_list *lwps; /* with system calls */
    const struct tasks *tasks;   /* NULL: not read */
};

/* Runs all finders. *out is cleared first and reused from call to call (start with {0}). 0, also
 * where nobody waits; -ESRCH, -EPERM, -ENOMEM. What can't be read is left out, not an error. */
int waits_read(const struct waits_origin *origin, struct waits *out);
/* Drops the waits of threads that have run meanwhile (`moved` of the lwps that waits_read() had),
 * looks up the lines, and finds the deadlocks. The target need not stand still any more, but its
 * lock is still held since waits_read(). -ENOMEM. */
int waits_finish(struct waits *waits);
/* Brings the waits of tasks into the order of tasks_finish(), and takes for how long they have
 * lasted from what remote/since/since.h has said of the tasks. Before waits_finish(). -ENOMEM. */
int waits_note_tasks(struct waits *waits, const struct tasks *tasks);
/* Takes the names of threads from the snapshot of the same moment, and for how long they stand:
 * those that it lacks aren't shown. After waits_finish(). -ENOMEM. */
int waits_note_threads(struct waits *waits, const struct snapshot *snapshot);
/* NULL: it isn't shown. */
const struct wait_thread *waits_thread(const struct waits *waits, pid_t tid);
void waits_deinit(struct waits *waits);

/* Adds them as numbers, and strings without control characters, for who tells them: after
 * waits_note_threads(), before waits_between(). -ENOMEM, -EFBIG. */
int waits_write(struct waits *waits, struct text *out);
/* Reads them, of whoever said so: all numbers are in range. out: zero at first; to be deinited in
 * any case. -EPROTO: it is none of this. -ENOMEM. */
int waits_parse(const char *text, size_t size, struct waits *out);

/* What snapshot_take() reads waits with. */
struct waits_reading {
    struct target *target;
    struct waits waits; /* finished once the snapshot is taken; the owner's to deinit */

    /* the reading's own */
    bool has_tasks;
    struct asyncio asyncio;
    struct tasks tasks;
};
/* Has the waits of asyncio tasks be read as well, if there can be any: that costs as much as
 * reading the tasks. Without target->lock, before the snapshot. -ESRCH, -EPERM, -ENOMEM. */
int waits_read_tasks(struct waits_reading *reading);
/* Has them read in the moment of a snapshot: sets work, still, finish and arg of its options. Where
 * Python can't be read there are none. */
void waits_read_along(struct waits_reading *reading, struct snapshot_options *options);
void waits_reading_deinit(struct waits_reading *reading);
/* The reader that waits are told for. */
struct waits_reader {
    bool (*may_look)(void *arg, pid_t pid); /* whether a process may be told of */
    void *arg;
    /* Asks somebody else what has to be read of a process, its memory and its arguments
     * (asked.h): adds the answer. NULL: that is read here. */
    int (*ask)(void *arg, pid_t pid, const char *question, struct text *answer);
    void *ask_arg;
};
/* Looks on this host for who is at the other end of what threads of process pid wait for in system
 * calls (pipes, sockets, locks of files, children), and finds deadlocks of several processes. After
 * waits_finish(), without the target's lock: it may take as long as looking at the descriptors of
 * all processes does (proc/descriptors.h). A process that may not be told of is as good as none.
 * -ENOMEM. */
int waits_between(struct waits *waits, pid_t pid, const struct waits_reader *reader);

/* A string of these waits, escaped UTF-8. Never NULL. */
const char *waits_string(const struct waits *waits, uint32_t string);

/* ---- for finders ---- */

/* Adds a wait without a holder; the pointer is valid until the next. NULL: -ENOMEM, or cut is set
 * and the finder may go on. */
struct wait *waits_add(struct waits *waits, struct actor who, const char *kind);
/* Adds a holder to the wait that was added last. NULL as waits_add(). */
struct wait_holder *waits_add_holder(struct waits *waits, struct actor who,
                                     enum certainty certainty);
/* Begins a string; what is added to waits->strings until waits_string_end() belongs to it. */
uint32_t waits_string_begin(struct waits *waits);
void waits_string_end(struct waits *waits);

/* What was found already of how the program finds an object. False: it wasn't looked for. */
bool waits_name_known(const struct waits *waits, uint64_t address, uint32_t *name);
/* Keeps that; name 0: it is not to be found. */
void waits_name_keep(struct waits *waits, uint64_t address, uint32_t name);

/* The finders: 0, -ESRCH, -EPERM, -ENOMEM. */
int waits_of_threads(struct waits *waits, const struct waits_origin *origin);
int waits_of_tasks(struct waits *waits, const struct waits_origin *origin);
int waits_of_files(struct waits *waits, const struct waits_origin *origin);

/* How a thread waits in a system call: "reads", "waits for"; static. NULL: not for anything outside
 * of its process. */
const char *waits_does(const struct blocking *blocking);

struct semlock;
/* at: an instruction on the line of the with statement; -1: not known. */
typedef int semlock_visit(void *arg, const struct semlock *lock, pid_t tid, struct code *code,
                          int32_t at);
/* Visits the locks of multiprocessing's in whose with blocks threads stand, and that their process
 * has taken. Returns what visit returned first other than 0; 0, -ENOMEM. */
int waits_each_semlock(const struct waits_origin *origin, semlock_visit *visit, void *arg);
