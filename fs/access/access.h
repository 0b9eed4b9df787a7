/* The kernel's rule for reading /proc/PID: who may look at whom, applied to the thread that asks
 * and not to the daemon, which may be root.
 *
 * access_decide() is __ptrace_may_access() (kernel/ptrace.c) with PTRACE_MODE_READ_FSCREDS,
 * followed by cap_ptrace_access_check() (security/commoncap.c), over plain data. The rest of this
 * file gets that data from /proc. A caller that is at least what the daemon is needs no decision:
 * there the kernel's own checks on the daemon's reads are the caller's. */
#pragma once

#include "fs/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Who asks: the thread that issued the FUSE request, with the ids the kernel gives. */
struct caller {
    pid_t pid; /* of the calling thread, in the daemon's pid namespace; 0 if it isn't visible */
    uid_t uid;
    gid_t gid;
};

/* A user namespace, as fstat() of /proc/PID/ns/user names it; all zero: not known. */
struct user_ns {
    uint64_t dev, ino;
    uid_t owner; /* effective uid of its creator */
};

/* The kernel nests user namespaces at most this deep (create_user_ns(),
 * kernel/user_namespace.c). */
#define USER_NS_DEPTH_MAX 34

/* The thread that asks, or asked. */
struct access_caller {
    pid_t tid;
    uid_t fsuid;
    gid_t fsgid;
    uint64_t effective; /* capabilities */
    struct user_ns ns;
    bool lives;    /* it waits for the answer: its pids are its own, and it may look at itself */
    bool complete; /* the following are known */
    pid_t pid;     /* of its process (thread group) */
    uint64_t start_time; /* of that, once it no longer lives: what else has its pid is another */
    uid_t ruid, euid;
    gid_t rgid;
    unsigned sandbox; /* enum sandbox, or-ed */
};

/* What holds a thread, and all that it will start, to less than its user may do. */
enum sandbox {
    SANDBOX_NO_NEW_PRIVS =
        1, /* set by whoever isn't root and wants one of the others, Landlock too */
    SANDBOX_SECCOMP = 2,
};

/* The process it asks about. */
struct access_target {
    pid_t pid;
    uid_t uid[3]; /* real, effective, saved */
    gid_t gid[3];
    uint64_t permitted; /* capabilities */
    bool dumpable;
    unsigned sandbox;                     /* enum sandbox, or-ed */
    struct user_ns ns[USER_NS_DEPTH_MAX]; /* its own first, then their parents as far as visible */
    size_t nns;
};

/* 0: may look; -EACCES: another's process; -EPERM: its own, but it isn't dumpable, or has
 * capabilities that the caller lacks. */
int access_decide(const struct access_caller *caller, const struct access_target *target);

/* What a mount hides from those who may not look, as hidepid of /proc does. */
enum hidepid {
    HIDEPID_NONE,      /* their directories can be listed, no file in them can be read */
    HIDEPID_CONTENTS,  /* only the names of the directories can be seen */
    HIDEPID_INVISIBLE, /* nothing */
};

struct access {
    enum hidepid hidepid;
    struct access_caller daemon;
};

/* Remembers what the daemon itself may. 0 or -errno. */
int access_init(struct access *access, enum hidepid hidepid);

/* Adds to what FUSE says of a caller its capabilities and namespace, which is enough where it is
 * what the daemon is. One from a foreign pid namespace has no capabilities. */
void access_read_caller(const struct caller *from, struct access_caller *out);
/* Adds the rest, from the text of its /proc/TID/status; NULL: that can't be read. Who makes this
 * call with other ids than its own (the kernel's NFS server, say, does it in a client's name) has
 * put on credentials that can't be seen, and its own aren't meant: nothing is left of them. */
void access_complete(struct access_caller *caller, const char *status);
/* Whether the caller is at least what the daemon is. */
bool access_is_daemon(const struct access *access, const struct access_caller *caller);

/* Whether caller may look at process pid: 0, -EACCES and -EPERM as above, -ESRCH. Completes caller
 * when that is needed. */
int access_look(const struct access *access, struct access_caller *caller, pid_t pid);

/* What access_decide() wants to know of process pid. -ESRCH. */
int access_read_target(pid_t pid, struct access_target *out);

/* Whether caller may look at what is kept of a process that has ended, and that was `target` when
 * it lived: as access_look(). Its pid and its namespaces may be others' by now, so that of one in
 * another user namespace only who has CAP_SYS_PTRACE in the daemon's own sees it. */
int access_look_ended(const struct access *access, struct access_caller *caller,
                      const struct access_target *target);
/* Whether they may have what is left of a process dropped: as access_control(). */
int access_control_ended(const struct access *access, struct access_caller *caller,
                         const struct access_target *target);

/* Whether who may look at the target may also have something done in it: 0, or -EACCES: only its
 * own user may, really and for files, and who has CAP_SYS_PTRACE over it. That is what attaching
 * with ptrace(2) and process_vm_writev(2) ask (PTRACE_MODE_ATTACH_REALCREDS): who runs a setuid
 * program of the target's user isn't its user. */
int access_decide_control(const struct access_caller *caller, const struct access_target *target);
/* access_decide_control() for process pid; asks access_look() first. On failure why says what to
 * do. */
int access_control(const struct access *access, struct access_caller *caller, pid_t pid,
                   struct text *why);

/* Whether the caller would get out of a sandbox by having something done in the target: 0, or
 * -EPERM where it is in one that the target isn't in, and has no CAP_SYS_PTRACE over it. The kernel
 * asks that itself where a thread traces (Landlock), but here it is the daemon that does. */
int access_decide_sandbox(const struct access_caller *caller, const struct access_target *target);
/* access_decide_sandbox() for process pid, whoever the daemon is. On failure why says what to do.
 * -ESRCH. */
int access_sandbox(struct access_caller *caller, pid_t pid, struct text *why);

/* kernel.yama.ptrace_scope: who may attach to whom (Documentation/admin-guide/LSM/Yama.rst). */
enum yama_scope { YAMA_CLASSIC, YAMA_ANCESTORS, YAMA_CAPABLE, YAMA_NOBODY };

/* What Yama would say to the caller: 0 or -EPERM. descends: the target is a descendant of the
 * caller's process. */
int access_decide_yama(const struct access_caller *caller, const struct access_target *target,
                       enum yama_scope scope, bool descends);
/* access_decide_yama() for process pid as things are; for a caller who is what the daemon is, the
 * kernel itself says it. On failure why says what to do. -ESRCH. */
int access_yama(const struct access *access, struct access_caller *caller, pid_t pid,
                struct text *why);
