#include "fs/access/credentials.h"

#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_MAX (16u << 10) /* bytes: about 1,500 and the groups, of up to eleven each */

static bool read_caps(const char *status, uint64_t caps[CREDENTIALS_CAPS])
{
    static const char *const names[CREDENTIALS_CAPS] = {"CapInh", "CapPrm", "CapEff", "CapBnd",
                                                        "CapAmb"};

    for (size_t i = 0; i < CREDENTIALS_CAPS; i++) {
        const char *p = proc_status_field(status, names[i]);
        if (!p)
            return false;
        caps[i] = strtoull(p, NULL, 16);
    }
    return true;
}

/* Holds the user namespace, so that its number stays its own. */
static bool hold_ns(const struct access *access, struct credentials *credentials)
{
    struct access_caller *who = &credentials->who;
    struct stat st;
    char path[64];

    if (who->ns.ino == access->daemon.ns.ino && who->ns.dev == access->daemon.ns.dev)
        return who->ns.ino;
    snprintf(path, sizeof path, "/proc/%d/ns/user", who->tid);
    int fd = who->ns.ino ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || !descriptor_spare(fd) || fstat(fd, &st) < 0 || st.st_ino != who->ns.ino ||
        st.st_dev != who->ns.dev) {
        if (fd >= 0)
            close(fd);
        who->ns = (struct user_ns){0};
        who->effective = 0;
        return false;
    }
    credentials->ns = fd;
    return true;
}

static void read_process(struct credentials *credentials)
{
    struct access_caller *who = &credentials->who;
    struct proc_stat stat;

    if (!who->pid || proc_stat_read(who->pid, &stat) < 0) {
        who->pid = 0;
        return;
    }
    who->start_time = stat.start_time;
    credentials->start_stack = stat.start_stack;
}

int credentials_new(const struct access *access, const struct caller *from,
                    struct credentials **out)
{
    gid_t groups[CREDENTIALS_GROUPS_MAX];
    char status[STATUS_MAX];
    ssize_t n = -ESRCH;

    bool seen = from->pid && proc_read(from->pid, "status", status, sizeof status) > 0;
    if (seen)
        n = proc_status_groups(status, groups, CREDENTIALS_GROUPS_MAX);
    size_t room = (n < 0 ? 0 : (size_t)n) * sizeof *groups;
    struct credentials *credentials = calloc(1, sizeof *credentials + room);
    if (!credentials)
        return -ENOMEM;
    atomic_init(&credentials->refs, 1);
    credentials->ns = -1;
    access_read_caller(from, &credentials->who);
    access_complete(&credentials->who, seen ? status : NULL);
    read_process(credentials);
    credentials->who.lives = false;
    credentials->known = hold_ns(access, credentials) && n >= 0 &&
                         proc_status_ids(status, "Uid", credentials->uid) &&
                         proc_status_ids(status, "Gid", credentials->gid) &&
                         read_caps(status, credentials->caps);
    if (credentials->known) {
        credentials->ngroups = (size_t)n;
        memcpy(credentials->groups, groups, room);
    }
    *out = credentials;
    return 0;
}

struct credentials *credentials_ref(struct credentials *credentials)
{
    atomic_fetch_add(&credentials->refs, 1);
    return credentials;
}

void credentials_unref(struct credentials *credentials)
{
    if (!credentials || atomic_fetch_sub(&credentials->refs, 1) > 1)
        return;
    if (credentials->ns >= 0)
        close(credentials->ns);
    free(credentials);
}

bool credentials_same_program(const struct credentials *a, const struct credentials *b)
{
    return a->who.pid && a->who.pid == b->who.pid && a->who.start_time == b->who.start_time &&
           a->start_stack == b->start_stack;
}

bool credentials_same(const struct credentials *a, const struct credentials *b)
{
    if (a == b)
        return true;
    return a->known && b->known && !memcmp(a->uid, b->uid, sizeof a->uid) &&
           !memcmp(a->gid, b->gid, sizeof a->gid) && !memcmp(a->caps, b->caps, sizeof a->caps) &&
           a->who.ns.dev == b->who.ns.dev && a->who.ns.ino == b->who.ns.ino &&
           a->ngroups == b->ngroups &&
           !memcmp(a->groups, b->groups, a->ngroups * sizeof *a->groups);
}

void principals_init(struct principals *principals, struct credentials *only)
{
    principals->opener = only;
    principals->n = 0;
    principals_add(principals, only, true);
}

int principals_add(struct principals *principals, const struct credentials *credentials, bool lives)
{
    if (principals->n == PRINCIPALS_MAX)
        return -EPERM;
    struct access_caller *who = &principals->items[principals->n++];
    *who = credentials->who;
    who->lives = lives;
    return 0;
}

int principals_look(const struct access *access, struct principals *principals, pid_t pid)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < principals->n; i++)
        r = access_look(access, &principals->items[i], pid);
    return r;
}

bool looker_may_look(void *arg, pid_t pid)
{
    struct looker *looker = arg;

    return principals_look(looker->access, &looker->principals, pid) == 0;
}
