"""The tree: what is in it, how its files read, and what a process's end, exec or fork does to it."""
import errno
import os
import pathlib
import random
import re
import select
import shlex
import shutil
import subprocess
import threading

import pytest

import mount as daemon
from commands import failure
from interpreters import eventually, patience
from sql import FUNCTIONS, SCHEMA

# the tree of probefs(5), as far as reading goes
ROOT = {"help", "self", "by-rank", "jobs", "all", "exited"}
PROCESS = {"breakpoints", "ctl", "eval", "query", "status", "backtrace", "backtrace.python", "stacks.folded",
           "stacks.python.folded", "tasks", "locks", "tables",
           "errors", "events", "exceptions.top", "globals", "heap", "profile", "sources", "threads",
           "top"}  # and crash, where there was one
ALL = {"backtrace", "backtrace.python", "breakpoints", "collectives", "ctl", "eval", "events", "metrics", "profile",
       "query", "stacks.folded", "stacks.python.folded", "tables", "top"}
TABLES = {name + ".csv" for name in set(SCHEMA) - FUNCTIONS}
THREAD = {"status", "backtrace", "locals", "eval", "ctl", "frames"}
FRAME = {"locals", "source", "eval", "value"}
COMMANDS = {"breakpoints", "ctl", "eval", "query", "value"}  # what can be written

WAIT = "import sys; print('ready'); sys.stdin.read()"

FORK = """
import os, sys
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
print(child)
print('ready')
sys.stdin.read()
"""

EXEC = """
import os, sys
print('ready')
sys.stdin.readline()
os.execv(sys.argv[1], sys.argv[1:])
"""


def pids(probe):
    return {int(name) for name in os.listdir(probe.path) if name.isdigit()}


def listed(probe, pid):
    return pid in pids(probe)


def names_of(target):
    """In its directory: without tasks, where they can't be read."""
    return PROCESS - ({"tasks"} if target.interpreter.version < (3, 12) else set())


def open_again(directory):
    """Opens an open directory once more, without a walk along its path."""
    os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory))


@pytest.fixture
def waiting(any_python):
    return any_python.run_source(WAIT)


def test_every_name(probe, waiting):
    top = probe.path / str(waiting.pid)
    assert {n for n in os.listdir(probe.path) if not n.isdigit()} == ROOT
    assert set(os.listdir(probe.path / "all")) == ALL
    assert set(os.listdir(probe.path / "all" / "tables")) == TABLES
    assert set(os.listdir(top)) == names_of(waiting)
    assert set(os.listdir(top / "tables")) == TABLES
    assert set(os.listdir(top / "heap")) == {"census", "diff", "referrers", "sites"}
    assert set(os.listdir(top / "threads")) == {str(waiting.pid)}
    thread = top / "threads" / str(waiting.pid)
    assert set(os.listdir(thread)) == THREAD
    assert os.listdir(thread / "frames") == ["0"]
    assert set(os.listdir(thread / "frames" / "0")) == FRAME
    for file in [p for p in top.rglob("*") if p.is_file()] + [probe.path / "help"]:
        if file.name in {"events", "live"}:
            continue  # they wait: test_events.py, test_profile.py
        file.read_bytes()
    assert (thread / "frames" / "0" / "locals").read_text()


def test_found_by_every_version(probe, python):
    target = python.run_source(WAIT)
    assert listed(probe, target.pid)
    said = eventually(lambda: resting(probe, target.pid), what="a free GIL")
    # only a release has three plain numbers
    assert said["Python"].startswith(".".join(map(str, python.version)))
    assert said["Pid"] == str(target.pid)
    assert said["Supported"] == "yes"
    assert said["Threads"] == said["PythonThreads"] == "1"
    assert said["Interpreters"] == "1"
    assert said["GilWaiting"] == "0"
    assert said["Executable"] == os.readlink(f"/proc/{target.pid}/exe")
    assert said["Cmdline"].startswith(python.executable)
    assert 0 <= float(said["Uptime"]) < 100


def resting(probe, pid):
    """The status of a process as a dict, once nobody holds its GIL."""
    status = probe.read(pid, "status")
    said = dict(line.split(": ", 1) for line in status.splitlines())
    return said if said["GilHolder"] == "none" else None


def test_attributes(probe, waiting):
    top = probe.path / str(waiting.pid)
    for path in [probe.path, *(probe.path / name for name in ROOT), top, *top.rglob("*")]:
        seen = path.lstat()
        below = path.relative_to(probe.path).parts
        private = bool(below) and below[0].isdigit()
        if path.is_symlink():
            assert seen.st_mode & 0o777 == 0o777
        elif path.is_dir():
            assert seen.st_mode & 0o777 == (0o500 if private else 0o555)
        else:
            written = path.name in COMMANDS
            assert seen.st_mode & 0o777 == (0o600 if written else 0o400 if private else 0o444)
            assert (seen.st_size > 0) == (path.suffix == ".csv" and path.stem != "heap")
        assert not seen.st_mode & 0o7000
        # the names of a directory and what stat says of them agree
        if path != probe.path:
            with os.scandir(path.parent) as entries:
                (entry,) = [e for e in entries if e.name == path.name]
                assert entry.inode() == seen.st_ino


def test_help(probe):
    text = probe.read("help")
    for name in ROOT | PROCESS | THREAD | FRAME | {"<pid>", "<tid>", "<depth>", "<rank>"}:
        assert name in text
    assert len(text.splitlines()) <= 80
    assert max(map(len, text.splitlines())) <= 84


def test_names_that_are_none(probe, waiting):
    pid = waiting.pid
    for path in ["nothing", "0", f"0{pid}", f"+{pid}", f"{pid} ", "4294967296", "-1", "1e3",
                 f"{pid}/nothing", f"{pid}/threads/1", f"{pid}/threads/status",
                 f"{pid}/threads/{pid}/frames/1", f"{pid}/threads/{pid}/frames/4294967296",
                 f"{pid}/threads/0{pid}", "by-rank/0x1", "by-rank/-1", "by-rank/99999"]:
        assert failure(os.stat, probe.path / path) == errno.ENOENT, path


def test_not_python(probe, waiting):
    """By what is in memory, whatever the name."""
    other = subprocess.Popen(["sleep", "100"])
    try:
        named = pathlib.Path(f"/proc/{other.pid}/comm")
        eventually(lambda: named.read_text() == "sleep\n", what="the exec")
        assert failure(probe.read, other.pid, "status") == errno.ENOENT
        assert not listed(probe, other.pid)
        assert listed(probe, waiting.pid)
    finally:
        other.kill()
        other.wait()


def test_never_by_name(probe, any_python, tmp_path):
    """A renamed interpreter is found; what only looks like one isn't."""
    shutil.copy("/bin/sleep", tmp_path / "python3.11")
    fake = subprocess.Popen([tmp_path / "python3.11", "100"])
    shutil.copy(any_python.executable, tmp_path / "editor")
    real = subprocess.Popen([tmp_path / "editor", "-c", WAIT], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            env={**os.environ, "PYTHONHOME": prefix(any_python)})
    try:
        assert real.stdout.readline() == b"ready\n"
        assert listed(probe, real.pid) and not listed(probe, fake.pid)
        (tmp_path / "editor").unlink()
        assert "(deleted)" in os.readlink(f"/proc/{real.pid}/exe")
        assert f"Process {real.pid}:" in probe.read(real.pid, "backtrace")
        with probe.mount() as fresh:  # which never saw the file
            assert listed(fresh, real.pid)
            assert "<module> (<string>:1)" in fresh.read(real.pid, "backtrace")
    finally:
        for process in (fake, real):
            process.kill()
            process.communicate()


def prefix(python):
    return subprocess.run(python.command("-c", "import sys; print(sys.base_prefix)"),
                          capture_output=True, text=True, check=True).stdout.strip()


def test_reads_in_any_pieces(probe, waiting):
    path = str(probe.path / "help")
    whole = pathlib.Path(path).read_bytes()

    def said(*command):
        return subprocess.run(command, capture_output=True, check=True).stdout

    assert said("dd", f"if={path}", "bs=7", "status=none") == whole
    assert said("dd", f"if={path}", "bs=1M", "status=none") == whole
    assert said("dd", f"if={path}", "bs=1", "skip=100", "count=50", "status=none") == whole[100:150]
    assert said("head", "-n", "3", path) == b"".join(whole.splitlines(True)[:3])
    assert said("tail", "-n", "3", path) == b"".join(whole.splitlines(True)[-3:])
    assert said("tail", "-c", "100", path) == whole[-100:]
    assert said("wc", "-c", path).split()[0] == str(len(whole)).encode()

    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.lseek(fd, 0, os.SEEK_END) == len(whole)
        assert os.pread(fd, 100, len(whole) - 10) == whole[-10:]
        assert os.pread(fd, 100, len(whole)) == b"" == os.pread(fd, 100, 1 << 40)
        assert os.pread(fd, 1 << 20, 5) == whole[5:]
    finally:
        os.close(fd)


def test_one_open_is_one_moment(probe, any_python):
    """What an open saw stays; the next open sees anew."""
    target = any_python.run_source("import sys\nprint('ready')\n"
                                   "def f():\n    print('in f')\n    sys.stdin.readline()\n"
                                   "sys.stdin.readline()\nf()\n")
    path = probe.path / str(target.pid) / "backtrace"
    with open(path, "rb", buffering=0) as first:
        start = first.read(10)
        target.send("go")
        target.expect("in f")
        eventually(lambda: b"f (" in path.read_bytes(), what="f on the stack")
        rest = first.read(1 << 20)
    assert start.startswith(b"Process") and b"f (" not in start + rest
    assert rest.endswith(b"\n")


def test_size_while_open(probe, waiting):
    path = probe.path / str(waiting.pid) / "backtrace"
    assert os.stat(path).st_size == 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        assert size == len(file.read()) > 0
        assert os.stat(path).st_size == size
    eventually(lambda: os.stat(path).st_size == 0, what="what the kernel tells of the close afterwards")


def test_many_at_once(probe, waiting):
    """One file opened by many at the same time, each with its own content."""
    path, errors = probe.path / str(waiting.pid) / "status", []

    def read():
        try:
            for _ in range(50):
                text = path.read_text()
                assert text.startswith(f"Pid: {waiting.pid}\n") and text.endswith("\n")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    eventually(lambda: os.stat(path).st_size == 0, what="what the kernel tells of the closes afterwards")


def test_one_listing_at_every_offset(probe, any_python):
    """Names that come and go between two reads of a directory neither repeat nor hide others."""
    stay = {any_python.run_source(WAIT).pid for _ in range(4)}
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            subprocess.run(any_python.command("-c", ""), check=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(200):
            names = os.listdir(probe.path)
            assert len(names) == len(set(names))
            assert stay <= {int(n) for n in names if n.isdigit()}
            assert ROOT <= set(names)
    finally:
        stop.set()
        thread.join()


def test_self(probe, any_python):
    """The link leads to the process that asks, from any of its threads."""
    code = ("import os, sys, threading\n"
            "def look(): print(os.readlink(sys.argv[1]))\n"
            "t = threading.Thread(target=look); t.start(); t.join(); look()\n"
            "print(os.getpid())\n"
            "print(open(sys.argv[1] + '/status').readline(), end='')\n")
    said = subprocess.run(any_python.command("-c", code, probe.path / "self"),
                          capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == said[1] == said[2] == said[4]
    shell = subprocess.run(["sh", "-c", f"echo $$; exec readlink {probe.path}/self"],
                           capture_output=True, text=True, check=True).stdout.split()
    assert shell[0] == shell[1]


def test_reads_its_own_backtrace(probe, any_python):
    code = ("import sys\n"
            "def looking(): return open(sys.argv[1] + '/self/backtrace').read()\n"
            "print(looking())\n")
    said = subprocess.run(any_python.command("-c", code, probe.path), capture_output=True,
                          text=True, timeout=patience(60), check=True).stdout
    assert "looking (<string>:2)" in said


def test_by_rank(probe, any_python):
    rank, other = map(str, random.sample(range(10**6, 2**31 - 1), 2))  # which no other program has
    first = any_python.run_source(WAIT, env={"RANK": rank, "LOCAL_RANK": "1"})

    def leads_to(number):
        return int(os.readlink(probe.path / "by-rank" / number).removeprefix("../"))

    assert leads_to(rank) == first.pid
    forker = any_python.run_source(FORK, env={"RANK": other}, ready=False)
    child = int(forker.readline())
    forker.expect("ready")
    any_python.run_source(WAIT, env={"RANK": "x"})
    ranks = set(os.listdir(probe.path / "by-rank"))
    assert {rank, other} <= ranks and "x" not in ranks
    assert leads_to(other) == forker.pid, "the parent rather than what it forked"
    assert probe.read("by-rank", other, "status").startswith(f"Pid: {forker.pid}\n")
    assert f"Rank: {rank}\n" in probe.read(first.pid, "status")
    eventually(lambda: later_than(first), what="the next clock tick")
    second = any_python.run_source(FORK, env={"RANK": rank}, ready=False)
    worker = int(second.readline())
    second.expect("ready")
    assert leads_to(rank) == second.pid, "of the job that started last, and no worker"
    os.kill(worker, 9)
    eventually(lambda: not listed(probe, worker), what="the end of the worker, which nobody waits for")
    second.close()
    assert leads_to(rank) == first.pid
    os.kill(child, 9)


def later_than(target):
    """Whether a process started now would have a later start time."""
    other = subprocess.Popen(["sleep", "10"])
    try:
        times = [int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
                 for pid in (target.pid, other.pid)]
        return times[0] < times[1]
    finally:
        other.kill()
        other.wait()


def test_death(probe, waiting):
    """An open file reads on; everything else is gone, by path and by a directory still open."""
    top = probe.path / str(waiting.pid)
    inside = os.open(top, os.O_RDONLY)
    threads = os.open(top / "threads", os.O_RDONLY)
    with open(top / "backtrace", "rb", buffering=0) as file:
        start = file.read(20)
        waiting.close()
        whole = start + file.read(1 << 20)
        assert whole.startswith(b"Process %d:" % waiting.pid) and whole.endswith(b"\n")
        assert os.fstat(file.fileno()).st_size == len(whole)
    gone = {errno.ENOENT, errno.ESRCH}
    try:
        assert not listed(probe, waiting.pid)
        assert failure(os.stat, top) == errno.ENOENT
        assert failure(os.listdir, top) == errno.ENOENT
        assert failure(probe.read, waiting.pid, "status") == errno.ENOENT
        assert failure(open_again, inside) in gone
        assert failure(os.fstat, threads) in gone
        assert failure(lambda: os.open("status", os.O_RDONLY, dir_fd=inside)) in gone
    finally:
        os.close(inside)
        os.close(threads)


def test_zombie(probe, waiting):
    assert listed(probe, waiting.pid)
    waiting.process.kill()  # and nobody waits for it yet
    eventually(lambda: waiting.state() == "Z", what="the zombie")
    assert not listed(probe, waiting.pid)
    assert failure(probe.read, waiting.pid, "status") == errno.ENOENT


def test_recycled_pid(probe, any_python):
    """The same number is another directory: what was open on the first shows nothing of the
    second."""
    first = any_python.run_source(WAIT)
    top = probe.path / str(first.pid)
    inode = os.stat(top).st_ino
    inside = os.open(top, os.O_RDONLY)
    first.close()
    last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
    second = None
    try:
        for _ in range(100):
            try:
                last.write_text(str(first.pid - 1))
            except OSError:
                pytest.skip("pids can't be chosen here")
            process = subprocess.Popen(any_python.command("-c", WAIT), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
            if process.pid == first.pid:
                second = process
                break
            process.communicate()
        if not second:
            pytest.skip("the pid was taken by others")
        assert second.stdout.readline() == b"ready\n"
        assert listed(probe, first.pid)
        assert probe.read(first.pid, "status").startswith(f"Pid: {first.pid}\n")
        assert os.stat(top).st_ino != inode
        assert failure(lambda: os.open("status", os.O_RDONLY, dir_fd=inside)) in (
            errno.ENOENT, errno.ESRCH)
    finally:
        os.close(inside)
        if second:
            second.communicate()


def test_fork(probe, any_python):
    target = any_python.run_source(FORK, ready=False)
    child = int(target.readline())
    target.expect("ready")
    assert {target.pid, child} <= pids(probe)
    assert f"PPid: {target.pid}\n" in probe.read(child, "status")
    os.kill(child, 9)


def test_exec_to_another_program(probe, any_python):
    """The directory goes with the interpreter, also where it is held open."""
    target = any_python.run_source(EXEC, "/bin/sleep", "100")
    top = probe.path / str(target.pid)
    assert listed(probe, target.pid)
    inside = os.open(top, os.O_RDONLY)
    with open(top / "status", "rb", buffering=0) as file:
        target.send("go")
        eventually(lambda: pathlib.Path(f"/proc/{target.pid}/comm").read_text() == "sleep\n",
                   what="the exec")
        assert not listed(probe, target.pid)
        assert failure(os.stat, top) == errno.ENOENT
        assert file.read(1 << 20).startswith(b"Pid: %d\n" % target.pid)
    os.close(inside)


def test_exec_to_python(probe, any_python):
    """Another program under the same pid is another directory."""
    target = any_python.run_source(EXEC, *any_python.command("-c", "print('second', flush=True);"
                                                                   + WAIT.replace("ready", "on")))
    inode = os.stat(probe.path / str(target.pid)).st_ino
    target.send("go")
    target.expect("second")
    assert listed(probe, target.pid)
    assert os.stat(probe.path / str(target.pid)).st_ino != inode
    assert "source.py" not in probe.read(target.pid, "backtrace")


def test_exec_from_another_program(probe, any_python):
    """A shell that was seen to be none becomes an interpreter."""
    command = shlex.join(any_python.command("-c", WAIT))
    shell = subprocess.Popen(["sh", "-c", f"read line; exec {command}"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    try:
        assert not listed(probe, shell.pid)
        assert failure(probe.read, shell.pid, "status") == errno.ENOENT
        shell.stdin.write(b"go\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == b"ready\n"
        assert probe.read(shell.pid, "status").startswith(f"Pid: {shell.pid}\n")
        assert listed(probe, shell.pid)
    finally:
        shell.kill()
        shell.communicate()


def shared_library(found):
    """The libpython of an interpreter that is one, else None."""
    code = "import sysconfig as s; print(s.get_config_var('LIBDIR'), s.get_config_var('LDLIBRARY'))"
    said = subprocess.run(found.command("-c", code), capture_output=True, text=True,
                          check=True).stdout.split()
    library = pathlib.Path(*said)
    return library if library.suffix != ".a" and library.exists() else None


def test_interpreter_loaded_later(probe, tmp_path):
    """A program that was seen to be none loads libpython."""
    import interpreters
    library = next(filter(None, (shared_library(i) for i in interpreters.interpreters()
                                 if i.source == "pyenv")), None)
    compiler = shutil.which("cc")
    if not library or not compiler:
        pytest.skip("wants a shared libpython and a C compiler")
    (tmp_path / "loads.c").write_text("""
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv)
        {
            getchar();
            void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
            if (!library)
                return puts(dlerror());
            ((void (*)(int))dlsym(library, "Py_InitializeEx"))(0);
            puts("loaded");
            fflush(stdout);
            return getchar() + getchar();
        }""")
    subprocess.run([compiler, "-o", tmp_path / "loads", tmp_path / "loads.c"], check=True)
    program = subprocess.Popen([tmp_path / "loads", library], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE,
                               env={"PYTHONHOME": str(library.parent.parent)})
    try:
        assert not listed(probe, program.pid)
        program.stdin.write(b"\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"loaded\n"
        eventually(lambda: listed(probe, program.pid), what="the listing")
        assert "Supported: yes" in probe.read(program.pid, "status")
    finally:
        program.kill()
        program.communicate()


def test_threads_come_and_go(probe, any_python):
    target = any_python.run_source(
        "import sys, threading\nprint('ready')\nsys.stdin.readline()\n"
        "stop = threading.Event()\nt = threading.Thread(target=stop.wait); t.start()\n"
        "print(t.native_id)\nsys.stdin.readline()\nstop.set(); t.join()\nprint('joined')\n"
        "sys.stdin.read()\n")
    threads = probe.path / str(target.pid) / "threads"
    assert os.listdir(threads) == [str(target.pid)]
    target.send("go")
    tid = target.readline()
    assert sorted(os.listdir(threads), key=int) == sorted({str(target.pid), tid}, key=int)
    eventually(lambda: re.search(r" (Event\.)?wait \(", (threads / tid / "backtrace").read_text()), what="its wait")
    frames = os.open(threads / tid / "frames", os.O_RDONLY)
    target.send("stop")
    target.expect("joined")
    eventually(lambda: os.listdir(threads) == [str(target.pid)], what="the thread's end")
    assert failure(os.stat, threads / tid) == errno.ENOENT
    assert failure(open_again, frames) in (errno.ENOENT, errno.ESRCH)
    os.close(frames)


def test_nothing_can_be_changed(probe, waiting):
    top = probe.path / str(waiting.pid)
    status = top / "status"
    denied = {errno.EACCES, errno.EPERM}
    assert failure(open, status, "w") in denied
    assert failure(open, status, "a") in denied
    assert failure(open, top / "new", "w") in denied
    assert failure(os.mkdir, top / "new") in denied
    assert failure(os.symlink, "x", top / "new") in denied
    assert failure(os.link, status, top / "new") in denied
    assert failure(os.remove, status) in denied
    assert failure(os.rmdir, top) in denied
    assert failure(os.rename, status, top / "new") in denied
    assert failure(os.chmod, status, 0o777) in denied
    assert failure(os.utime, status) in denied
    assert failure(os.truncate, status, 0) in denied
    assert set(os.listdir(top)) == names_of(waiting)


def test_poll(probe):
    """Never turned off for the mount: files that block will need it."""
    with open(probe.path / "help") as file:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        assert poll.poll(1000) == [(file.fileno(), select.POLLIN)]


def test_statfs(probe):
    assert os.statvfs(probe.path).f_namemax == 255
    said = subprocess.run(["df", probe.path], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[1].startswith("probefs ")


def test_errors_of_opens(probe, waiting):
    """What failed, with its words; a depth that went away between look-up and open."""
    assert probe.read(waiting.pid, "errors") == ""
    target = waiting.interpreter.run_source(
        "import sys\nprint('ready')\ndef f():\n    print('in f')\n    sys.stdin.readline()\n"
        "sys.stdin.readline()\nf()\nprint('out')\nsys.stdin.read()\n")
    target.send("go")
    target.expect("in f")
    frames = probe.path / str(target.pid) / "threads" / str(target.pid) / "frames"
    inside = os.open(frames / "1", os.O_RDONLY)
    # the path of an open file has been walked already: opening it again asks for its content only
    found = os.open("locals", os.O_PATH, dir_fd=inside)
    target.send("on")
    target.expect("out")
    assert failure(os.open, f"/proc/self/fd/{found}", os.O_RDONLY) == errno.ENOENT
    os.close(found)
    os.close(inside)
    (line,) = probe.read(target.pid, "errors").splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} "
                        rf"threads/{target.pid}/frames/1/locals ENOENT .*frame 1.*", line)
    assert probe.read(waiting.pid, "errors") == ""


def test_tools(probe, waiting):
    """What people type."""
    top = probe.path / str(waiting.pid)

    def run(*command):
        return subprocess.run(command, capture_output=True, text=True, timeout=patience(60))

    said = run("grep", "-r", "ready", top)
    assert "print('ready')" in said.stdout
    assert all("tasks: Operation not supported" in line or "events: Resource temporarily unavailable" in line
               or "live: Resource temporarily unavailable" in line for line in said.stderr.splitlines())
    assert run("ls", "-lR", top).returncode == 0
    assert run("find", top, "-name", "locals").stdout.count("locals") == 2
    assert run("du", "-s", top).returncode == 0
    assert run("cp", top / "backtrace", "/dev/null").returncode == 0
    assert run("test", "-r", top / "status").returncode == 0
    assert run("test", "-w", top / "status").returncode == 1
    copy = run("tar", "-C", top, "-cf", "-", "--ignore-failed-read", "status")
    assert copy.returncode in (0, 1)  # it holds that the file changed as it was read
    less = run("sh", "-c", f"less {top}/backtrace < /dev/null | head -1")
    if shutil.which("less"):
        assert less.stdout.startswith("Process")


def test_daemon_sees_itself_not(probe):
    assert failure(probe.read, probe.pid, "status") == errno.ENOENT


def test_few_descriptors(any_python):
    """Without one for each process it still shows them all."""
    targets = [any_python.run_source(WAIT) for _ in range(20)]
    with daemon.Probe() as other:
        subprocess.run(["prlimit", "--nofile=24:24", "--pid", str(other.pid)], check=True)
        assert {t.pid for t in targets} <= pids(other)
        for target in targets:
            assert f"Pid: {target.pid}" in other.read(target.pid, "status")
