"""Deputies: who may not do something has it done by somebody who may. What comes by an open file is done in the
names of who opened it, of who wrote what waits there and of who acts now, each as they were when they did it."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

from commands import write
from interpreters import TARGETS, eventually, patience
from mount import REPOSITORY
from test_access import WAIT, run_as

WORKS = """
import time
def work(i):
    secret = i
    return i
print('ready')
i = 0
while True:
    work(i)
    i += 1
    time.sleep(0.02)
"""
HIDES = """
import ctypes, sys
print('ready')
sys.stdin.readline()
ctypes.CDLL(None).prctl(4, 0)
print('hidden')
sys.stdin.read()
"""
LINE = "work() {i}"
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
WITHOUT = ["--bounding-set=-all", "--inh-caps=-all"]

pytestmark = pytest.mark.attack


@pytest.fixture
def shared(probe, nobody):
    return probe.mount("allow_other", "hidepid=0")


@pytest.fixture
def both(shared, any_python, nobody):
    """Somebody's own process, and one of root's, both attached: so what comes of a close takes no time."""
    targets = any_python.run_source(WORKS, user=nobody), any_python.run_source(WORKS)
    for target in targets:
        write(shared.path / str(target.pid) / "ctl", "attach\n")
    return targets


@contextlib.contextmanager
def deputy(python, how, path, text="", under=AS_NOBODY, **options):
    """tests/targets/deputies.py; what it says is a pipe's."""
    process = subprocess.Popen(
        [*under, *python.command("-u", str(TARGETS / "deputies.py"), how, str(path), text)],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=patience(30))


def run(python, how, path, text="", **options):
    """Its whole life."""
    with deputy(python, how, path, text, stdin=subprocess.DEVNULL, **options) as process:
        out, err = process.communicate(timeout=patience(60))
        return out.decode(), err.decode(), process.returncode


def needs_su():
    su = shutil.which("su")
    if not su or not os.stat(su).st_mode & 0o4000 or os.statvfs(su).f_flag & os.ST_NOSUID:
        pytest.skip("su is no setuid program here")


def has_line(mount, target):
    return "work()" in mount.read(target.pid, "breakpoints")


def only_own(mount, both):
    """What was asked for came to be, and only where who asked may have it."""
    own, roots = both
    eventually(lambda: has_line(mount, own), what="the line in one's own process")
    assert not has_line(mount, roots)


# ---- all/breakpoints ----

@pytest.mark.alone
def test_setuid_program_closes(shared, any_python, both):
    needs_su()
    run(any_python, "inherits", shared.path / "all" / "breakpoints", LINE)
    only_own(shared, both)


@pytest.mark.alone
def test_in_flight_while_the_writer_becomes_another(shared, any_python, both):
    needs_su()
    with deputy(any_python, "becomes", shared.path / "all" / "breakpoints", LINE) as process:
        assert process.stdout.readline() == b"ready\n", process.stderr.read()
        only_own(shared, both)
        process.communicate(b"\n", timeout=patience(60))


@pytest.mark.alone
def test_in_flight_while_the_pid_becomes_anothers(shared, any_python, both):
    with deputy(any_python, "reused", shared.path / "all" / "breakpoints", LINE) as process:
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == b"ready\n"

        def take():
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
            sleeper = subprocess.Popen(["sleep", "1000"])
            if sleeper.pid != pid:
                sleeper.kill()
                sleeper.wait()
                return None
            return sleeper

        sleeper = eventually(take, what="the pid")
        try:
            process.communicate(b"\n", timeout=patience(60))
            only_own(shared, both)
        finally:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.alone
def test_the_kernels_thread_writes(shared, any_python, both):
    """io_uring: a thread of the kernel's wrote it, which is gone when it is run."""
    needs_su()
    out, err, _ = run(any_python, "submits", shared.path / "all" / "breakpoints", LINE)
    if out.startswith("refused"):
        pytest.skip(f"io_uring: {out}")
    assert "Error" not in err, err
    only_own(shared, both)


def closes(fd):
    pass


def ends_the_line(fd):
    os.write(fd, b"\n")


def sends_a_file(fd):
    with tempfile.TemporaryFile() as file:
        file.write(b"\n")
        file.flush()
        os.sendfile(fd, file.fileno(), 0, 1)


def splices(fd):
    out, into = os.pipe()
    os.write(into, b"\n")
    os.splice(out, fd, 1)
    os.close(out)
    os.close(into)


@pytest.mark.alone
@pytest.mark.parametrize("act", [closes, ends_the_line, sends_a_file, splices])
def test_handed_to_roots_daemon(shared, any_python, both, act):
    """It gets a descriptor, and does what programs do with one."""
    ours, theirs = socket.socketpair()
    with deputy(any_python, "gives", shared.path / "all" / "breakpoints", LINE, stdin=theirs) as process:
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        ours.send(b"x")
        process.wait(patience(30))
        try:
            act(fd)
        finally:
            os.close(fd)
        only_own(shared, both)
    ours.close()
    theirs.close()


@pytest.mark.alone
def test_written_into_what_root_opened(shared, any_python, both):
    """The text isn't root's, though root opened the file and closes it."""
    fd = os.open(shared.path / "all" / "breakpoints", os.O_WRONLY | os.O_APPEND)
    try:
        said = run(any_python, "writes", fd, LINE, pass_fds=[fd])
        assert said[2] == 0, said
    finally:
        os.close(fd)
    only_own(shared, both)


@pytest.mark.alone
def test_what_root_opened_is_truncated(shared, any_python, both):
    """The lines that root set stay."""
    own, roots = both
    write(shared.path / "all" / "breakpoints", LINE + "\n")
    assert has_line(shared, own) and has_line(shared, roots)
    fd = os.open(shared.path / "all" / "breakpoints", os.O_WRONLY | os.O_APPEND)
    try:
        said = run(any_python, "truncates", fd, pass_fds=[fd])
        assert said[2] == 0, said
    finally:
        os.close(fd)
    eventually(lambda: not has_line(shared, own), what="the end of the line in one's own process")
    assert has_line(shared, roots)


# ---- all/query and its reply ----

def test_setuid_program_ends_a_statement(shared, any_python, nobody):
    """What su says ends the comment behind it; it is run again as the file is closed."""
    needs_su()
    own, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    everybody = shared.path / "all" / "query"
    run(any_python, "says", everybody, f"SELECT pid, 'seen' FROM threads WHERE pid IN ({own.pid}, {roots.pid}) -- ")
    seen = eventually(lambda: run_as(nobody, "cat", everybody).stdout, what="a reply")
    assert f"{own.pid},seen" in seen and f"{roots.pid},seen" not in seen


def test_reply_is_for_the_same_credentials(shared, any_python, nobody):
    """Root without capabilities isn't root; nor is somebody in other groups themselves."""
    target = any_python.run_source(WAIT)
    everybody = shared.path / "all" / "query"
    write(everybody, f"SELECT pid FROM threads WHERE pid = {target.pid};")
    assert str(target.pid) in everybody.read_text()
    bare = subprocess.run(["setpriv", *WITHOUT, "cat", everybody], capture_output=True, text=True)
    assert bare.returncode == 0 and bare.stdout == ""
    assert str(target.pid) in everybody.read_text()
    own = ["sh", "-c", f"echo 'SELECT 6 * 7;' > {everybody}"]
    assert run_as(nobody, *own).returncode == 0
    assert "42" in run_as(nobody, "cat", everybody).stdout
    other = subprocess.run(["setpriv", *AS_NOBODY[1:3], "--groups=4321", "cat", everybody],
                           capture_output=True, text=True)
    assert other.returncode == 0 and other.stdout == ""


def test_draft_is_for_the_same_credentials(shared, any_python):
    """Who drops its rights after a look at a table's size has it rendered anew."""
    target = any_python.run_source(WAIT)
    path = shared.path / "all" / "tables" / "threads.csv"
    assert f",{target.pid}," in path.read_text()
    out, err, code = run(any_python, "loses", path, under=[])
    assert code == 0 and out.startswith("host,pid,rank,"), err
    assert f",{target.pid}," not in out


def test_errors_are_for_the_same_credentials(shared, any_python, nobody):
    target = any_python.run_source(WAIT, user=nobody)
    top = shared.path / str(target.pid)
    with pytest.raises(OSError):
        write(top / "query", "SELECT 'private words' FRM x;")
    assert "private words" in shared.read(target.pid, "errors")
    assert run_as(nobody, "cat", top / "errors").stdout == ""
    assert run_as(nobody, "sh", "-c", f"echo nonsense > {top}/ctl").returncode != 0
    seen = run_as(nobody, "cat", top / "errors").stdout
    assert seen.count("\n") == 1 and "nonsense" in seen
    assert "nonsense" not in shared.read(target.pid, "errors")


def test_strangers_fill_no_errors(shared, any_python, nobody):
    """Who may not look at a process leaves no lines where its own errors are."""
    target = any_python.run_source(WAIT)
    top = shared.path / str(target.pid)
    with pytest.raises(OSError):
        write(top / "ctl", "nonsense\n")
    for _ in range(10):
        assert run_as(nobody, "cat", top / "backtrace").returncode != 0
    assert "nonsense" in shared.read(target.pid, "errors")


def test_size_is_for_the_same_credentials(shared, any_python, nobody):
    """How long a text was that root read."""
    target = any_python.run_source(WAIT)
    path = shared.path / str(target.pid) / "backtrace"
    with open(path) as file:
        assert os.fstat(file.fileno()).st_size == len(file.read().encode())
        assert run_as(nobody, "stat", "-c", "%s", path).stdout == "0\n"


# ---- the files of a process ----

@pytest.mark.parametrize("act", [closes, ends_the_line])
def test_no_longer_allowed(shared, any_python, nobody, act):
    """Who opened it could be told everything; when it hides its memory, not even by root's hand."""
    target = any_python.run_source(HIDES, user=nobody)
    path = shared.path / str(target.pid) / "ctl"
    ours, theirs = socket.socketpair()
    with deputy(any_python, "gives", path, "interpreter 3", stdin=theirs) as process:
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        ours.send(b"x")
        process.wait(patience(30))
        target.send("hide")
        target.expect("hidden")
        with pytest.raises(PermissionError):
            try:
                act(fd)
            finally:
                os.close(fd)
    assert "Interpreter: 0\n" in path.read_text()
    ours.close()
    theirs.close()


def test_server_with_a_clients_credentials(shared, any_python):
    """What root's server does in a client's name by io_uring is judged by no capability of its own."""
    target = any_python.run_source(WAIT)
    out, err, code = run(any_python, "personality", shared.path / str(target.pid) / "status", under=[])
    if out.startswith("refused"):
        pytest.skip(f"io_uring: {out}")
    assert out.split() in (["opened", "EACCES"], ["opened", "EPERM"]), err


def test_no_file_is_mapped(shared, any_python, nobody):
    """What is written to memory would come in nobody's name."""
    target = any_python.run_source(WAIT, user=nobody)
    out, err, _ = run(any_python, "maps", shared.path / str(target.pid) / "ctl", "interpreter 1\n")
    assert out == "ENODEV\n", err


def test_source_without_capabilities(shared, any_python, nobody, tmp_path):
    """Root without capabilities sees no file of somebody else's in its own frame."""
    private = tmp_path / "private.py"
    private.write_text("of somebody else\n")
    os.chown(private, 65534, 65534)
    private.chmod(0o600)
    for under, seen in (([], True), (["setpriv", *WITHOUT], False)):
        out, err, code = run(any_python, "shows", private, str(shared.path / "self"), under=under)
        assert code == 0, err
        assert ("of somebody else" in out) == seen, out


@pytest.mark.alone
def test_strangers(probe, nobody):
    """A little of tests/attack --random: the mount allows nobody more than the kernel."""
    said = subprocess.run([sys.executable, "-B", str(REPOSITORY / "tests" / "attack"), "--random", "600"],
                          capture_output=True, text=True, timeout=patience(100))
    assert said.returncode == 0 and "\n0 allowed more than the kernel\n" in said.stdout, said.stdout + said.stderr


def test_who_writes_waits(shared, any_python):
    """Else it could be another program by the time somebody looks who it is."""
    everybody = shared.path / "all" / "query"
    write(everybody, "SELECT 'a reply that is longer than what is written next, by some letters';")
    assert len(everybody.read_text()) > 60
    out, err, code = run(any_python, "asynchronous", everybody, "SELECT count(*) FROM threads;", under=[])
    assert (out, code) == ("1\n", 0), err
