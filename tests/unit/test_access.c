#include "fs/access/access.h"
#include "fs/proc/procfs.h"
#include "fs/process/facts.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <linux/capability.h>
#include <unistd.h>

#define PTRACE (1ull << CAP_SYS_PTRACE)
#define CHOWN (1ull << CAP_CHOWN)

static const struct user_ns init_ns = {4, 100, 0}, child_ns = {4, 200, 1000},
                            grandchild_ns = {4, 300, 1000}, sibling_ns = {4, 400, 1001};

static struct access_caller user(uid_t uid)
{
    return (struct access_caller){.pid = 7,
                                  .fsuid = uid,
                                  .ruid = uid,
                                  .euid = uid,
                                  .fsgid = uid,
                                  .rgid = uid,
                                  .ns = init_ns,
                                  .lives = true,
                                  .complete = true};
}

static struct access_target process(uid_t uid)
{
    return (struct access_target){.pid = 42,
                                  .uid = {uid, uid, uid},
                                  .gid = {uid, uid, uid},
                                  .dumpable = true,
                                  .ns = {init_ns},
                                  .nns = 1};
}

static void test_sandbox(void)
{
    struct access_caller caller = user(1000);
    struct access_target target = process(1000);

    CHECK_INT(access_decide_sandbox(&caller, &target), 0);
    target.sandbox = SANDBOX_SECCOMP;
    CHECK_INT(access_decide_sandbox(&caller, &target), 0);
    caller.sandbox = SANDBOX_SECCOMP;
    CHECK_INT(access_decide_sandbox(&caller, &target), 0);
    caller.sandbox = SANDBOX_SECCOMP | SANDBOX_NO_NEW_PRIVS;
    CHECK_INT(access_decide_sandbox(&caller, &target), -EPERM);
    target.sandbox = SANDBOX_NO_NEW_PRIVS;
    CHECK_INT(access_decide_sandbox(&caller, &target), -EPERM);
    caller.effective = CHOWN;
    CHECK_INT(access_decide_sandbox(&caller, &target), -EPERM);
    caller.effective = PTRACE;
    CHECK_INT(access_decide_sandbox(&caller, &target), 0);
    caller.ns = child_ns;
    CHECK_INT(access_decide_sandbox(&caller, &target), -EPERM);
}

static void test_ids(void)
{
    struct access_caller caller = user(1000);
    struct access_target target = process(1000);

    CHECK_INT(access_decide(&caller, &target), 0);
    caller = user(1001);
    CHECK_INT(access_decide(&caller, &target), -EACCES);
    caller = user(0); /* root without capabilities is a user like any other */
    CHECK_INT(access_decide(&caller, &target), -EACCES);

    /* each of the six ids counts: a setuid or setgid program is another's */
    caller = user(1000);
    for (int i = 0; i < 3; i++) {
        target = process(1000);
        target.uid[i] = 0;
        CHECK_INT(access_decide(&caller, &target), -EACCES);
        target = process(1000);
        target.gid[i] = 0;
        CHECK_INT(access_decide(&caller, &target), -EACCES);
    }
    target = process(1000);
    caller.euid = 0; /* looking goes by the filesystem ids */
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.fsuid = 0;
    CHECK_INT(access_decide(&caller, &target), -EACCES);

    /* always oneself */
    caller = user(1001);
    caller.pid = 42;
    target.dumpable = false;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.lives = false; /* who asked has been answered: the pid may be another's */
    CHECK_INT(access_decide(&caller, &target), -EACCES);
    caller.lives = true;
    caller.pid = target.pid = 0; /* not known is not the same */
    CHECK_INT(access_decide(&caller, &target), -EACCES);
}

static void test_capabilities(void)
{
    struct access_caller caller = user(1001);
    struct access_target target = process(1000);

    caller.effective = PTRACE;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.effective = ~PTRACE;
    CHECK_INT(access_decide(&caller, &target), -EACCES);

    /* not dumpable: not even the owner */
    target.dumpable = false;
    caller = user(1000);
    CHECK_INT(access_decide(&caller, &target), -EPERM);
    caller.effective = PTRACE;
    CHECK_INT(access_decide(&caller, &target), 0);

    /* the owner needs what the target has */
    target = process(1000);
    target.permitted = CHOWN;
    caller.effective = 0;
    CHECK_INT(access_decide(&caller, &target), -EPERM);
    caller.effective = CHOWN;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.effective = PTRACE;
    CHECK_INT(access_decide(&caller, &target), 0);
}

static void test_namespaces(void)
{
    struct access_target target = process(1000);
    struct access_caller caller = user(0);

    target.ns[0] = grandchild_ns;
    target.ns[1] = child_ns;
    target.ns[2] = init_ns;
    target.nns = 3;

    /* a capability reaches down, not up and not aside */
    caller.effective = ~0ull;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.ns = child_ns;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.ns = grandchild_ns;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.ns = sibling_ns;
    CHECK_INT(access_decide(&caller, &target), -EACCES);
    caller.ns = (struct user_ns){0};
    CHECK_INT(access_decide(&caller, &target), -EACCES);
    target = process(1000);
    caller.ns = child_ns;
    CHECK_INT(access_decide(&caller, &target), -EACCES);

    /* who made a namespace has all capabilities in it, from its parent */
    target.ns[0] = child_ns;
    target.ns[1] = init_ns;
    target.nns = 2;
    caller = user(1000);
    caller.fsuid = 5;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.euid = 1001;
    CHECK_INT(access_decide(&caller, &target), -EACCES);

    /* the same ids in another namespace, without a capability there, are not enough */
    caller = user(1000);
    caller.euid = 5;
    CHECK_INT(access_decide(&caller, &target), -EPERM);

    /* a process that hides its memory does so from the root of its own namespace too */
    target.dumpable = false;
    caller = user(0);
    caller.effective = ~0ull;
    CHECK_INT(access_decide(&caller, &target), 0);
    caller.ns = child_ns;
    CHECK_INT(access_decide(&caller, &target), -EPERM);

    /* namespaces that could not be read */
    target = process(1000);
    target.nns = 0;
    caller = user(1000);
    CHECK_INT(access_decide(&caller, &target), -EPERM);
}

static void test_control(void)
{
    struct access_target target = process(1000);
    struct access_caller caller = user(1000);

    CHECK_INT(access_decide_control(&caller, &target), 0);
    caller.ruid = 1001; /* somebody who runs a setuid program of theirs, or a setgid one */
    CHECK_INT(access_decide_control(&caller, &target), -EACCES);
    caller = user(1000);
    caller.rgid = 1001;
    CHECK_INT(access_decide_control(&caller, &target), -EACCES);
    caller = user(1001);
    CHECK_INT(access_decide_control(&caller, &target), -EACCES);
    caller = user(0);
    CHECK_INT(access_decide_control(&caller, &target), -EACCES);
    caller.effective = PTRACE;
    CHECK_INT(access_decide_control(&caller, &target), 0);
    caller.ns = child_ns; /* a capability that doesn't reach there */
    CHECK_INT(access_decide_control(&caller, &target), -EACCES);

    /* the effective uid is what counts: a setuid program isn't its user's */
    target.uid[1] = 0;
    caller = user(1000);
    CHECK_INT(access_decide_control(&caller, &target), -EACCES);
}

static void test_yama(void)
{
    struct access_target target = process(1000);
    struct access_caller caller = user(1000);

    for (int descends = 0; descends < 2; descends++) {
        caller.effective = 0;
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_CLASSIC, descends), 0);
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_ANCESTORS, descends),
                  descends ? 0 : -EPERM);
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_CAPABLE, descends), -EPERM);
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_NOBODY, descends), -EPERM);
        caller.effective = PTRACE;
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_CLASSIC, descends), 0);
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_ANCESTORS, descends), 0);
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_CAPABLE, descends), 0);
        CHECK_INT(access_decide_yama(&caller, &target, YAMA_NOBODY, descends), -EPERM);
    }
}

/* What is left of a process that has ended. */
static void test_ended(void)
{
    struct access access = {.daemon = {.pid = 1, .ns = init_ns, .effective = ~0ull}};
    struct access_target target = process(1000), now;
    struct access_caller owner = user(1000), other = user(1001), root = user(0);

    root.effective = PTRACE;
    CHECK_INT(access_look_ended(&access, &owner, &target), 0);
    CHECK_INT(access_control_ended(&access, &owner, &target), 0);
    CHECK_INT(access_look_ended(&access, &other, &target), -EACCES);
    CHECK_INT(access_control_ended(&access, &other, &target), -EACCES);
    CHECK_INT(access_look_ended(&access, &root, &target), 0);
    CHECK_INT(access_control_ended(&access, &root, &target), 0);
    other.pid = target.pid; /* its pid is somebody else's by now */
    CHECK_INT(access_look_ended(&access, &other, &target), -EACCES);

    /* and so may its user namespace's number be */
    target.ns[0] = child_ns;
    owner.ns = child_ns;
    owner.effective = PTRACE;
    CHECK(access_look_ended(&access, &owner, &target) < 0);
    CHECK_INT(access_look_ended(&access, &root, &target), 0);

    /* the strictest counts, whichever came first */
    owner = user(1000);
    now = target = process(1000);
    facts_merge_access(&target, &now);
    CHECK_INT(access_look_ended(&access, &owner, &target), 0);
    now.permitted = CHOWN;
    facts_merge_access(&target, &now);
    CHECK_INT(access_look_ended(&access, &owner, &target), -EPERM);
    for (int i = 0; i < 3; i++) {
        now = target = process(1000);
        now.dumpable = i != 0;
        now.uid[2] = i == 1 ? 0 : 1000;
        now.ns[0] = i == 2 ? child_ns : init_ns;
        facts_merge_access(&target, &now);
        now = process(1000);
        facts_merge_access(&target, &now);
        CHECK(access_look_ended(&access, &owner, &target) < 0);
        CHECK_INT(access_look_ended(&access, &root, &target), 0);
    }
}

static void test_proc(void)
{
    struct caller self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    struct access_caller who;
    struct access access;

    char status[8192];
    CHECK(proc_read(getpid(), "status", status, sizeof status) > 0);
    access_read_caller(&self, &who);
    CHECK_INT(who.effective, strtoull(proc_status_field(status, "CapEff"), NULL, 16));
    CHECK(who.ns.ino);
    CHECK_INT(access_init(&access, HIDEPID_INVISIBLE), 0);
    CHECK_INT(access_look(&access, &who, getpid()), 0);
    CHECK(!who.complete);                               /* what the daemon is needs no more */
    access.daemon.effective = ~0ull;                    /* more than anybody has */
    CHECK_INT(access_look(&access, &who, getpid()), 0); /* itself, whoever it is */
    CHECK_INT(who.pid, getpid());
    CHECK_INT(who.euid, geteuid());

    /* other ids than the thread has: these are not its own credentials, so that those don't count
     */
    self.uid = 54321;
    access_read_caller(&self, &who);
    CHECK(access_look(&access, &who, getpid()) < 0);
    CHECK_INT(who.effective, 0);
    CHECK_INT(who.ns.ino, 0);
    CHECK(access_look(&access, &who, getppid()) < 0);

    /* from a foreign pid namespace: nothing is known */
    self.pid = 0;
    access_read_caller(&self, &who);
    CHECK_INT(who.effective, 0);
    CHECK_INT(who.ns.ino, 0);
    CHECK(access_look(&access, &who, getpid()) < 0);
}

int main(void)
{
    test_ids();
    test_sandbox();
    test_capabilities();
    test_namespaces();
    test_control();
    test_yama();
    test_ended();
    test_proc();
    return 0;
}
