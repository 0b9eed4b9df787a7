/* How a process gets its agent: one that already runs is found (left by an earlier daemon, or
 * there by `import probing`), else one is put in. */
#pragma once

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
};

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
/* Ends the agent and, if nothing refers to it any more, unloads its library (*unloaded; if it
 * stays, why says what keeps it, also on success). -ENOTCONN: there is none; -EBUSY: another
 * daemon talks with it; -ETIMEDOUT: it did not get the GIL in time, and stays attached; -EINTR. */
int agent_detach(struct target *target, const struct interrupt *interrupt, bool *unloaded,
                 struct text *why);
/* Whether this daemon has, or had, an agent in it. */
bool agent_was_attached(const struct target *target);
/* What there is, passively: of an agent that this daemon talks with, `ready` is what it said last
 * (session_status() asks it). 0 or -errno. */
int agent_status(struct target *target, struct attach_status *out);
