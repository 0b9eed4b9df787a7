/* What an injection leaves in the target's memory for its three parts to share: the daemon, the
 * stub that the borrowed thread executes (bootstrap_MACHINE.S), and the code in the memfd (shim.c).
 *
 * The memfd holds the library, rounded up to pages, then the control page, then the shim's code.
 * The last two are mapped next to each other. All of it can be written by the target: what the
 * daemon reads back is believed only within bounds. */
#pragma once

#include "agent/arch/arch.h"

/* struct bootstrap_block, for the assembler */
#define BLOCK_RESUME 0
#define BLOCK_MEMFD_FLAGS 8
#define BLOCK_MEMFD_SIZE 16
#define BLOCK_OFFSET 24
#define BLOCK_FD 32
#define BLOCK_CONTROL 40
#define BLOCK_STATE 48
#define BLOCK_GO 56
#define BLOCK_SIGNAL 64
#define BLOCK_MASK 72
#define BLOCK_EXTRA 80
#define BLOCK_WORK 88
#define BLOCK_ERROR 96
#define BLOCK_NAME 104
#define BLOCK_SIZE 128

/* bootstrap_block.state */
#define BOOTSTRAP_BEGUN 0
#define BOOTSTRAP_MAPPED 1 /* fill the memfd, set go, and continue it */
#define BOOTSTRAP_DONE 2   /* the shim has returned */
/* a system call failed with `error`, or go was not set; all is undone */
#define BOOTSTRAP_FAILED 3

#define MEMFD_EXEC 0x10 /* MFD_EXEC, kernel 6.3: EINVAL before */
#define MEMFD_NAME "probe-agent"

#define SHIM_PAGE ARCH_PAGE_MAX
#define SHIM_MAPPED (2 * SHIM_PAGE) /* the control page, the code */
#define CONTROL_LEFT 0              /* offset of shim_control.left */

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

/* Lies on the borrowed thread's stack, below its red zone. */
struct bootstrap_block {
    uint64_t resume; /* where the thread goes on */
    uint64_t memfd_flags;
    uint64_t memfd_size; /* 0: nothing is made, since `control` and the code are there */
    uint64_t offset;     /* of the control page in the memfd */
    int64_t fd;          /* out */
    uint64_t control;    /* out: where the control page is mapped; the argument of `work` */
    uint64_t state;      /* out: BOOTSTRAP_... */
    uint64_t go;
    uint64_t signal; /* that stops the thread for the daemon, and that nobody else minds */
    uint64_t mask;   /* the thread's own signal mask */
    uint64_t extra;  /* registers_for_stub() */
    uint64_t work;   /* offset of what is called from `control` */
    int64_t error;   /* out: negative errno */
    char name[24];
};

enum shim_op {
    SHIM_LOAD = 1, /* dlopen(path), then entry, relative to the library's base */
    SHIM_CALL,     /* entry, an address */
    SHIM_CLOSE,    /* dlclose(handle) */
};

/* What the new thread has come to. */
enum shim_phase {
    SHIM_BEGUN,
    SHIM_ENTERED,    /* the entry runs, or dlclose() */
    SHIM_CANCELLED,  /* in time: nothing was called, and what was loaded is closed again */
    SHIM_NOT_LOADED, /* dlopen() failed: words */
    SHIM_NO_THREAD,  /* pthread_create() failed with `result` */
    SHIM_RETURNED,   /* result is set */
};

#define SHIM_PATH_MAX 256
#define SHIM_WORDS_MAX 256
/* Longest that the borrowed thread waits for the new one. Normally it is a millisecond or two; it
 * may be long where many programs run. A fork before the loader is done leaves the child with a
 * lock of the loader's that nobody gives back. */
#define SHIM_PARK_NS 1000000000
#define SHIM_PARK_NAP_NS 30000
#define SHIM_LEAVE_NAPS 2000 /* of a millisecond, for the borrowed thread to leave the shim */
#define SHIM_STACK (256u << 10)
#define SHIM_STACK_LARGE (8u << 20) /* where libraries have so much thread-local storage */

struct shim_control {
    uint32_t left;      /* the borrowed thread will not come here any more */
    uint32_t done;      /* the outputs below are set */
    uint32_t cancelled; /* by the daemon: don't call the entry if that hasn't begun */
    uint32_t phase;     /* enum shim_phase */
    /* in */
    uint32_t op;     /* enum shim_op */
    int32_t fd;      /* of the memfd, closed once loaded; -1: none */
    uint32_t origin; /* for struct agent_boot */
    uint32_t gentle; /* leave the kernel's restart block of the borrowed thread alone: it was
                        interrupted in a system call that goes on by it */
    uint64_t entry;
    uint64_t handle; /* also out, of SHIM_LOAD */
    uint64_t unmap;  /* bootstrap_unmap: where the new thread unmaps the shim and returns from */
    uint64_t errno_location, dlopen, dlclose, dlerror;
    uint64_t attr_init, attr_setdetachstate, attr_setstacksize, attr_destroy, pthread_create;
    char path[SHIM_PATH_MAX];
    char remove[SHIM_PATH_MAX]; /* a file to unlink once it is loaded, or "" */
    /* out */
    uint64_t base; /* load bias of the library */
    int32_t result;
    int32_t tid;                /* of the new thread, in the target's pid namespace */
    char words[SHIM_WORDS_MAX]; /* of dlerror(), may not be terminated */
    uint64_t attr[16];          /* pthread_attr_t is 56 bytes */
};

/* Begins the shim's code: offsets from there. */
struct shim_head {
    uint32_t work, zero; /* void work(struct shim_control *) */
};

#define BLOCK_HAS(field, offset) \
 _Static_assert(offsetof(struct bootstrap_block, field) == (offset), "bootstrap_block")
BLOCK_HAS(resume, BLOCK_RESUME);
BLOCK_HAS(memfd_flags, BLOCK_MEMFD_FLAGS);
BLOCK_HAS(memfd_size, BLOCK_MEMFD_SIZE);
BLOCK_HAS(offset, BLOCK_OFFSET);
BLOCK_HAS(fd, BLOCK_FD);
BLOCK_HAS(control, BLOCK_CONTROL);
BLOCK_HAS(state, BLOCK_STATE);
BLOCK_HAS(go, BLOCK_GO);
BLOCK_HAS(signal, BLOCK_SIGNAL);
BLOCK_HAS(mask, BLOCK_MASK);
BLOCK_HAS(extra, BLOCK_EXTRA);
BLOCK_HAS(work, BLOCK_WORK);
BLOCK_HAS(error, BLOCK_ERROR);
BLOCK_HAS(name, BLOCK_NAME);
_Static_assert(sizeof(struct bootstrap_block) == BLOCK_SIZE, "bootstrap_block");
_Static_assert(offsetof(struct shim_control, left) == CONTROL_LEFT, "shim_control");
_Static_assert(sizeof(struct shim_control) <= SHIM_PAGE, "shim_control");

#ifndef SHIM
/* bootstrap_MACHINE.S: copied into the target; runs at any address. */
extern const uint8_t bootstrap_begin[], bootstrap_end[], bootstrap_unmap[];
#endif
#endif
