#include "fs/owner/class.h"

#include "fs/proc/procfs.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATUS_MAX 8192
#define NOBODY 65534

static bool same_ns(const struct user_ns *a, const struct user_ns *b)
{
    return a->ino && a->dev == b->dev && a->ino == b->ino;
}

/* Finds who made the outermost of the namespaces that aren't ours: whoever owns it may do anything
 * in it. False: that isn't known. */
static bool outermost_owner(const struct access *access, const struct access_target *target,
                            uid_t *out)
{
    for (size_t i = 1; i < target->nns; i++) {
        if (same_ns(&target->ns[i], &access->daemon.ns)) {
            *out = target->ns[i - 1].owner;
            return true;
        }
    }
    return false;
}

void class_decide(const struct access *access, const struct access_target *target,
                  const gid_t *groups, size_t ngroups, struct owner_class *out)
{
    const uid_t *uid = target->uid;
    const gid_t *gid = target->gid;
    uid_t maker;

    memset(out, 0, sizeof *out);
    if (!target->nns || access->daemon.fsuid) { /* nobody but root can take on other rights */
        out->own = true;
    } else if (!same_ns(&target->ns[0], &access->daemon.ns)) {
        out->own = !outermost_owner(access, target, &maker) || maker == 0;
        out->uid = out->own ? 0 : maker;
        out->gid = out->own ? 0 : NOBODY;
    } else if (uid[0] != uid[1] || uid[0] != uid[2] || gid[0] != gid[1] || gid[0] != gid[2] ||
               (uid[0] == 0 && !(access->daemon.effective & ~target->permitted))) {
        out->own = true;
    } else {
        out->uid = uid[0];
        out->gid = gid[0];
        out->caps = target->permitted;
        out->ngroups = (uint32_t)(ngroups < OWNER_GROUPS_MAX ? ngroups : OWNER_GROUPS_MAX);
        if (out->ngroups)
            memcpy(out->groups, groups, out->ngroups * sizeof *groups);
    }
}

int class_read(const struct access *access, pid_t pid, struct owner_class *out)
{
    gid_t groups[OWNER_GROUPS_MAX];
    struct access_target target;
    char status[STATUS_MAX];

    int r = access_read_target(pid, &target);
    if (r < 0)
        return r;
    if (proc_read(pid, "status", status, sizeof status) < 0)
        return -ESRCH;
    ssize_t n = proc_status_groups(status, groups, OWNER_GROUPS_MAX);
    class_decide(access, &target, groups, n < 0 ? 0 : (size_t)n, out);
    return 0;
}

/* Keeps capabilities. Those that remain of a process that isn't root's are its user's own;
 * setresuid(2) took all that are effective, and PR_SET_KEEPCAPS left those that are permitted. */
static int keep_caps(uint64_t caps)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
        {.effective = (uint32_t)caps, .permitted = (uint32_t)caps},
        {.effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32)},
    };

    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int class_become(const struct owner_class *class)
{
    const struct rlimit none = {0};

    setrlimit(RLIMIT_CORE, &none); /* it holds what others may not see */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    if (class->own)
        return 0;
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(class->ngroups, class->groups) < 0 ||
        setresgid(class->gid, class->gid, class->gid) < 0 ||
        setresuid(class->uid, class->uid, class->uid) < 0)
        return -errno;
    int r = keep_caps(class->caps);
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) /* its user may not look into it */
        r = -errno;
    return r;
}
