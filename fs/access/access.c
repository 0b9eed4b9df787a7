#include "fs/access/access.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define DESCENT_MAX 1024 /* generations of processes looked at */
#define STATUS_MAX 8192  /* bytes of a /proc/PID/status; about 1,500 are usual */

static bool same_ns(const struct user_ns *a, const struct user_ns *b)
{
    return a->ino && a->ino == b->ino && a->dev == b->dev;
}

/* cap_capable(), security/commoncap.c: CAP_SYS_PTRACE over chain[0], whose parents follow. */
static bool has_ptrace(const struct access_caller *caller, const struct user_ns *chain, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (same_ns(&chain[i], &caller->ns))
            return caller->effective >> CAP_SYS_PTRACE & 1;
        if (i + 1 < n && same_ns(&chain[i + 1], &caller->ns) && chain[i].owner == caller->euid)
            return true;
    }
    return false;
}

int access_decide(const struct access_caller *caller, const struct access_target *target)
{
    if (caller->lives && caller->pid && caller->pid == target->pid)
        return 0;

    bool owner = true;
    for (int i = 0; i < 3; i++)
        owner = owner && caller->fsuid == target->uid[i] && caller->fsgid == target->gid[i];
    bool capable = has_ptrace(caller, target->ns, target->nns);
    if (!owner && !capable)
        return -EACCES;

    /* The kernel asks for the capability in the namespace of the mm, which is an outer one when the
     * executable may not be read there. Which one can't be seen from here: ask the outermost. */
    if (!target->dumpable && !(target->nns && has_ptrace(caller, target->ns + target->nns - 1, 1)))
        return -EPERM;

    if (target->nns && same_ns(&caller->ns, &target->ns[0]) &&
        !(target->permitted & ~caller->effective))
        return 0;
    return capable ? 0 : -EPERM;
}

int access_decide_control(const struct access_caller *caller, const struct access_target *target)
{
    bool owner = caller->fsuid == target->uid[1] && caller->ruid == target->uid[1] &&
                 caller->rgid == target->gid[1];
    return owner || has_ptrace(caller, target->ns, target->nns) ? 0 : -EACCES;
}

int access_decide_sandbox(const struct access_caller *caller, const struct access_target *target)
{
    bool held = caller->sandbox & ~target->sandbox;
    return held && !has_ptrace(caller, target->ns, target->nns) ? -EPERM : 0;
}

int access_decide_yama(const struct access_caller *caller, const struct access_target *target,
                       enum yama_scope scope, bool descends)
{
    bool capable = has_ptrace(caller, target->ns, target->nns);

    switch (scope) {
    case YAMA_CLASSIC: return 0;
    case YAMA_ANCESTORS: return capable || descends ? 0 : -EPERM;
    case YAMA_CAPABLE: return capable ? 0 : -EPERM;
    case YAMA_NOBODY: break;
    }
    return -EPERM;
}

/* All, where they can't be seen: who has very many groups has them behind the end of the text. */
static uint64_t parse_caps(const char *status, const char *name)
{
    const char *p = proc_status_field(status, name);
    return p ? strtoull(p, NULL, 16) : ~UINT64_C(0);
}

static unsigned parse_sandbox(const char *status)
{
    const char *no_new_privs = proc_status_field(status, "NoNewPrivs");
    const char *seccomp = proc_status_field(status, "Seccomp");

    return (no_new_privs && *no_new_privs != '0' ? SANDBOX_NO_NEW_PRIVS : 0u) |
           (seccomp && *seccomp != '0' ? SANDBOX_SECCOMP : 0u);
}

/* The user namespace of a process or thread and its parents, up to `max`. Returns how many. */
static size_t read_user_ns(pid_t pid, struct user_ns *out, size_t max)
{
    struct stat st;
    char path[64];
    size_t n = 0;

    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n < max && fstat(fd, &st) == 0) {
        out[n] = (struct user_ns){.dev = st.st_dev, .ino = st.st_ino, .owner = (uid_t)-1};
        ioctl(fd, NS_GET_OWNER_UID, &out[n].owner);
        n++;
        /* EPERM: the parent is outside of what the daemon may see */
        int parent = ioctl(fd, NS_GET_PARENT);
        close(fd);
        fd = parent;
    }
    if (fd >= 0)
        close(fd);
    return n;
}

void access_read_caller(const struct caller *from, struct access_caller *out)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, from->pid};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
    struct stat ns;
    char path[64];

    *out = (struct access_caller){.tid = from->pid,
                                  .fsuid = from->uid,
                                  .fsgid = from->gid,
                                  .ruid = (uid_t)-1,
                                  .euid = (uid_t)-1,
                                  .rgid = (gid_t)-1,
                                  .lives = true};
    if (!from->pid) /* capget(2) would take this for the daemon itself */
        return;
    snprintf(path, sizeof path, "/proc/%d/ns/user", from->pid);
    if (stat(path, &ns) < 0 || syscall(SYS_capget, &head, caps) < 0)
        return;
    out->ns = (struct user_ns){.dev = ns.st_dev, .ino = ns.st_ino, .owner = (uid_t)-1};
    out->effective = caps[0].effective | (uint64_t)caps[1].effective << 32;
}

void access_complete(struct access_caller *caller, const char *status)
{
    const char *tgid = status ? proc_status_field(status, "Tgid") : NULL;
    unsigned uid[4], gid[4];

    caller->complete = true;
    if (!tgid || !proc_status_ids(status, "Uid", uid) || !proc_status_ids(status, "Gid", gid) ||
        uid[3] != caller->fsuid || gid[3] != caller->fsgid) {
        caller->effective = 0;
        caller->ns = (struct user_ns){0};
        return;
    }
    caller->pid = atoi(tgid);
    caller->ruid = uid[0];
    caller->rgid = gid[0];
    caller->euid = uid[1];
    caller->sandbox = parse_sandbox(status);
}

static void complete_caller(struct access_caller *caller)
{
    char status[STATUS_MAX];

    if (caller->complete)
        return;
    bool seen = caller->tid && proc_read(caller->tid, "status", status, sizeof status) > 0;
    access_complete(caller, seen ? status : NULL);
}

/* /proc/PID/status belongs to the effective ids, unless the process isn't dumpable: then to the
 * root of its namespace (task_dump_owner(), fs/proc/base.c). Where the two are the same ids the
 * answer is hidden, and the process counts as not dumpable. */
static int read_dumpable(struct access_target *target)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d/status", target->pid);
    if (stat(path, &st) < 0)
        return -ESRCH;
    target->dumpable = st.st_uid == target->uid[1] && st.st_gid == target->gid[1] &&
                       (st.st_uid != 0 || st.st_gid != 0);
    return 0;
}

int access_read_target(pid_t pid, struct access_target *out)
{
    char status[STATUS_MAX];
    unsigned uid[4], gid[4];

    *out = (struct access_target){.pid = pid};
    ssize_t n = proc_read(pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    if (!proc_status_ids(status, "Uid", uid) || !proc_status_ids(status, "Gid", gid))
        return -ESRCH;
    memcpy(out->uid, uid, sizeof out->uid);
    memcpy(out->gid, gid, sizeof out->gid);
    out->permitted = parse_caps(status, "CapPrm");
    out->sandbox = parse_sandbox(status);
    out->nns = read_user_ns(pid, out->ns, USER_NS_DEPTH_MAX);
    return read_dumpable(out);
}

int access_init(struct access *access, enum hidepid hidepid)
{
    struct caller self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};

    access->hidepid = hidepid;
    access_read_caller(&self, &access->daemon);
    return access->daemon.ns.ino ? 0 : -EACCES;
}

bool access_is_daemon(const struct access *access, const struct access_caller *caller)
{
    const struct access_caller *daemon = &access->daemon;

    return caller->fsuid == daemon->fsuid && caller->fsgid == daemon->fsgid &&
           same_ns(&caller->ns, &daemon->ns) && !(daemon->effective & ~caller->effective);
}

int access_look(const struct access *access, struct access_caller *caller, pid_t pid)
{
    struct access_target target;
    struct stat st;
    char path[32];

    if (access_is_daemon(access, caller))
        return 0;

    complete_caller(caller);
    /* the cheap look first: this decides for nearly all of a long list */
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &st) < 0)
        return -ESRCH;
    if (caller->pid != pid && st.st_uid != caller->fsuid && !caller->effective &&
        same_ns(&caller->ns, &access->daemon.ns))
        return -EACCES;

    int r = access_read_target(pid, &target);
    return r < 0 ? r : access_decide(caller, &target);
}

/* The target as it is to be judged by, now that it is gone. */
static void as_ended(const struct access *access, const struct access_target *target,
                     struct access_target *out)
{
    *out = *target;
    out->pid = 0;
    out->dumpable = target->dumpable && target->nns && same_ns(&target->ns[0], &access->daemon.ns);
    out->ns[0] = access->daemon.ns;
    out->nns = 1;
}

int access_look_ended(const struct access *access, struct access_caller *caller,
                      const struct access_target *target)
{
    struct access_target ended;

    if (access_is_daemon(access, caller))
        return 0;
    complete_caller(caller);
    as_ended(access, target, &ended);
    return access_decide(caller, &ended);
}

int access_control_ended(const struct access *access, struct access_caller *caller,
                         const struct access_target *target)
{
    struct access_target ended;

    int r = access_look_ended(access, caller, target);
    if (r < 0 || access_is_daemon(access, caller))
        return r;
    as_ended(access, target, &ended);
    return access_decide_control(caller, &ended);
}

static enum yama_scope read_yama(void)
{
    char text[16] = "";

    _cleanup_close_ int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return YAMA_CLASSIC; /* the kernel has no Yama */
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return YAMA_NOBODY;
    int scope = atoi(text);
    return scope < YAMA_CLASSIC || scope > YAMA_NOBODY ? YAMA_NOBODY : (enum yama_scope)scope;
}

/* task_is_descendant(), security/yama/yama_lsm.c. */
static bool is_descendant(pid_t pid, const struct access_caller *of)
{
    struct proc_stat stat;

    for (int i = 0; of->pid && pid > 0 && i < DESCENT_MAX; i++) {
        if (proc_stat_read(pid, &stat) < 0)
            return false;
        if (pid == of->pid)
            return of->lives || stat.start_time == of->start_time;
        pid = stat.ppid;
    }
    return false;
}

static void say_yama(enum yama_scope scope, struct text *why)
{
    text_printf(why, "Yama (kernel.yama.ptrace_scope is %d) lets ", scope);
    text_puts(why, scope == YAMA_ANCESTORS ? "only an ancestor control this process: "
                   : scope == YAMA_CAPABLE ? "only root control processes: "
                                           : "nobody control processes: ");
    if (scope != YAMA_NOBODY)
        text_puts(why, "write as root (sudo), or `sysctl kernel.yama.ptrace_scope=0`, or ");
    text_puts(why, "let the program `import probing`, or start it with PROBING=1");
}

int access_control(const struct access *access, struct access_caller *caller, pid_t pid,
                   struct text *why)
{
    struct access_target target;

    int r = access_look(access, caller, pid);
    if (r < 0 || access_is_daemon(access, caller))
        return r; /* what the daemon does is judged by the kernel itself */
    complete_caller(caller);
    r = access_read_target(pid, &target);
    if (r == 0)
        r = access_decide_control(caller, &target);
    if (r == -EACCES)
        text_puts(why, "only its user, and root, may have something done in a process");
    return r;
}

int access_yama(const struct access *access, struct access_caller *caller, pid_t pid,
                struct text *why)
{
    struct access_target target;

    enum yama_scope scope = read_yama();
    if (scope == YAMA_CLASSIC || access_is_daemon(access, caller))
        return 0;
    complete_caller(caller);
    int r = access_read_target(pid, &target);
    if (r < 0)
        return r;
    r = access_decide_yama(caller, &target, scope, is_descendant(pid, caller));
    if (r < 0)
        say_yama(scope, why);
    return r;
}

int access_sandbox(struct access_caller *caller, pid_t pid, struct text *why)
{
    struct access_target target;

    complete_caller(caller);
    if (!caller->sandbox)
        return 0;
    int r = access_read_target(pid, &target);
    if (r < 0)
        return r;
    r = access_decide_sandbox(caller, &target);
    if (r < 0)
        text_printf(
            why,
            "you are in a sandbox (%s) that this process isn't in, and would get out of it: "
            "write from outside",
            caller->sandbox & ~target.sandbox & SANDBOX_SECCOMP ? "seccomp" : "no_new_privs");
    return r;
}
