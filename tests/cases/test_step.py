"""Steps: what pdb does on the same commands is what must happen."""
import errno
import json
import subprocess

import pytest

import agent_client as agent
import ring_file
from agents import clients  # noqa: F401, a fixture
from agents import connect, start
from interpreters import eventually, patience
from stopping import done, paused, tell, wait_stopped

pytestmark = pytest.mark.python(minimum=(3, 10))

HEAD = """
import os, sys
try:
    import probing
except ImportError: # the oracle has none
    pass
"""
TAIL = """
print("ready", flush=True)
os.read(0, 100)
main()
print("end", flush=True)
os.read(0, 100)
"""

PROGRAMS = {
    "calls": """
def leaf(x):
    y = x + 1
    return y

def branch(x):
    total = 0
    for i in range(2):
        total += leaf(
            i)
    return total

def main():
    a = branch(1)
    b = branch(leaf(
        2))
    return a + b
""",
    "recursion": """
def fact(n):
    if n < 2:
        return 1
    rest = fact(n - 1)
    return n * rest

def main():
    x = fact(3)
    return x
""",
    "exceptions": """
class Context:
    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return True

def fail(x):
    try:
        if x:
            raise ValueError(x)
    finally:
        x = 0

def outer(x):
    fail(x)
    return x

def main():
    try:
        outer(0)
        outer(1)
    except ValueError as error:
        a = error
    else:
        a = 2
    with Context():
        outer(3)
        a = 4
    return a
""",
    "generators": """
def numbers(n):
    for i in range(n):
        got = yield i
    return n

def all_of(n):
    result = yield from numbers(n)
    return result

def main():
    total = 0
    for i in numbers(2):
        total += i
    for i in all_of(1):
        total += i
    one = numbers(3)
    next(one)
    one.close()
    return total
""",
    "coroutines": """
import asyncio

async def leaf(x):
    await asyncio.sleep(0)
    return x

async def work():
    a = await leaf(1)
    b = await leaf(2)
    return a + b

loop = asyncio.new_event_loop()  # not main()'s: bdb would stop in what its end runs

def main():
    x = loop.run_until_complete(work())
    return x
""",
    "callbacks": """
def key(x):
    y = -x
    return y

class Number:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        value = self.value + other
        return value

    @property
    def double(self):
        value = self.value * 2
        return value

def main():
    a = sorted([1, 2], key=key)
    b = Number(3)
    c = b + 1
    d = b.double
    return c + d
""",
}


def write(python, name):
    source = HEAD + PROGRAMS[name] + TAIL
    (python.directory / f"stepped_{name}.py").write_text(source)
    return source, python.path(f"stepped_{name}.py")


def oracle(python, path, commands):
    out = subprocess.run(python.command(python.path("stepper.py"), path, *commands), input="\n", text=True,
                         capture_output=True, timeout=patience(60))
    assert out.returncode == 0, out.stderr
    return [stop[:1] for stop in json.loads(out.stdout)]


def stops(python, source, commands):
    target, client = paused(python, source)
    found = [[client.record.threads()[target.pid]["line"]]]
    for command in commands:
        found.append([tell(client, target.pid, command)["line"]])
    done(client.order(agent.CONTINUE, target.pid))
    target.expect("end")
    assert target.stderr() == ""
    target.close()
    client.close()
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("commands", [
    ["step"] * 14,
    ["next"] * 3,
    ["step"] + ["next"] * 7,
    ["step", "next", "step", "next", "next", "next", "next"],
], ids=["step", "next", "into", "mixed"])
def test_as_pdb(python, name, commands):
    source, path = write(python, name)
    wanted = oracle(python, path, commands)
    end = [source.split("\n").index('print("end", flush=True)') + 1]
    wanted = wanted[:wanted.index(end) + 1] if end in wanted else wanted  # then it waits for standard input
    commands = commands[:len(wanted) - 1]
    assert stops(python, source, commands) == wanted


# ---- with breakpoints, and other verbs ----

JUMPS = """
import os, probing, sys
def main():
    seen, i = [], 0
    seen.append(1)
    seen.append(2)
    for i in range(2):
        seen.append(i)
    return seen

print("ready", flush=True)
os.read(0, 100)
x = main()
print(x, flush=True)
os.read(0, 100)
"""


def line_of(source, text):
    return next(number for number, line in enumerate(source.split("\n"), 1) if line.strip() == text)


def step_to(client, tid, line, command="step"):
    """Steps on until it is there."""
    for _ in range(20):
        if tell(client, tid, command)["line"] == line:
            return
    raise AssertionError(f"it didn't come to line {line}")


def test_finish(python):
    """It stops at the return of the function, whose value is shown; then at the next line of its caller."""
    source = HEAD + PROGRAMS["calls"] + TAIL
    target, client = paused(python, source)
    step_to(client, target.pid, line_of(source, "y = x + 1"))
    stop = tell(client, target.pid, "return")
    assert (stop["line"], stop["why"]) == (line_of(source, "return y"), agent.BY_RETURN)
    assert tell(client, target.pid, "next")["line"] == line_of(source, "for i in range(2):")
    stop = tell(client, target.pid, "return")
    assert (stop["line"], stop["why"]) == (line_of(source, "return total"), agent.BY_RETURN)
    # the row of a stop follows it
    hits = eventually(lambda: rows if (rows := ring_file.rows(target.pid, "hits"))[-1].resumed is None else None,
                      what="the row of this stop")
    assert [hit.captured for hit in hits if hit.captured] == ['{"return": "1"}', '{"return": "3"}']
    assert hits[-1].stopped == 1 and hits[-1].resumed is None and hits[-2].resumed > hits[-2].ts
    assert tell(client, target.pid, "return")["line"] == line_of(source, "b = branch(leaf(")
    done(client.order(agent.CONTINUE))
    target.expect("end")


def test_finish_generator(python):
    """What it yields before it returns is no return."""
    source = HEAD + PROGRAMS["generators"] + TAIL
    target, client = paused(python, source)
    step_to(client, target.pid, line_of(source, "got = yield i"))
    stop = tell(client, target.pid, "return")
    assert (stop["line"], stop["why"]) == (line_of(source, "return n"), agent.BY_RETURN)
    done(client.order(agent.CONTINUE))
    target.expect("end")


def test_finish_coroutine(python):
    """Nor is it one that it awaits."""
    source = HEAD + """
import types

@types.coroutine
def pause():
    yield

async def work():
    x = 1
    await pause()
    return x

def main():
    one = work()
    one.send(None)
    try:
        one.send(None)
    except StopIteration:
        return 1
""" + TAIL
    target, client = paused(python, source)
    step_to(client, target.pid, line_of(source, "x = 1"))
    stop = tell(client, target.pid, "return")
    assert (stop["line"], stop["why"]) == (line_of(source, "return x"), agent.BY_RETURN)
    done(client.order(agent.CONTINUE))
    target.expect("end")


def test_finish_raises(python):
    """A function that raises doesn't return: it is as `next` then."""
    source = HEAD + PROGRAMS["exceptions"] + TAIL
    target, client = paused(python, source)
    step_to(client, target.pid, line_of(source, "outer(1)"), "step")
    step_to(client, target.pid, line_of(source, "fail(x)"))
    stop = tell(client, target.pid, "return")
    assert (stop["line"], stop["why"]) == (line_of(source, "except ValueError as error:"), agent.BY_STEP)
    done(client.order(agent.CONTINUE))
    target.expect("end")


def test_one_line(python):
    """What is all on one line is stopped in, too, and only once."""
    target, client = paused(python, """
        import os, probing, sys
        def double(x): return 2 * x
        add = lambda x, y: x + y
        def main():
            a = double(1)
            b = add(a, 1)
            c = b
            return c
        print("ready", flush=True)
        os.read(0, 100)
        main()
        print("end", flush=True)
        os.read(0, 100)
        """)
    lines = [tell(client, target.pid, "step")["line"] for _ in range(7)]
    assert lines == [6, 3, 7, 4, 8, 9, 13]
    done(client.order(agent.CONTINUE))
    target.expect("end")


def test_jump(python):
    target, client = paused(python, JUMPS)
    for _ in range(2):
        tell(client, target.pid, "step")
    assert client.record.threads()[target.pid]["line"] == 5
    done(client.order(agent.JUMP, target.pid, line=6))
    assert client.record.threads()[target.pid]["line"] == 6
    assert tell(client, target.pid, "next")["line"] == 7
    done(client.order(agent.JUMP, target.pid, line=5))
    assert tell(client, target.pid, "step")["line"] == 6
    assert client.order(agent.JUMP, target.pid, line=8).error == errno.EINVAL  # into a loop
    assert client.order(agent.JUMP, target.pid, line=2).error == errno.EINVAL
    assert tell(client, target.pid, "next")["line"] == 7
    done(client.order(agent.CONTINUE))
    target.expect("[2, 1, 2, 0, 1]")
    assert target.stderr() == ""


UNBOUND = """
import probing, sys, warnings
def main(seen):
    seen.append(1)
    one = 1
    two = 2
    yield seen.append(3)
    three = [x for x in seen]
    return three
before = list(warnings.filters)
print("ready", flush=True)
for line in sys.stdin:
    seen = []
    list(main(seen))
    print(seen, before == warnings.filters, flush=True)
"""


@pytest.mark.parametrize("warnings", ["default", "error"])
@pytest.mark.parametrize("line, to, seen", [(5, 7, [1, 3]), (7, 5, [1, 3]), (9, 4, [1, 3, 1, 3])])
def test_jump_over_assignments(python, line, to, seen, warnings):
    """From a line, a yield and a return, and CPython's warning that variables have no value yet is nobody's
    business."""
    target = start(python, UNBOUND, env={"PYTHONWARNINGS": warnings})
    client = connect(target)
    answer = client.breakpoints(agent.breakpoint(agent.LINE, "source.py", line, action=agent.STOP, count=1))
    assert answer.error == 0, answer.words
    target.send("")
    wait_stopped(client, target.pid)
    done(client.order(agent.JUMP, target.pid, line=to))
    done(client.order(agent.CONTINUE))
    target.expect(f"{seen} True")
    assert target.stderr() == ""


def test_jump_on_return(python):
    target, client = paused(python, JUMPS)
    tell(client, target.pid, "step")
    tell(client, target.pid, "return")
    answer = client.order(agent.JUMP, target.pid, line=5)
    assert answer.error == errno.EINVAL and "beginning of a line" in answer.words
    done(client.order(agent.CONTINUE))
    target.expect("[1, 2, 0, 1]")


def test_other_thread(python):
    """A step is its thread's alone, whatever others run of the same code."""
    target, client = paused(python, """
        import os, probing, sys, threading
        def work(n):
            total = 0
            for i in range(n):
                total += i
            return total
        def other():
            while working:
                work(10)
                count[0] += 1
        working, count = True, [0]
        thread = threading.Thread(target=other, daemon=True)
        print("ready", flush=True)
        os.read(0, 100)
        thread.start()
        x = work(3)
        print(x, flush=True)
        os.read(0, 100)
        """)
    lines = [tell(client, target.pid, command)["line"] for command in ["next", "step", "next", "next", "next", "next"]]
    assert lines == [17, 4, 5, 6, 5, 6]
    assert set(client.record.threads()) == {target.pid}
    client.eval("before = count[0]")
    eventually(lambda: client.eval("count[0] > before").text == "True\n", what="the other thread's going on")
    done(client.order(agent.CONTINUE))
    target.expect("3")


def test_breakpoint(python):
    """Where a step ends at a breakpoint there is one stop, that of the breakpoint; where it leads on from one, it
    moves."""
    target, client = paused(python, JUMPS)
    answer = client.wait(client.start_breakpoints(
        agent.breakpoint(agent.LINE, "source.py", 6, action=agent.STOP, stop_ns=60 * 10**9)))
    assert answer.error == 0, answer.words
    assert tell(client, target.pid, "step")["line"] == 4
    assert tell(client, target.pid, "step")["line"] == 5
    stop = tell(client, target.pid, "next")
    assert (stop["line"], stop["why"], stop["id"]) == (6, agent.BY_BREAKPOINT, 1)
    stop = tell(client, target.pid, "next")
    assert (stop["line"], stop["why"]) == (7, agent.BY_STEP)
    done(client.order(agent.JUMP, target.pid, line=5))
    stop = tell(client, target.pid, "continue")
    assert (stop["line"], stop["why"]) == (6, agent.BY_BREAKPOINT)
    stop = tell(client, target.pid, "step")
    assert (stop["line"], stop["why"]) == (7, agent.BY_STEP)
    done(client.order(agent.CONTINUE))
    target.expect("[1, 2, 1, 2, 0, 1]")
