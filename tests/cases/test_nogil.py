"""Free-threaded CPython: all of it is read from outside, and inside there is `eval`. Where it only shows what
interpreters with a GIL show, the cases of those try it too: @pytest.mark.python(free_threaded=True)."""
import errno
import random
import shutil
import signal
import subprocess
import textwrap
import time

import pytest

import builds
from agents import NAME, connect, library, start
from command_files import writing
from commands import Commands, Refused
from interpreters import eventually, patience
from stacks import parse_backtrace
from test_consistency import CALLS, STACKS, judge
from targets import legal
from test_watch_hw import tracers

pytestmark = pytest.mark.python(free_threaded="only")


def status(probe, target):
    return dict(line.split(": ", 1) for line in probe.read(target.pid, "status").splitlines() if ": " in line)


def test_is_looked_at_and_evaluated_in(probe, python):
    target = python.run_source(builds.SCRIPT, name="tried.py")
    assert status(probe, target)["Implementation"] == "CPython, free-threaded"
    builds.looked_at(probe, target)
    words = builds.not_acted_in(probe, target, [
        ("breakpoints", f"log {target.script}:1\n"), ("ctl", "record exceptions on\n"), ("ctl", "pause\n"),
        ("ctl", "on-crash stop\n"), ("ctl", "heap sites on\n"), (f"threads/{target.pid}/eval", "1\n"),
        (f"threads/{target.pid}/frames/0/eval", "1\n"), (f"threads/{target.pid}/ctl", "pause\n")])
    assert "free-threaded" in words and "`eval` in the program's globals" in words
    commands = Commands(probe, target.pid)
    for _ in range(2):
        assert commands.eval("answer + inner.__code__.co_argcount") == "43\n"
        assert "the library stays" in commands.detach()
        assert commands.state() == "loaded, not running"
    builds.ends(target)
    builds.note("free-threaded", python.version, look="yes", write="`eval` alone", breakpoints="no")


def test_has_no_module(python):
    """Its layout is that of an interpreter with a GIL."""
    target = python.run_source(textwrap.dedent("""
        import importlib.util, sys
        print("ready", flush=True)
        spec = importlib.util.spec_from_file_location("probing", sys.argv[1])
        try:
            importlib.util.module_from_spec(spec)
        except ImportError as error:
            print(error, flush=True)
        """), f"{library(python)[1]}/{NAME}")
    assert "needs an interpreter with a GIL" in target.readline()


CALLS_LONG = """
import probing, sys, time

def calls(until):
    while time.monotonic() < until:
        pass

print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("text", ["while True: pass", "for _ in iter(int, 1): len('')", "sum(i for i in iter(int, 1))",
                                  "while True:\n    calls(0)\n", "def f():\n    while True: calls(0)\nf()"])
def test_interrupt(python, text):
    """At the next line, or turn of a loop, of what was written; its tool ids are given back."""
    client = connect(start(python, CALLS_LONG))
    for _ in range(10):
        number = client.start(text)
        client.wait_started(number)
        client.cancel(number)
        assert client.wait(number).error == errno.EINTR
    assert client.eval("[sys.monitoring.get_tool(i) for i in range(6)]").text == str([None] * 6) + "\n"


def test_interrupt_of_what_is_called(python):
    """That goes on to its own end, and others are served meanwhile."""
    client = connect(start(python, CALLS_LONG))
    number = client.start("calls(time.monotonic() + 5); print('goes on')")
    client.wait_started(number)
    client.cancel(number)
    client.status()  # it has received that
    time.sleep(0.6)
    assert client.eval("1 + 1").text == "2\n"
    answer = client.wait(number)
    assert answer.error == errno.EINTR and "goes on" not in answer.text


STORM = """
import gc, sys, threading, time

turns = [0] * 4

def works(number):
    class Node:
        pass
    while True:
        try:
            nodes = [Node() for _ in range(50)]
            nodes[0].ring = nodes
            for i in range(3000):
                turns[number] += 1
            raise ValueError(nodes)
        except ValueError:
            gc.collect() if turns[number] % 200_000 < 3000 else None

for number in range(4):
    threading.Thread(target=works, args=(number,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print("done", flush=True)
"""


def test_storm(probe, python):
    """Evaluations, interrupts and detaches, while four threads compute, raise and collect: all answers are right."""
    target = python.run_source(STORM)
    commands, dice = Commands(probe, target.pid), random.Random(4)
    end = time.monotonic() + 15
    before, rounds = [0] * 4, 0
    while time.monotonic() < end:
        rounds += 1
        for i in range(10):
            assert commands.eval(f"sum(range({i})), 'a' * {i}") == f"({sum(range(i))}, {'a' * i!r})\n"
        now = [int(turn) for turn in commands.eval("print(*turns)").split()]
        assert all(was <= is_now for was, is_now in zip(before, now)) and sum(now) > sum(before)
        before = now
        with writing(commands.code, "while True: pass\n0\n") as process:
            time.sleep(dice.random() / 5)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=patience(30))
        if rounds % 2:
            eventually(lambda: "the library stays" in detached(commands), what="a detach")
    print(f"{python}: {rounds} rounds")
    eventually(lambda: commands.eval("len(turns)") == "4\n")
    target.stdin.close()
    target.expect("done")
    assert target.process.wait(patience(60)) == 0, target.stderr()


def detached(commands):
    """What is said; nothing while code that was interrupted runs still."""
    try:
        return commands.detach()
    except Refused as refused:
        assert refused.errno == errno.EBUSY, refused
        return ""


def test_gil_off_and_on(probe, python):
    target = python.run("legal.py", 2)
    assert parse_backtrace(probe.read(target.pid, "backtrace"), target.pid).gil == "GIL off"
    assert status(probe, target)["GilHolder"] == "none, the GIL is off"
    target.close()

    target = python.run("legal.py", 2, env={"PYTHON_GIL": "1"})

    def held():
        seen = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)
        holders = [thread for thread in seen.threads.values() if "gil" in thread.state]
        assert len(holders) < 2 and seen.gil != "GIL off"
        return holders and f"GIL held by {holders[0].tid} ({holders[0].name})" == seen.gil
    eventually(held, what="the GIL's holder")
    judge(probe, target, 2)


def test_no_wrong_stack_where_another_traces(probe, python):
    """Its threads can't be stopped then: what isn't sure is marked."""
    strace = shutil.which("strace") or pytest.skip("there is no strace")
    target = python.run("legal.py", 2)
    other = subprocess.Popen([strace, "-f", "-e", "trace=none", "-p", str(target.pid)], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: all(tracers(target.pid)), what="strace")
        right = 0
        for _ in range(max(20, STACKS // 10)):
            seen = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)
            for thread in seen.threads.values():
                if not any("torn" in why for why in thread.unreadable) and \
                        any(function == "walk" for function, _, _ in thread.frames):
                    assert legal.wrong(thread.frames, CALLS) is None, thread.lines
                    right += 1
        print(f"{python}, traced: {right} right")
    finally:
        other.terminate()
        other.wait()
