#include "fs/access/credentials.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct access access_;

static struct credentials *take(pid_t pid)
{
    const struct caller from = {.pid = pid, .uid = geteuid(), .gid = getegid()};
    struct credentials *credentials;

    CHECK_INT(credentials_new(&access_, &from, &credentials), 0);
    return credentials;
}

static void test_own(void)
{
    struct credentials *one = take(getpid()), *other = take(getpid());

    CHECK(one->known && !one->who.lives && one->who.complete);
    CHECK_INT(one->uid[1], geteuid());
    CHECK_INT(one->gid[3], getegid());
    CHECK_INT(one->ngroups, getgroups(0, NULL));
    CHECK_INT(one->who.effective, one->caps[2]);
    CHECK_INT(one->ns, -1); /* the daemon's own: it needs no holding */
    CHECK(one->who.start_time && one->start_stack);
    CHECK(credentials_same(one, other) && credentials_same_program(one, other));
    other->start_stack++;
    CHECK(credentials_same(one, other) && !credentials_same_program(one, other));
    for (size_t i = 0; i < CREDENTIALS_CAPS; i++) {
        other->caps[i] ^= 1; /* each set counts, as root without capabilities isn't root */
        CHECK(!credentials_same(one, other));
        other->caps[i] ^= 1;
    }
    for (size_t i = 0; i < 4; i++) {
        other->uid[i]++;
        CHECK(!credentials_same(one, other));
        other->uid[i]--;
        other->gid[i]++;
        CHECK(!credentials_same(one, other));
        other->gid[i]--;
    }
    CHECK(credentials_same(one, other));
    credentials_unref(one);
    credentials_unref(other);
}

/* Of a foreign pid namespace, or with other ids than the thread has. */
static void test_unknown(void)
{
    const struct caller as_another = {.pid = getpid(), .uid = 54321, .gid = getegid()};
    struct credentials *one = take(0), *other = take(0), *another;

    CHECK(!one->known && !one->who.effective && !one->who.ns.ino);
    CHECK(credentials_same(one, one) && !credentials_same(one, other));
    CHECK(!credentials_same_program(one, other));
    CHECK_INT(credentials_new(&access_, &as_another, &another), 0);
    CHECK(!another->known && !another->who.effective && !another->who.ns.ino);
    CHECK_INT(another->who.fsuid, 54321);
    credentials_unref(one);
    credentials_unref(other);
    credentials_unref(another);
}

/* A child that has become somebody and waits; 0: it can't. */
static pid_t child(bool (*become)(void))
{
    int ends[2];
    char ready = 0;

    CHECK_INT(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ready = become();
        (void)!write(ends[1], &ready, 1);
        pause();
        _exit(0);
    }
    CHECK_INT(read(ends[0], &ready, 1), 1);
    close(ends[0]);
    close(ends[1]);
    if (ready)
        return pid;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static gid_t groups[CREDENTIALS_GROUPS_MAX + 1];
static bool take_groups(void) { return !setgroups(CREDENTIALS_GROUPS_MAX, groups); }
static bool take_too_many(void) { return !setgroups(CREDENTIALS_GROUPS_MAX + 1, groups); }
static bool enter_ns(void) { return !unshare(CLONE_NEWUSER); }

static void test_groups(void)
{
    struct credentials *own = take(getpid()), *other;

    for (size_t i = 0; i < CREDENTIALS_GROUPS_MAX + 1; i++)
        groups[i] = (gid_t)(4000000000u + i);
    pid_t pid = child(take_groups);
    if (pid) {
        other = take(pid);
        CHECK(other->known && !credentials_same(own, other));
        CHECK_INT(other->ngroups, CREDENTIALS_GROUPS_MAX);
        CHECK_INT(other->groups[CREDENTIALS_GROUPS_MAX - 1], groups[CREDENTIALS_GROUPS_MAX - 1]);
        CHECK_INT(other->who.effective, own->who.effective);
        credentials_unref(other);
        end(pid);
    }
    pid = child(take_too_many);
    if (pid) { /* like nobody; but what it may isn't less */
        other = take(pid);
        CHECK(!other->known);
        CHECK_INT(other->who.effective, own->who.effective);
        credentials_unref(other);
        end(pid);
    }
    credentials_unref(own);
}

/* Its number isn't given to another as long as the credentials are there. */
static void test_namespace(void)
{
    struct stat st;
    pid_t pid = child(enter_ns);

    if (!pid)
        return;
    struct credentials *own = take(getpid()), *other = take(pid);
    CHECK(!credentials_same(own, other));
    end(pid);
    CHECK(other->ns >= 0 || geteuid() != 0);
    if (other->ns >= 0) {
        CHECK_INT(fstat(other->ns, &st), 0);
        CHECK_INT(st.st_ino, other->who.ns.ino);
        CHECK(other->who.ns.ino != own->who.ns.ino);
    }
    credentials_unref(own);
    credentials_unref(other);
}

static void test_principals(void)
{
    struct credentials *own = take(getpid());
    struct principals principals;

    principals_init(&principals, own);
    CHECK(principals.n == 1 && principals.opener == own && principals.items[0].lives);
    CHECK_INT(principals_look(&access_, &principals, getpid()), 0);
    struct credentials *nothing = take(0);
    CHECK_INT(principals_add(&principals, nothing, false), 0);
    CHECK(principals_look(&access_, &principals, getpid()) < 0); /* each of them */
    while (principals.n < PRINCIPALS_MAX)
        CHECK_INT(principals_add(&principals, own, false), 0);
    CHECK_INT(principals_add(&principals, own, false), -EPERM);
    credentials_unref(own);
    credentials_unref(nothing);
}

int main(void)
{
    CHECK_INT(access_init(&access_, HIDEPID_INVISIBLE), 0);
    test_own();
    test_unknown();
    test_groups();
    test_namespace();
    test_principals();
    return 0;
}
