/* What the daemon (fs/link) and the agent say to each other, and what the daemon reads of the agent
 * from outside: the only header, with wire.h, that both include.
 *
 * The channel is a pair of connected SOCK_SEQPACKET sockets, made by the agent inside the target;
 * the daemon takes one end with pidfd_getfd(2). One packet is one frame: a header and a body. Each
 * side takes the other for hostile: a frame that breaks a rule below ends the channel.
 *
 * Numbers are of the machine's byte order: both ends are on one machine.
 *
 * Life of a channel:
 *   the agent publishes its spare end in probe_agent_record.channel;
 *   the daemon takes it and says HELLO; the agent closes its own copy of that end and answers
 *   READY; requests and answers follow, many at once, told apart by `id`;
 *   when the daemon is gone (end of file) the agent drops what was queued, interrupts what runs,
 *   makes a new pair and publishes that.
 *
 * Changes:
 *   1  first version
 *   2  recording: RECORD, RINGS, the rings in struct probe_agent_record
 *   3  breakpoints: BREAKPOINTS, THREAD, ON_CRASH, ARMED, CRASH_SEEN, WATCHES, CRASHED;
 *      stops and watches in the record
 *   4  the agent's own threads, evals and ring_bytes in the record; lines before an EVAL
 *   5  flags of RECORD; stack, locals and left_out of exceptions; the table loop
 *   6  ALLOCATIONS, and where they are in the record; the table
 *      torch_profile
 *   7  SAMPLES, and where they are in the record; the table collectives
 *   8  HAPPENED; the number of a stop; why a thread was held, in hits;
 *      RETURN, UNTIL, STEP_OWN and PAUSE of one thread; FINISH goes to the caller;
 *      after, every and within of a breakpoint
 *   9  RELEASE, and `here` of BREAKPOINTS, THREAD and ON_CRASH; flags of a breakpoint
 *  10  NAN; pauses in the record
 *  11  DISABLE, ENABLE and HOOK of a breakpoint, and its flags DISABLED, LEAVING and ALL
 *  12  thread and depth of a breakpoint
 *  13  AS_JSON of EVAL
 *  14  lend in the record */
#pragma once

#include <stdint.h>

#define PROTO_VERSION 14
#define PROTO_FRAME_MAX 32768        /* bytes of a frame, header included */
#define PROTO_TEXT_MAX (1u << 20)    /* bytes of the Python text of one EVAL */
#define PROTO_OUTPUT_MAX (16u << 20) /* bytes of the output of one EVAL; the rest is dropped */
#define PROTO_REQUESTS_MAX 256       /* in flight at once on one channel */
#define PROTO_OWN_MAX 16             /* threads of the agent itself */
#define PROTO_WORDS_MAX 200          /* bytes of the words of a DONE, the NUL included */

enum proto_op {
    /* daemon to agent */
    PROTO_HELLO = 1, /* struct proto_hello; the first frame */
    PROTO_EVAL,      /* struct proto_eval, then the first part of the text */
    PROTO_TEXT,      /* id of an EVAL whose text is longer than a frame: its next part */
    /* no body. Not begun: it never will; running: KeyboardInterrupt. Either way a DONE follows, if
     * only when a call into C returns; an id that is not known (any more) is ignored */
    PROTO_CANCEL,
    PROTO_STATUS, /* no body; answered by READY with the same id, without needing Python */
    /* no body. Ends what runs, gives up all that is Python's, answers DONE, and ends. Whoever says
     * it has disarmed all watches, and closed the events that samples come of */
    PROTO_DETACH,
    /* struct proto_record; answered by DONE. Run like an EVAL, under the GIL, unless the table's
     * rows are written without it */
    PROTO_RECORD,
    /* struct proto_eval, then the first part of the text, as of an EVAL: struct proto_breakpoint,
     * one after the other, which are carried out all or none. Of proto_eval: flags is enum
     * proto_breakpoints_flags; thread is the number of the open file that they were written to, as
     * of RELEASE; depth is 0; interp is ignored: every interpreter is meant. The output says, for
     * people, what came of each, one line each, in their order; on failure `consumed` of DONE is
     * where in the text the one begins that is to blame, or which byte in the words of its where,
     * condition or captures is: a caret shows it */
    PROTO_BREAKPOINTS,
    PROTO_THREAD,   /* struct proto_thread; answered by DONE, once the thread goes on */
    PROTO_ON_CRASH, /* struct proto_on_crash; answered by DONE */
    /* struct proto_armed; answered by DONE: what became of a watch that was asked for, or that a
     * slot which has become free is disarmed in all threads */
    PROTO_ARMED,
    PROTO_CRASH_SEEN, /* no body, any id, not answered: what CRASHED spoke of has been taken down */
    PROTO_ALLOCATIONS, /* struct proto_allocations; answered by DONE */
    /* struct proto_samples; answered by DONE, if none are wanted any more without needing Python */
    PROTO_SAMPLES,
    /* struct proto_release, any id, not answered: an open file is closed, and what was to live as
     * long as it does (`here`) is taken back. At once, without needing Python: nothing hits or
     * stops because of it any more, and the threads that it holds go on. At the end of the channel
     * that is done for all files, and for orders that are still being carried out. */
    PROTO_RELEASE,
    /* agent to daemon */
    PROTO_READY = 64, /* struct proto_ready */
    PROTO_STARTED,    /* no body: the request has the GIL and its code begins to run */
    PROTO_OUTPUT,     /* a part of the output, UTF-8 */
    PROTO_DONE,       /* struct proto_done: the last frame of a request */
    /* no body, id 0: probe_agent_record.rings has changed. At any time after HELLO; a hint, which
     * is dropped where there is no room for it */
    PROTO_RINGS,
    /* no body, id 0: probe_agent_record.watches has changed. As RINGS; said only while a request is
     * carried out: later changes are found by looking */
    PROTO_WATCHES,
    /* struct proto_crashed, id 0: a fatal signal is being handled. The process waits for
     * CRASH_SEEN, for at most PROTO_CRASH_NS, and ends then. As RINGS */
    PROTO_CRASHED,
    /* no body, id 0: rows were written that readers of events wait for. At any time, at most once
     * in PROTO_HAPPENED_NS, so others may have been written since; a hint, as RINGS */
    PROTO_HAPPENED,
};

#define PROTO_HAPPENED_NS 1000000ull

struct proto_header {
    uint32_t size; /* of the whole frame: as long as the packet */
    uint16_t op;   /* enum proto_op */
    uint16_t zero;
    /* of the request, chosen by the daemon, but for RINGS never 0, never used twice,
     * not by another daemon either */
    uint64_t id;
};

struct proto_hello {
    uint32_t version; /* PROTO_VERSION */
    uint32_t zero;
    uint64_t nonce; /* comes back in READY: two daemons may have taken the same end */
};

enum proto_origin {
    ORIGIN_INJECTED = 1, /* by a daemon, through ptrace */
    ORIGIN_IMPORTED,     /* `import probing` */
    ORIGIN_STARTUP,      /* PROBING=1 in the environment at start-up */
    ORIGIN_REMOTE_EXEC,  /* by a script, PEP 768 */
};

struct proto_ready {
    uint32_t version; /* PROTO_VERSION */
    uint32_t origin;  /* enum proto_origin */
    uint64_t nonce;
    uint64_t since_ns;      /* CLOCK_REALTIME at which the agent started */
    int32_t channel_tid;    /* the thread that answers, in the target's own pid namespace */
    int32_t python_tid;     /* the thread that runs code; 0: not needed yet */
    uint64_t memory;        /* bytes that the agent occupies, its stacks included */
    uint64_t rings;         /* bytes of the rings that it records into */
    uint64_t evals;         /* how many ran */
    char agent_version[16]; /* NUL-terminated */
};

enum proto_eval_flags {
    EVAL_LAST = 1,      /* no more text follows: run an open block, complain of an open bracket */
    EVAL_ON_THREAD = 2, /* names resolve in the frames of `thread`, from `depth` on */
    EVAL_IN_FRAME = 4,  /* names resolve in exactly the frame at `depth` of `thread` */
    /* names resolve in exactly the frame at `depth`, 0 = where it was raised, of the exception that
     * holds the process (on-crash stop); -ENOENT: none does */
    EVAL_IN_CRASH = 8,
    EVAL_AS_JSON = 16, /* a value is shown as JSON, with what is in it */
};

struct proto_eval {
    uint64_t thread; /* pthread_t (threading.get_ident()) with the flags above, else 0 */
    uint32_t depth;  /* Python frame, 0 = innermost */
    uint32_t flags;
    int64_t interp; /* id of the interpreter; 0 is the main one */
    /* address of the GIL's switch interval (unsigned long, microseconds), or 0: a hint that lets
     * the agent wait less for the GIL */
    uint64_t gil_interval;
    uint32_t text_size;  /* bytes of the whole text, at most PROTO_TEXT_MAX */
    uint32_t output_max; /* bytes of output that are wanted, at most PROTO_OUTPUT_MAX */
    uint32_t before;     /* lines of the same text that came before, in other requests */
    uint32_t zero;
};

enum proto_record_action {
    RECORD_ON = 1, /* begin, or go on with another size or rate */
    RECORD_OFF,    /* leave nothing behind in the program; the rows stay */
};

enum proto_record_flags {
    RECORD_LOCALS = 1, /* of exceptions: what the raising frame binds */
};

/* What is to be recorded. */
struct proto_record {
    uint32_t table;  /* enum recorded (schema/rows.h) */
    uint32_t action; /* enum proto_record_action */
    uint32_t flags;  /* enum proto_record_flags: what isn't asked for isn't recorded any more */
    uint32_t layers; /* torch_trace: of so many modules one is looked at in a step, each time
                        another one; 0: all are */
    uint64_t size;   /* of its ring, bytes; 0: as it is, or RING_SIZE_DEFAULT. Rows are kept */
    /* torch_trace: the share of the steps, above 0 to 1; 0: as it is, or 0.05. loop: [s] from how
     * long on it is blocked, 0.01 to 3600; 0: as it is, or 0.1. torch_profile: how many steps, 1 to
     * 100; 0: 5 */
    double rate;
    int64_t interp;        /* as in struct proto_eval */
    uint64_t gil_interval; /* as in struct proto_eval */
};

/* ---- breakpoints ---- */

#define PROTO_BREAKPOINTS_MAX 4096     /* in the set */
#define PROTO_BREAKPOINT_TEXT_MAX 2000 /* bytes of one, as it is written, without its id */
#define PROTO_CAPTURES_MAX 32          /* expressions in one {} */
/* how long `stop` holds a thread where it doesn't say: five minutes */
#define PROTO_STOP_NS 300000000000ull
#define PROTO_STOP_MAX_NS (7 * 24 * 3600000000000ull)
#define PROTO_WATCHES_MAX 4 /* debug registers of a thread */

enum proto_breakpoints_flags {
    BREAKPOINTS_LAST = EVAL_LAST,
    /* what is in the set and not in the text is removed, but for what lives as long as another open
     * file; what is in both, with the same words and the same id or none, stays as it is, its hits
     * too */
    BREAKPOINTS_REPLACE = 16,
};

enum breakpoint_kind {
    /* takes one out: the one of that id, or, id 0, all in whose text the location (location_at) is,
     * byte for byte, the words `where`; -ENOENT: there is none */
    BREAKPOINT_REMOVE = 1,
    BREAKPOINT_LINE, /* where: FILE, matched from its end on whole parts of a path; line */
    /* where: [MODULE.]FUNC, FUNC as __qualname__ has it, or a part of it from its end */
    BREAKPOINT_FUNCTION,
    BREAKPOINT_RETURN, /* the same, when it returns: the value is captured as `return` */
    BREAKPOINT_RAISE,  /* where: a class, [MODULE.]TYPE, as it or a subclass is raised; "": any */
    BREAKPOINT_WATCH,  /* where: an expression */
    BREAKPOINT_WATCH_ADDRESS, /* address, length: 1, 2, 4 or 8, aligned */
    /* what isn't finite in a model of PyTorch; where: an expression that names it, "": in any */
    BREAKPOINT_NAN,
    /* switches the one of that id off, or on again; -ENOENT: there is none. Off it stays in the
     * set, with its id and what was counted, nothing of it is armed, and what it holds stays held
     */
    BREAKPOINT_DISABLE,
    BREAKPOINT_ENABLE,
    BREAKPOINT_HOOK, /* where the program calls its own breakpoint() */
};

enum breakpoint_action { BREAKPOINT_LOG, BREAKPOINT_STOP };
enum breakpoint_flags {
    /* it lives as long as the open file of its request; one in the set with the same id and words
     * that lives as long as another open file stays that one's */
    BREAKPOINT_HERE = 1,
    BREAKPOINT_DISABLED = 2, /* it is switched off; one in the set with the same words becomes so */
    BREAKPOINT_LEAVING = 4,  /* of RAISE: it is to be seen as it leaves what `within` says */
    BREAKPOINT_ALL = 8,      /* of STOP: the other threads are paused, too, when it holds one */
};
enum watch_route { ROUTE_ANY, ROUTE_PERF, ROUTE_PTRACE };

/* One change of the set, followed by its words, without NULs, in this order: text, where,
 * condition, the captures, and within, each with a NUL behind it; then by up to 7 NULs. */
struct proto_breakpoint {
    uint32_t size; /* of all that; a multiple of 8 */
    /* 0: the agent chooses the lowest that is free. One that is in use: it takes its place */
    uint32_t id;
    uint8_t kind, action, route; /* enum breakpoint_kind, breakpoint_action, watch_route */
    uint8_t flags;               /* enum breakpoint_flags */
    uint32_t line;               /* from 1 */
    uint64_t address;
    uint32_t length;
    /* as it is written, in the one way that reading the file shows it, without the id, `here` and
     * `disabled` */
    uint32_t text_size;
    uint32_t where_size;
    uint32_t condition_size; /* a Python expression; 0: none */
    uint32_t captures_size;  /* with their NULs */
    uint32_t captures;       /* how many; 0: all locals */
    uint64_t count;          /* how often it hits before it is done; 0: always */
    uint64_t stop_ns;        /* how long a thread is held; 0: PROTO_STOP_NS */
    /* the part of text that is the location: what `-LOCATION` is compared with */
    uint32_t location_at, location_size;
    uint64_t after, every; /* of the times that its condition holds the first ones don't count, and
                              of the others each every-th one does; 0: all */
    /* of RAISE: the file or directory in which it is to be seen first, or that it is to leave, as
     * where of LINE, or `own`: the program's own code; 0: any */
    uint32_t within_size;
    /* of WATCH: the frame, 0 = innermost, of the thread with this pthread_t in which names are
     * looked up; 0: of no thread alone, as an eval sees them. -ESRCH: no such thread; -ENOENT: no
     * such frame */
    uint32_t depth;
    uint64_t thread;
};

/* What a stopped thread is to do. */
enum thread_verb {
    THREAD_CONTINUE = 1, /* tid 0: all */
    THREAD_STEP,         /* to the next line of Python that it runs */
    THREAD_NEXT,         /* to the next line of this frame, or, where it returns, of its caller */
    THREAD_FINISH,       /* until this frame has returned, to the next line of its caller */
    THREAD_JUMP,         /* `line` of this frame is to be next; the thread stays stopped */
    THREAD_PAUSE,    /* each thread stops at the next line of Python that it runs, or `thread` */
    THREAD_RETURN,   /* until this frame is about to return */
    THREAD_UNTIL,    /* as NEXT, but to no line of this frame above `line` */
    THREAD_STEP_OWN, /* as STEP, but to no line of the standard library or an installed one */
};

struct proto_thread {
    uint32_t verb; /* enum thread_verb */
    int32_t tid;   /* the kernel's number, in the target's own pid namespace */
    int32_t line;
    uint32_t zero;
    uint64_t stop_ns;      /* of PAUSE, as in struct proto_breakpoint */
    int64_t interp;        /* as in struct proto_eval; of PAUSE ignored */
    uint64_t gil_interval; /* as in struct proto_eval */
    uint64_t thread;       /* of PAUSE: pthread_t of the only one that is meant; 0: all are */
    /* number of the open file that a step or PAUSE lives as long as, and what it holds; 0: it does
     * not. A step lives no longer than what held the thread before it, unless it says */
    uint64_t here;
};

enum crash_mode { CRASH_OFF, CRASH_RECORD, CRASH_STOP };

struct proto_on_crash {
    uint32_t mode; /* enum crash_mode */
    uint32_t zero;
    uint64_t stop_ns; /* as in struct proto_breakpoint */
    int64_t interp;   /* as in struct proto_eval */
    uint64_t gil_interval;
    /* number of the open file that it holds for: beside what was ordered without one and for
     * others, the most of which is done; 0: it holds until the next such order */
    uint64_t here;
};

/* What lives as long as an open file ends. */
struct proto_release {
    uint64_t here; /* its number, chosen by the daemon; never 0, never used twice on a channel */
};

/* Sampling of allocations (agent/wire/allocations.h) begins anew, or ends. */
struct proto_allocations {
    uint64_t mean;         /* bytes from one sample to the next; 0: no more samples */
    int64_t interp;        /* 0: it is one of all interpreters */
    uint64_t gil_interval; /* as in struct proto_eval */
};

/* Threads are to be told by SIGTRAP that a quantum of their processor time has ended, and a handler
 * is to take samples (agent/wire/trap_samples.h); or no thread is told any more. The daemon does
 * the telling, by perf events with this as sig_data. */
#define PROTO_SAMPLE_DATA 0x454c504d4153ull /* "SAMPLE": beyond any PROTO_WATCH_DATA's use */

struct proto_samples {
    uint32_t on;
    uint32_t zero;
    int64_t interp;        /* 0: it is one of all interpreters */
    uint64_t gil_interval; /* as in struct proto_eval */
};

#define PROTO_CRASH_NS 1000000000ull

struct proto_crashed {
    int32_t signal;
    int32_t tid;      /* in the target's own pid namespace */
    uint64_t address; /* si_addr */
};

/* A debug register's watch is armed, or can't be, or, of a slot that is free, is disarmed. */
struct proto_armed {
    uint32_t slot;               /* of probe_agent_record.watches */
    uint32_t change;             /* of that, as it was read */
    int32_t error;               /* 0, or an errno */
    uint32_t route;              /* enum watch_route: by which */
    char words[PROTO_WORDS_MAX]; /* NUL-terminated: why not, or in which threads not */
};

struct proto_done {
    /* 0, or an errno: EIO it raised (the output ends with the traceback), EINVAL syntax, EINTR
     * cancelled while it ran, ECANCELED before, ESRCH no such thread, ENOENT no such frame or
     * interpreter, EBUSY, EFBIG, ENOMEM, ESHUTDOWN the interpreter is ending */
    int32_t error;
    uint32_t flags;    /* enum proto_done_flags */
    uint64_t consumed; /* bytes of the text that are done with; the rest is the beginning of a
                          statement that is not complete yet */
    uint64_t wait_ns;  /* until it had the GIL */
    uint64_t run_ns;   /* from then on */
    char words[PROTO_WORDS_MAX]; /* NUL-terminated, may be empty: what failed, for people */
};

enum proto_done_flags {
    DONE_CUT = 1,        /* output beyond output_max was dropped */
    DONE_UNLOADABLE = 2, /* of DETACH: nothing in the process refers to the library any more */
};

/* What a loaded agent shows to a daemon that reads the target's memory: exported from the library
 * as the data symbol probe_agent_record. */
#define RECORD_MAGIC 0x5346424f5250ull /* "PROBFS" */

enum record_state {
    RECORD_IDLE, /* loaded, not started; also in a child after fork */
    RECORD_RUNNING,
    RECORD_ENDED, /* detached: may be started again */
};

#define PROTO_RINGS_MAX 16

/* The place of a table's rows: a memfd, as agent/wire/ring_format.h says. A reader of this sees,
 * while it changes, that `change` is odd, or another one afterwards. */
struct probe_ring_place {
    uint32_t change;
    uint32_t on;    /* 1: it is being recorded, or will be from its first row on */
    int32_t fd;     /* -1: there is none */
    int32_t error;  /* errno: why it could not be made at its first use,
                       or why nothing is recorded any more; 0 */
    uint64_t inode; /* of fd */
    uint64_t size;  /* of the rows, bytes */
    double rate;    /* as in struct proto_record */
};

/* A thread that is stopped, in a table of PROBE_STOPS_MAX; read like struct probe_ring_place. */
#define PROBE_STOPS_MAX 1024

/* Threads that a PAUSE still waits for, in a table of as many; an entry is free where thread isn't
 * a pthread_t. */
#define PROBE_PAUSE_FREE 0u
#define PROBE_PAUSE_TAKEN 1u /* it is being filled in */

struct probe_pause {
    uint64_t thread;
    uint64_t here; /* as of struct proto_thread */
};

enum stop_why {
    STOP_NONE,
    STOP_BREAKPOINT,
    STOP_WATCH,
    STOP_STEP,
    STOP_RETURN,
    STOP_PAUSE,
    STOP_CRASH
};

struct probe_stop {
    uint32_t change;
    int32_t tid;       /* in the target's own pid namespace */
    uint32_t why;      /* enum stop_why; STOP_NONE: the entry is free */
    uint32_t id;       /* of the breakpoint, if any */
    int32_t line;      /* where */
    uint32_t number;   /* of the stop, from 1: no other one of this agent has it */
    uint64_t since_ns; /* CLOCK_REALTIME */
    uint64_t until_ns; /* CLOCK_REALTIME: when it goes on by itself */
};

/* A piece of memory that the agent wants to be told of when it is written, by SIGTRAP: the daemon
 * arms it in every thread, once `trap` is 1. Read like struct probe_ring_place.
 * By either route the thread that has written gets SIGTRAP with si_code TRAP_PERF, si_perf_type
 * PERF_TYPE_BREAKPOINT and, as si_perf_data, PROTO_WATCH_DATA of the slot and of its `change` as it
 * was armed. Where one instruction writes to several slots only one of them may be told.
 * TRAP_HWBKPT comes of a register that a tracer left armed when it died. */
#define PROTO_WATCH_DATA(slot, change) ((uint64_t)(change) << 8 | (slot))

struct probe_watch {
    uint32_t change;
    uint32_t id;      /* of the breakpoint; 0: the slot is free, nothing is to be armed */
    uint64_t address; /* aligned to length */
    uint32_t length;  /* 1, 2, 4 or 8 */
    uint32_t route;   /* enum watch_route: which ones may be used */
};

/* A thread of the program that has the GIL and sleeps outside Python lends it to the agent's, if
 * the daemon has it call `enter`: void f(struct probe_lend *), with this one. It must be at a place
 * where a thread may be borrowed, and have no frame of Python's or of its library. */
#define PROTO_LEND_NS 20000000ull /* so long it is lent at a time, unless Python takes longer */

enum lend_result {
    LEND_NONE,    /* it is still lent, or was never */
    LEND_DONE,    /* nothing of what was asked for is left to be done */
    LEND_UNDONE,  /* something is, and Python is needed for it */
    LEND_REFUSED, /* the thread doesn't have the GIL, or other threads might take it, too */
};

struct probe_lend {
    uint32_t left;  /* 1: no thread is in `enter`: set where that returns to, outside the library */
    int32_t result; /* enum lend_result: of the last one */
    uint64_t enter; /* 0: the agent never ran */
};

struct probe_agent_record {
    uint64_t magic;
    uint32_t version; /* PROTO_VERSION */
    uint32_t size;    /* of this structure */
    int32_t state;    /* enum record_state */
    int32_t pid;      /* in the target's namespace: another one means that it forked */
    int32_t channel;  /* descriptor of the spare end; -1: a daemon has it */
    int32_t origin;   /* enum proto_origin */
    int32_t channel_tid, python_tid;
    uint64_t handle;     /* what dlopen() returned; 0: not loaded by a daemon */
    uint64_t generation; /* grows with each new pair */
    struct probe_ring_place rings[PROTO_RINGS_MAX]; /* by enum recorded */
    uint64_t stops;    /* address of struct probe_stop[PROBE_STOPS_MAX] */
    uint32_t stopped;  /* how many of them are in use */
    uint32_t on_crash; /* enum crash_mode */
    uint32_t trap;     /* 1: our handler of SIGTRAP stands: watches may be armed */
    uint32_t zero;
    uint64_t
        own; /* address of int32_t[PROTO_OWN_MAX]: its threads, in the target's pid namespace */
    uint64_t evals, ring_bytes; /* as in struct proto_ready */
    struct probe_watch watches[PROTO_WATCHES_MAX];
    uint64_t allocations; /* address of struct allocations (allocations.h); 0: never sampled */
    uint64_t samples;     /* address of struct trap_samples (trap_samples.h); 0: never taken */
    uint64_t pauses;      /* address of struct probe_pause[PROBE_STOPS_MAX]; 0: there was none */
    struct probe_lend lend;
};

/* The entry point that an injection calls on a thread of its own, without the GIL, perhaps before
 * Python is there: exported as probe_agent_start. Starts the channel's thread and returns at once:
 * 0, or -errno. Starting a running agent does nothing and is 0. */
struct agent_boot {
    uint64_t handle; /* of dlopen(); 0 when it was loaded earlier: the old one stays valid */
    uint32_t origin; /* enum proto_origin */
    uint32_t zero;
};
int probe_agent_start(const struct agent_boot *boot);

/* How co_filename of the agent's own Python begins. */
#define AGENT_FILES "<probefs "
/* The files whose code, and all that it calls, runs in a thread of the program's on behalf of an
 * eval, a watch or a condition. The list names.py has, too. */
#define AGENT_ENTRIES                                               \
 {                                                                  \
  "<probefs evaluate>", "<probefs watching>", "<probefs condition>" \
 }

#define AGENT_RECORD_SYMBOL "probe_agent_record"
#define AGENT_START_SYMBOL "probe_agent_start"
/* for another copy of the library: agent/probing/other_copies.h */
#define AGENT_MODULE_SYMBOL "probe_agent_module"

_Static_assert(sizeof(struct proto_header) == 16, "protocol");
_Static_assert(sizeof(struct proto_hello) == 16, "protocol");
_Static_assert(sizeof(struct proto_ready) == 72, "protocol");
_Static_assert(sizeof(struct proto_eval) == 48, "protocol");
_Static_assert(sizeof(struct proto_done) == 232, "protocol");
_Static_assert(sizeof(struct proto_record) == 48, "protocol");
_Static_assert(sizeof(struct probe_ring_place) == 40, "protocol");
_Static_assert(sizeof(struct proto_breakpoint) == 104, "protocol");
_Static_assert(sizeof(struct proto_thread) == 56, "protocol");
_Static_assert(sizeof(struct proto_on_crash) == 40, "protocol");
_Static_assert(sizeof(struct proto_crashed) == 16, "protocol");
_Static_assert(sizeof(struct proto_armed) == 216, "protocol");
_Static_assert(sizeof(struct probe_stop) == 40, "protocol");
_Static_assert(sizeof(struct probe_watch) == 24, "protocol");
_Static_assert(sizeof(struct proto_allocations) == 24, "protocol");
_Static_assert(sizeof(struct proto_samples) == 24, "protocol");
_Static_assert(sizeof(struct proto_release) == 8, "protocol");
_Static_assert(sizeof(struct probe_agent_record) == 880, "protocol");
_Static_assert(sizeof(struct agent_boot) == 16, "protocol");
