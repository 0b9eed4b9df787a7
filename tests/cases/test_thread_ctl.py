"""Stopping threads as a person with a shell does: ctl, threads/<tid>/ctl, and what else can be read and written
meanwhile."""
import errno
import os
import pathlib
import re
import threading

import pytest

import mount
from commands import Commands, shell
from debugged import Events, set_breakpoints
from interpreters import eventually, patience
from sql import ask
from stacks import without_times

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = """
import sys, threading, time

def inner(x):
    y = x + 1
    return y

def count_up():
    global count
    count += 1

def work():
    total = 0
    while working:
        total += inner(2)
        count_up()
        time.sleep(0.001)
    return total

working, count = True, 0
threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(2)]
for thread in threads:
    thread.start()
while sum(frame.f_code.co_filename == __file__ for frame in sys._current_frames().values()) < 3:
    time.sleep(0.001)  # one that is only starting may be held with a lock that the other one waits for
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
working = False
"""


class Program:
    def __init__(self, probe, target):
        self.target, self.commands = target, Commands(probe, target.pid)
        self.directory = self.commands.directory
        self.workers = [tid for tid in target.tids() if tid != target.pid]
        eventually(lambda: pathlib.Path(f"/proc/{target.pid}/syscall").read_text().startswith("0 0x0 "))

    def ctl(self, tid, *verbs):
        """What the file says after them; of a step, once it has ended."""
        for verb in verbs:
            before = self.stops(tid)
            said = self.commands.run(f"threads/{tid}/ctl", verb + "\n")
            if said == "running\n" and verb != "continue":
                eventually(lambda: self.stops(tid) > before, what=f"the end of a {verb}")
                said = self.state(tid)
        return said

    def stops(self, tid):
        """How often it was held; while it is only told to go on, it still shows the stop before."""
        (row,) = ask(self.directory / "query", f"SELECT count(*) AS n FROM hits WHERE stopped AND tid = {tid}")
        return int(row["n"])

    def pause(self, more=""):
        """What the file says. Both workers are held then."""
        said = self.commands.run("ctl", f"pause{more}\n")
        eventually(lambda: len(self.stopped()) == 2, what="two threads held")
        return said

    def state(self, tid):
        return (self.directory / "threads" / str(tid) / "ctl").read_text()

    def stopped(self):
        line = next(line
                    for line in (self.directory / "status").read_text().splitlines() if line.startswith("Stopped:"))
        return [int(word) for word in line.split()[1:] if word != "none"]


@pytest.fixture
def program(probe, python):
    program = Program(probe, python.run_source(SOURCE))
    yield program
    if program.target.process.poll() is None and probe.alive():
        program.commands.run("ctl", "continue\n")
        program.target.stdin.close()
        assert program.target.process.wait(patience(30)) == 0
        assert program.target.stderr() == ""


def step_to(program, tid, where):
    for _ in range(20):
        said = program.ctl(tid, "step")
        if where in said:
            return said
    raise AssertionError(said)


def test_pause(program):
    """All that run Python stop; those in C do as they come back."""
    a, b = program.workers
    assert program.state(a) == "running\n"
    assert "The others stop at the next line" in program.pause(" for 600s")
    assert f"Stopped: {a} {b}\nPausing: {program.target.pid} (read)\n" in program.commands.ctl.read_text()
    for tid in a, b:
        state = program.state(tid)
        assert state.startswith("stopped by pause at ") and f"{program.target.path()}:" in state
        assert 500 < float(state.rpartition("goes on in ")[2].removesuffix(" s\n")) <= 600
        status = (program.directory / f"threads/{tid}/status").read_text()
        assert f"Stopped: pause at {program.target.path()}:" in status
    assert "Stopped: no\n" in (program.directory / f"threads/{program.target.pid}/status").read_text()
    rows = ask(program.directory / "query", "SELECT tid FROM threads WHERE state = 'held' ORDER BY tid")
    assert [int(row["tid"]) for row in rows] == [a, b]
    assert program.commands.run("ctl", "continue\n") == ""
    eventually(lambda: program.stopped() == [])
    assert program.state(a) == "running\n" and "Pausing" not in program.commands.ctl.read_text()


def place_of(target):
    """An event's place in the words of ctl."""
    return f" at {target['file']}:{target['lineno']} ({target['func']}) for "


def test_event_comes_when_it_is_held(program):
    """Who hears of a stop may tell the thread to go on at once, and finds it where the event says."""
    a, _ = program.workers
    with Events(program.commands.probe, program.target.pid) as events:
        program.commands.run("breakpoints", f"stop {program.target.path()}:5\n")
        for _ in range(100):
            stop = events.next("stop")
            name = f"threads/{stop['tid']}/ctl"
            with open(program.directory / name, "wb", buffering=0) as file:
                file.write(b"continue\n")
        set_breakpoints(program.commands.probe, program.target.pid, "\n")


def test_watch_is_held_after_the_write(program):
    """Where it was written is the hit's place, where the thread is held the stop's."""
    with Events(program.commands.probe, program.target.pid) as events:
        program.commands.run("breakpoints", "stop watch count\n")
        for _ in range(3):
            hit, stop = events.next("hit"), events.next("stop")
            assert (hit["func"], hit["lineno"]) == ("count_up", 10)
            state = program.state(stop["tid"])
            assert state.startswith("stopped by watchpoint 1") and place_of(stop) in state
            program.ctl(stop["tid"], "continue")
        set_breakpoints(program.commands.probe, program.target.pid, "\n")
        program.commands.run("ctl", "continue\n")

    def gone_on():
        rows = ask(program.directory / "query",
                   "SELECT hit, lineno, stopped, resumed NOT NULL AS resumed FROM hits ORDER BY rowid")
        return all(row["hit"] or row["resumed"] == "1" for row in rows) and rows
    rows = eventually(gone_on, what="their going on")
    assert {(row["lineno"], row["stopped"], row["resumed"]) for row in rows if row["hit"]} == {("10", "0", "0")}
    stops = [row for row in rows if not row["hit"]]
    assert len(stops) >= 3 and {row["stopped"] for row in stops} == {"1"}


def headers(program, *tids):
    """What stands in brackets behind each thread's name, wherever that is, and at `State:` of its status."""
    whole = without_times((program.directory / "backtrace").read_text())
    said = set()
    for tid in tids:
        single = without_times((program.directory / f"threads/{tid}/backtrace").read_text())
        status = (program.directory / f"threads/{tid}/status").read_text()
        said |= {re.search(rf"^Thread {tid} \(.*\) \[(.*)\]$", text, re.M)[1] for text in (whole, single)}
        said |= {re.search(r"^State: (.*)$", status, re.M)[1]}
    return said


def test_held_says_so(program):
    """Wherever a thread's state is shown, it says what holds it."""
    a, b = program.workers
    program.pause()
    assert headers(program, a, b) == {"held, pause"}
    program.ctl(a, "step")
    assert headers(program, a) == {"held, step"}
    program.commands.run("breakpoints", f"7: stop {program.target.path()}:5\n")
    program.commands.run("ctl", "continue\n")
    eventually(lambda: headers(program, a, b) == {"held, breakpoint 7"}, what="both at the line")
    set_breakpoints(program.commands.probe, program.target.pid, "\n")
    program.commands.run("ctl", "continue\n")
    eventually(lambda: "[held" not in (program.directory / "backtrace").read_text())


def test_agents_threads_are_not_the_programs(program):
    """Stacks, tables and counts are the same with an agent and without."""
    def seen():
        text = (program.directory / "backtrace").read_text()
        counts = [line for line in (program.directory / "status").read_text().splitlines()
                  if line.startswith(("Threads:", "PythonThreads:"))]
        tables = [{int(row["tid"]) for row in ask(program.directory / "query", f"SELECT DISTINCT tid FROM {table}")}
                  for table in ("threads", "backtrace", "locals")]
        return (text.splitlines()[1].split(", GIL")[0], set(re.findall(r"^Thread (\d+)", text, re.M)), counts, tables,
                set(os.listdir(program.directory / "threads")),
                len((program.directory / "stacks.folded").read_text().splitlines()))
    before = eventually(lambda: (once := seen()) == seen() and once, what="what is seen most of the time")
    assert before[2] == ["Threads: 3", "PythonThreads: 3"]
    program.commands.eval("1")
    program.commands.run("breakpoints", "log watch count if False\n")
    program.commands.run("ctl", "record process_samples on\n")
    own = set(program.target.tids()) - {program.target.pid, *program.workers}
    assert len(own) >= 2
    eventually(lambda: seen() == before, what="a process as without an agent")
    said = next(line for line in program.commands.ctl.read_text().splitlines() if line.startswith("AgentThreads:"))
    assert set(map(int, said.split()[1:])) <= own
    for tid in own:  # asked for by name they are there
        assert f"Tid: {tid}\n" in (program.directory / f"threads/{tid}/status").read_text()


def test_steps(program):
    a, b = program.workers
    program.pause()
    said = step_to(program, a, ":5 (inner)")
    assert said.startswith("stopped by a step at")
    assert program.state(a).partition(" for ")[0] == said.partition(" for ")[0]
    assert ":6 (inner)" in program.ctl(a, "next")
    assert "stopped by the return of its function" in program.ctl(a, "return")
    assert ":16 (work)" in program.ctl(a, "next")
    assert ":15 (work)" in program.ctl(a, "jump 15")
    assert ":16 (work)" in program.ctl(a, "next")
    assert program.ctl(a, "continue") == "running\n"
    eventually(lambda: program.stopped() == [b], what="its going on")
    hits = ask(program.directory / "query",
               f"SELECT lineno, captured, resumed FROM hits WHERE tid = {a} AND captured NOT NULL")
    assert [hit["captured"] for hit in hits] == ['{"return": "3"}'] and hits[0]["resumed"]


def test_wrong(program):
    """What can't be done says why, where it is read next, and changes nothing."""
    a, _ = program.workers
    name = f"threads/{a}/ctl"
    for verb in "continue", "step", "jump 3":
        assert program.commands.refused(name, verb + "\n") == (errno.EBUSY, "error: the thread isn't stopped\n")
    now, empty, when, last = program.state(a).splitlines()
    assert (now, empty, last) == ("running", "", "error: the thread isn't stopped")
    assert re.match(r"LastReply: \d{4}-", when)
    program.pause()
    step_to(program, a, ":5 (inner)")
    error, words = program.commands.refused(name, "hop\n")
    assert error == errno.EINVAL and (
        "unknown verb; there are continue, [here] step [own], [here] next, [here] finish, [here] return, "
        "[here] until [LINE], jump LINE, [here] pause [for TIME]") in words
    error, words = program.commands.refused(name, "jump up\n")
    assert error == errno.EINVAL and "a line is a number" in words
    error, words = program.commands.refused(name, "jump 15\n")
    assert error == errno.EINVAL and "ValueError" in words
    error, words = program.commands.refused("ctl", "pause for ever\n")
    assert error == errno.EINVAL and "how long" in words and words.rstrip().endswith("^")
    assert ":5 (inner)" in program.state(a)
    out = shell('echo hop > "$1"/ctl', program.directory / f"threads/{a}")
    assert out.returncode == 1 and "Invalid argument" in out.stderr


def test_locals_and_eval(program):
    a, _ = program.workers
    program.pause()
    step_to(program, a, ":6 (inner)")
    files = program.directory / f"threads/{a}"
    assert (files / "frames/0/locals").read_text() == "x = 2\ny = 3\n"
    assert program.commands.run(f"threads/{a}/eval", "x, y, total >= 0\n") == "(2, 3, True)\n"
    assert program.commands.run(f"threads/{a}/frames/0/eval", "y = 1000\ny\n") == "1000\n"
    assert program.commands.run(f"threads/{a}/frames/1/eval", "total = 5\n") == ""
    assert (files / "frames/0/locals").read_text() == "x = 2\ny = 1000\n"
    assert (files / "frames/1/locals").read_text() == "total = 5\n"
    assert f"  inner ({program.target.path()}:6)\n" in (files / "backtrace").read_text()
    program.ctl(a, "finish")
    assert int((files / "frames/0/locals").read_text().removeprefix("total = ")) >= 1000
    assert program.commands.eval("working") == "True\n"  # where nobody is held


BLOCKS = """
def blocks(hidden):
    global blocked
    blocked = True
    while blocked:
        time.sleep(0.01)
blocks(1)
"""


def test_frames_while_code_runs(program):
    """What is evaluated in a held thread stands on top of its stack, and isn't counted among its frames."""
    a, _ = program.workers
    program.commands.run(f"threads/{a}/ctl", "pause\n")
    eventually(lambda: a in program.stopped(), what="the thread held")
    step_to(program, a, ":6 (inner)")
    files = program.directory / f"threads/{a}"

    def seen():
        backtrace = re.findall(r"^  (\w+) \((.*):\d+\)$", (files / "backtrace").read_text(), re.M)
        return [
            os.listdir(files / "frames"),
            [frame for frame in backtrace if frame[1].endswith(".py")],
            *((files / name).read_text() for name in ("locals", "frames/0/locals", "frames/0/source")),
            re.findall("Depth: .*|at .* for ", (files / "status").read_text()),
            ask(program.directory / "query", f"SELECT depth, func FROM backtrace WHERE tid = {a} AND depth NOT NULL"),
            ask(program.directory / "query", f"SELECT func FROM backtrace WHERE tid = {a} AND depth = 0"),
            ask(program.directory / "query", f"SELECT name, value FROM locals WHERE tid = {a} AND depth = 0"),
        ]
    before = seen()
    assert before[3] == "x = 2\ny = 3\n" and before[-2] == [{"func": "inner"}]
    writer = threading.Thread(target=program.commands.run, args=(f"threads/{a}/eval", BLOCKS))
    writer.start()
    eventually(lambda: "blocked = True" in (program.directory / "globals/__main__").read_text())
    meanwhile = seen()
    program.target.send("globals().update(blocked=False)")
    program.target.expect("None")
    writer.join()
    assert meanwhile == before == seen()


def test_deadline(program):
    program.commands.run("ctl", "pause for 2s\n")

    def over():
        rows = ask(program.directory / "query", """SELECT tid, json_extract(attrs, '$.held') AS held FROM events
                                                   WHERE kind = 'continue' AND name = 'deadline' ORDER BY tid""")
        return [int(row["tid"]) for row in rows] == program.workers and rows
    rows = eventually(over, what="both deadlines")  # whoever looks may be too late to see them held
    assert all(float(row["held"]) > 1.99 for row in rows)
    eventually(lambda: program.stopped() == [])


def test_detach(program):
    program.pause()
    program.ctl(program.workers[0], "next")
    assert program.commands.detach() == "Agent: none\n"
    assert program.state(program.workers[0]) == "running\n"
    maps = pathlib.Path("/proc") / str(program.target.pid) / "maps"
    eventually(lambda: "probe-agent" not in maps.read_text())  # its last thread unmaps what it ran last
    assert "Agent: none" in (program.directory / "status").read_text()


def test_nothing_is_stopped(program):
    """Nobody is attached for it."""
    assert program.commands.run("ctl", "continue\n") == ""
    assert program.commands.refused(f"threads/{program.workers[0]}/ctl", "next\n")[0] == errno.EBUSY
    assert program.commands.state() == "none"


def test_daemon_killed(python):
    """Whatever was held goes on."""
    target = python.run_source(SOURCE)
    for _ in range(3):
        probe = mount.Probe()
        try:
            program = Program(probe, target)
            program.pause()
            probe.process.kill()
            probe.process.wait(patience(30))
        finally:
            probe.close(check=False)
        target.send("sum(thread.is_alive() for thread in threads)")
        target.expect("2")
        before = progress(target)
        eventually(lambda: progress(target) > before)
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0
    assert target.stderr() == ""


def progress(target):
    target.send("count")
    return int(target.readline())
