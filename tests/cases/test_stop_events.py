"""Why a thread is held, as events, hits and threads/<tid>/ctl say it."""
import pathlib

import pytest

from commands import Commands
from debugged import Events, set_breakpoints
from interpreters import eventually
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
        return self.commands.run(f"threads/{self.pid}/ctl", verb + "\n")

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
        assert (stop["id"], stop["reason"], stop["exception"], stop["returned"], stop["error"]) == (1, "breakpoint", None, None, None)
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
    rows = ask(program.directory / "query", "SELECT stop, reason, exception, message, returned FROM hits ORDER BY rowid")
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
