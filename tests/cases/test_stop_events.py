"""Why a thread is held, as events, hits and threads/<tid>/ctl say it."""
import errno
import pathlib
import re

import pytest

from commands import Commands
from debugged import Events, set_breakpoints
from interpreters import eventually, patience
from sql import ask

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = """
import sys

class Bad(Exception):
    def __str__(self):
        return f"bad {self.args[0]}"

def leaf(x):
    y = x + 1
    return [y]

def fail(x):
    raise Bad(x)

def work():
    a = leaf(1)
    try:
        fail(2)
    except Bad:
        a = None
    return a

print("ready", flush=True)
for line in sys.stdin:
    work()
    print("done", flush=True)
"""


class Program:
    def __init__(self, probe, python):
        self.target = python.run_source(SOURCE)
        self.probe, self.pid = probe, self.target.pid
        self.commands = Commands(probe, self.pid)
        self.file = self.target.path()
        self.directory = probe.path / str(self.pid)

    def breakpoints(self, lines):
        set_breakpoints(self.probe, self.pid, lines)

    def ctl(self, verb):
        """Where it is held next: what the command says, which waits half a second for that, or what the file does."""
        before = self.number(self.state())
        said = self.commands.run(f"threads/{self.pid}/ctl", verb + "\n")
        if verb == "continue" or said != "running\n":
            return said
        return eventually(lambda: state if self.number(state := self.state()) not in (None, before) else None,
                          what=f"a stop after {verb}")

    def number(self, state):
        """Of a stop; None: there is none."""
        found = re.search(r", stop (\d+), goes on in ", state)
        return found and found[1]

    def state(self):
        return (self.directory / "threads" / str(self.pid) / "ctl").read_text()


@pytest.fixture
def program(probe, python):
    program = Program(probe, python)
    yield program
    assert program.target.stderr() == ""


def line_of(text):
    return SOURCE.splitlines().index(text) + 1


def test_reasons(program):
    """Of each kind of stop the event says why, with what was raised or returned, and all of it has one number."""
    program.breakpoints(f"stop {program.file}:{line_of('    y = x + 1')}\nstop raise Bad\n"
                        "stop return leaf()\n")
    with Events(program.probe, program.pid) as events:
        program.target.send("go")
        told = []

        def next_stop():
            told.append(events.next("stop"))
            assert f", stop {told[-1]['stop']}, goes on in " in program.state()
            return told[-1]

        def go_on(verb="continue"):
            program.ctl(verb)
            gone = events.next("continue")
            assert (gone["name"], gone["attrs"]["stop"]) == (verb, told[-1]["stop"])
        stop = next_stop()
        assert [stop[name] for name in ("id", "reason", "exception", "returned", "error")] == [
            1, "breakpoint", None, None, None]
        go_on("next")
        stop = next_stop()
        assert (stop["id"], stop["reason"], stop["lineno"]) == (None, "step", line_of("    return [y]"))
        go_on()
        stop = next_stop()
        assert (stop["id"], stop["reason"], stop["returned"]) == (3, "return", "[2]")
        go_on()
        stop = next_stop()
        assert (stop["id"], stop["reason"]) == (2, "raise")
        assert stop["exception"] == {"type": "__main__.Bad", "message": "bad 2"}
        go_on()
        assert sorted({one["stop"] for one in told}) == [one["stop"] for one in told]
    rows = ask(program.directory / "query",
               "SELECT stop, reason, exception, message, returned FROM hits ORDER BY rowid")
    assert [(row["reason"], row["exception"] or row["returned"]) for row in rows] == \
        [("breakpoint", ""), ("step", ""), ("return", "[2]"), ("raise", "__main__.Bad")]
    program.target.expect("done")


def test_condition_that_raises(program):
    """A `stop` whose condition raises goes on, and the event says so, once."""
    program.breakpoints("stop leaf() if nothing > 1\n")
    with Events(program.probe, program.pid) as events:
        for _ in range(2):
            program.target.send("go")
            program.target.expect("done")
        hit = events.next("hit")
        assert (hit["id"], hit["hit"], hit["error"]) == (1, None, "NameError: name 'nothing' is not defined")
        program.breakpoints("log fail()\n")
        program.target.send("go")
        program.target.expect("done")
        assert events.next("hit")["func"] == "fail"


def test_finish_and_return(program):
    """`finish` goes on in the caller, with what was returned; `return` stops before."""
    leave, after = line_of("    return [y]"), line_of("    try:")
    program.breakpoints(f"stop {program.file}:{line_of('    y = x + 1')}\n")
    with Events(program.probe, program.pid) as events:
        program.target.send("go")
        events.next("stop")
        assert f":{after} (work) for " in (said := program.ctl("finish"))
        assert said.endswith("\n-> [2]\n") and program.state().partition("\n")[2] == "-> [2]\n"
        stop = events.next("stop")
        assert (stop["reason"], stop["lineno"], stop["returned"]) == ("step", after, "[2]")
        program.ctl("continue")
        program.target.expect("done")
        program.target.send("go")
        events.next("stop")
        said = program.ctl("return")
        assert "stopped by the return of its function" in said and f":{leave} (leaf) for " in said
        assert said.endswith("\n-> [2]\n")
        events.next("stop")
        assert f":{after} (work) for " in (said := program.ctl("finish")) and said.endswith("\n-> [2]\n")
        program.ctl("continue")
    program.target.expect("done")


def test_raised_says_what(program):
    program.breakpoints("stop raise Bad\n")
    with Events(program.probe, program.pid) as events:
        program.target.send("go")
        events.next("stop")
    assert program.state().endswith("\nException: __main__.Bad: bad 2\n")
    program.ctl("continue")
    program.target.expect("done")


@pytest.mark.parametrize("before", ["continue", "next"])
@pytest.mark.parametrize("verb, line", [(verb, "    try:") for verb in ("finish", "next", "step", "return")])
def test_on_from_a_return(program, before, verb, line):
    """From where `stop return` holds it, each leads into the caller: no other event of the function comes."""
    program.breakpoints(f"stop {program.file}:{line_of('    a = leaf(1)')}\nstop return leaf()\n")
    with Events(program.probe, program.pid) as events:
        program.target.send("go")
        events.next("stop")
        program.ctl(before)
        assert events.next("stop")["reason"] == "return"
        said = program.ctl(verb)
        assert f":{line_of(line)} (work) for " in said and said.endswith("\n-> [2]\n")
        program.ctl("continue")
    program.target.expect("done")


def test_values_can_be_asked(program):
    """What is returned, or raised, has a name where the thread is held, and nowhere else."""
    def ask_it(text, file="frames/0/eval"):
        return program.commands.run(f"threads/{program.pid}/{file}", text + "\n").strip()

    def is_unknown(name, file):
        error, words = program.commands.refused(f"threads/{program.pid}/{file}", name + "\n")
        return error == errno.EIO and f"NameError: name '{name}' is not defined" in words
    program.breakpoints("stop return leaf()\nstop raise Bad\nstop leaf()\n")
    with Events(program.probe, program.pid) as events:
        program.target.send("go")
        events.next("stop")
        assert is_unknown("__return__", "frames/0/eval")
        program.ctl("continue")
        events.next("stop")
        assert ask_it("__return__, y") == "([2], 2)" and ask_it("__return__[0] + x", "eval") == "3"
        assert ask_it("__return__.append(3)\n__return__") == "[2, 3]"  # it is the value itself
        assert is_unknown("__return__", "frames/1/eval") and is_unknown("__exception__", "frames/0/eval")
        program.ctl("finish")
        assert ask_it("__return__") == "[2, 3]"
        program.ctl("next")
        assert is_unknown("__return__", "frames/0/eval")
        program.ctl("continue")
        assert events.next("stop")["reason"] == "step" and events.next("stop")["reason"] == "step"
        assert events.next("stop")["reason"] == "raise"
        assert ask_it("__exception__.args[0] + x") == "4" and ask_it("type(__exception__).__name__", "eval") == "'Bad'"
        assert is_unknown("__exception__", "frames/1/eval")
        program.ctl("continue")
    program.target.expect("done")
    assert is_unknown("__exception__", "eval")


LOOPS = """
import json, sys, threading, time

def loop():
    total = 0
    for i in range(5):
        total += i
    return total

def own():
    return json.loads("[1]", object_hook=hook, parse_int=hook)

def hook(value):
    return value

def turn():
    global turns
    while working:
        turns += 1
        time.sleep(0.001)

working, turns = True, 0
threads = [threading.Thread(target=turn) for _ in range(2)]
for thread in threads:
    thread.start()
while turns < 10:
    time.sleep(0.001)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
working = False
"""


@pytest.fixture
def loops(probe, python):
    program = Program.__new__(Program)
    program.target = python.run_source(LOOPS)
    program.probe, program.pid = probe, program.target.pid
    program.commands = Commands(probe, program.pid)
    program.file, program.directory = program.target.path(), probe.path / str(program.pid)
    yield program
    program.commands.run("ctl", "continue\n")
    program.target.stdin.close()
    assert program.target.process.wait(patience(60)) == 0 and program.target.stderr() == ""


def in_loops(text):
    return LOOPS.splitlines().index(text) + 1


def test_until(loops):
    """Out of a loop, with a line or without."""
    body, end = in_loops("        total += i"), in_loops("    return total")
    for verb in "until", f"until {end}":
        loops.breakpoints(f"stop {loops.file}:{body} x 1\n")
        with Events(loops.probe, loops.pid) as events:
            loops.target.send("loop()")
            events.next("stop")
            assert f":{end} (loop) for " in loops.ctl(verb)
            assert (loops.directory / f"threads/{loops.pid}/frames/0/locals").read_text().startswith("total = 10\n")
            loops.ctl("continue")
        loops.target.expect("10")
        loops.breakpoints("\n")


def test_step_own(loops):
    """Through json, to its callback, and back."""
    call, back = in_loops('    return json.loads("[1]", object_hook=hook, '
                          'parse_int=hook)'), in_loops("    return value")
    loops.breakpoints(f"stop {loops.file}:{call}\n")
    with Events(loops.probe, loops.pid) as events:
        loops.target.send("own()")
        events.next("stop")
        assert f":{back} (hook) for " in loops.ctl("step own")
        loops.breakpoints("\n")
        loops.commands.run("ctl", "continue\n")
    loops.target.expect("['1']")


def test_pause_one(loops):
    """The other one runs on."""
    one, other = [tid for tid in loops.target.tids() if tid != loops.pid][:2]
    said = loops.commands.run(f"threads/{one}/ctl", "pause for 1h\n")
    if "It stops at the next line" in said:
        eventually(lambda: "stopped by pause" in (loops.directory / f"threads/{one}/ctl").read_text())
    held = ask(loops.directory / "query", "SELECT tid FROM threads WHERE state = 'held'")
    assert [int(row["tid"]) for row in held] == [one]
    loops.target.send("turns")
    before = int(loops.target.readline())
    eventually(lambda: loops.target.send("turns") or int(loops.target.readline()) > before + 3)
    assert loops.commands.run(f"threads/{one}/ctl", "continue\n") == "running\n"


COUNTS = """
import json, sys

def passed(i):
    return i

def parse(text):
    try:
        return json.loads(text)
    except ValueError:
        return None

def inside():
    try:
        raise ValueError("mine")
    except ValueError:
        pass

def quiet():
    import importlib.util
    try:
        importlib.import_module("there_is_no_such_module").x
    except ImportError:
        pass

print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def hits_of(target, probe):
    rows = ask(probe.path / str(target.pid) / "query", "SELECT id, func, captured FROM hits ORDER BY rowid")
    return [(int(row["id"]), row["func"], row["captured"]) for row in rows]


def test_after_and_every(probe, python):
    target = python.run_source(COUNTS)
    set_breakpoints(probe, target.pid, "log passed() {i} if i != 1 after 2 every 3 x 2\nlog passed() {i} every 6\nlog "
                                       "passed() {i} after 10\n")
    target.send("[passed(i) for i in range(12)][-1]")
    target.expect("11")
    hits = [(number, captured) for number, _, captured in hits_of(target, probe)]
    assert sorted(hits) == [(1, '{"i": "5"}'), (1, '{"i": "8"}'), (2, '{"i": "11"}'), (2, '{"i": "5"}'),
                            (3, '{"i": "10"}'), (3, '{"i": "11"}')]
    text = (probe.path / str(target.pid) / "breakpoints").read_text()
    assert "1: log passed() {i} if i != 1 after 2 every 3 x 2  # done" in text
    set_breakpoints(probe, target.pid, text)
    assert (probe.path / str(target.pid) / "breakpoints").read_text() == text


def test_raise_in(probe, python):
    """Once an exception comes to the program's own code, or to a file; not where a library catches its own."""
    target = python.run_source(COUNTS)
    file = target.path()
    set_breakpoints(probe, target.pid, f"log raise in own {{1}}\nlog raise ValueError in json {{2}}\n"
                                       f"log raise in {file.rpartition('/')[2]} {{3}}\nlog raise KeyError in own "
                                       f"{{4}}\n")
    target.send("parse('x'), inside(), quiet()")
    target.expect("(None, None, None)")
    hits = hits_of(target, probe)
    own = [func for number, func, _ in hits if number == 1]
    assert own == ["parse", "inside", "quiet"] == [func for number, func, _ in hits if number == 3]
    assert [func.rpartition(".")[2] for number, func, _ in hits if number == 2] == ["raw_decode"]
    assert not [hit for hit in hits if hit[0] == 4]


CROWD = """
import sys, threading, time

def once(x):
    return x

def work():
    while running:
        time.sleep(0.001)

running = True
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
print(*[thread.native_id for thread in threads], flush=True)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
running = False
"""


def test_stop_all(probe, python):
    """The others are paused because of the same line, and stay so until they are told to go on, or it is removed."""
    target = python.run_source(CROWD, ready=None)
    others = sorted(map(int, target.readline().split()))
    target.expect("ready")
    directory, commands = probe.path / str(target.pid), Commands(probe, target.pid)

    def held():
        return sorted(int(path.name) for path in (directory / "threads").iterdir()
                      if (path / "ctl").read_text().startswith("stopped by breakpoint "))
    set_breakpoints(probe, target.pid, "stop all for 1h once() if x > 1\n")
    target.send("once(1)")
    target.expect("1")
    assert held() == []
    target.send("once(2)")
    eventually(lambda: held() == sorted([target.pid, *others]), what="that all are held")
    assert ", 1 hits, holds " in (directory / "breakpoints").read_text()
    commands.run(f"threads/{target.pid}/ctl", "continue\n")
    target.expect("2")
    assert held() == others
    commands.run("breakpoints", "-1\n")
    eventually(lambda: held() == [], what="that they go on")
    set_breakpoints(probe, target.pid, "stop all return once()\n")
    target.send("once(3)")
    eventually(lambda: len(held()) == 3, what="that all are held")
    commands.run("ctl", "continue\n")
    target.expect("3")
    eventually(lambda: held() == [], what="that they go on")


LEAVES = """
import re, sys, threading

def bad(_):
    raise KeyError(7)

def caught():
    try:
        bad(1)
    except KeyError:
        return "caught"

def middle(_):
    return re.sub("b", bad, "b")

def through(function):
    try:
        re.sub("a", function, "a")
    except LookupError:
        return "through"

print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@pytest.mark.python(minimum=(3, 12))
def test_raise_leaving(probe, python):
    """As nobody in the program's own code has caught it, once, where it goes to a library, or to nobody."""
    target = python.run_source(LEAVES)
    set_breakpoints(probe, target.pid, "log raise leaving own {__exception__}\nlog raise ValueError leaving own\n"
                                       "log raise KeyError leaving re {3}\n")
    target.send("caught(), through(bad), through(middle)")
    target.expect("('caught', 'through', 'through')")
    hits = hits_of(target, probe)
    assert [func for number, func, _ in hits if number == 1] == ["bad", "bad"]
    assert {captured for number, _, captured in hits if number == 1} == {'{"__exception__": "KeyError(7)"}'}
    assert [func for number, func, _ in hits if number == 3] == ["sub", "sub"] and {hit[0] for hit in hits} == {1, 3}
    target.send("threading.Thread(target=bad, args=(0,)).start()")
    target.expect("None")
    eventually(lambda: [hit[1] for hit in hits_of(target, probe) if hit[0] == 1] == ["bad"] * 3, what="the thread's")
    eventually(lambda: "KeyError: 7" in target.stderr(), what="what the program says of it")


@pytest.mark.python(minimum=(3, 12))
def test_held_as_it_leaves(probe, python):
    """It is at the frame that the exception is about to leave; a step from there goes to who catches it."""
    target = python.run_source(LEAVES)
    directory, commands = probe.path / str(target.pid) / "threads" / str(target.pid), Commands(probe, target.pid)
    set_breakpoints(probe, target.pid, "stop raise LookupError leaving own\n")
    with Events(probe, target.pid) as events:
        target.send("through(bad)")
        stop = events.next("stop")
    assert [stop[name] for name in ("id", "reason", "func")] == [1, "raise", "bad"]
    assert stop["exception"] == {"type": "KeyError", "message": "7"}
    name = f"threads/{target.pid}/frames/0/eval"
    assert commands.run(name, "_ is not None\n") == "True\n"
    assert commands.run(name, "__exception__.args\n") == "(7,)\n"
    commands.run(f"threads/{target.pid}/ctl", "next\n")
    line = LEAVES.splitlines().index("    except LookupError:") + 1
    eventually(lambda: f":{line}" in (directory / "ctl").read_text(), what="that it stops where it is caught")
    commands.run(f"threads/{target.pid}/ctl", "continue\n")
    target.expect("through")


def test_raise_leaving_before(probe, python):
    if python.version >= (3, 12):
        pytest.skip("CPython tells which exception leaves a function")
    target = python.run_source(LEAVES)
    with pytest.raises(OSError) as refused:
        set_breakpoints(probe, target.pid, "stop f()\nstop raise leaving own\n")
    assert refused.value.errno == errno.EOPNOTSUPP
    assert "from CPython 3.12 on" in (probe.path / str(target.pid) / "breakpoints").read_text()


def test_end_of_text(probe, python):
    """A line of ^D ends a block on a handle that stays open."""
    target = python.run_source(COUNTS)
    with open(probe.path / str(target.pid) / "eval", "r+b", buffering=0) as file:
        file.write(b"for i in range(2):\n  print(i)\n")
        assert file.read() == b""
        file.write(b"\x04\n")
        assert file.read() == b"0\n1\n"
        file.write(b"if True:\n  6 * 7\n\x04\n'a'\n")
        assert file.read() == b"42\n'a'\n"
        file.write(b"(1 +\n")
        with pytest.raises(OSError):
            file.write(b"\x04\n")
        assert b"SyntaxError" in file.read()
