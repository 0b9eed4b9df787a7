"""LOCATION `breakpoint()`: the program's own breakpoint() is a place like any other, and does what it did without us
where no thread is held there."""
import pytest

from commands import Commands, write
from debugged import Events
from interpreters import eventually
from sql import rows

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = """
import sys, threading
said = []

def own(*args, **kwargs):
    said.append((args, kwargs))
    return "own"

def work(x):
    y = x * 2
    got = breakpoint(y, z=1)
    return got

before = sys.breakpointhook
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
LINE = 11  # of breakpoint()


class Program:
    def __init__(self, probe, python, **options):
        self.target = python.run_source(SOURCE, **options)
        self.pid, self.directory = self.target.pid, probe.path / str(self.target.pid)
        self.commands, self.probe = Commands(probe, self.pid), probe

    def ask(self, expression):
        self.target.send(expression)
        return self.target.readline()

    def breakpoints(self, lines):
        return self.commands.run("breakpoints", lines)

    def state(self):
        return (self.directory / "threads" / str(self.pid) / "ctl").read_text()

    def hits(self):
        return rows((self.directory / "tables" / "hits.csv").read_text())

    def held(self):
        eventually(lambda: "stopped by breakpoint" in self.state(), what="a held thread")
        return self.state()

    def go_on(self):
        write(self.directory / "threads" / str(self.pid) / "ctl", "continue\n")


@pytest.fixture
def program(probe, python):
    return Program(probe, python)


def test_stop(program):
    """Held at the line of the call, with its variables; pdb isn't asked, and PYTHONBREAKPOINT isn't either."""
    assert program.ask("__import__('os').environ.update(PYTHONBREAKPOINT='0')") == "None"
    said = program.breakpoints("stop breakpoint() {x, y} if x > 1\n")
    assert said == "1: stop breakpoint() {x, y} if x > 1  # armed\n"
    assert program.ask("work(1)") == "None"  # which CPython's own does nothing at
    with Events(program.probe, program.pid) as events:
        program.target.send("work(2)")
        stop = events.next("stop")
    assert (stop["id"], stop["func"], stop["lineno"], stop["reason"]) == (1, "work", LINE, "breakpoint")
    assert stop["captured"] == {"x": "2", "y": "4"}
    assert f":{LINE}" in program.held()
    assert program.commands.run(f"threads/{program.pid}/frames/0/eval", "x, y\n") == "(2, 4)\n"
    program.commands.run(f"threads/{program.pid}/ctl", "next\n")
    eventually(lambda: f":{LINE + 1}" in program.state(), what="the next line")  # which is waited for half a second
    program.go_on()
    assert program.target.readline() == "None"


def test_log_goes_on_to_ones_own(program):
    """What the program has set is called with what breakpoint() was given, and is there again afterwards."""
    assert program.ask("setattr(sys, 'breakpointhook', own)") == "None"
    program.breakpoints("breakpoint()\n")
    assert program.ask("sys.breakpointhook is own, work(3), said") == "(False, 'own', [((6,), {'z': 1})])"
    assert [row["captured"] for row in program.hits()] == ['{"x": "3", "y": "6"}']
    program.breakpoints("disable 1\n")
    assert program.ask("sys.breakpointhook is own, work(3)") == "(True, 'own')"
    program.breakpoints("enable 1\n")
    assert program.ask("sys.breakpointhook is own, work(3)") == "(False, 'own')"
    assert len(program.hits()) == 2
    program.breakpoints("-1\n")
    assert program.ask("sys.breakpointhook is own") == "True"


def test_one_that_is_set_later(program):
    """It takes the place of ours, calls it if it likes, and stays when ours goes."""
    program.breakpoints("breakpoint()\n")
    assert program.ask("globals().update(ours=sys.breakpointhook)") == "None"
    assert program.ask("setattr(sys, 'breakpointhook', own)") == "None"
    assert program.ask("work(1)") == "own" and program.hits() == []
    assert program.ask("setattr(sys, 'breakpointhook', lambda *a, **k: ours(otherwise=lambda: 'ours'))") == "None"
    assert program.ask("work(1)") == "ours" and len(program.hits()) == 1
    program.breakpoints("-1\n")
    assert program.ask("ours(otherwise=lambda: 'nothing')") == "nothing"
    assert program.ask("work(1)") == "ours" and len(program.hits()) == 1


@pytest.mark.parametrize("way", ["detach", "kill"])
def test_end(program, way):
    """It is put back by whatever ends the agent; a thread that is held goes on, and no pdb comes up in it."""
    program.ask("setattr(sys, 'breakpointhook', own)")
    daemon = program.probe.mount()
    (daemon.path / str(program.pid) / "breakpoints").write_text("stop breakpoint()\n")
    program.target.send("work(1)")
    program.held()
    if way == "detach":
        write(daemon.path / str(program.pid) / "ctl", "detach\n")
    else:
        daemon.kill()
    assert program.target.readline() == "None"
    assert program.ask("work(1)") == "own"
    if way == "detach":
        assert program.ask("sys.breakpointhook is own") == "True"
    else:
        daemon.start()


def test_as_long_as_a_file(program):
    with open(program.directory / "breakpoints", "a", encoding="utf-8") as file:
        file.write("here stop breakpoint()\n")
        file.flush()
        assert program.ask("sys.breakpointhook is before") == "False"
        program.target.send("work(1)")
        program.held()
    assert program.target.readline() == "None"  # it was held, so nothing else was called
    eventually(lambda: program.ask("sys.breakpointhook is before") == "True", what="that it is put back")


def test_child_after_fork(program):
    """Nothing is set there: what stood there before is called."""
    program.ask("setattr(sys, 'breakpointhook', own)")
    program.breakpoints("stop breakpoint()\n")
    child = "__import__('os').fork() or (print(work(1), flush=True), __import__('os')._exit(0))"
    program.target.send(f"[{child}, __import__('os').wait()][1][1]")
    assert sorted([program.target.readline(), program.target.readline()]) == ["0", "own"]


def test_probing_breakpoint(program):
    """probing.breakpoint() is held by the same line; where none holds it, nothing comes up."""
    program.breakpoints("stop breakpoint() x 1\n")
    program.ask("globals().update(probing=__import__('probing'))")
    program.target.send("(lambda inner: probing.breakpoint())(1)")
    program.held()
    program.go_on()
    assert program.target.readline() == "None"
    assert program.ask("probing.breakpoint()") == "None"
    assert [row["func"] for row in program.hits()] == ["<lambda>"]
