#include "fs/owner/class.h"

#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATUS_MAX 8192
#define MAP_MAX 16384 /* bytes of 340 lines (UID_GID_MAP_MAX_EXTENTS, linux/user_namespace.h) */
#define NOBODY 65534
#define NAMELESS 0x7ffffffe /* far from what is given to users, and to namespaces */

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

/* Whether one set of ids is all that it has. */
static bool has_one_identity(const struct access_target *target)
{
    const uid_t *uid = target->uid;
    const gid_t *gid = target->gid;

    return uid[0] == uid[1] && uid[0] == uid[2] && gid[0] == gid[1] && gid[0] == gid[2];
}

/* In the daemon's own user namespace. */
static void decide_here(const struct access *access, const struct access_target *target,
                        const struct class_facts *facts, struct owner_class *out)
{
    bool is_root = !target->uid[0] && !(access->daemon.effective & ~target->permitted);

    /* of root's whether it is dumpable isn't known */
    if (!has_one_identity(target) || is_root || (target->uid[0] && !target->dumpable)) {
        out->own = true;
        return;
    }
    out->uid = target->uid[0];
    out->gid = target->gid[0];
    out->caps = target->permitted;
    out->ngroups =
        (uint32_t)(facts->ngroups < CLASS_GROUPS_MAX ? facts->ngroups : CLASS_GROUPS_MAX);
    if (out->ngroups)
        memcpy(out->groups, facts->groups, out->ngroups * sizeof *facts->groups);
}

/* In one that root made, as a container's. */
static void decide_inside(const struct access_target *target, const struct class_facts *facts,
                          struct owner_class *out)
{
    if (!has_one_identity(target) || !facts->mapped) {
        out->own = true;
        return;
    }
    out->ns_dev = target->ns[0].dev;
    out->ns_ino = target->ns[0].ino;
    out->uid = facts->uid;
    out->gid = facts->gid;
    out->caps = target->permitted;
}

void class_decide(const struct access *access, const struct access_target *target,
                  const struct class_facts *facts, struct owner_class *out)
{
    uid_t maker = 0;

    memset(out, 0, sizeof *out);
    out->user = target->uid[0];
    if (!target->nns || access->daemon.fsuid) { /* nobody but root can take on other rights */
        out->own = true;
    } else if (same_ns(&target->ns[0], &access->daemon.ns)) {
        decide_here(access, target, facts, out);
    } else if (!outermost_owner(access, target, &maker)) {
        out->own = true;
    } else if (maker) {
        out->user = out->uid = maker;
        out->gid = NOBODY;
    } else {
        decide_inside(target, facts, out);
    }
}

bool class_map_id(const char *map, unsigned id, unsigned *out)
{
    unsigned inside, outside, count;
    int n;

    for (; sscanf(map, "%u %u %u%n", &inside, &outside, &count, &n) == 3; map += n) {
        if (id >= outside && id - outside < count) {
            *out = inside + (id - outside);
            return true;
        }
    }
    return false;
}

static bool read_mapped(pid_t pid, const char *file, unsigned id, unsigned *out)
{
    char map[MAP_MAX];

    return proc_read(pid, file, map, sizeof map) > 0 && class_map_id(map, id, out);
}

int class_read(const struct access *access, pid_t pid, struct owner_class *out)
{
    gid_t groups[CLASS_GROUPS_MAX];
    struct class_facts facts = {.groups = groups};
    struct access_target target;
    char status[STATUS_MAX];

    int r = access_read_target(pid, &target);
    if (r < 0)
        return r;
    if (proc_read(pid, "status", status, sizeof status) < 0)
        return -ESRCH;
    /* so many fit into the text in any case */
    ssize_t n = proc_status_groups(status, groups, CLASS_GROUPS_MAX);
    facts.ngroups = n == -E2BIG ? CLASS_GROUPS_MAX : n > 0 ? (size_t)n : 0;
    if (target.nns && !same_ns(&target.ns[0], &access->daemon.ns))
        facts.mapped = read_mapped(pid, "uid_map", target.uid[0], &facts.uid) &&
                       read_mapped(pid, "gid_map", target.gid[0], &facts.gid);
    class_decide(access, &target, &facts, out);
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

static int become(const struct owner_class *class, int ns)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    if (class->own)
        return 0;
    /* within a namespace groups may not be to be had: first these */
    if (setgroups(class->ngroups, class->groups) < 0 ||
        (class->ns_ino && setns(ns, CLONE_NEWUSER) < 0) || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
        setresgid(class->gid, class->gid, class->gid) < 0 ||
        setresuid(class->uid, class->uid, class->uid) < 0)
        return -errno;
    int r = keep_caps(class->caps);
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) /* its user may not look into it */
        r = -errno;
    return r;
}

/* Takes on a user's number that is nobody's, so that nobody but root can stop or end it. Where
 * there is no such number, as in a user namespace, it stays what it is. */
static int become_nobody(void)
{
    const struct owner_class nameless = {.uid = NAMELESS, .gid = NAMELESS}, own = {.own = true};

    int r = geteuid() ? -EINVAL : become(&nameless, -1);
    if (r == -EINVAL)
        r = become(&own, -1);
    return r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : r;
}

int class_become(const struct owner_class *class, int ns)
{
    return class->nobody ? become_nobody() : become(class, ns);
}

int class_try(pid_t pid)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    close(fd);
    return 0;
}
