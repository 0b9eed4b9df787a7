"""Programs and shells that know nothing of us meet the tree: none waits, complains or has to be told how."""
import errno
import os
import select
import shutil
import signal
import subprocess
import tarfile
import time

import pytest

from commands import failure
from interpreters import patience

WAIT = "import sys, threading\nvalue = 41\nprint('ready')\nsys.stdin.read()"


def needs(program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


@pytest.fixture
def victim(python):
    return python.run_source(WAIT)


@pytest.fixture
def top(probe, victim):
    return probe.path / str(victim.pid)


def quietly(*command, status=0):
    """Runs one that is to end by itself and to complain about nothing."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=patience(60))
    assert (done.returncode, done.stderr) == (status, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("command", ["cp -r", "cp -a", "rsync -a"])
def test_copies(top, command, tmp_path):
    needs(command.split()[0])
    copy = tmp_path / "copy"
    for _ in range(2):  # the second time there is something to compare it with
        quietly(*command.split(), f"{top}/" if command.startswith("rsync") else f"{top}/.", f"{copy}/")
    assert (copy / "status").read_text().startswith(f"Pid: {top.name}\n")
    assert (copy / "tables" / "threads.csv").read_text().startswith("tid,")
    assert (copy / "events").read_text() == ""


def test_tar(top, tmp_path):
    archive = tmp_path / "archive"
    quietly("tar", "-C", top, "-cf", archive, ".")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        assert {"./status", "./events", f"./threads/{top.name}/frames/0/locals"} <= set(names)
        assert tar.extractfile("./status").read().startswith(f"Pid: {top.name}\n".encode())


def test_grep(probe, top):
    found = quietly("grep", "-r", "^value = ", top).splitlines()
    assert f"{top}/threads/{top.name}/frames/0/locals:value = 41" in found
    quietly("grep", "-r", "nothing that is there", top, status=1)
    quietly("grep", "-r", "--include=events", "nothing that is there", probe.path / "all", status=1)


def test_find(top):
    found = quietly("find", top).splitlines()
    assert len(found) == len(set(found)) and f"{top}/status" in found
    quietly("find", top, "-type", "f", "-not", "-name", "events", "-not", "-name", "live", "-exec", "cat", "{}", "+")


@pytest.mark.python(maximum=(3, 11))
def test_what_cannot_be_read_is_not_listed(top):
    """It says why when it is asked for by its name."""
    assert "tasks" not in os.listdir(top)
    assert failure((top / "tasks").read_text) == errno.EOPNOTSUPP
    assert "CPython 3.12" in (top / "errors").read_text()


def test_who_polls_waits(top, victim):
    """Also one that doesn't follow links."""
    fd = os.open(top / "events", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        assert os.read(fd, 100) == b""
        assert not select.select([fd], [], [], 0)[0]
        assert failure(os.read, fd, 100) == errno.EAGAIN
        victim.process.kill()
        assert select.select([fd], [], [], patience(30))[0]
        assert b'"kind": "exit"' in os.read(fd, 4096)
    finally:
        os.close(fd)


def changed(path):
    seen = os.stat(path)
    assert seen.st_mtime_ns == seen.st_ctime_ns
    return seen.st_mtime_ns


@pytest.mark.python(minimum=(3, 10))
def test_last_change(probe, top, victim):
    """Reading changes nothing; a process changed when it began, a command file when it last answered."""
    paths = [top, *top.rglob("*")]
    began = changed(top)
    assert abs(began / 1e9 - time.time()) < 600
    for path in paths:
        assert changed(path) == began
        if path.is_file() and path.name not in {"events", "live"}:
            with open(path, "rb") as file:
                file.read()
                assert os.fstat(file.fileno()).st_mtime_ns == began
            assert changed(path) == began
    (top / "query").write_text("SELECT 1")
    first = changed(top / "query")
    assert began < first and changed(top / "eval") == began
    (top / "query").read_text()
    assert changed(top / "query") == first
    (top / "query").write_text("SELECT 2")
    assert changed(top / "query") > first
    before = changed(probe.path / "all" / "query")
    (probe.path / "all" / "query").write_text("SELECT 1")
    assert changed(probe.path / "all" / "query") > before


def vim(path, line, home):
    """Edits a file and writes it twice. Vim asks, and waits for ever, where it has read something else."""
    edit = ["-c", f"call setline(1, {line!r})", "-c", "w"]
    words = " ".join(map(repr, ["vim", "-u", "NONE", "-N", "-n", *edit, *edit, "-c", "q", str(path)]))
    done = subprocess.Popen(["script", "-qec", words, "/dev/null"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, cwd=home, start_new_session=True,
                            env={**os.environ, "HOME": str(home), "TERM": "dumb"})
    try:
        said = done.communicate(timeout=patience(30))[0]
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        raise AssertionError(f"vim waits: {done.communicate()[0]}") from None
    assert done.returncode == 0 and "WARNING" not in said and "E5" not in said, said


@pytest.mark.python(minimum=(3, 10))
def test_vim(top, tmp_path):
    needs("vim")
    needs("script")
    vim(top / "eval", "print(value + 1)", tmp_path)
    assert (top / "eval").read_text() == "42\n"
    vim(top / "breakpoints", "log nowhere.py:7", tmp_path)
    assert "log nowhere.py:7" in (top / "breakpoints").read_text()
    (top / "breakpoints").write_text("")


@pytest.mark.python(minimum=(3, 10))
def test_python_asks_on_one_file(top):
    """As probefs(5) says, which a file that reads like a pipe needs."""
    with open(top / "eval", "r+b", buffering=0) as file:
        file.write(b"value + 1\n")
        assert file.read() == b"42\n"
        file.write(b"value + 2\n")
        assert file.read() == b"43\n"
    with pytest.raises(OSError, match="not seekable"):
        open(top / "eval", "r+").close()


@pytest.mark.python(minimum=(3, 10))
@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "fish"])
def test_shell(top, shell, tmp_path):
    needs(shell)

    def run(script, status=0):
        done = subprocess.run([shell, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=patience(60), cwd=top, env={**os.environ, "HOME": str(tmp_path)})
        assert done.returncode == status and bool(done.stderr) == bool(status), done
        return done.stdout

    assert run("echo 'value + 1' > eval; cat eval") == "42\n"
    assert run(r"printf 'for i in range(2):\n    print(i)\n\n7\n' > eval; cat eval") == "0\n1\n7\n"
    assert run("cat eval | while read line; echo got $line; end" if shell == "fish" else
               "while read line; do echo got $line; done < eval") == "got 0\ngot 1\ngot 7\n"
    run("echo nonsense > ctl", status=1)
    assert "unknown verb" in run("cat ctl")
    run("echo 'log a.py:1' > breakpoints; and echo 'log b.py:2' >> breakpoints" if shell == "fish" else
        "echo 'log a.py:1' > breakpoints && echo 'log b.py:2' >> breakpoints")
    assert run("grep -c log breakpoints") == "2\n"
    run("true > breakpoints")
    assert run("cat breakpoints") == ""
    if shell == "fish":
        return  # it opens nothing for reading and writing
    assert run("exec 3<>eval; echo value >&3; cat <&3; echo 'value, 1' >&3; read line <&3; echo got $line") == \
        "41\ngot (41, 1)\n"
    assert run("cat > eval <<END\nif value:\n    print('yes')\nEND\ncat eval") == "yes\n"
