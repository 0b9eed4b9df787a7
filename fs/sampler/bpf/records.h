/* What the kernel's sampler (program.bpf.c) and the daemon share: what it is told of a process, and
 * what it writes. Included by both, so it has fixed widths and needs no header of a C library but
 * <stdint.h>. Process and thread numbers are those of the daemon's pid namespace. */
#pragma once

#include <stdint.h>

#define KERNEL_FRAMES_MAX 256      /* Python frames of one stack, from its innermost end */
#define KERNEL_FRAME_BYTES 128     /* of a frame in the target, that are read at most */
#define KERNEL_STACK_PIECE 16384   /* bytes of a C stack that one record has, */
#define KERNEL_STACK_STEP 4096     /* ... copied up to the end of a page each time, */
#define KERNEL_STACK_PIECES 4      /* ... and so many records at most */
#define KERNEL_RUNNING_MAX 4       /* event loops of which it is seen which task they run */
#define KERNEL_NAME_BYTES 128      /* of the object that is a task's name */
#define KERNEL_SLOTS 1024          /* profiles at a time */
#define KERNEL_PROCESSES_MAX 4096  /* processes that are watched, children included */
#define KERNEL_THREADS_MAX 32768   /* threads whose absence is measured at a time */
#define KERNEL_TLS_MAX 4           /* places where a thread may keep its thread state */
#define KERNEL_WINDOW_NS 100000000 /* in which at most ... */
#define KERNEL_WINDOW_SWITCHES 500 /* ... so many stacks are taken as threads leave a processor */
#define KERNEL_WAKE_SHARE 4        /* the reader is woken when this part of its ring is full */

/* The maps, in the order in which the daemon makes them. */
enum kernel_map {
    MAP_LAYOUT,  /* array of 1: struct kernel_layout */
    MAP_WATCHED, /* hash: process number -> struct kernel_watched */
    MAP_RINGS,   /* array of maps: slot -> ring buffer */
    MAP_FIGURES, /* per processor, array: slot -> struct kernel_figures */
    MAP_AWAY,    /* hash: thread number of the first namespace -> struct kernel_away */
    MAP_SCRATCH, /* per processor, array of 1: struct kernel_scratch */
    KERNEL_MAPS
};

/* Offsets of fields in the running kernel's structures (bytes), and which pid namespace is the
 * daemon's: level 0 is the first one, `space` its struct pid_namespace. */
struct kernel_layout {
    uint32_t task_fsbase, task_pid, task_state, task_leader, task_thread_pid, task_events;
    uint32_t event_period; /* struct perf_event */
    uint32_t pid_level, pid_numbers, upid_size, upid_nr, upid_ns;
    uint32_t level;
    uint64_t space;
};

#define WATCHED_SWITCHES 1u /* waits are wanted */
#define WATCHED_NATIVE 2u   /* registers and a copy of the C stack, too */
#define WATCHED_CHILDREN 4u /* processes that it forks are watched as well */
#define WATCHED_TASKS 8u    /* it has asyncio, and where is known */
#define WATCHED_EVENTS 16u  /* threads without an event are told of */

/* A process: how its interpreter lies in memory. Offsets in bytes, -1: this version has no such
 * field. */
struct kernel_watched {
    uint32_t slot, serial;       /* of the profile: a slot is used again, a serial isn't */
    uint32_t flags;              /* WATCHED_ */
    int32_t tls[KERNEL_TLS_MAX]; /* offsets from the thread's fs base; 0: no more */
    int32_t tstate_frame, tstate_cframe, cframe_frame, tstate_thread_id, tstate_interp;
    int32_t interp_gil; /* -1: the GIL is at `gil` */
    int32_t gil_holder, gil_locked;
    int32_t frame_size; /* bytes to read, up to KERNEL_FRAME_BYTES */
    int32_t frame_previous, frame_code, frame_instr, frame_owner, frame_entry;
    uint32_t owner_mark; /* a frame with this owner or a higher one marks a call of the loop */
    uint64_t gil;
    /* WATCHED_TASKS: which task runs says the thread state (3.14 on), or a dict by event loops */
    uint64_t running;                               /* that dict */
    int32_t tstate_task;                            /* -1: in the dict */
    int32_t dict_keys, keys_nentries, keys_indices; /* of it; its table of indices is ... */
    int32_t keys_log2_index_bytes, keys_size;       /* ... 1 << this long, or has so many bytes */
    int32_t task_coro, task_name;
    int32_t task_callback, task_waiter; /* -1: who awaits it isn't looked for */
    int32_t gen_frame;                  /* of a coroutine: its frame, ... */
    uint32_t gen_frame_points;          /* ... or a pointer to it (up to 3.10) */
};

/* Since the profile began; those of all processors are summed up. */
struct kernel_figures {
    uint64_t samples;    /* stacks taken */
    uint64_t lost;       /* of them, those that found no room */
    uint64_t no_stack;   /* threads without a thread state */
    uint64_t unreadable; /* stacks with a frame whose memory is not in memory */
    uint64_t switches;   /* times that a thread left a processor */
    uint64_t ns;         /* spent in the program, all of it the process's time */
    uint64_t window, window_switches, every; /* of waits: the program's own */
};

enum kernel_kind {
    KERNEL_CPU,    /* a quantum of processor time has ended */
    KERNEL_FAULT,  /* so many pages were touched first */
    KERNEL_AWAY,   /* a thread leaves the processor, and waits */
    KERNEL_READY,  /* ... though it could go on */
    KERNEL_BACK,   /* it is back: `since` says since when it was away, weight for how long */
    KERNEL_BORN,   /* struct kernel_born */
    KERNEL_NATIVE, /* struct kernel_native, one or more: belongs to the record that this processor
                      writes next */
};

#define RECORD_GIL 1u        /* the thread holds the GIL */
#define RECORD_NO_STATE 2u   /* it has no thread state */
#define RECORD_UNREADABLE 4u /* the frames end where memory could not be read */
#define RECORD_CUT 8u        /* there are more frames */
#define RECORD_TASK 16u      /* a struct kernel_task stands behind the frames */

/* Low bits of a frame's code. */
/* No Python frame but where a call of the loop began; `at` is its address. */
#define FRAME_MARK 1u
#define FRAME_GENERATOR 2u /* a generator's */
#define FRAME_ENTRY 4u     /* the outermost of one call of the loop (3.11) */

struct kernel_frame {
    uint64_t code; /* PyCodeObject, and bits */
    uint64_t at;   /* 3.11 on: the instruction; before: f_lasti */
};

/* The asyncio task that runs: its coroutine's frame is one of the stack's, so that it isn't another
 * one's. */
struct kernel_task {
    uint64_t task, coro;
    uint64_t awaiter, awaiter_coro;  /* the task that awaits it, itself and first; 0: none */
    uint32_t at, size;               /* the frame's index; bytes of the name that are valid */
    uint8_t name[KERNEL_NAME_BYTES]; /* the str or int object that is its name, as it begins */
};
#define KERNEL_TASK_FRAMES (sizeof(struct kernel_task) / sizeof(struct kernel_frame))

struct kernel_record {
    uint32_t kind; /* enum kernel_kind */
    uint32_t serial, pid, tid, processor, flags;
    uint64_t when;   /* CLOCK_MONOTONIC, ns */
    uint64_t weight; /* KERNEL_CPU, KERNEL_BACK: ns; KERNEL_FAULT: pages */
    uint64_t since;  /* KERNEL_BACK: `when` of the record that it left with */
    uint64_t tstate, interp, thread, cframe, gil; /* thread: its fs base */
    int64_t syscall;    /* KERNEL_AWAY: the system call that it is in; below 0: none */
    uint64_t argument;  /* the first one of that */
    uint32_t n, unused; /* frames */
    /* innermost first; n of them are written, and then the task */
    struct kernel_frame frames[KERNEL_FRAMES_MAX + KERNEL_TASK_FRAMES];
};

/* A thread, or a process, that starts without an event: its parent has none yet. */
struct kernel_born {
    uint32_t kind, serial, pid, tid;
};

struct kernel_native {
    uint32_t kind, serial, pid, tid, processor, size; /* bytes of the stack that are written */
    uint32_t offset;                   /* of them in the stack: 0 is the first piece */
    uint32_t full;                     /* there may be more behind it */
    uint64_t when;                     /* as in the record that follows */
    uint64_t regs[21];                 /* struct pt_regs of x86-64 */
    uint8_t stack[KERNEL_STACK_PIECE]; /* from the stack pointer upwards */
};

/* A thread that left the processor. skipped: ns of waits whose stack wasn't taken, since the last
 * that was, by kind: those that waited, those that could have gone on. */
struct kernel_away {
    uint64_t when; /* 0: it is back */
    uint64_t skipped[2];
    uint32_t slot, serial, pid, tid, kind;
    uint32_t taken; /* whether its stack was */
};

struct kernel_scratch {
    uint8_t head[KERNEL_FRAME_BYTES + 8];
    struct kernel_running {
        uint64_t task, coro, frame;
    } running[KERNEL_RUNNING_MAX];                  /* tasks that may run in this thread */
    uint64_t entries[3 * (KERNEL_RUNNING_MAX + 1)]; /* of the dict */
    uint64_t addresses[KERNEL_FRAMES_MAX];          /* of the frames */
    uint32_t task, at;                              /* which of them does, and its frame's index */
    struct kernel_record record;
    struct kernel_native native;
};
