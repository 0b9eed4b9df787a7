"""A file system that doesn't answer any more, below one process's executable, memory or working directory: it costs
that process's files, and nobody else anything."""
import copy
import errno
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile

import pytest

import mount
from commands import failure, write
from interpreters import eventually, patience
from sql import ask

HANGS = 30  # seconds after which what hasn't answered never will

pytestmark = pytest.mark.deadline(240)

# maps a file of it that nobody has read so far, below all else, so that it is looked at first
MAPS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDONLY)
FIXED_NOREPLACE, PRIVATE = 0x100000, 2
assert libc.mmap(0x200000, 1 << 20, 1, FIXED_NOREPLACE | PRIVATE, fd, 0) == 0x200000, ctypes.get_errno()
print("ready", flush=True)
sys.stdin.read()
"""

# has a local whose value lies there
POINTS = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
page = libc.mmap(None, 1 << 20, 1, 2, os.open(sys.argv[1], os.O_RDONLY), 0)
data = bytearray(64)
ctypes.c_uint64.from_address(id(data) + 40).value = page               # ob_start
def f(data):
    print("ready", flush=True)
    sys.stdin.read()
f(data)
"""

# as that; it never sleeps, and gives back the memory when it is told to
RUNS = POINTS.replace("sys.stdin.read()", "while True: pass").replace("page = ", """
import signal
def drop(*_):
    libc.madvise(ctypes.c_void_p(page), 1 << 20, 4)  # MADV_DONTNEED
    os.posix_fadvise(3, 0, 0, os.POSIX_FADV_DONTNEED)
    print("dropped", flush=True)
signal.signal(signal.SIGUSR1, drop)
page = """)

# works in it, and runs a file there whose name doesn't say where
STAYS = """
import os, sys
os.chdir(sys.argv[1])
def f():
    print("ready", flush=True)
    sys.stdin.read()
exec(compile(open(sys.argv[2]).read(), sys.argv[2], "exec"))
"""

# its root directory lies there
CHANGES_ROOT = """
import os, sys
os.chroot(sys.argv[1])
os.chdir("/")
print("ready", flush=True)
sys.stdin.read()
"""

# hang() polls, with what it polls in a file of it that nobody has read so far
HANGS_BELOW = """
import ctypes, os, sys, threading, time, traceback
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.poll.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int]
READ_WRITE, PRIVATE, FIXED, ANONYMOUS, POLL = 3, 2, 0x10, 0x20, "7 "
said = os.pipe()

def map_over(page, path):
    try:
        while not open(f"/proc/self/task/{os.getpid()}/syscall").read().startswith(POLL):
            time.sleep(0.01)
        fd = os.open(path, os.O_RDONLY)
        assert libc.mmap(page, 4096, READ_WRITE, PRIVATE | FIXED, fd, 0) == page, ctypes.get_errno()
        os.write(said[1], b"x")
    except BaseException:
        os.write(said[1], b"-")
        raise

def hang(name):
    page = libc.mmap(None, 4096, READ_WRITE, PRIVATE | ANONYMOUS, -1, 0)
    ctypes.c_int.from_address(page).value = -1                    # no descriptor
    threading.Thread(target=map_over, args=(page, sys.argv[1] + name)).start()
    libc.poll(page, 1, -1)

def child(run, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            run(*arguments)
        finally:
            os._exit(1)
    assert os.read(said[0], 1) == b"x"
    print(arguments[0], pid)
"""

# its main thread reads a pipe whose other end several have that hang
WAITS_FOR_HANGING = HANGS_BELOW + """
ends = os.pipe()
print("ready")
for name in "b0", "b1", "b2", "b3", "b4":
    child(hang, name)
os.close(ends[1])
print("done", flush=True)
os.read(ends[0], 1)
"""

# it waits for one that waits for two, and one of these for a third: both steps lead to one that hangs
CHAIN = HANGS_BELOW + """
first, second, third = pipes = os.pipe(), os.pipe(), os.pipe()
def keep(*ends):
    for end in {end for pipe in pipes for end in pipe} - {*ends}:
        os.close(end)
def hang_with(name, end):
    keep(end)
    hang(name)
def read(name, end, *ends):
    keep(end, *ends)
    os.write(said[1], b"x")
    os.read(end, 1)
print("ready")
child(read, "b", second[0], first[1])
child(hang_with, "c0", second[1])
child(read, "c1", third[0], second[1])
child(hang_with, "d", third[1])
keep(first[0])
print("done", flush=True)
os.read(first[0], 1)
"""

WAIT = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"
TICKS = "import time\ndef tick():\n    time.sleep(0.05)\nprint('ready', flush=True)\nwhile True:\n    tick()\n"


class FileSystem:
    """tests/hanging_fs, which shows the root below `path`."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="probefs-hanging-"))
        self.directory.chmod(0o755)
        self.path, self.hold = self.directory / "mount", self.directory / "hold"
        self.path.mkdir()
        self.process = subprocess.Popen([str(mount.build() / "tests" / "hanging_fs"), str(self.hold), "-f",
                                         "-o", "allow_other,max_threads=10", str(self.path)], start_new_session=True)
        try:
            eventually(lambda: self.process.poll() is not None or os.path.ismount(self.path))
            assert self.process.poll() is None, "the file system wasn't mounted"
        except BaseException:
            self.close()
            raise

    def of(self, path):
        """A file of the root, as seen below it."""
        return str(self.path) + str(path)

    def stop(self):
        self.hold.touch()

    def answer(self):
        self.hold.unlink(missing_ok=True)

    def close(self):
        """With its end whoever waits for it gets an error."""
        self.process.kill()
        self.process.wait(patience(HANGS))
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def hanging(any_python):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting a file system for all needs root")
    if any_python.root != pathlib.Path("/"):
        pytest.skip("wants an interpreter that sees the file system")
    made = FileSystem()
    yield made
    made.close()  # before what waits for it is ended


@pytest.fixture
def other(probe):
    """A daemon of its own: what is left behind stays in it for a while."""
    return probe.mount("allow_other")


def in_time(*command, **options):
    """The output of a command that must end; it may be unkillable else."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, **options)
    try:
        return process.communicate(timeout=patience(HANGS))[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{command} hung for {HANGS} s") from None


def listed(probe):
    return {int(name) for name in in_time("ls", probe.path).split() if name.isdigit()}


def empty(python, name):
    """A file that nobody has read so far."""
    path = python.directory / name
    with open(path, "wb") as file:
        file.truncate(1 << 20)
    return path


def maps(python, hanging, **options):
    """By its name the file is an interpreter's: these are looked at first."""
    return python.run_source(MAPS, hanging.of(empty(python, "libpython-cold.so")), name="maps.py", **options)


def points(python, hanging):
    return python.run_source(POINTS, hanging.of(empty(python, "value")), name="points.py")


def executes(python, hanging):
    """The interpreter itself lies there."""
    other = copy.copy(python)
    other.executable = hanging.of(os.path.realpath(python.executable))
    return other.run_source(WAIT, name="waits.py")


class Sleeper:
    """No Python: only its executable tells so."""

    def __init__(self, hanging):
        self.process = subprocess.Popen([hanging.of(os.path.realpath(shutil.which("sleep"))), "1000"])
        self.pid = self.process.pid


@pytest.fixture
def sleeper(hanging):
    made = Sleeper(hanging)
    eventually(lambda: str(hanging.path) in os.readlink(f"/proc/{made.pid}/exe"))
    yield made
    made.process.kill()
    hanging.answer()
    made.process.wait(patience(HANGS))


def goes_on(probe, well):
    """Others are served as ever."""
    assert well.pid in listed(probe)
    assert "sys.stdin.read()" in in_time("cat", probe.path / str(well.pid) / "threads" / str(well.pid) / "frames" /
                                         "0" / "source")
    assert "Threads: 1" in in_time("cat", probe.path / str(well.pid) / "status")
    rows = in_time("bash", "-c", 'exec 3<>"$1"; echo "SELECT pid FROM threads;" >&3; cat <&3', "bash",
                   probe.path / "all" / "query")
    assert str(well.pid) in rows.split()
    assert f" pid={well.pid}\n" in in_time("cat", probe.path / "all" / "backtrace.python")


def times_out(path):
    return "Connection timed out" in in_time("cat", path)


def test_first_look_at_memory(other, any_python, hanging):
    well = any_python.run_source(WAIT)
    target = maps(any_python, hanging)
    hanging.stop()
    assert target.pid not in listed(other)
    assert "Connection timed out" in in_time("stat", other.path / str(target.pid))
    goes_on(other, well)
    hanging.answer()
    eventually(lambda: target.pid in listed(other))
    assert "maps.py" in other.read(target.pid, "status")
    goes_on(other, well)


def test_killed_with_nobody_connected(probe, any_python, hanging):
    """What read it, whom nobody else had asked, ends meanwhile: another one reads the others."""
    contained = probe.mount("allow_other", "contain=yes")
    well, target = any_python.run_source(WAIT), maps(any_python, hanging)
    hanging.stop()
    assert "Connection timed out" in in_time("stat", contained.path / str(target.pid))
    (owner,) = contained.owners()
    ended = os.pidfd_open(owner)
    os.kill(owner, signal.SIGKILL)
    hanging.answer()
    assert select.select([ended], [], [], patience(HANGS))[0]
    os.close(ended)
    eventually(lambda: "Threads: 1" in in_time("cat", contained.path / str(well.pid) / "status"))


def test_aborted(other, any_python, hanging):
    """It never answers, but is given up."""
    target = maps(any_python, hanging)
    hanging.stop()
    assert target.pid not in listed(other)
    hanging.process.kill()
    eventually(lambda: target.pid in listed(other))


def test_first_look_at_executable(other, any_python, hanging, sleeper):
    well = any_python.run_source(WAIT)
    hanging.stop()
    assert sleeper.pid not in listed(other)
    assert "Connection timed out" in in_time("stat", other.path / str(sleeper.pid))
    goes_on(other, well)
    hanging.answer()
    eventually(lambda: "No such file" in in_time("stat", other.path / str(sleeper.pid)))


def test_known_process(other, any_python, hanging):
    """What its symbols come from doesn't answer any more."""
    well = any_python.run_source(WAIT)
    target = executes(any_python, hanging)
    backtrace = other.path / str(target.pid) / "backtrace"
    assert "waits.py" in in_time("cat", other.path / str(target.pid) / "status")
    hanging.stop()
    assert times_out(backtrace)
    assert target.pid in listed(other)
    goes_on(other, well)
    assert times_out(backtrace)
    assert "backtrace ETIMEDOUT the process can't be read" in other.read(target.pid, "errors")
    hanging.answer()
    eventually(lambda: "waits.py" in in_time("cat", backtrace))


def test_memory(other, any_python, hanging):
    """A value of it, by a file and by a statement that is written."""
    well = any_python.run_source(WAIT)
    target = points(any_python, hanging)
    hanging.stop()
    directory = other.path / str(target.pid)
    assert times_out(directory / "threads" / str(target.pid) / "locals")
    assert failure(write, directory / "query", "SELECT value FROM locals;\n") == errno.ETIMEDOUT
    goes_on(other, well)
    hanging.answer()
    eventually(lambda: "data" in in_time("cat", directory / "threads" / str(target.pid) / "locals"))
    assert [row["name"] for row in ask(directory / "query", "SELECT name FROM locals WHERE name = 'data'")]


@pytest.mark.parametrize("statement", [False, True])
def test_thread_that_runs(other, any_python, hanging, statement):
    """It is stopped to be read, and let go although its reader hangs."""
    well = any_python.run_source(WAIT)
    target = any_python.run_source(RUNS, hanging.of(empty(any_python, "value")), name="runs.py")
    directory = other.path / str(target.pid)
    values = f"exec cat {directory}/threads/{target.pid}/locals"
    if statement:
        values = f"exec 3<>{directory}/query; echo 'SELECT value FROM locals;' >&3; cat <&3"
    assert "bytearray(" in in_time("bash", "-c", values)  # what is read is known from now on
    hanging.stop()
    target.signal(signal.SIGUSR1)
    target.expect("dropped")
    assert "timed out" in in_time("bash", "-c", values)
    eventually(lambda: target.state() == "R", what="going on")
    goes_on(other, well)
    hanging.answer()
    eventually(lambda: "bytearray(" in in_time("bash", "-c", values))


def test_statement(other, any_python, hanging):
    """It is the first to meet it."""
    well = any_python.run_source(WAIT)
    target = points(any_python, hanging)
    assert {well.pid, target.pid} <= listed(other)
    hanging.stop()
    assert failure(write, other.path / str(target.pid) / "query", "SELECT value FROM locals;\n") == errno.ETIMEDOUT
    words = other.read(target.pid, "errors")
    assert "query ETIMEDOUT the process can't be read" in words
    goes_on(other, well)


def test_working_directory(other, any_python, hanging):
    """`source` is looked for there."""
    well = any_python.run_source(WAIT)
    script = any_python.directory / "stayed.py"
    script.write_text("f()\n")
    target = any_python.run_source(STAYS, hanging.of(any_python.directory), script.name, name="stays.py")
    hanging.stop()
    frames = other.path / str(target.pid) / "threads" / str(target.pid) / "frames"
    assert "did not answer in time" in in_time("cat", frames / "1" / "source")
    goes_on(other, well)
    hanging.answer()
    eventually(lambda: "->  f()" in in_time("cat", frames / "1" / "source"))


def waits(python, hanging, source, names):
    """A process that waits for others, and these."""
    for name in names:
        empty(python, name)
    target = python.run_source(source, hanging.of(python.directory) + "/", name="waits_for.py")
    pids = {}
    while (words := target.readline().split()) != ["done"]:
        pids[words[0]] = int(words[1])
    return target, pids


def reads(pid):
    """Whether its main thread is in read(2): 0 of x86-64."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == "0"


def tells(probe, target, *words):
    """What locks says once it has these: without a processor it may have no time for them."""
    def read():
        said = in_time("cat", probe.path / str(target.pid) / "locks")
        return said if all(word in said for word in words) else None
    return eventually(read, what=str(words))


def test_waits_for_one_that_hangs(other, any_python, hanging):
    """Whom it waits for hangs, not it: each of these is told, and that it hangs."""
    well = any_python.run_source(WAIT)
    target, pids = waits(any_python, hanging, WAITS_FOR_HANGING, [f"b{i}" for i in range(5)])
    names = {pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids.values()}
    hanging.stop()
    for _ in range(2):  # one that is known to hang is not tried again
        said = tells(other, target, *(f"process {pid} ({name}), which hangs: " for pid, name in names.items()))
        assert "deadlock" not in said
    goes_on(other, well)


def test_waits_take_too_long(other, any_python, hanging):
    """What it has no time to look at is told to be missing."""
    target, pids = waits(any_python, hanging, CHAIN, ["c0", "d"])
    for pid in target.pid, pids["b"], pids["c1"]:
        eventually(lambda: reads(pid), what="a chain of those that wait")
    hanging.stop()
    said = tells(other, target, f"whose other end is process {pids['b']} (")
    assert "[cut: it took too long " in said, said


@pytest.mark.parametrize("reads", ["first look", "file", "statement"])
def test_reader_is_killed(other, any_python, hanging, reads):
    target = (maps if reads == "first look" else points)(any_python, hanging)
    directory = other.path / str(target.pid)
    if reads != "first look":
        assert "points.py" in other.read(target.pid, "status")
    hanging.stop()
    locals_file = directory / "threads" / str(target.pid) / "locals"
    command = {"first look": f"exec stat {directory}", "file": f"exec cat {locals_file}",
               "statement": f"echo 'SELECT value FROM locals;' > {directory}/query"}[reads]
    reader = subprocess.Popen(["bash", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wchan = pathlib.Path(f"/proc/{reader.pid}/wchan")
    eventually(lambda: reader.poll() is not None or "fuse" in wchan.read_text() or "wait" in wchan.read_text())
    reader.kill()
    reader.wait(patience(HANGS))


def test_daemon_ends(other, any_python, hanging):
    target = maps(any_python, hanging)
    hanging.stop()
    assert target.pid not in listed(other)
    other.process.terminate()
    eventually(lambda: not os.path.ismount(other.path))
    hanging.answer()
    other.process.wait(patience(HANGS))
    other.start()


def test_events(other, any_python, hanging):
    """Of another process, and of all."""
    if any_python.version < (3, 10):
        pytest.skip("wants breakpoints")
    ticks = any_python.run_source(TICKS, name="ticks.py")
    write(other.path / str(ticks.pid) / "breakpoints", "log ticks.py:3\n")
    files = [open(other.path / str(ticks.pid) / "events", "rb", buffering=0),
             open(other.path / "all" / "events", "rb", buffering=0)]
    try:
        for file in files:
            os.set_blocking(file.fileno(), False)
            eventually(lambda: file.read(1 << 16))

        def hangs():
            """Unless the reader of all has seen it before: it looks for new ones now and then."""
            hung = maps(any_python, hanging)
            hanging.stop()
            if hung.pid not in listed(other):
                return True
            hanging.answer()
            hung.close()

        eventually(hangs, what="one that nobody has looked at")
        for file in files * 2:
            while file.read(1 << 16):  # what was before
                pass
            eventually(lambda: file.read(1 << 16))
    finally:
        for file in files:
            file.close()


@pytest.mark.alone
def test_all_breakpoints(other, any_python, hanging):
    """Which hangs is told; the others are answered."""
    if any_python.version < (3, 10):
        pytest.skip("wants breakpoints")
    ticks = any_python.run_source(TICKS, name="ticks.py")
    hung = any_python.run_source(CHANGES_ROOT, str(hanging.path), name="changes_root.py")
    assert {ticks.pid, hung.pid} <= listed(other)
    hanging.stop()
    said = in_time("bash", "-c", 'exec 3<>"$1"; echo "log ticks.py:3" >&3; cat <&3', "bash",
                   other.path / "all" / "breakpoints")
    assert f"{ticks.pid}: 1: log ticks.py:3  # armed" in said
    assert f"error: pid {hung.pid}: the process can't be read: " in said
    assert f"log ticks.py:3  # pid {ticks.pid}, armed" in in_time("cat", other.path / "all" / "breakpoints")


@pytest.mark.attack
def test_many_of_another_user(other, any_python, hanging, nobody):
    """They have many processes that hang, and look at all of them at once."""
    if any_python.source != "debian":
        pytest.skip("wants an interpreter that every user may run")
    well = any_python.run_source(WAIT)
    targets = [maps(any_python, hanging, user=nobody) for _ in range(12)]
    hanging.stop()
    looks = [subprocess.Popen(["setpriv", "--reuid=nobody", "--clear-groups", "stat",
                               str(other.path / str(target.pid))], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) for target in targets for _ in range(5)]
    assert "this page" in in_time("cat", other.path / "help")
    goes_on(other, well)
    for look in looks:
        look.wait(patience(HANGS))
    goes_on(other, well)
    hanging.answer()
    eventually(lambda: {target.pid for target in targets} <= listed(other))
