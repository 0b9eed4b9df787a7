/* The Python stacks of all threads, walked side by side through a view.
 *
 * A walk only copies and follows pointers: interpreters, their thread states, their frames, the
 * heads of the code objects. Whether what it saw belongs to one moment is not its business (see
 * remote/moment/snapshot.c). Every chain has a limit, and every pointer may lead anywhere. */
#pragma once

#include "fs/remote/frames/code.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/objects/runtime.h"

#define WALK_INTERPRETERS_MAX 256
#define WALK_THREADS_MAX 16384
#define WALK_FRAMES_MAX 65536 /* of one stack; 16,384 up to 3.10, where each costs a read */
#define WALK_FRAMES_MAX_OLD 16384
#define WALK_FRAMES_TOTAL (1u << 20)
#define WALK_CHUNKS_MAX 4096    /* of a thread's data stack, 16 KiB each and larger */
#define WALK_EXCEPTIONS_MAX 256 /* places of a thread where an exception may be handled */

/* One Python frame as it lies in the target. */
struct raw_frame {
    uint64_t addr; /* PyFrameObject (up to 3.10) or _PyInterpreterFrame */
    uint64_t code; /* PyCodeObject */
    int32_t lasti; /* byte offset of the current instruction in the bytecode */
    uint32_t copy; /* which of the bytecode's copies it is in (code_copy()), until that is found */
    bool of_generator;
    bool jit; /* 3.15 on: machine code of the JIT runs it, which doesn't say where it is. Then lasti
                 is where that was entered, or could last be left */
    struct code *info; /* NULL: `code` is no readable code object */
};

enum stack_end {
    STACK_COMPLETE,
    STACK_UNREADABLE, /* the next frame's memory is not readable */
    STACK_LIMIT,      /* a limit was reached */
};

/* One call of the evaluation loop, innermost first. It runs the frames from the end of the group
 * before (0 for the first) up to its own `end`; none, if it has not entered its first yet. */
struct stack_anchor {
    uint64_t addr; /* on the C stack, within that call's frame: the entry frame (3.12 on) or the
                      _PyCFrame (3.10, 3.11) */
    size_t end;
};

struct stack {
    uint64_t tstate, interp;
    int64_t interp_id;
    uint64_t thread_id;       /* pthread_t */
    uint64_t entry;           /* the word at walk_entry_offset() of the thread state */
    pid_t native_id;          /* 3.11 on: its number in the target's own pid namespace; else 0 */
    pid_t tid;                /* in the daemon's; 0 until moment_tid() found it */
    struct raw_frame *frames; /* innermost first, without those not yet entered */
    size_t n;
    struct stack_anchor *anchors; /* none on 3.8 and 3.9 */
    size_t nanchors;
    enum stack_end end;
    bool torn;              /* inner frames are missing: remote/moment/moment.c */
    bool handles_exception; /* an except or finally block of it runs, or it raises */
    bool no_gil;            /* it runs Python whenever it wants: its interpreter's GIL is off */
    bool interp_collects;   /* its interpreter collects garbage, in this thread or another */
    uint64_t gc_frame;      /* 3.15 on: the frame that the collection began in; else 0 */
    bool jit; /* 3.15 on: it holds the GIL, if there is one, and machine code of the JIT runs */

    /* the walk's own */
    int phase;
    uint64_t next, cframe, chunk;
    uint64_t exc_item; /* _PyErr_StackItem */
    uint32_t exc_followed;
    uint32_t chunk_used, followed;
    size_t alloc, anchors_alloc;
};

struct gil {
    uint64_t addr;
    bool locked;
    uint64_t holder; /* PyThreadState; the last one if not locked */
};

struct walk {
    struct stack *stacks;
    size_t n, alloc;
    struct gil *gils; /* distinct ones, and on */
    size_t ngils, gils_alloc;
    size_t interpreters, frames;
    size_t without_gil; /* of the interpreters: free-threaded ones, unless their GIL is on now */
    bool cut;           /* a limit was reached on interpreters or threads */
    size_t depth;       /* set by the caller: so many frames of each stack will do; 0: all */
};

/* Walks everything and looks up code objects (those never seen are CODE_NEW and loaded with
 * one more call of code_cache_load). The walk is reused from call to call. 0; -EAGAIN: the
 * interpreters' or threads' list made no sense (it changed while it was read, or is
 * broken); -ESRCH, -EPERM, -ENOMEM. */
int walk_run(struct walk *walk, struct view *view, const struct runtime *runtime,
             struct code_cache *codes);
/* Reads stack i of the last walk once more, as it is now, through a view that has nothing of it. 0;
 * -EAGAIN: its thread state is gone; -ESRCH, -EPERM, -ENOMEM. */
int walk_again(struct walk *walk, size_t i, struct view *view, const struct runtime *runtime,
               struct code_cache *codes);
void walk_deinit(struct walk *walk);

/* Reads the GILs of the last walk again, directly. -EAGAIN: one is gone, as after an exec, or off;
 * -ESRCH, -EPERM. */
int walk_read_gils(const struct walk *walk, const struct memory *memory,
                   const struct runtime *runtime, struct gil *out);
/* The offset at which a thread state points to its current frame, or to its _PyCFrame (3.11,
 * 3.12). */
int32_t walk_entry_offset(const struct offsets *offsets);
const struct stack *walk_find(const struct walk *walk, uint64_t tstate);
