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
 *   the daemon takes it and says HELLO; the agent closes its own copy of that end and answers READY;
 *   requests and answers follow, many at once, told apart by `id`;
 *   when the daemon is gone (end of file) the agent drops what was queued, interrupts what runs,
 *   makes a new pair and publishes that.
 *
 * Changes:
 *   1  first version
 *   2  recording: RECORD, RINGS, the rings in struct probe_agent_record */
#pragma once

#include <stdint.h>

#define PROTO_VERSION 2
#define PROTO_FRAME_MAX 32768          /* bytes of a frame, header included */
#define PROTO_TEXT_MAX (1u << 20)      /* bytes of the Python text of one EVAL */
#define PROTO_OUTPUT_MAX (16u << 20)   /* bytes of the output of one EVAL; the rest is dropped */
#define PROTO_REQUESTS_MAX 256         /* in flight at once on one channel */
#define PROTO_WORDS_MAX 200            /* bytes of the words of a DONE, the NUL included */

enum proto_op {
    /* daemon to agent */
    PROTO_HELLO = 1,  /* struct proto_hello; the first frame */
    PROTO_EVAL,       /* struct proto_eval, then the first part of the text */
    PROTO_TEXT,       /* id of an EVAL whose text is longer than a frame: its next part */
    PROTO_CANCEL,     /* no body. Not begun: it never will; running: KeyboardInterrupt. Either way a
                         DONE follows, if only when a call into C returns; an id that is not known (any more) is ignored */
    PROTO_STATUS,     /* no body; answered by READY with the same id, without needing Python */
    PROTO_DETACH,     /* no body. Ends what runs, gives up all that is Python's, answers DONE, and ends */
    PROTO_RECORD,     /* struct proto_record; answered by DONE. Run like an EVAL, under the GIL, unless
                         the table's rows are written without it */
    /* agent to daemon */
    PROTO_READY = 64, /* struct proto_ready */
    PROTO_STARTED,    /* no body: the request has the GIL and its code begins to run */
    PROTO_OUTPUT,     /* a part of the output, UTF-8 */
    PROTO_DONE,       /* struct proto_done: the last frame of a request */
    PROTO_RINGS,      /* no body, id 0: probe_agent_record.rings has changed. At any time after HELLO; a hint,
                         which is dropped where there is no room for it */
};

struct proto_header {
    uint32_t size;    /* of the whole frame: as long as the packet */
    uint16_t op;      /* enum proto_op */
    uint16_t zero;
    uint64_t id;      /* of the request, chosen by the daemon, but for RINGS never 0, never used twice, not
                         by another daemon either */
};

struct proto_hello {
    uint32_t version; /* PROTO_VERSION */
    uint32_t zero;
    uint64_t nonce;   /* comes back in READY: two daemons may have taken the same end */
};

enum proto_origin {
    ORIGIN_INJECTED = 1, /* by a daemon, through ptrace */
    ORIGIN_IMPORTED,     /* `import probing` */
    ORIGIN_STARTUP,      /* PROBING=1 in the environment at start-up */
    ORIGIN_REMOTE_EXEC,  /* by a script, PEP 768 */
};

struct proto_ready {
    uint32_t version;       /* PROTO_VERSION */
    uint32_t origin;        /* enum proto_origin */
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
    EVAL_LAST = 1,          /* no more text follows: run an open block, complain of an open bracket */
    EVAL_ON_THREAD = 2,     /* names resolve in the frames of `thread`, from `depth` on */
    EVAL_IN_FRAME = 4,      /* names resolve in exactly the frame at `depth` of `thread` */
};

struct proto_eval {
    uint64_t thread;        /* pthread_t (threading.get_ident()) with the flags above, else 0 */
    uint32_t depth;         /* Python frame, 0 = innermost */
    uint32_t flags;
    int64_t interp;         /* id of the interpreter; 0 is the main one */
    uint64_t gil_interval;  /* address of the GIL's switch interval (unsigned long, microseconds), or
                               0: a hint that lets the agent wait less for the GIL */
    uint32_t text_size;     /* bytes of the whole text, at most PROTO_TEXT_MAX */
    uint32_t output_max;    /* bytes of output that are wanted, at most PROTO_OUTPUT_MAX */
};

enum proto_record_action {
    RECORD_ON = 1,          /* begin, or go on with another size or rate */
    RECORD_OFF,             /* leave nothing behind in the program; the rows stay */
};

/* What is to be recorded. */
struct proto_record {
    uint32_t table;         /* enum recorded (schema/rows.h) */
    uint32_t action;        /* enum proto_record_action */
    uint64_t size;          /* of its ring, bytes; 0: as it is, or RING_SIZE_DEFAULT. Rows are kept */
    double rate;            /* torch_trace: the share of the steps, above 0 to 1; 0: as it is, or 0.05 */
    int64_t interp;         /* as in struct proto_eval */
    uint64_t gil_interval;  /* as in struct proto_eval */
};

struct proto_done {
    int32_t error;          /* 0, or an errno: EIO it raised (the output ends with the traceback),
                               EINVAL syntax, EINTR cancelled while it ran, ECANCELED before, ESRCH no
                               such thread, ENOENT no such frame or interpreter, EBUSY, EFBIG, ENOMEM,
                               ESHUTDOWN the interpreter is ending */
    uint32_t flags;         /* enum proto_done_flags */
    uint64_t consumed;      /* bytes of the text that are done with; the rest is the beginning of a
                               statement that is not complete yet */
    uint64_t wait_ns;       /* until it had the GIL */
    uint64_t run_ns;        /* from then on */
    char words[PROTO_WORDS_MAX]; /* NUL-terminated, may be empty: what failed, for people */
};

enum proto_done_flags {
    DONE_CUT = 1,           /* output beyond output_max was dropped */
    DONE_UNLOADABLE = 2,    /* of DETACH: nothing in the process refers to the library any more */
};

/* What a loaded agent shows to a daemon that reads the target's memory: exported from the library
 * as the data symbol probe_agent_record. */
#define RECORD_MAGIC 0x5346424f5250ull /* "PROBFS" */

enum record_state {
    RECORD_IDLE,     /* loaded, not started; also in a child after fork */
    RECORD_RUNNING,
    RECORD_ENDED,    /* detached: may be started again */
};

#define PROTO_RINGS_MAX 16

/* Where a table's rows are: a memfd, as agent/ring_format.h says. Whoever reads this while it changes
 * sees `change` odd, or another one afterwards. */
struct probe_ring_place {
    uint32_t change;
    uint32_t on;             /* 1: it is being recorded, or will be from its first row on */
    int32_t fd;              /* -1: there is none */
    int32_t error;           /* errno: why it could not be made at its first use,
                                or why nothing is recorded any more; 0 */
    uint64_t inode;          /* of fd */
    uint64_t size;           /* of the rows, bytes */
    double rate;             /* as in struct proto_record */
};

struct probe_agent_record {
    uint64_t magic;
    uint32_t version;        /* PROTO_VERSION */
    uint32_t size;           /* of this structure */
    int32_t state;           /* enum record_state */
    int32_t pid;             /* in the target's namespace: another one means that it forked */
    int32_t channel;         /* descriptor of the spare end; -1: a daemon has it */
    int32_t origin;          /* enum proto_origin */
    int32_t channel_tid, python_tid;
    uint64_t handle;         /* what dlopen() returned; 0: not loaded by a daemon */
    uint64_t generation;     /* grows with each new pair */
    struct probe_ring_place rings[PROTO_RINGS_MAX]; /* by enum recorded */
};

/* The entry point that an injection calls on a thread of its own, without the GIL, perhaps before
 * Python is there: exported as probe_agent_start. Starts the channel's thread and returns at once:
 * 0, or -errno. Starting a running agent does nothing and is 0. */
struct agent_boot {
    uint64_t handle;         /* of dlopen(); 0 when it was loaded earlier: the old one stays valid */
    uint32_t origin;         /* enum proto_origin */
    uint32_t zero;
};
int probe_agent_start(const struct agent_boot *boot);

#define AGENT_RECORD_SYMBOL "probe_agent_record"
#define AGENT_START_SYMBOL "probe_agent_start"
#define AGENT_MODULE_SYMBOL "probe_agent_module" /* for another copy of the library: agent/loaded.h */

_Static_assert(sizeof(struct proto_header) == 16, "protocol");
_Static_assert(sizeof(struct proto_hello) == 16, "protocol");
_Static_assert(sizeof(struct proto_ready) == 72, "protocol");
_Static_assert(sizeof(struct proto_eval) == 40, "protocol");
_Static_assert(sizeof(struct proto_done) == 232, "protocol");
_Static_assert(sizeof(struct proto_record) == 40, "protocol");
_Static_assert(sizeof(struct probe_ring_place) == 40, "protocol");
_Static_assert(sizeof(struct probe_agent_record) == 696, "protocol");
_Static_assert(sizeof(struct agent_boot) == 16, "protocol");
