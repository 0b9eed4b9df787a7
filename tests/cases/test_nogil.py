"""Free-threaded CPython: all of it is read from outside, and nothing done inside. Where it only shows what interpreters
with a GIL show, the cases of those try it too: @pytest.mark.python(free_threaded=True)."""
import shutil
import subprocess

import pytest

import builds
from interpreters import eventually
from stacks import parse_backtrace
from test_consistency import CALLS, STACKS, judge
from targets import legal
from test_watch_hw import tracers

pytestmark = pytest.mark.python(free_threaded="only")


def status(probe, target):
    return dict(line.split(": ", 1) for line in probe.read(target.pid, "status").splitlines() if ": " in line)


def test_is_looked_at_and_not_acted_in(probe, python):
    target = python.run_source(builds.SCRIPT, name="tried.py")
    assert status(probe, target)["Implementation"] == "CPython, free-threaded"
    builds.looked_at(probe, target)
    words = builds.not_acted_in(probe, target)
    assert "free-threaded" in words and "backtrace, locals, globals, tasks, locks" in words
    builds.ends(target)
    builds.note("free-threaded", python.version, look="yes", write="no", breakpoints="no")


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
