/* How a process gets its agent: one that already runs is found (left by an earlier daemon, or
 * there by `import probing`), else one is put in. */
#pragma once

#include "fs/link/found.h"
#include "fs/link/session.h"
#include "fs/remote/moment/target.h"

/* What a process's agent is, for `ctl` and status. */
struct attach_status {
    bool loaded;    /* the library is there */
    bool running;   /* its threads are */
    bool connected; /* this daemon talks with it */
    /* if connected: what it said last, but for python_tid, evals and rings, which are of now */
    struct proto_ready ready;
    uint64_t pause_ns;  /* that the injection cost the borrowed thread, if it was ours */
    uint64_t attach_ns; /* from the request to ready, if it was ours */
};

/* The doors by which an agent is put in. */
enum attach_way {
    ATTACH_ANY,         /* by a borrowed thread, else by a script */
    ATTACH_REMOTE_EXEC, /* by a script that the interpreter runs (fs/inject/script/script.h) */
    ATTACH_FOUND,       /* none: one that runs is found */
};

/* The way to an agent that runs. */
struct agent_channel {
    int fd; /* the daemon's end, or another daemon's */
    struct found_agent found;
    bool ours;         /* it was put in, or started, on the way ... */
    uint64_t pause_ns; /* ... which cost the borrowed thread so much */
};

/* An agent that has been told to end. */
struct agent_ended {
    uint64_t base;     /* of its ELF image */
    pid_t channel_tid; /* its last thread, by the number that the process gives it; 0: not known */
    bool unloadable;   /* it has said that nothing of it is in use */
};

/* Who puts agents in and takes them out where the daemon itself doesn't want to (owner/acting.h);
 * the target says which one does it (target.h). They stay valid, and do what the functions below of
 * the same names do, for a process that was started then, in clock ticks since boot; -EIO,
 * -ETIMEDOUT also: who does it has crashed, or doesn't answer. */
struct attacher {
    void *arg;
    int (*channel)(void *arg, pid_t pid, uint64_t start_time, enum attach_way way,
                   const struct interrupt *interrupt, struct agent_channel *out, struct text *why);
    int (*take_out)(void *arg, pid_t pid, uint64_t start_time, const struct agent_ended *ended,
                    const struct interrupt *interrupt, bool *unloaded, struct text *why);
    int (*lend)(void *arg, pid_t pid, uint64_t start_time, const struct found_agent *found,
                uint64_t duration_ns, const struct interrupt *interrupt);
};

/* The way to the target's agent, which is put in if need be; it is not yet known whether what is at
 * its other end is one. In this process, for one caller at a time. Errors as agent_attach(), and
 * those of agent_connect() for ATTACH_FOUND. out->fd is the caller's. */
int agent_channel(struct target *target, enum attach_way way, const struct interrupt *interrupt,
                  struct agent_channel *out, struct text *why);
/* Waits until no thread of an agent is in its library any more, and unloads that if nothing refers
 * to it (*unloaded; if it stays, why says what keeps it). In this process. -ESRCH: the process has
 * ended. */
int agent_take_out(struct target *target, const struct agent_ended *ended,
                   const struct interrupt *interrupt, bool *unloaded, struct text *why);

/* Where a thread of the program has the main interpreter's GIL and sleeps in C outside Python, so
 * that it may keep it for ever: has it lend that to the agent, for as long as the agent has
 * something to do, if nothing can come to harm by that (lend.c), and for duration_ns at most. In
 * this process, and for one caller at a time: -EBUSY. 0: it was lent; -EINPROGRESS: no thread
 * sleeps so, just then; -EAGAIN: one does, but not where it may be done; or another errno. */
int agent_lend(struct target *target, const struct found_agent *found, uint64_t duration_ns,
               const struct interrupt *interrupt);
/* A thread that seems to sleep with the GIL of an interpreter: this costs little and nobody is
 * stopped. 0: none. */
pid_t agent_lend_sleeper(const struct target *target, int64_t interp);

/* The session with the target's agent, attached if need be; many callers are one attach. -errno
 * as inject_load() and session_open(); -EOPNOTSUPP also: this interpreter can't have one, or one
 * of another version runs; -EBUSY also: another daemon talks with it; why says it in words with
 * what to do. The caller owns one reference. */
int agent_attach(struct target *target, enum attach_way way, const struct interrupt *interrupt,
                 struct text *why, struct session **out);
/* The session if there is one or an agent runs already; never puts one in. -ENOTCONN: none; else as
 * agent_attach(). */
int agent_connect(struct target *target, struct text *why, struct session **out);
/* The session that there is, if its agent is alive, with a reference; else NULL. Asks nobody. */
struct session *agent_session(struct target *target);
/* The agent that this daemon talks with, if there is one, else what found_agent_find() finds, or
 * what was told where others look for it. Its errors. */
int agent_found(struct target *target, struct found_agent *out);
/* Who puts agents into the target (target->attacher) has found one, whose record is still to be
 * read. */
void agent_tell(struct target *target, const struct found_agent *found);
/* Ends the agent and, if nothing refers to it any more, unloads its library (*unloaded; if it
 * stays, why says what keeps it, also on success). -ENOTCONN: there is none; -EBUSY: another
 * daemon talks with it; -ETIMEDOUT: it did not get the GIL in time, and stays attached; -EINTR. */
int agent_detach(struct target *target, const struct interrupt *interrupt, bool *unloaded,
                 struct text *why);
/* What there is, passively: of an agent that this daemon talks with, `ready` is what it said last
 * (session_status() asks it). 0 or -errno. */
int agent_status(struct target *target, struct attach_status *out);
