"""Targets at their worst: the target is never harmed, and the daemon neither hangs nor dies."""
import contextlib
import errno
import json
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import subprocess
import threading
import time

import pytest

from commands import Commands
from interpreters import eventually, patience
from mount import Probe
from stacks import escape, parse_backtrace
from stopping import hogs_gil

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
GONE = {errno.ENOENT, errno.ESRCH}
SEED = int(os.environ.get("PROBEFS_TEST_SEED", time.time_ns() % 10**6))


def look(probe, target, **options):
    return parse_backtrace(probe.read(target.pid, "backtrace", **options), target.pid)


def functions(thread):
    return [function for function, _, _ in thread.frames]


class Readers:
    """Threads that read files of a mount all the time; collects what failed."""

    def __init__(self, count, *paths):
        self.errors, self.reads, self._stop = [], 0, False
        self.threads = [threading.Thread(target=self._read, args=(paths,)) for _ in range(count)]

    def _read(self, paths):
        stop = False
        while not stop:
            stop = self._stop  # after that each reads once more, so also one that came late has read
            for path in paths:
                try:
                    with open(path, "rb") as file:
                        file.read()
                    self.reads += 1
                except OSError as error:
                    self.errors.append(error.errno)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop = True
        for thread in self.threads:
            thread.join()


def test_hangs_in_c_with_the_gil(probe, python):
    target = python.run("gil_hog.py")
    eventually(lambda: hogs_gil(target.pid), what="the GIL held")
    seen = look(probe, target)
    main = seen.threads[target.pid]
    assert main.unreadable == [] and functions(main)[:1] == ["hog"]
    assert "gil" in main.state and f"held by {target.pid} (MainThread)" in seen.gil

    def waits():  # it wakes every 5 ms to ask again
        threads = look(probe, target).threads.values()
        return next(t for t in threads if t.name == "waiter").state == ["gil-wait"]

    eventually(waits, what="waiting for the GIL")
    eventually(lambda: target.state() == "S", what="that it sleeps still")


def test_stopped_stays_stopped(probe, python):
    target = python.run("nested.py")
    said = target.stacks()
    target.signal(signal.SIGSTOP)
    eventually(lambda: set(target.states().values()) == {"T"}, what="the stop")
    main = look(probe, target).threads[target.pid]
    assert main.frames == [tuple(map(lambda x: escape(x) if isinstance(x, str) else x, frame))
                           for frame in said[target.pid]["frames"]]
    assert main.state[0] == "stopped"
    eventually(lambda: set(target.states().values()) == {"T"}, what="that it is stopped still")
    target.signal(signal.SIGCONT)
    assert target.stacks() == said


def test_stopped_while_busy_stays_stopped(probe, python):
    target = python.run("spinner.py", 2)
    for _ in range(20):
        target.signal(signal.SIGSTOP)
        eventually(lambda: set(target.states().values()) == {"T"}, what="the stop")
        seen = look(probe, target)
        assert "main" in functions(seen.threads[target.pid])
        # who lets go of a stopped thread has the kernel stop it anew, which takes a moment; a stop that was lost stays
        # so
        eventually(lambda: set(target.states().values()) == {"T"}, what="that it is stopped still")
        target.signal(signal.SIGCONT)
        eventually(lambda: "T" not in target.states().values(), what="the continuing")
    target.send("stop")
    done, wrong = map(int, target.readline().split())
    assert done > 0 and wrong == 0


def test_a_stop_while_being_read_holds(probe, any_python):
    """SIGSTOP and SIGCONT arrive while readers pause the holder again and again."""
    target = any_python.run("spinner.py", 3)
    with Readers(2, probe.path / str(target.pid) / "backtrace") as readers:
        for _ in range(30):
            target.signal(signal.SIGSTOP)
            eventually(lambda: set(target.states().values()) == {"T"}, what="the stop")
            time.sleep(0.02)
            eventually(lambda: set(target.states().values()) == {"T"}, what="that it is stopped still")
            target.signal(signal.SIGCONT)
            eventually(lambda: "T" not in target.states().values(), what="the continuing")
    assert readers.reads > 0 and readers.errors == []
    target.send("stop")
    done, wrong = map(int, target.readline().split())
    assert done > 0 and wrong == 0


def test_zombie(probe, any_python):
    target = any_python.run("nested.py")
    look(probe, target)
    target.signal(signal.SIGKILL)
    eventually(lambda: list(target.states().values()) == ["Z"], what="the end of all its threads")
    with pytest.raises(OSError) as raised:
        look(probe, target)
    assert raised.value.errno in GONE
    assert str(target.pid) not in os.listdir(probe.path)


def test_dies_while_being_read(probe, any_python):
    random_ = random.Random(SEED)
    for _ in range(40 if FULL else 10):
        target = any_python.run("threads.py", 30, 30)
        with Readers(2, probe.path / str(target.pid) / "backtrace") as readers:
            eventually(lambda: readers.reads > 0)
            time.sleep(random_.random() * 0.02)
            target.signal(signal.SIGKILL)
            eventually(lambda: readers.errors)
        assert set(readers.errors) <= GONE, SEED
        target.close()


def test_signals_are_not_lost(probe, python):
    target = python.run("signals.py")
    with Readers(2, probe.path / str(target.pid) / "backtrace") as readers:
        for i in range(1, 101):
            target.signal(signal.SIGUSR2)
            target.expect(f"signal {i}")
    assert readers.reads > 0 and readers.errors == []


def waits_in_epoll(pid, tid):
    """232 is epoll_wait(2) of x86-64."""
    return pathlib.Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[0] == "232"


def test_idle_threads_are_not_interrupted(probe, python):
    target = python.run("interrupted.py")
    eventually(lambda: sum(waits_in_epoll(target.pid, tid) for tid in target.tids()) == 4, what="four that sleep")
    with Readers(1, probe.path / str(target.pid) / "backtrace",
                 probe.path / str(target.pid) / "stacks.folded") as readers:
        time.sleep(1)
        eventually(lambda: readers.reads > 20, what="20 reads")
    target.send("stop")
    target.expect("0")


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
def test_already_traced(probe, python):
    target = python.run("nested.py")
    said = look(probe, target).threads[target.pid].frames
    gdb = subprocess.Popen(["gdb", "-q", "-nx", "-p", str(target.pid)], stdin=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env={**os.environ, "DEBUGINFOD_URLS": ""})
    try:
        eventually(lambda: set(target.states().values()) == {"t"}, what="gdb's stop")
        seen = look(probe, target).threads[target.pid]
        assert seen.frames == said and seen.unreadable == []
        assert seen.state[0] == "traced"
        assert set(target.states().values()) == {"t"}
        gdb.communicate(b"continue&\nshell sleep 0.3\ndetach\nquit\n", timeout=patience(30))
    finally:
        gdb.kill()
        gdb.wait()
    eventually(lambda: set(target.states().values()) <= {"S", "R"}, what="gdb's going")
    assert look(probe, target).threads[target.pid].frames == said


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
def test_busy_and_already_traced(probe, any_python):
    """Under a debugger that lets it run nobody else can stop the holder: non-stop, so what can't
    be verified is marked."""
    target = any_python.run("spinner.py")
    gdb = subprocess.Popen(["gdb", "-q", "-nx", "-p", str(target.pid)], stdin=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env={**os.environ, "DEBUGINFOD_URLS": ""})
    try:
        eventually(lambda: set(target.states().values()) == {"t"}, what="gdb's stop")
        gdb.stdin.write(b"continue\n")
        gdb.stdin.flush()
        eventually(lambda: "t" not in target.states().values(), what="the continuing")
        for _ in range(20):
            main = look(probe, target).threads[target.pid]
            assert main.lines, "its stack is shown or said to be unreadable"
    finally:
        gdb.kill()
        gdb.wait()
    target.send("stop")
    assert int(target.readline().split()[1]) == 0


def test_fork_storm(probe, any_python):
    target = any_python.run("forker.py")
    seen = set()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for name in os.listdir(probe.path):
            if not name.isdigit():
                continue
            try:
                probe.path.joinpath(name, "backtrace").read_bytes()
                seen.add(int(name))
            except OSError as error:
                assert error.errno in GONE, error
    assert target.pid in seen
    target.send("enough")
    assert int(target.readline()) > 0


def test_exec_storm(probe, any_python):
    target = any_python.run("execer.py")
    end = time.monotonic() + 3

    def is_shown():
        try:
            text = (probe.path / str(target.pid) / "backtrace").read_text()
        except OSError as error:
            assert error.errno in GONE, error
            return None
        if "\nPython unknown, 1 thread, native frames only: " in text:
            return None  # it only starts
        return parse_backtrace(text, target.pid)

    while time.monotonic() < end:
        is_shown()
    eventually(is_shown, what="its stack")
    assert target.process.poll() is None


def test_500_threads(probe, python):
    target = python.run("threads.py", 500, 5)
    said = target.stacks()
    seen = look(probe, target)
    assert seen.count == 502
    for tid, thread in said.items():
        assert seen.threads[tid].name == thread["name"]
        assert functions(seen.threads[tid]) == [f for f, _, _ in thread["frames"]]


def read_all(root):
    """Reads every file below a directory, as `grep -r` would; returns their number."""
    count = 0
    for directory, _, names in os.walk(root, onerror=lambda error: None):
        for name in names:
            try:
                with open(os.path.join(directory, name), "rb",
                          opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
                    file.read()
                count += 1
            except OSError as error:
                assert error.errno not in (errno.ENOTCONN, errno.ECONNABORTED), error
    return count


@pytest.mark.long
@pytest.mark.deadline(300)
def test_scribbler(probe, python):
    """Damaged frames, code objects, strings, tables and thread states: anything may be shown of
    them, but the daemon lives, comes back, and stays small."""
    for i in range(10 if FULL else 2):
        target = python.run("scribbler.py", SEED + i)
        end = time.monotonic() + (10 if FULL else 0.8)
        count = 0
        while time.monotonic() < end:
            for name in "backtrace", "stacks.folded", "status", "tasks":
                try:
                    probe.read(target.pid, name, timeout=20)
                except OSError as error:
                    assert error.errno != errno.ENOTCONN, f"seed {SEED + i}"
            count += read_all(probe.path / str(target.pid))
        assert count > 0
        assert target.process.poll() is None, "the scribbler must not hurt itself"
        target.close()
    status = pathlib.Path(f"/proc/{probe.pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0])
    assert resident < 2 << 20, f"{resident} kB"


@pytest.mark.long
def test_reads_itself(probe, python):
    """From inside the target, by many threads at once, while others look at it from outside:
    threads that wait on the mount are never waited for."""
    at = python.directory / "mount"
    at.mkdir(exist_ok=True)
    mounted = probe.mount(at=at)
    target = python.run("self_reader.py", python.path("mount"), 4, 50)
    with Readers(2, at / str(target.pid) / "backtrace") as readers:
        target.send("go")
        said = json.loads(target.readline(timeout=60))
    assert said["failed"] == [] and readers.errors == [] and readers.reads > 0
    for text in said["said"]:
        seen = parse_backtrace(text, target.pid)
        assert any(functions(thread)[-1:] == ["<module>"] for thread in seen.threads.values())
    mounted.close()


@pytest.mark.long
@pytest.mark.deadline(900)
@pytest.mark.parametrize("threads", [1, 4])
def test_kill_the_daemon(probe, python, threads):
    """kill -9 at random moments while it reads a busy target: the target goes on, unharmed."""
    random_ = random.Random(SEED)
    target = python.run("spinner.py", threads)
    for _ in range(100 if FULL else 3):
        mounted = probe.mount()
        path = mounted.path / str(target.pid) / "backtrace"
        with Readers(2, path) as readers:
            eventually(lambda: readers.reads > 0)
            time.sleep(random_.random() * 0.03)
            mounted.kill()
            states = {}

            def all_run():
                states.update(target.states())
                return not {"t", "T"} & set(target.states().values())

            eventually(all_run, what=f"going on (seed {SEED}, {states})")
        probe.extra.remove(mounted)
        mounted.path.rmdir()
    target.send("stop")
    done, wrong = map(int, target.readline().split())
    assert done > 0 and wrong == 0


def test_memory_for_requests_runs_out(any_python):
    """Threads of the mount that get none end, and not the daemon: it answers again once there is some."""
    target = any_python.run("nested.py")
    with Probe() as other:
        look(other, target)
        status = pathlib.Path(f"/proc/{other.pid}/status").read_text()
        size = int(next(line for line in status.splitlines() if line.startswith("VmSize")).split()[1]) << 10
        if size >> 40:
            pytest.skip("a sanitizer ends what gets no memory")
        _, most = resource.prlimit(other.pid, resource.RLIMIT_AS)
        stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
        stack = 2 << 20 if stack == resource.RLIM_INFINITY else stack
        for room in stack + 4096, 0:  # for the stack of one thread more; for nothing
            resource.prlimit(other.pid, resource.RLIMIT_AS, (size + room, most))
            try:
                readers = [subprocess.Popen(["cat", other.path / str(target.pid) / "backtrace"],
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(24)]
                eventually(lambda: "fuse: " in other.log() or not other.alive() or
                           all(reader.poll() is not None for reader in readers), what="the shortage")
            finally:
                if other.alive():
                    resource.prlimit(other.pid, resource.RLIMIT_AS, (most, most))
            for reader in readers:
                reader.wait(patience(60))
            look(other, target)


def test_descriptors_run_out(any_python):
    """Who asks a daemon that has none left is told that, and never that the process is no more."""
    target = any_python.run("nested.py")
    with Probe() as other:
        look(other, target)
        _, most = resource.prlimit(other.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{other.pid}/fd"))
        said = set()
        for descriptors in 0, *range(used, used + 8):
            resource.prlimit(other.pid, resource.RLIMIT_NOFILE, (descriptors, most))
            for file in "backtrace", "status", "locks", f"threads/{target.pid}/locals", "eval":
                try:
                    text = other.read(target.pid, file)
                    assert file != "backtrace" or "main" in text
                except OSError as error:
                    said.add(error.errno)
        resource.prlimit(other.pid, resource.RLIMIT_NOFILE, (most, most))
        assert said == {errno.EMFILE}, [os.strerror(error) for error in said]
        look(other, target)


def test_no_descriptor_for_a_ring(probe, any_python):
    """A ring that could not be opened for want of a descriptor is read once there is one."""
    target = any_python.run("nested.py")
    commands = Commands(probe, target.pid)
    commands.attach()
    with Probe() as other:
        theirs = Commands(other, target.pid)

        def sees_as_many():
            return len({each.run("query", "SELECT count(*) FROM gc;\n") for each in (commands, theirs)}) == 1

        most = resource.prlimit(other.pid, resource.RLIMIT_NOFILE)
        for more in range(1, 17):  # at one of these, one is there for the ring, and none to judge it by
            commands.run("ctl", f"record gc on {2 + more % 2}M\n")
            commands.eval("__import__('gc').collect()")
            used = max(map(int, os.listdir(f"/proc/{other.pid}/fd")))
            resource.prlimit(other.pid, resource.RLIMIT_NOFILE, (used + more, most[1]))
            with contextlib.suppress(OSError):
                theirs.run("query", "SELECT count(*) FROM gc;\n")
            resource.prlimit(other.pid, resource.RLIMIT_NOFILE, most)
            eventually(sees_as_many, what="the rows")
