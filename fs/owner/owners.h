/* The owner processes of a mount (owner.h): they are started when they are first needed, one for
 * each class of rights, and asked.
 *
 * One that crashes costs those who wait for it an error, and is started again; one that crashes
 * again and again, only now and then. One that is stopped, or doesn't answer at all, is killed. A
 * thread of it that hangs in the kernel is left behind (proc/may_hang.h).
 *
 * The threads of the mount are all users' together. So only a few wait for the processes of one
 * user; others queue behind them, for as long as there are answers. */
#pragma once

#include "fs/owner/serve.h"
#include "fs/proc/may_hang.h"

#define OWNERS_MAX 64            /* at once */
#define OWNER_CONNECTIONS_MAX 48 /* of one: those that are left behind count */
#define OWNER_CALLS_MAX 8 /* of one user's that are waited for, of the mount's 32 threads ... */
#define OWNER_QUEUE_NS 250000000u /* ... until none of them was answered for so long */
/* Nothing that it reads takes so long: names; a file; one of heap/, or a table, which may be all
 * that a process has. */
#define OWNER_NAMES_NS 10000000000u
#define OWNER_FILE_NS 20000000000u
#define OWNER_LARGE_NS 60000000000u

enum contain {
    CONTAIN_NO,  /* the mount's process reads */
    CONTAIN_YES, /* what the kernel lets no owner process read, one with the daemon's rights does */
    CONTAIN_STRICT, /* nobody does */
};

struct owners;

/* contain: not CONTAIN_NO. To be called before there are other threads. Tries whether such a
 * process can be had; -errno, and why says more. */
int owners_new(enum contain contain, const struct access *access, struct owners **out,
               struct text *why);
/* Ends the processes. Nobody may be asking any more; NULL is fine. */
void owners_free(struct owners *owners);

/* Asks for what entry_passive() says is read from a process. who: in whose name a file is read, or
 * NULL; work: of that process, which a thread there does, and never run here. Returns
 * answer->error; what only this side can come to: -EIO: the owner process has ended; -ETIMEDOUT,
 * -EINTR, -EAGAIN, and why says more. */
int owners_ask(struct owners *owners, const struct credentials *who, const struct owner_call *call,
               struct may_hang *work, const struct interrupt *interrupt,
               struct owner_answer *answer);

/* Has a core file read by a process of its own from now on; core: of core_open(), the number-th
 * that registry_open_core() gets, which stays valid. To be called before there are other threads.
 * -errno, and why says more. */
int owners_read_core(struct owners *owners, struct core *core, unsigned number, struct text *why);

/* Who runs statements, for as long as there are owners. */
const struct statement_runner *owners_statements(struct owners *owners);
/* Who tells the registry what processes are, for as long as there are owners. */
const struct examiner *owners_examiner(struct owners *owners);
