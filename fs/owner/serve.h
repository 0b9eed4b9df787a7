/* A question about the tree, and its answer: the border between who asks and who looks.
 *
 * The mount knows callers, nodes and open files, and who may look; it asks for what a file says,
 * and for the names in a directory, with a call that is plain data. Whoever answers it knows
 * processes and reads them. */
#pragma once

#include "agent/base/cleanup.h"
#include "fs/process/membership.h"
#include "fs/tree/layout.h"

struct process;

enum owner_op {
    OWNER_RENDER = 1, /* what the file says, or where the link points to */
    OWNER_LIST,       /* the names in the directory */
    OWNER_FIND,       /* whether the directory has what the child stands for */
    OWNER_HAS,        /* whether the directory has the child now (entry->is_there) */
    OWNER_EXAMINE,    /* what the process is: struct owner_examined as the text */
    OWNER_IDENTIFY,   /* what program it is: lines of format/identity.h */
    OWNER_STACKS,     /* its stacks, in a form of format/stacks.h */
    OWNER_ROWS,       /* rows of its tables (rows.h) */
    OWNER_RINGS,      /* what came in its rings (recording/ring_copy.h), of no process */
    OWNER_SAY,        /* what the file has to know of it: a line follows (file_say) */
    OWNER_TELL,       /* what has to be known of it: two numbers as the text (examiner.h) */
    OWNER_END,        /* what it is as another end of a wait: a question follows (waits/asked.h) */
};

#define OWNER_SAMPLED_MAX 191
#define OWNER_AGENT_MAX 1023

/* What a process is. All bytes are defined. */
struct owner_examined {
    struct membership membership;
    uint64_t base, bias, record_addr, start_addr; /* of its agent (link/found.h); 0: it has none */
    int64_t pid;                                  /* what it calls itself */
};

/* What is asked. */
struct owner_call {
    uint32_t op;    /* enum owner_op */
    uint32_t entry; /* index in the layout of the file or directory */
    uint32_t child; /* that of the child, of OWNER_FIND and OWNER_HAS */
    /* of OWNER_FIND: the number, where the child's name is one; of OWNER_EXAMINE: 1, as it is now;
     * of OWNER_STACKS: enum stacks_form; of OWNER_ROWS: how many tables, of OWNER_RINGS: questions;
     * of OWNER_TELL: enum asked_what, with seconds in depth, and what was lost in word */
    uint32_t value;
    int32_t pid;         /* 0 outside of processes */
    int32_t tid;         /* 0: no thread */
    uint64_t start_time; /* of the process, in clock ticks since boot */
    uint32_t depth, rank;
    int64_t interp;               /* of OWNER_TELL */
    struct membership membership; /* of the process in its job ... */
    uint32_t is_worker;           /* ... where it is not the rank itself */
    /* The lines of status about its profile, and its agent, which the daemon knows; may be empty.
     */
    char sampled[OWNER_SAMPLED_MAX + 1], agent[OWNER_AGENT_MAX + 1];
    struct caller caller;
    /* The words of a place, which both end with a 0; of OWNER_FIND the child's, where that is
     * one. */
    char word[NAME_MAX + 1], part[NAME_MAX + 1];
};

/* One name in a directory. */
struct owner_name {
    uint32_t entry;       /* index in the layout */
    struct number number; /* where the entry stands for many */
};

struct owner_answer {
    int error;        /* 0 or -errno */
    int noted;        /* -errno: what the file could not show, for <pid>/errors; why says it */
    struct text text; /* of OWNER_RENDER, ended by a 0 that isn't counted */
    struct text why;  /* of either, words; may be empty */
    struct owner_name *names; /* of OWNER_LIST */
    size_t nnames, alloc;
    struct process *process; /* of OWNER_FIND: a reference, where the name is that of a process */
};

/* Releases an answer that was zero at first but for texts that were TEXT_INIT. */
void owner_answer_deinit(struct owner_answer *answer);
/* Adds a name, whose word it takes over, with the reference to its process. -ENOMEM. */
int owner_answer_add(struct owner_answer *answer, const struct owner_name *name);

/* What an answer is made from. */
struct server {
    struct registry *registry;
    struct history *history; /* NULL: none is kept */
    struct replies *replies; /* of the command files at the place */
    const struct access *access;
    const struct statement_runner *statements; /* who runs them; NULL: this process */
    /* a process that wasn't read so far isn't read here: contexts have no target then ... */
    bool keeps;
    bool asks; /* ... but one of which nothing is read */
};

/* The context of a place for the layout's functions. process: the one meant, NULL outside. call
 * stays valid meanwhile. -ESRCH: its process or thread has ended. To be released in any case. */
int context_init(struct file_context *context, const struct server *server, struct process *process,
                 const struct owner_call *call);
/* Takes what the agent of its process, if that lives, has recorded by now. */
void context_refresh(struct file_context *context);
void context_deinit(struct file_context *context);
#define _cleanup_context_ _cleanup_(context_deinit)

/* Adds to the answer of who reads the process the names that are there for what is kept of it. */
int owner_add_kept(const struct server *server, struct process *process,
                   const struct owner_call *call, struct owner_answer *answer);
/* Answers a call. process: the one meant, NULL outside of processes; who: in whose name a file is
 * read, NULL where that isn't asked; interrupt is raised when nobody waits for the answer any more.
 * Returns answer->error. */
int owner_serve(const struct server *server, struct process *process, struct credentials *who,
                const struct owner_call *call, const struct interrupt *interrupt,
                struct owner_answer *answer);
/* As owner_serve(), of OWNER_SAY. */
int owner_say(const struct server *server, struct process *process, const struct owner_call *call,
              const char *line, size_t size, const struct interrupt *interrupt,
              struct owner_answer *answer);
