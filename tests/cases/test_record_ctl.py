"""`record` in ctl: what is recorded, switched on a running program, and what the daemon holds of it."""
import contextlib
import errno
import json
import os
import pathlib
import re
import signal
import time

import pytest

import agents
from commands import Commands, Refused
from interpreters import eventually, patience
from recording import BY_ITSELF
from sql import RECORDED, ask, value

pytestmark = pytest.mark.python(minimum=(3, 10))

IDLE = """
import gc, sys
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
SPANS = """
import itertools, probing, sys
print("ready", flush=True)
sys.stdin.readline()
for n in itertools.count(1):
    with probing.span("step", n=n):
        pass
    if n % 500 == 0:
        print(n, flush=True)
"""
DEFAULT = 4 << 20
OFF = {f"Record: {table} off 0 rows=0 lost=0" for table in RECORDED}


def do(target, line):
    target.send(line)
    target.expect("done")


def record(commands, line=""):
    """What `record LINE` answers, line by line."""
    return commands.run("ctl", f"record {line}\n").splitlines()


def one(commands, line):
    """The state of the table that it is about: [name, on or off, size, rows=, lost=]."""
    said = [words for words in record(commands, line) if words.startswith("Record: ")]
    assert len(said) == 1
    return said[0].split()[1:]


def shown(commands):
    """What ctl says that is recorded, by itself and not as its last reply."""
    commands.run("ctl", "interpreter 0\n")
    return [line for line in (commands.directory / "ctl").read_text().splitlines()
            if line.startswith("Record: ")]


def rings(pid):
    """The inodes of the rings that a process has open or mapped: those of others come and go meanwhile."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = {line.split()[4] for line in maps if "probefs-ring" in line}
    for fd, link in agents.links(pid).items():
        with contextlib.suppress(FileNotFoundError):
            if "probefs-ring" in link:
                found.add(str(os.stat(f"/proc/{pid}/fd/{fd}").st_ino))
    return found


def held(probe, target):
    """How many rings of the target the daemon holds."""
    return len(rings(probe.process.pid) & rings(target.pid))


@pytest.fixture
def idle(probe, any_python):
    target = any_python.run_source(IDLE)
    return target, Commands(probe, target.pid)


def test_says_how_it_is(idle):
    """That asks nobody, and puts nothing in."""
    _, commands = idle
    assert set(record(commands)) == OFF
    assert shown(commands) == []
    assert one(commands, "gc off") == ["gc", "off", "0", "rows=0", "lost=0"]
    assert "Agent: none" in (commands.directory / "ctl").read_text()


def test_on_and_off(probe, python):
    target = python.run_source(IDLE)
    commands = Commands(probe, target.pid)
    assert one(commands, "gc on")[:3] == ["gc", "on", str(DEFAULT)]
    do(target, "gc.collect()")
    query = commands.directory / "query"
    rows = int(value(query, "SELECT count(*) FROM gc"))
    assert rows >= 1
    assert one(commands, "gc off")[:3] == ["gc", "off", str(DEFAULT)]
    do(target, "gc.collect()")
    assert int(value(query, "SELECT count(*) FROM gc")) == rows  # they stay
    assert shown(commands) == [f"Record: gc off {DEFAULT} rows={rows} lost=0"]
    assert one(commands, "gc") == ["gc", "on", str(DEFAULT), f"rows={rows}", "lost=0"]


def test_each_table(probe, any_python):
    target = any_python.run_source(IDLE)
    commands = Commands(probe, target.pid)
    for name, table in [("gc", "gc"), ("process", "process_samples"), ("process_samples", "process_samples"),
                        ("spans", "spans"), ("events", "events")]:
        assert one(commands, f"{name} on 128K")[:3] == [table, "on", str(128 << 10)]
    eventually(lambda: int(value(commands.directory / "query", "SELECT count(*) FROM process_samples")),
               what="a sample")


@pytest.fixture
def imported(probe, any_python):
    """A program that has imported the module, and is talked with."""
    target = agents.start(any_python, IDLE)
    do(target, "import probing")
    commands = Commands(probe, target.pid)
    commands.attach()
    return target, commands


def test_by_itself(imported):
    """Spans and events are recorded from their first one on, unless that is switched off."""
    target, commands = imported
    assert {line for line in record(commands) if " on " in line} == {
        f"Record: {table} on 0 rows=0 lost=0" for table in BY_ITSELF}
    commands.run("ctl", "record events off\n")
    do(target, "probing.event('x'); probing.span('y').__enter__().__exit__(None, None, None)")
    expected = {f"Record: spans on {DEFAULT} rows=1 lost=0",
                *(f"Record: {table} on 0 rows=0 lost=0" for table in BY_ITSELF - {"events", "spans"})}
    eventually(lambda: {line for line in record(commands) if " on " in line} == expected, what="the ring that is new")


def test_resize(idle):
    """The rows move into the new ring, as many as there is room for."""
    target, commands = idle
    assert one(commands, "gc 64K")[:3] == ["gc", "on", str(64 << 10)]
    do(target, "for _ in range(200): gc.collect()")
    query = commands.directory / "query"
    before = ask(query, "SELECT * FROM gc")
    assert len(before) >= 200
    assert one(commands, "gc 1M")[2] == str(1 << 20)
    assert ask(query, "SELECT * FROM gc")[:len(before)] == before
    assert one(commands, "gc")[2] == str(1 << 20)  # as it is
    assert one(commands, "gc 65536")[2] == str(64 << 10)


@pytest.mark.parametrize("line, at", [
    ("nonsense", "nonsense"), ("gc nonsense", "nonsense"), ("gc on off", "off"), ("gc off 64M", "64M"),
    ("gc 63K", "63K"), ("gc 65535", "65535"), ("gc 2G", "2G"), ("gc 1025M", "1025M"), ("gc 64KB", "64KB"),
    ("gc -1M", "-1M"), ("gc 99999999999999999999999G", "9999"), ("gc 1M 2M", "2M"), ("gc rate=0.5", "rate=0.5"),
    ("torch rate=0", "0"), ("torch rate=1.5", "1.5"), ("torch rate=nan", "nan"), ("torch rate=", None),
    ("torch rate=0.5x", "0.5x"), ("torch on 1M rate=0.5 more", "more"), ("spans 64M on", "on"),
    ("gc 100ms", "100ms"), ("loop 9ms", "9ms"), ("loop on 2h", "2h"), ("loop 100ms 200ms", "200ms"),
    ("loop 1M rate=0.5", "rate"),
])
def test_errors(idle, line, at):
    _, commands = idle
    with pytest.raises(Refused) as refused:
        record(commands, line)
    assert refused.value.errno == errno.EINVAL
    said = refused.value.words.splitlines()
    assert said[-2] == f"  record {line}"
    where = said[-2].index(at, len("  record ")) if at else len(said[-2])
    assert said[-1] == " " * where + "^"
    assert "Agent: none" in (commands.directory / "ctl").read_text()  # nothing was put in for that


def test_gil_held_for_ever(probe, any_python):
    """What needs no GIL is recorded, and read while it hangs and after it was killed."""
    target = any_python.run("gil_hog.py")
    commands = Commands(probe, target.pid)
    assert one(commands, "process on")[:2] == ["process_samples", "on"]
    query = commands.directory / "query"
    eventually(lambda: int(value(query, "SELECT count(*) FROM process_samples")) >= 2, what="samples")
    target.process.kill()
    target.process.wait()
    left = probe.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert int(value(left / "query", "SELECT count(*) FROM process_samples WHERE rss > 0")) >= 2


def test_held_as_soon_as_there_are_any(probe, imported):
    """An agent that is talked with says so: nobody has to look between the first row and the end."""
    target, commands = imported
    do(target, "probing.event('last words', n=1)")
    eventually(lambda: held(probe, target), what="the ring held")
    target.process.kill()
    target.process.wait()
    left = probe.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert ask(left / "query", "SELECT name, attrs FROM events") == [{"name": "last words", "attrs": '{"n":1}'}]


def test_imported(probe, any_python):
    """A program that records by itself, without a daemon's doing: held once somebody has listed it."""
    target = agents.start(any_python, IDLE)
    do(target, "pass")  # what loads no more memory is looked at once
    os.stat(probe.path / str(target.pid))
    do(target, "import probing; probing.event('one')")
    os.listdir(probe.path)
    do(target, "probing.event('two')")
    target.process.kill()
    target.process.wait()
    left = probe.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert [row["name"] for row in ask(left / "query", "SELECT name FROM events ORDER BY ts")] == ["one", "two"]


def steps(query):
    """The numbers of the spans that are complete: one after the other, each whole."""
    rows = ask(query, "SELECT name, duration, attrs FROM spans WHERE duration IS NOT NULL ORDER BY id")
    numbers = [int(json.loads(row["attrs"])["n"]) for row in rows]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert all(row["name"] == "step" and float(row["duration"]) >= 0 for row in rows)
    return numbers


def test_killed_while_it_writes(probe, python):
    """Whatever a program had done when it was killed is there, up to the last."""
    target = agents.start(python, SPANS)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "record spans 256K\n")
    target.send("go")
    for _ in range(10):
        said = int(target.readline())
    target.process.kill()
    target.process.wait()
    left = probe.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert steps(left / "query")[-1] >= said


@pytest.mark.long
def test_daemon_killed_meanwhile(probe, any_python):
    target = agents.start(any_python, SPANS)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "record spans 256K\n")
    target.send("go")
    for _ in range(5):
        said = int(target.readline())
    assert steps(commands.directory / "query")[-1] >= said
    probe.kill()
    for _ in range(5):
        said = int(target.readline())
    probe.start()
    assert steps(commands.directory / "query")[-1] >= said
    commands.run("ctl", "record spans off\n")
    end = steps(commands.directory / "query")[-1]
    eventually(lambda: int(target.readline()) > end + 1000, what="a program that goes on")
    assert steps(commands.directory / "query")[-1] == end


def test_another_daemon_finds_them(probe, idle):
    target, commands = idle
    one(commands, "gc on")
    do(target, "gc.collect()")
    count = value(commands.directory / "query", "SELECT count(*) FROM gc")
    other = probe.mount()
    assert value(other.path / str(target.pid) / "query", "SELECT count(*) FROM gc") == count
    os.kill(probe.process.pid, signal.SIGKILL)
    probe.kill()
    do(target, "gc.collect()")
    probe.start()
    assert int(value(commands.directory / "query", "SELECT count(*) FROM gc")) > int(count)
    assert target.process.poll() is None


def test_detach(probe, idle):
    """Gives the rings up, the daemon's hold too."""
    target, commands = idle
    one(commands, "gc on")
    one(commands, "process on")
    assert held(probe, target) == 2
    before = rings(target.pid)
    commands.detach()
    assert shown(commands) == [] and set(record(commands)) == OFF
    assert not before & rings(probe.process.pid)
    assert value(commands.directory / "query", "SELECT count(*) FROM gc") == "0"
    one(commands, "gc on")
    assert held(probe, target) == 1


def test_nothing_leaks(probe, any_python):
    """What is held goes with what was kept, and looking costs nothing that stays."""
    own = pathlib.Path(f"/proc/{probe.process.pid}")

    def stays(fd, pids):
        """Whether a descriptor is of a process that is gone, or of one of ours."""
        try:
            link = os.readlink(fd)
            return re.match(rf"/proc/({'|'.join(pids)})/", link) or \
                link == "anon_inode:[pidfd]" and "Pid:\t-1\n" in (own / "fdinfo" / fd.name).read_text()
        except FileNotFoundError:
            return False  # just closed

    made, pids = set(), []
    for _ in range(5):
        target = any_python.run_source(IDLE)
        commands = Commands(probe, target.pid)
        one(commands, "gc on 64K")
        top = commands.directory
        for _ in range(200):
            os.stat(top / "query")
            os.listdir(probe.path)
        made |= rings(target.pid)
        one(commands, "gc 128K")
        made |= rings(target.pid)
        pids.append(str(target.pid))
        target.process.kill()
        target.process.wait()
        left = probe.path / "exited" / str(target.pid)
        eventually(left.exists, what="what it left")
        for _ in range(200):
            os.stat(left / "query")
        os.rmdir(left)
    assert len(made) == 10
    # an open file's is released later
    eventually(lambda: not made & rings(probe.process.pid), what="the end of all rings")
    eventually(lambda: os.listdir(probe.path) and not any(stays(fd, pids) for fd in (own / "fd").iterdir()),
               what="the end of all descriptors")


def test_interpreter_is_ending(probe, any_python):
    """Rows are kept of a program that ends in good order as well."""
    target = any_python.run_source(IDLE)
    commands = Commands(probe, target.pid)
    one(commands, "gc on")
    do(target, "gc.collect()")
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0
    left = probe.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert int(value(left / "query", "SELECT count(*) FROM gc")) >= 1
    assert "Exit: status 0" in (left / "status").read_text()
    assert abs(os.stat(left).st_mtime - time.time()) < 60
