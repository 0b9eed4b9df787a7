"""-o contain: what reads a user's processes has that user's rights and no others, and what becomes of it is nobody
else's trouble."""
import errno
import os
import pathlib
import pwd
import select
import signal
import subprocess
import threading

import pytest

from interpreters import eventually, interpreters, patience

pytestmark = pytest.mark.attack

SLEEPS = """
import ctypes, sys
def waits(answer):
    print("ready", flush=True)
    sys.stdin.read()
if sys.argv[1] == "hides":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
waits(42)
"""
ALL_CAPABILITIES = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapPrm")), 16)


def status(pid):
    lines = (line.partition(":") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {key: value.split() for key, _, value in lines}


def owners(mount):
    """{uid: pid} of what reads for the mount."""
    children = pathlib.Path(f"/proc/{mount.pid}/task").glob("*/children")
    found = {}
    for pid in " ".join(path.read_text() for path in children).split():
        try:
            said = status(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if said["Name"] == ["probefs-owner"] and said["State"][0] != "Z":
            found[int(said["Uid"][0])] = int(pid)
    return found


class Sleeper:
    """A process that says nothing and does nothing, of any user."""

    def __init__(self, interpreter, user=None, word="stays"):
        who = {}
        if user:
            entry = pwd.getpwnam(user)
            who = dict(user=entry.pw_uid, group=entry.pw_gid, extra_groups=[4242])
        self.process = subprocess.Popen([*interpreter.command(), "-c", SLEEPS, word], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, cwd="/", env={"LC_ALL": "C"}, **who)
        assert self.process.stdout.readline() == b"ready\n"
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def debian():
    if os.geteuid():
        pytest.skip("only root can take on the rights of others")
    found = next((i for i in interpreters() if i.source == "debian"), None)
    return found or pytest.skip("Debian's python is not installed")


@pytest.fixture
def contained(probe, debian):
    return probe.mount("allow_other", "contain=yes")


def error_of(mount, pid, file="locals"):
    """None, or the number of the error that reading ends in."""
    try:
        assert "answer = 42" in mount.read(pid, "threads", pid, file)
        return None
    except OSError as error:
        return error.errno


def test_rights(contained, probe, debian, nobody):
    uid = pwd.getpwnam(nobody).pw_uid
    plain = probe.mount("allow_other", "contain=no")
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        for victim in mine, theirs:
            for file in "stacks.folded", f"threads/{victim.pid}/locals", "tables/threads.csv":
                assert contained.read(victim.pid, file) == plain.read(victim.pid, file)
            assert os.listdir(contained.path / str(victim.pid) / "globals") == \
                os.listdir(plain.path / str(victim.pid) / "globals")
        assert not owners(plain)
        found = owners(contained)
        assert set(found) == {0, uid}
        said, twin = status(found[uid]), status(theirs.pid)
        for key in "Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapInh", "CapAmb":
            assert said[key] == twin[key], key
        for pid in found.values():
            assert status(pid)["NoNewPrivs"] == ["1"]
        assert int(status(found[0])["CapPrm"][0], 16) == ALL_CAPABILITIES
        # its own user can end it, but not look into it
        looks = subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "cat",
                                f"/proc/{found[uid]}/environ"], capture_output=True)
        assert looks.returncode and b"Permission denied" in looks.stderr


def test_capabilities(contained, debian, nobody):
    """Of a process with a capability the kernel shows nothing to a user who hasn't got it."""
    uid = pwd.getpwnam(nobody).pw_uid
    capable = subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
                                "--inh-caps=+net_raw", "--ambient-caps=+net_raw", *debian.command(), "-c", SLEEPS,
                                "stays"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
    try:
        assert capable.stdout.readline() == b"ready\n"
        assert error_of(contained, capable.pid) is None
        assert status(owners(contained)[uid])["CapPrm"] == status(capable.pid)["CapPrm"] != ["0000000000000000"]
    finally:
        capable.kill()
        capable.communicate()


@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGKILL, signal.SIGSTOP], ids=lambda s: s.name)
def test_killed(contained, debian, nobody, how):
    """Its owner reads again; nobody else notices."""
    uid = pwd.getpwnam(nobody).pw_uid
    over, errors = threading.Event(), []

    def read_mine():
        while not over.is_set():
            errors.append(error_of(contained, mine.pid))

    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        assert error_of(contained, theirs.pid) is None
        reader = threading.Thread(target=read_mine)
        reader.start()
        try:
            for _ in range(3):
                before = owners(contained)[uid]
                os.kill(before, how)
                if how == signal.SIGSTOP:
                    eventually(lambda: status(before)["State"][0] == "T", 10, "its stop")
                else:
                    eventually(lambda: before not in owners(contained).values(), 10, "its end")
                # what is asked of one that is gone is asked of the next; one that is stopped is ended
                said = error_of(contained, theirs.pid)
                assert said in ((errno.ETIMEDOUT,) if how == signal.SIGSTOP else (None, errno.EIO))
                eventually(lambda: error_of(contained, theirs.pid) is None, 30, "another one that reads")
                assert owners(contained)[uid] != before
        finally:
            over.set()
            reader.join(patience(30))
        assert errors and not any(errors)


def test_crashes_at_the_same_place(contained, debian, nobody):
    """Killed whenever it reads: it is started again, but not all the time, and the errors say so."""
    uid = pwd.getpwnam(nobody).pw_uid
    over = threading.Event()

    def kill():
        while not over.is_set():
            for pid in [pid for who, pid in owners(contained).items() if who == uid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    with Sleeper(debian, nobody) as theirs:
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            def told():
                error_of(contained, theirs.pid)
                return "times in a row: it is started again in" in contained.read(theirs.pid, "errors")
            eventually(told, 60, "a pause between two starts")
        finally:
            over.set()
            killer.join(patience(30))
        eventually(lambda: error_of(contained, theirs.pid) is None, 60, "a start after the pause")


def test_strict(contained, probe, debian, nobody):
    strict = probe.mount("allow_other", "contain=strict")
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs, Sleeper(debian, nobody, "hides") as hidden:
        for victim in mine, theirs:
            assert error_of(strict, victim.pid) is None
        assert error_of(contained, hidden.pid) is None
        assert error_of(strict, hidden.pid) == errno.EPERM
        assert "only root's rights are enough" in strict.read(hidden.pid, "errors")


def test_ends_with_the_daemon(contained, debian, nobody):
    with Sleeper(debian, nobody) as theirs:
        assert error_of(contained, theirs.pid) is None
        (pid,) = owners(contained).values()
        ended = os.pidfd_open(pid)
        contained.kill()
        assert select.select([ended], [], [], patience(20))[0]
        os.close(ended)
        contained.closed = True


def test_reads_itself(contained, debian):
    """A program that reads its own stack waits for the mount, and is never stopped for that."""
    reads = f"import os; print(open(f'{contained.path}/{{os.getpid()}}/backtrace').read())"
    said = subprocess.run([*debian.command(), "-c", reads], capture_output=True, text=True, timeout=patience(30))
    assert "<module> (<string>:1)" in said.stdout, said.stderr


def test_unknown_word(debian, tmp_path):
    from mount import build
    said = subprocess.run([build() / "fs" / "probefs", "-f", "-o", "contain=maybe", tmp_path], capture_output=True,
                          text=True)
    assert said.returncode == 2 and "contain takes no, yes" in said.stderr
