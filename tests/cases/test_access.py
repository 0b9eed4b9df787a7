"""Who may look at whom, seen from a second user; the kernel's own answer for /proc is the oracle."""
import errno
import os
import shlex
import subprocess

import pytest

from interpreters import patience
from users import answer, run_as

pytestmark = pytest.mark.attack

WAIT = "import sys; print('ready'); sys.stdin.read()"
HIDE = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print('ready'); sys.stdin.read()"
LESS = """
import os, sys
# another real than effective user: what a setuid program looks like
os.setresuid(65534, 1234, 65534) if sys.argv[1] == "uid" else os.setresgid(65534, 1234, 65534)
import ctypes; ctypes.CDLL(None).prctl(4, 1)
print('ready'); sys.stdin.read()
"""
DENIED = {errno.EACCES, errno.EPERM}


@pytest.fixture
def shared(probe, nobody):
    return probe.mount("allow_other")


def read_as(user, path, **options):
    return answer(run_as(user, "cat", path, **options))


def listed_to(user, mount, **options):
    return set(run_as(user, "ls", mount.path, **options).stdout.split())


def in_proc(user, pid, **options):
    """Whether the kernel lets a user look: this link, too, takes PTRACE_MODE_READ_FSCREDS."""
    return answer(run_as(user, "readlink", "-v", f"/proc/{pid}/ns/user", **options)) is None


def agrees(mount, user, pid, **options):
    """probefs says what the kernel says; returns that."""
    allowed = in_proc(user, pid, **options)
    got = read_as(user, mount.path / str(pid) / "status", **options)
    assert (got is None) == allowed
    assert (str(pid) in listed_to(user, mount, **options)) == allowed
    return allowed


def test_only_ones_own(shared, any_python, nobody):
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    assert agrees(shared, nobody, mine.pid)
    assert not agrees(shared, nobody, roots.pid)
    assert agrees(shared, "root", mine.pid) and agrees(shared, "root", roots.pid)
    top = shared.path / str(mine.pid)
    assert (os.stat(top).st_uid, os.stat(top).st_gid) == (65534, 65534)
    assert os.stat(top / "status").st_uid == 65534
    assert os.stat(top / "threads" / str(mine.pid) / "frames").st_uid == 65534
    assert f"Process {mine.pid}:" in run_as(nobody, "cat", top / "backtrace").stdout
    assert {"help", "self", "by-rank"} <= listed_to(nobody, shared)
    assert run_as(nobody, "cat", shared.path / "help").returncode == 0


def test_without_allow_other(probe, any_python, nobody):
    any_python.run_source(WAIT, user=nobody)
    assert answer(run_as(nobody, "ls", probe.path)) == errno.EACCES


def test_own_mount(probe, any_python, nobody):
    """An ordinary user's daemon shows what that user may look at."""
    if os.stat("/dev/fuse").st_mode & 0o6 != 0o6:
        pytest.skip("an ordinary user may not open /dev/fuse here")
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    mount = probe.mount(user=nobody)
    assert agrees(mount, nobody, mine.pid)
    assert not agrees(mount, nobody, roots.pid)


def test_every_way_in_is_closed(shared, any_python, nobody):
    """Not one of a foreign process's names can be used, whichever call asks."""
    target = any_python.run_source(WAIT)
    top = shared.path / str(target.pid)
    thread = top / "threads" / str(target.pid)
    for path in [top, top / "status", top / "backtrace", top / "stacks.folded", top / "tasks",
                 top / "errors", top / "threads", thread, thread / "status", thread / "locals",
                 thread / "frames" / "0", thread / "frames" / "0" / "locals"]:
        for command in (["cat"], ["ls", "-d"], ["stat"], ["test", "-e"]):
            assert run_as(nobody, *command, path).returncode != 0
    assert answer(run_as(nobody, "ls", top)) == errno.ENOENT


def test_directory_handed_over(shared, any_python, nobody):
    """A descriptor that a privileged process opened gives its heir no more than its own rights."""
    target = any_python.run_source(WAIT)
    fd = os.open(shared.path / str(target.pid), os.O_RDONLY)
    try:
        for what in ("status", "threads", "."):
            code = f"import os; os.open({what!r}, 0, dir_fd={fd})"
            said = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                 *any_python.command("-c", code)], pass_fds=[fd], capture_output=True, text=True)
            assert said.returncode == 1
            assert "FileNotFoundError" in said.stderr or "PermissionError" in said.stderr
    finally:
        os.close(fd)


@pytest.mark.parametrize("hidepid", [0, 1, 2])
def test_hidepid(probe, any_python, nobody, hidepid):
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    mount = probe.mount("allow_other", f"hidepid={hidepid}")
    top = mount.path / str(roots.pid)
    names = listed_to(nobody, mount)
    assert str(mine.pid) in names
    assert (str(roots.pid) in names) == (hidepid < 2)
    assert answer(run_as(nobody, "stat", top)) == (None if hidepid < 2 else errno.ENOENT)
    inside = answer(run_as(nobody, "ls", top))
    assert inside in ({None}, DENIED, {errno.ENOENT})[hidepid]
    assert read_as(nobody, top / "status") in (DENIED if hidepid < 2 else {errno.ENOENT})
    assert read_as(nobody, mount.path / str(mine.pid) / "backtrace") is None
    # frames are content
    frames = top / "threads" / str(roots.pid) / "frames"
    assert answer(run_as(nobody, "ls", frames)) in (DENIED if hidepid < 2 else {errno.ENOENT})
    assert mount.read(roots.pid, "status")


def test_by_rank_hides_too(shared, any_python, nobody):
    any_python.run_source(WAIT, env={"RANK": "41"})
    any_python.run_source(WAIT, env={"RANK": "42"}, user=nobody)
    assert set(run_as(nobody, "ls", shared.path / "by-rank").stdout.split()) & {"41", "42"} == {"42"}
    assert answer(run_as(nobody, "readlink", "-v", shared.path / "by-rank" / "41")) == errno.ENOENT


@pytest.mark.attack
def test_a_rank_that_a_stranger_claims(probe, any_python, nobody):
    """Each sees their own process at a rank, though another's is older."""
    mount = probe.mount("allow_other", "hidepid=0")
    for first, second in ({"user": nobody}, {}), ({}, {"user": nobody}):
        rank = str(43 + bool(first))
        strangers = any_python.run_source(WAIT, env={"RANK": rank}, **first)
        own = any_python.run_source(WAIT, env={"RANK": rank}, **second)
        link = mount.path / "by-rank" / rank
        at = {first.get("user"): strangers.pid, second.get("user"): own.pid}
        assert os.readlink(link) == f"../{at[None]}"
        assert run_as(nobody, "readlink", link).stdout == f"../{at[nobody]}\n"
        assert rank in run_as(nobody, "ls", mount.path / "by-rank").stdout.split()


@pytest.mark.attack
def test_the_size_of_what_another_has_open(probe, any_python, nobody):
    mount = probe.mount("allow_other", "hidepid=0")
    path = mount.path / str(any_python.run_source(WAIT).pid) / "backtrace"
    with open(path, "rb") as file:
        assert os.fstat(file.fileno()).st_size == len(file.read()) > 0
        assert run_as(nobody, "stat", "-c", "%s", path).stdout == "0\n"
        assert os.fstat(file.fileno()).st_size > 0


def test_self(shared, any_python, nobody):
    code = "import sys; print(open(sys.argv[1] + '/self/backtrace').read())"
    said = run_as(nobody, *any_python.command("-c", code, shared.path))
    assert "<module> (<string>:1)" in said.stdout, said.stderr


def test_not_dumpable(shared, any_python, nobody):
    """A process that hides its memory hides it from its own user, not from root."""
    target = any_python.run_source(HIDE, user=nobody)
    assert not agrees(shared, nobody, target.pid)
    assert agrees(shared, "root", target.pid)


@pytest.mark.parametrize("which", ["uid", "gid"])
def test_mixed_ids(shared, any_python, nobody, which):
    """As of a setuid or setgid program: neither of its users may look."""
    target = any_python.run_source(f"import os; os.setgroups([])\n{LESS}" if which == "uid" else LESS,
                                   which)
    assert not agrees(shared, nobody, target.pid)
    assert agrees(shared, "root", target.pid)


def test_root_without_capabilities(shared, any_python, nobody):
    none = ["--bounding-set=-all", "--inh-caps=-all"]
    target, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    assert not agrees(shared, "root", target.pid, under=none)
    # root's process has capabilities that this reader lacks
    assert not agrees(shared, "root", roots.pid, under=none)
    # and one that has as few as the reader, though it could be asked for what it can't show
    bare = subprocess.Popen(["setpriv", *none, *any_python.command("-c", WAIT)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert bare.stdout.readline() == b"ready\n"
        # whether such a process is dumpable can't be seen from outside: refused, to be safe
        assert in_proc("root", bare.pid, under=none)
        assert read_as("root", shared.path / str(bare.pid) / "status", under=none) is not None
    finally:
        bare.kill()
        bare.communicate()


def test_more_capabilities(shared, any_python, nobody):
    """An owner may not look at what can do more than itself."""
    target = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         "--inh-caps=+net_raw", "--ambient-caps=+net_raw",
         *any_python.command("-c", WAIT.replace("import sys;", "import sys, ctypes;"
                                                "ctypes.CDLL(None).prctl(4, 1);"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert target.stdout.readline() == b"ready\n"
        assert not agrees(shared, nobody, target.pid)
        assert agrees(shared, nobody, target.pid,
                      under=["--inh-caps=+net_raw", "--ambient-caps=+net_raw"])
    finally:
        target.kill()
        target.communicate()


def test_ptrace_capability(shared, any_python, nobody):
    target = any_python.run_source(WAIT)
    tracer = ["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]
    assert agrees(shared, nobody, target.pid, under=tracer)


def test_user_namespace(shared, any_python, nobody):
    """Root of a namespace of one's own is nobody outside of it, and root inside."""
    roots = any_python.run_source(WAIT)
    inside = ["unshare", "--user", "--map-root-user"]
    if run_as(nobody, *inside, "true").returncode:
        pytest.skip("no user namespaces here")
    target = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *inside,
         *any_python.command("-c", WAIT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert target.stdout.readline() == b"ready\n"
        path = shared.path / str(roots.pid) / "status"
        assert answer(run_as(nobody, *inside, "cat", path)) == errno.ENOENT
        # the one who made it may look; so may root, and the mount agrees with the kernel
        assert agrees(shared, nobody, target.pid)
        assert agrees(shared, "root", target.pid)
    finally:
        target.kill()
        target.communicate()


def test_rights_lost_while_open(shared, any_python, nobody):
    """What was opened stays readable, what is opened next is checked anew."""
    target = any_python.run_source(
        "import ctypes, sys; print('ready'); sys.stdin.readline();"
        "ctypes.CDLL(None).prctl(4, 0); print('hidden'); sys.stdin.read()", user=nobody)
    path = shared.path / str(target.pid) / "status"
    script = f"exec 3< {shlex.quote(str(path))}; echo open; read line; cat <&3; " \
             f"cat {shlex.quote(str(path))}"
    reader = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert reader.stdout.readline() == "open\n"
        target.send("go")
        target.expect("hidden")
        out, err = reader.communicate("go\n", timeout=patience(30))
        assert out.startswith(f"Pid: {target.pid}\n")
        assert out.count("Pid: ") == out.count("PPid: ") + 1 == 2
        assert "No such file" in err
    finally:
        reader.kill()
        reader.wait()


def test_foreign_pid_namespace(shared, any_python, nobody):
    """A container's root that looks at a mount shared with it: its pids are others."""
    target = any_python.run_source(WAIT)
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if run_as("root", *inside, "true").returncode:
        pytest.skip("no pid namespaces here")
    assert read_as("root", shared.path / str(target.pid) / "status") is None
    said = run_as("root", *inside, "cat", shared.path / str(target.pid) / "status")
    assert said.stdout.startswith(f"Pid: {target.pid}\n")
    # the caller's pid is translated for the daemon, so that self leads to where the mount shows it
    said = run_as("root", *inside, "readlink", shared.path / "self").stdout.strip()
    assert said.isdigit() and int(said) > 10
