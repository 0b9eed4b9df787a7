"""A second user, and what is not theirs: another's eval, its replies, the channel."""
import errno
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from commands import Commands, stops
from interpreters import eventually, interpreters, patience
from mount import REPOSITORY
from users import answer, run_as
from victims import Victim

pytestmark = pytest.mark.attack

PIDFD_OPEN, PIDFD_GETFD = 434, 438
DENIED = {errno.EACCES, errno.EPERM, errno.ENOENT}

# prints the errno of each try to get at a process's descriptors
TAKES = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
pidfd = libc.syscall({PIDFD_OPEN}, pid, 0)
for number in range(64):
    if libc.syscall({PIDFD_GETFD}, pidfd, number, 0) >= 0:
        print(0)
    else:
        print(ctypes.get_errno())
PTRACE_SEIZE = 0x4206
print(0 if libc.ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 else ctypes.get_errno())
for path in f"/proc/{{pid}}/fd", f"/proc/{{pid}}/mem":
    try:
        os.listdir(path) if path.endswith("fd") else open(path).close()
        print(0)
    except OSError as error:
        print(error.errno)
"""


def write_as(user, path, text):
    return answer(run_as(user, "bash", "-c", 'echo "$1" > "$2"', "bash", text, path))


@pytest.fixture
def shared(probe, nobody):
    return probe.mount("allow_other")


@pytest.fixture
def debian():
    """A second user must be able to run it."""
    found = next((i for i in interpreters() if i.source == "debian"), None)
    return found or pytest.skip("Debian's python is not installed")


def test_anothers_process(shared, debian, nobody):
    with Victim(debian, "sums") as victim:
        commands = Commands(shared, victim.pid)
        secret = "se" + "cret"
        assert commands.eval(f"'{secret}'") == f"'{secret}'\n"
        for name in "eval", f"threads/{victim.pid}/eval", f"threads/{victim.pid}/frames/0/eval":
            path = commands.directory / name
            assert write_as(nobody, path, "__import__('os').abort()") in DENIED
            said = run_as(nobody, "cat", path)
            assert answer(said) in DENIED and secret not in said.stdout
        for verb in "attach", "detach", "status":
            assert write_as(nobody, commands.directory / "ctl", verb) in DENIED
        assert commands.eval("6 * 7") == "42\n", "it is still attached"
        victim.judge()
        commands.detach()
        victim.end()


def test_ones_own_process(shared, debian, nobody):
    """A user acts on their own through root's daemon, and sees no reply but their own."""
    with Victim(debian, "sums", user=nobody) as victim:
        path = shared.path / str(victim.pid) / "eval"
        assert write_as(nobody, path, "6 * 7") is None
        assert Commands(shared, victim.pid).eval("'of root'") == "'of root'\n"
        assert run_as(nobody, "cat", path).stdout == "42\n"
        assert write_as(nobody, path.with_name("ctl"), "detach") is None
        victim.end()


# stands where no thread can be borrowed until it is sent a line, and then can't be looked at any more
CLOSES = """
import ctypes, sys, time
libc = ctypes.PyDLL(None)
print("ready", flush=True)
libc.getchar()
libc.prctl(4, 0)
while not hasattr(sys, "touched"):
    time.sleep(0.01)
print("touched", flush=True)
"""


@pytest.mark.attack
def test_rights_that_are_lost_meanwhile(shared, debian, nobody):
    """Who was allowed to write, and isn't any more once the agent is there, is refused."""
    def write():
        target = debian.run_source(CLOSES, user=nobody)
        before, path = stops(target.pid), shared.path / str(target.pid) / "eval"
        said = []
        writer = threading.Thread(target=lambda: said.append(write_as(nobody, path, "__import__('sys').touched = 1")))
        writer.start()
        eventually(lambda: stops(target.pid) > before + 4, what="tries to borrow its thread")
        target.send("")
        writer.join(patience(60))
        return target, said

    for _ in range(9):
        target, said = write()
        if said != [None]:  # else it was written while the program had not yet come to closing
            break
    assert said and said[0] in DENIED
    assert Commands(shared, target.pid).eval("hasattr(__import__('sys'), 'touched')") == "False\n"


WAIT = "import sys; print('ready'); sys.stdin.read()"
NO_NEW_PRIVS = "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"


@pytest.mark.attack
@pytest.mark.parametrize("sandbox", [["setpriv", "--no-new-privs"],
                                     ["/usr/bin/python3", REPOSITORY / "tests" / "seccomp-exec", "EPERM", "ptrace"]])
def test_out_of_a_sandbox(shared, debian, nobody, sandbox):
    """Who is in one has nothing done outside of it, but looks, and writes to what is in there too."""
    if run_as(nobody, *sandbox, "true").returncode:
        pytest.skip("the second user can't run that here")
    outside = debian.run_source(WAIT, user=nobody)
    top = shared.path / str(outside.pid)

    def write(path, text):
        return answer(run_as(nobody, *sandbox, "bash", "-c", 'echo "$1" > "$2"', "bash", text, path))

    for name in "eval", "ctl", "breakpoints", f"threads/{outside.pid}/eval":
        assert write(top / name, "status") == errno.EPERM
        assert "sandbox" in run_as(nobody, *sandbox, "cat", top / name).stdout
    maps = pathlib.Path(f"/proc/{outside.pid}/maps").read_text()
    assert "memfd:" not in maps and "probe-agent" not in maps
    assert f"Process {outside.pid}:" in run_as(nobody, *sandbox, "cat", top / "backtrace").stdout
    assert write(top / "query", "SELECT 1") is None
    assert write_as(nobody, top / "eval", "6 * 7") is None
    if sandbox[0] == "setpriv":
        inside = debian.run_source(NO_NEW_PRIVS + WAIT, user=nobody)
        assert write(shared.path / str(inside.pid) / "eval", "6 * 7") is None
        assert run_as(nobody, "cat", shared.path / str(inside.pid) / "eval").stdout == "42\n"


@pytest.mark.alone
@pytest.mark.attack
def test_out_of_a_sandbox_by_all(shared, debian, nobody):
    outside = debian.run_source(WAIT, user=nobody)
    said = run_as(nobody, "setpriv", "--no-new-privs", "bash", "-c", "echo 'log nowhere.py:1' > \"$0\"",
                  shared.path / "all" / "breakpoints")
    assert answer(said) == errno.ESRCH, "there is none that may be written to"
    assert shared.read(outside.pid, "breakpoints") == ""


@pytest.mark.parametrize("whose", ["daemon", "target"])
def test_the_channel(shared, debian, nobody, whose):
    with Victim(debian, "sums") as victim:
        commands = Commands(shared, victim.pid)
        commands.attach()
        pid = shared.pid if whose == "daemon" else victim.pid
        said = run_as(nobody, "/usr/bin/python3", "-c", TAKES, pid).stdout.split()
        assert len(said) == 67 and set(map(int, said)) <= {errno.EPERM, errno.EACCES}
        assert subprocess.run([sys.executable, "-c", TAKES, str(pid)], capture_output=True,
                              text=True).stdout.split().count("0") > 3, "root can: the test is one"
        victim.judge()
        commands.detach()
        victim.end()
