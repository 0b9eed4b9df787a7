"""<pid>/events: what happens in a process, as it happens, for many readers at once."""
import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

import pytest

from agents import start
from commands import Commands
from interpreters import eventually, patience
from sql import ask
from test_hostile import QUARANTINE, is_sanitized
from test_other_user import answer, run_as

pytestmark = pytest.mark.python(minimum=(3, 10))

IDLE = "import sys; print('ready', flush=True); sys.stdin.readline()"

# writes as many events as it is told to, from two threads, which are there all the time: else their begin and end may
# be told of in between, and count among what was lost
WRITER = """
import probing, queue, sys, threading
def write(name, counts):
    for count in iter(counts.get, None):
        for i in range(count):
            probing.event(name, i=i)
        written.put(name)
probing.event("before")
written, both = queue.SimpleQueue(), [queue.SimpleQueue(), queue.SimpleQueue()]
for name, counts in zip("ab", both):
    threading.Thread(target=write, args=(name, counts)).start()
print("ready", flush=True)
for line in sys.stdin:
    for counts in both: counts.put(int(line))
    for counts in both: written.get()
    print("done", flush=True)
for counts in both: counts.put(None)
"""


# what comes by itself, between what a case is about
BESIDE = {"breakpoint", "thread", "child"}


class Reader:
    """Its lines are those of other kinds than `beside`."""

    def __init__(self, probe, pid, flags=0, beside=BESIDE):
        self.fd, self.beside = os.open(probe.path / str(pid) / "events", os.O_RDONLY | flags), beside
        self.bytes = b""
        self.lines = []
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def read(self):
        """Some lines, each whole and an object."""
        got = os.read(self.fd, 65536)
        assert not got or got.endswith(b"\n")
        self.lines += [line for line in map(json.loads, got.splitlines()) if line["kind"] not in self.beside]
        self.bytes += got
        self.ended = not got

    def read_until(self, enough, timeout=30):
        end = time.monotonic() + patience(timeout)
        while not self.ended and not enough(self.lines):
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], self.lines[-3:]
            self.read()
        return self.lines

    def rest(self):
        return self.read_until(lambda lines: False)


def kinds(lines):
    return [line["kind"] for line in lines]


def events(lines):
    return [(line["name"], line["attrs"]["i"]) for line in lines if line["kind"] == "event"]


def told(lines):
    """How many events there were."""
    return sum(line["count"] if line["kind"] == "lost" else 1 for line in lines)


def write(target, count):
    target.send(str(count))
    target.expect("done")


def known(probe, target):
    """One of which a mount knows by now that it has an agent: else that may be told as the first event."""
    with Reader(probe, target.pid) as reader:
        write(target, 1)
        reader.read_until(lambda lines: len(events(lines)) >= 2)
    return target


def in_order(said, count):
    return all([i for who, i in said if who == name] == list(range(count)) for name in "ab")


def test_readers(probe, python):
    """64 at once see each event, in the order of each thread, and none from before their open."""
    target = known(probe, start(python, WRITER))
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(Reader(probe, target.pid)) for _ in range(64)]
        write(target, 150)
        for reader in readers:
            reader.read_until(lambda lines: len(events(lines)) >= 300)
            assert set(kinds(reader.lines)) == {"event"}
            assert in_order(events(reader.lines), 150)
        assert len({tuple(line for line in reader.bytes.splitlines() if b'"kind": "event"' in line)
                    for reader in readers}) == 1
    line = readers[0].lines[0]
    assert list(line) == ["ts", "kind", "pid", "tid", "name", "task", "span", "attrs"]
    assert abs(line["ts"] - time.time()) < 60 and line["pid"] == target.pid
    assert line["tid"] > 0 and line["task"] is None and line["span"] is None


def test_first_use(probe, any_python):
    """The ring is made only by the first event."""
    target = start(any_python, WRITER.replace('probing.event("before")', ""))
    with Reader(probe, target.pid) as reader:
        write(target, 10)
        reader.read_until(lambda lines: len(events(lines)) >= 20)
        assert in_order(events(reader.lines), 10)


def test_slow(probe, any_python):
    """Who doesn't read is told how much it lost; others lose nothing, or are told so too."""
    target = known(probe, start(any_python, WRITER))
    with Reader(probe, target.pid) as slow, Reader(probe, target.pid) as other:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            reading = pool.submit(other.read_until, lambda lines: told(lines) >= 20000)
            write(target, 10000)
            reading.result()
        slow.read_until(lambda lines: told(lines) >= 20000)
        for reader in slow, other:
            assert told(reader.lines) == 20000
            assert all(said == sorted(set(said)) for said in (
                [i for who, i in events(reader.lines) if who == name] for name in "ab"))
        assert slow.lines[0]["kind"] == "lost" and list(slow.lines[0]) == ["ts", "kind", "pid", "count"]
        assert set(kinds(slow.lines)) == {"lost", "event"}  # a daemon that came late may have lost some more
        assert 1000 < len(slow.lines) < 10000


def test_small_reads(probe, any_python):
    target = known(probe, start(any_python, WRITER))
    with Reader(probe, target.pid) as reader:
        write(target, 5)
        said = b""
        while said.count(b"\n") < 10:
            said += os.read(reader.fd, 7)
        assert in_order(events([json.loads(line) for line in said.splitlines()]), 5)


def test_waiting(probe, any_python):
    """poll, select, epoll and O_NONBLOCK."""
    target = known(probe, start(any_python, WRITER))
    with Reader(probe, target.pid, os.O_NONBLOCK) as reader:
        poll, epoll = select.poll(), select.epoll()
        poll.register(reader.fd, select.POLLIN)
        epoll.register(reader.fd, select.EPOLLIN)

        def ready(seconds):
            return [bool(select.select([reader.fd], [], [], seconds)[0]), bool(poll.poll(seconds * 1000)),
                    bool(epoll.poll(seconds))]

        assert ready(0.05) == [False] * 3
        with pytest.raises(BlockingIOError):
            reader.read()
        target.send("1")
        assert ready(patience(30)) == [True] * 3
        reader.read_until(lambda lines: len(events(lines)) == 2)
        assert ready(0.05) == [False] * 3
        with pytest.raises(BlockingIOError):
            reader.read()
        target.process.kill()
        assert ready(patience(30)) == [True] * 3
        assert kinds(reader.rest()) == ["event", "event", "exit"]
        assert ready(patience(30)) == [True] * 3  # the end, too
        os.set_blocking(reader.fd, True)
        reader.read()
        assert reader.ended


def blocked(process):
    """Waits until it has opened the file and sleeps."""
    def waits():
        try:
            opened = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
        except FileNotFoundError:  # it closed one meanwhile
            return False
        with open(f"/proc/{process.pid}/stat") as file:
            return any(name.endswith("/events") for name in opened) and file.read().split()[2] == "S"
    eventually(waits, what="a blocked reader")


def cat(probe, pid, *command, **options):
    return subprocess.Popen([*(command or ["cat"]), str(probe.path / str(pid) / "events")],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted(probe, any_python, number):
    target = any_python.run_source(IDLE)
    process = cat(probe, target.pid)
    blocked(process)
    process.send_signal(number)
    assert process.wait(patience(30)) == -number
    assert probe.read(target.pid, "status")


def test_eintr(probe, any_python):
    """A handler that raises ends the read."""
    target = any_python.run_source(IDLE)
    source = """
import os, signal, sys
def stop(*_): raise InterruptedError
signal.signal(signal.SIGUSR1, stop)
fd = os.open(sys.argv[1], os.O_RDONLY)
print("open", flush=True)
try:
    os.read(fd, 100)
except InterruptedError:
    print("interrupted")
"""
    process = cat(probe, target.pid, sys.executable, "-c", source)
    assert process.stdout.readline() == "open\n"
    blocked(process)
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=patience(30)) == ("interrupted\n", "")


def test_tools(probe, any_python):
    target = known(probe, start(any_python, WRITER))
    head, slept = cat(probe, target.pid, "head", "-1"), cat(probe, target.pid, "timeout", "1", "cat")
    master, terminal = os.openpty()
    followed = subprocess.Popen(["tail", "-n", "+1", "-f", probe.path / str(target.pid) / "events"],
                                stdout=terminal)
    for process in head, followed:
        blocked(process)
    write(target, 1)
    assert json.loads(head.communicate(timeout=patience(30))[0])["name"] in "ab"
    said = b""
    while b"\n" not in said:  # a terminal may hand over part of a line
        assert select.select([master], [], [], patience(30))[0], said
        said += os.read(master, 4096)
    assert json.loads(said.splitlines()[0])["kind"] == "event"
    followed.kill()
    followed.wait(patience(30))
    os.close(master)
    os.close(terminal)
    assert slept.wait(patience(30)) == 124


def test_exit(probe, python):
    target = start(python, "import probing, sys; print('ready', flush=True); sys.stdin.readline(); "
                           "probing.event('last'); sys.exit(3)")
    with Reader(probe, target.pid) as reader:
        target.send("")
        lines = reader.rest()
        assert lines[-1]["kind"] == "exit" and lines[-1]["status"] == 3
        assert list(lines[-1]) == ["ts", "kind", "pid", "status", "signal", "name"]
        assert set(kinds(lines[:-1])) <= {"attach", "event", "detach"}
        assert os.read(reader.fd, 100) == b""


def test_killed(probe, python):
    """What was written before the end is there before the end."""
    target = known(probe, start(python, WRITER))
    with Reader(probe, target.pid) as reader:
        write(target, 100)
        target.process.kill()
        lines = reader.rest()
        assert in_order(events(lines), 100)
        assert kinds(lines) == ["event"] * 200 + ["exit"]
        assert (lines[-1]["signal"], lines[-1]["name"], lines[-1]["status"]) == (9, "SIGKILL", None)


def test_exec(probe, any_python):
    target = any_python.run_source("import os, sys; print('ready', flush=True); sys.stdin.readline(); "
                                   "os.execv('/bin/sleep', ['sleep', '100'])")
    with Reader(probe, target.pid) as reader:
        target.send("")
        assert kinds(reader.rest()) == ["exec"]


def test_hangs(probe, any_python):
    """Nothing in the process has to answer."""
    target = known(probe, start(any_python, WRITER))
    write(target, 10)
    os.kill(target.pid, signal.SIGSTOP)
    with Reader(probe, target.pid) as reader:
        assert not select.select([reader.fd], [], [], 0.1)[0]
        target.send("10")
        os.kill(target.pid, signal.SIGCONT)
        reader.read_until(lambda lines: len(events(lines)) == 20)
        os.kill(target.pid, signal.SIGSTOP)
        target.process.kill()
        assert reader.rest()[-1]["signal"] == 9


def mapped(pid):
    with open(f"/proc/{pid}/maps") as file:
        return {line.split(maxsplit=5)[-1] for line in file if "/" in line}


def test_attach(probe, python):
    """Reading lets nothing in; what others let in is said."""
    target = python.run_source(IDLE)
    before = mapped(target.pid)
    with Reader(probe, target.pid) as reader:
        assert not select.select([reader.fd], [], [], 0.5)[0]
        assert mapped(target.pid) == before
        ctl = probe.path / str(target.pid) / "ctl"
        for verb in "attach", "detach":
            ctl.write_text(verb + "\n")
            reader.read_until(lambda lines: kinds(lines)[-1:] == [verb])
        target.send("")
        lines = reader.rest()
        assert kinds(lines) == ["attach", "detach", "exit"]
        assert list(lines[0]) == ["ts", "kind", "pid"]


def test_daemon_killed(probe, any_python):
    """Readers get an error, and the program goes on."""
    target = start(any_python, WRITER)
    other = probe.mount()
    process = cat(other, target.pid)
    blocked(process)
    other.kill()
    assert process.wait(patience(30)) == 1
    write(target, 10)
    other.start()


def test_daemon_ends(probe, any_python):
    target = start(any_python, WRITER)
    other = probe.mount()
    process = cat(other, target.pid)
    blocked(process)
    other.process.terminate()
    assert process.wait(patience(30)) == 1
    other.process.wait(patience(30))
    other.kill()
    other.start()


def daemon_state(probe):
    with open(f"/proc/{probe.pid}/status") as file:
        said = dict(line.split(":", 1) for line in file)
    return len(os.listdir(f"/proc/{probe.pid}/fd")), int(said["VmRSS"].split()[0])


def test_opened_often(probe, any_python):
    """Nothing is left behind by readers that come and go, some of them blocked."""
    other = probe.mount()
    target = known(other, start(any_python, WRITER))

    def cycles(count):
        for i in range(count):
            with Reader(other, target.pid, os.O_NONBLOCK) as reader:
                poll = select.poll()
                poll.register(reader.fd, select.POLLIN)
                poll.poll(0)
                with pytest.raises(BlockingIOError):
                    reader.read()
                if i % 100 == 0:
                    process = cat(other, target.pid)
                    time.sleep(0.02)
                    process.kill()
                    process.communicate()

    cycles(100)
    descriptors, memory = daemon_state(other)
    cycles(1000)
    eventually(lambda: daemon_state(other)[0] <= descriptors + 2, what="as few descriptors")  # 2 of a session
    assert daemon_state(other)[1] < memory + 4096 + QUARANTINE * is_sanitized()  # leaks are seen when it ends


def test_access(probe, any_python, nobody):
    target = any_python.run_source(IDLE)
    path = probe.path / str(target.pid) / "events"
    assert path.stat().st_mode & 0o7777 == 0o400 and path.stat().st_size == 0
    other = probe.mount("allow_other")
    said = run_as(nobody, "cat", other.path / str(target.pid) / "events")
    assert answer(said) in {errno.EACCES, errno.EPERM, errno.ENOENT}
    with pytest.raises(OSError) as error:
        open(path, "w")
    assert error.value.errno in (errno.EACCES, errno.EPERM)


# does what it is told, and says that it has
COMES_AND_GOES = """
import os, signal, subprocess, sys, threading
end = threading.Event()
early = threading.Thread(target=end.wait, name="early")
early.start()
children = []
def spawn(*command):
    children.append(subprocess.Popen(command, stdin=subprocess.PIPE))
    return children[-1].pid
def fork():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def test_threads_and_children(probe, any_python):
    """As they come and go, from the open on; of the agent's own nothing is told."""
    target = any_python.run_source(COMES_AND_GOES, env={"PYTHONWARNINGS": "ignore"})

    def ask(text):
        target.send(text)
        return int(target.readline())
    early, = set(target.tids()) - {target.pid}
    with Reader(probe, target.pid, beside={"attach"}) as reader, Reader(probe, target.pid) as other:
        late = ask("[t := threading.Thread(target=end.wait), t.start()] and t.native_id")
        seen = reader.read_until(lambda lines: lines)
        assert [(line["kind"], line["tid"], line["state"]) for line in seen] == [("thread", late, "begin")]
        assert seen[0]["name"] == pathlib.Path(f"/proc/{late}/comm").read_text().strip()
        assert abs(seen[0]["ts"] - time.time()) < 60
        Commands(probe, target.pid).attach()
        os.kill(probe.pid, signal.SIGSTOP)  # who looks between fork() and exec() sees CPython
        try:
            assert ask("spawn('cat')") > 0
        finally:
            os.kill(probe.pid, signal.SIGCONT)
        child = ask("spawn(sys.executable, '-c', 'input()')")
        reader.read_until(lambda lines: lines[-1]["kind"] == "child")
        forked = ask("fork()")
        reader.read_until(lambda lines: lines[-1].get("child") == forked)
        assert [line["child"] for line in seen[1:]] == [child, forked]
        os.kill(forked, signal.SIGKILL)
        assert ask("end.set() or early.join() or t.join() or 0") == 0
        reader.read_until(lambda lines: len(lines) >= 5)
        assert {(line["kind"], line.get("tid"), line.get("state")) for line in seen[3:]} == \
            {("thread", early, "end"), ("thread", late, "end")}
        ask("[child.kill() or child.wait() for child in children][0]")
        Commands(probe, target.pid).detach()
        assert kinds(reader.read_until(lambda lines: len(lines) >= 6)[5:]) == ["detach"]
        target.stdin.close()
        assert kinds(reader.rest()[6:]) == ["exit"] and set(kinds(other.rest())) <= {"attach", "detach", "exit"}


def test_breakpoints_come_and_go(probe, python):
    """Each change of the set, with where it is armed; what is written again to the ring isn't a change."""
    target = python.run_source(
        "import sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    exec(line)\n",
        env={"PYTHONPATH": str(python.directory)})
    (python.directory / "comes_later.py").write_text("\n\ndef late():\n\n    return 1\n")
    commands = Commands(probe, target.pid)
    commands.run("breakpoints", "log nothing()\n")
    with Reader(probe, target.pid, beside=BESIDE - {"breakpoint"}) as reader:
        commands.run("breakpoints", "stop comes_later.py:4 if False\n")
        told = reader.read_until(lambda lines: lines)
        assert list(told[0]) == ["ts", "kind", "pid", "id", "breakpoint", "state", "lineno", "note"]
        assert [told[0][name] for name in ("id", "breakpoint", "state", "lineno")] == \
            [2, "stop comes_later.py:4 if False", "pending", None]
        target.send("import comes_later")
        reader.read_until(lambda lines: len(lines) >= 2)
        assert (told[1]["id"], told[1]["state"], told[1]["lineno"]) == (2, "armed", 5)
        assert "line 5 is used" in told[1]["note"]
        commands.run("breakpoints", "here log comes_later.late()\n-1\n")
        reader.read_until(lambda lines: len(lines) >= 5)
        assert sorted((line["id"], line["state"]) for line in told[2:]) == \
            [(1, "removed"), (3, "armed"), (3, "removed")]
        assert told[-1]["breakpoint"] == "here log comes_later.late()"
        commands.run("ctl", "record breakpoints 64K\n")
        numbers = range(1000, 1600)
        for first in numbers[::30]:  # half of the ring several times: then all of the set is written again
            some = range(first, first + 30)
            commands.run("breakpoints", "".join(f"{number}: log nothing() if '{'x' * 99}'\n" for number in some))
            commands.run("breakpoints", "".join(f"-{number}\n" for number in some))
            reader.read_until(lambda lines: lines[-1]["id"] == some[-1] and lines[-1]["state"] == "removed")
        assert sorted((line["id"], line["state"]) for line in told[5:]) == \
            sorted((number, state) for number in numbers for state in ("pending", "removed"))
        row, = ask(commands.directory / "query", "SELECT lineno, changed FROM breakpoints WHERE id = 2")
        assert row["lineno"] == "5" and abs(float(row["changed"]) - told[1]["ts"]) < 1e-4
