"""Jumps: what CPython's own do with sys.settrace() is what must happen, wherever a thread is held."""
import errno
import json
import os
import signal
import subprocess

import pytest

import agent_client as agent
from agents import QUIET, clients, connect, library, start  # noqa: F401, a fixture
from interpreters import patience
from stopping import done, wait_stopped

pytestmark = pytest.mark.python(minimum=(3, 10))

# Nothing stops a thread at a yield by its place.
NO_STOP = {"test_jump_from_yield"}


def samples(python):
    """What CPython's own samples do, by sys.settrace()."""
    command = python.command(python.path("jumps.py"), "trace")
    out = subprocess.run(command, text=True, capture_output=True, timeout=patience(120))
    if "ImportError: cannot import name 'test_sys_settrace'" in out.stderr or "No module named 'test'" in out.stderr:
        pytest.skip(f"{python} lacks test.test_sys_settrace (Debian: libpython3.x-testsuite)")
    assert out.returncode == 0, out.stderr
    return [sample for sample in map(json.loads, out.stdout.splitlines()) if sample["name"] not in NO_STOP]


def stop_at(sample):
    name = sample["function"]
    options = {"action": agent.STOP, "count": 1}
    if sample["event"] == "line":
        return agent.breakpoint(agent.LINE, sample["file"], sample["line"], **options)
    if sample["event"] == "exception":
        return agent.breakpoint(agent.RAISE, "ZeroDivisionError", **options)
    return agent.breakpoint(agent.FUNCTION if sample["event"] == "call" else agent.RETURN, name, **options)


def test_samples(python):
    wanted = samples(python)
    _, inside = library(python)
    target = python.run("jumps.py", "wait", env={"PYTHONPATH": inside, **QUIET})
    client = connect(target)
    found = []
    for sample in wanted:
        done(client.breakpoints(stop_at(sample), replace=True))
        target.send(sample["name"])
        wait_stopped(client, target.pid)
        answer = client.order(agent.JUMP, target.pid, line=sample["to"])
        if answer.error:
            assert answer.error == errno.EINVAL
            if sample["event"] == "line":
                assert answer.words == f"ValueError: {sample['refused']}", sample
            os.kill(target.pid, signal.SIGINT)  # as a trace function raises
        else:
            done(client.order(agent.CONTINUE))
        output, error = json.loads(target.readline())
        refused = sample["refused"] if answer.error else None
        if error and error[1] == "refused":
            error[1] = refused
        found.append(dict(sample, output=output, error=error, refused=refused))
    assert len(found) > 80
    assert found == wanted


# A line of standard input is run; then what it has added to `seen` is printed.
PROGRAM = """
import sys
import probing

seen = []

def lines():
    seen.append(1)
    seen.append(2)
    seen.append(13)

def yields():
    for each in [object(), object()]:
        yield seen.append(1)
        seen.append(2)
    seen.append(23)

def resumes():
    for each in [object(), object()]:
        yield
        seen.append(2)
    seen.append(33)

def sends(to):
    next(to)
    seen.append(1), list(to)

def starts():
    seen.append(2)
    seen.append(43)

def calls():
    seen.append(1), starts()

def returns():
    seen.append(0)
    return seen.append(1)

def raises():
    seen.append(0)
    seen.append(1), seen[7]

def loop():
    while len(seen) < 3: seen.append(1)
    seen.append(53)

print("ready", flush=True)
for line in sys.stdin:
    try:
        exec(line)
    except IndexError:
        pass
    print(seen, flush=True)
"""


def line_of(text):
    return [line.strip() for line in PROGRAM.split("\n")].index(text) + 1


def held(python, run, entry):
    """It runs something until it is held there."""
    target = start(python, PROGRAM, name="jump_from.py")
    client = connect(target)
    done(client.breakpoints(entry))
    target.send(run)
    wait_stopped(client, target.pid)
    return target, client


def watch(condition="new == 1"):
    return agent.breakpoint(agent.WATCH, "len(seen)", condition=condition, action=agent.STOP, count=1)


@pytest.mark.parametrize("run, condition, to, seen", [
    ("lines()", "new == 1", "seen.append(13)", [1, 13]),
    ("loop()", "new == 2", "seen.append(53)", [1, 1, 53]),
])
def test_from_watch(python, run, condition, to, seen):
    """From where a thread is held behind what wrote, a line, or a loop's that begins its own again."""
    target, client = held(python, run, watch(condition))
    done(client.order(agent.JUMP, target.pid, line=line_of(to)))
    assert client.record.threads()[target.pid]["line"] == line_of(to)
    done(client.order(agent.CONTINUE))
    target.expect(str(seen))
    assert target.stderr() == ""


@pytest.mark.parametrize("run, jumped, stayed", [
    ("list(yields())", [1, 23], [1, 2, 1, 2, 23]),
    ("sends(resumes())", [1, 33], [1, 2, 2, 33]),
])
def test_from_yield(python, run, jumped, stayed):
    """Only from CPython 3.14 on: it crashes, or what the generator does next fails, before that."""
    target, client = held(python, run, watch())
    answer = client.order(agent.JUMP, target.pid, line=line_of(f"seen.append({jumped[1]})"))
    if python.version >= (3, 14):
        done(answer)
    else:
        assert answer.error == errno.EINVAL
        assert answer.words == "the thread is at a yield, from which CPython can't jump before 3.14: step to a line"
    done(client.order(agent.CONTINUE))
    target.expect(str(jumped if python.version >= (3, 14) else stayed))
    assert target.stderr() == ""


@pytest.mark.parametrize("run, entry, words, seen", [
    ("calls()", watch(), "the function is only being entered", [1, 2, 43]),
    ("returns()", watch("new == 2"), "the function is returning", [0, 1]),
    ("raises()", watch("new == 2"), "an exception is on its way", [0, 1]),
    ("calls()", agent.breakpoint(agent.RETURN, "starts", action=agent.STOP), "the function is returning", [1, 2, 43]),
    ("raises()", agent.breakpoint(agent.RAISE, "IndexError", action=agent.STOP), "an exception is on its way", [0, 1]),
])
def test_from_elsewhere(python, run, entry, words, seen):
    target, client = held(python, run, entry)
    answer = client.order(agent.JUMP, target.pid, line=line_of("seen.append(43)"))
    assert answer.error == errno.EINVAL
    assert answer.words == f"{words}: CPython jumps from the beginning of a line only"
    done(client.order(agent.CONTINUE))
    target.expect(str(seen))
    assert target.stderr() == ""
