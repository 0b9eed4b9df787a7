"""backtrace.python and stacks.python.folded, of one process and of all: against what the victims say of themselves."""
import collections
import re
import socket
import subprocess

import pytest

from interpreters import eventually
from sql import settle
from stacks import escape, parse_folded, parse_python
from stopping import hogs_gil
from test_access import run_as

WAIT = "import sys; print('ready'); sys.stdin.read()"

IMPORTED = """\
import sys
def in_module():
    print("ready", flush=True)
    sys.stdin.read()
in_module()
"""


DEADLOCK = """\
import queue, sys, threading

def pool():
    jobs.get()

def takes(first, second):
    with first:
        both.wait()
        with second:
            pass

def blocked():
    with third:
        pass

jobs, both = queue.Queue(), threading.Barrier(2)
first, second, third = threading.Lock(), threading.Lock(), threading.RLock()
third.acquire()
for i in range(4):
    threading.Thread(target=pool, name="pool", daemon=True).start()
threading.Thread(target=blocked, name="blocked", daemon=True).start()
threading.Thread(target=takes, args=(first, second), name="one", daemon=True).start()
threading.Thread(target=takes, args=(second, first), name="other", daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def look(probe, target):
    return parse_python(probe.read(target.pid, "backtrace.python"))


def is_noise(function, file):
    return re.match(r"<frozen (importlib|runpy>)", file) or \
        file.endswith("/threading.py") and ("_bootstrap" in function or function == "Thread.run")


@pytest.mark.parametrize("script", ["nested.py", "generators.py", "nonascii.py", "callbacks.py", "lockwait.py"])
def test_same_as_current_frames(probe, python, script):
    """Each Python frame by its depth, but for how threads begin."""
    target = python.run(script)
    settle(target)
    said = target.stacks()
    seen = {thread.tid: thread for thread in look(probe, target)}
    for tid, thread in said.items():
        frames = [(depth, escape(function), escape(file), line)
                  for depth, (function, file, line) in enumerate(thread["frames"])]
        assert seen[tid].name == escape(thread["name"])
        assert seen[tid].frames == [f for f in frames if f[0] == 0 or not is_noise(f[1], f[2])]


def test_pool_is_folded(probe, python):
    """Threads that wait at the same place stand there once; who is alone stands before them."""
    target = python.run("threads.py", 12, 3)  # every other one enters by another function
    settle(target)
    tids = {name: tid for tid, name in ((tid, t["name"]) for tid, t in target.stacks().items())}
    seen = look(probe, target)
    pools = [[tids[f"worker-{i}"] for i in range(first, 12, 2)] for first in (0, 1)]
    folded = [thread for thread in seen if thread.others]
    assert sorted([thread.tid, *thread.others] for thread in folded) == sorted(map(sorted, pools))
    assert seen[-2:] == folded and len(seen) + 10 == len(target.tids())
    assert " 5 threads as this one:" in probe.read(target.pid, "backtrace.python")


def test_who_holds_others_up_comes_first(probe, python):
    """Who sleeps with the GIL, and who waits for it; then those that run, and those that wait for something else."""
    target = python.run("gil_hog.py")
    eventually(lambda: hogs_gil(target.pid), what="the GIL kept")

    def look_again():
        seen = look(probe, target)
        names = [thread.name for thread in seen]
        return seen[names.index("waiter")].state[0] == "gil-wait" and names

    names = eventually(look_again, what="waiting for the GIL")
    assert set(names[:2]) == {"MainThread", "waiter"}


def test_deadlocked_come_first(probe, python):
    """Then who waits for what another thread holds, and that one; the pool that waits for work comes last."""
    target = python.run_source(DEADLOCK, name="deadlock.py")
    settle(target)
    seen = look(probe, target)
    assert {thread.name for thread in seen[:2]} == {"one", "other"}
    assert {thread.name for thread in seen[2:4]} == {"MainThread", "blocked"}
    assert (seen[-1].name, len(seen[-1].others), len(seen)) == ("pool", 3, 5)


def test_runs_before_those_that_wait(probe, python):
    target = python.run("spinner.py", 2)

    def ordered():
        order = {"gil-wait": 0, "running": 1, "idle": 2}
        places = [0 if "gil" in thread.state and thread.state[0] == "idle" else order[thread.state[0]]
                  for thread in look(probe, target)]
        assert places == sorted(places)
        return 1 in places

    eventually(ordered, what="a running thread")


def test_without_importlib(probe, python):
    """A module that is being imported stands right below who imports it."""
    (python.directory / "waits_imported.py").write_text(IMPORTED)
    target = python.run_source("import waits_imported", name="imports.py")
    (thread,) = look(probe, target)
    assert [function for _, function, _, _ in thread.frames] == ["in_module", "<module>", "<module>"]
    assert thread.frames[-1][0] > 2


def counted(text):
    """As flamegraph.pl reads it: equal stacks add up."""
    stacks = collections.Counter()
    for line in text.splitlines():
        stack, count = re.fullmatch(r"(.*)\s+?(\d+(?:\.\d*)?)", line).groups()
        stacks[stack] += int(count)
    return stacks


def test_folded(probe, python):
    """A line a thread: what flamegraph.pl adds up is what sort | uniq -c counts."""
    target = python.run("threads.py", 12, 3)
    settle(target)
    said = target.stacks()
    text = probe.read(target.pid, "stacks.python.folded")
    stacks = [stack for stack, _ in parse_folded(text)]
    for thread in said.values():
        frames = ["%s (%s:%d)" % (escape(function), escape(file), line) for function, file, line in thread["frames"]]
        assert [frame.replace(";", ":") for frame in reversed(frames)] in stacks
    assert "[native]" not in text and len(stacks) == len(target.tids())
    for text in text, probe.read(target.pid, "stacks.folded"):
        uniq = subprocess.run("sort | uniq -c", shell=True, input=text, capture_output=True, text=True).stdout
        lines = [line.split(None, 1) for line in uniq.splitlines()]
        assert {stack.removesuffix(" 1"): int(count) for count, stack in lines} == counted(text)
        assert max(counted(text).values()) == 6


def processes(text):
    """{pid: (host, rank, text)}, in order."""
    parts = re.split(r"(?m)^host=(.*) pid=(\d+)(?: rank=(\d+))?\n", text)
    assert parts[0] == ""
    return {int(parts[i + 1]): (parts[i], parts[i + 2], parts[i + 3]) for i in range(1, len(parts), 4)}


def test_all(probe, any_python):
    """One after another: by rank, then those without one."""
    targets = [any_python.run("threads.py", 4, 3, env={"RANK": rank} if rank else {}) for rank in ("1", "0", "")]
    for target in targets:
        settle(target)
    seen = processes(probe.read("all", "backtrace.python"))
    mine = [pid for pid in seen if pid in {target.pid for target in targets}]
    assert mine == [targets[1].pid, targets[0].pid, targets[2].pid]
    for target, rank in zip(targets, ("1", "0", None)):
        host, said, text = seen[target.pid]
        assert (host, said) == (socket.gethostname(), rank)
        assert [(t.tid, t.frames, t.others) for t in parse_python(text.removesuffix("\n") + "\n")] == \
            [(t.tid, t.frames, t.others) for t in look(probe, target)]
    folded = counted(probe.read("all", "stacks.python.folded"))
    own = sum((counted(probe.read(target.pid, "stacks.python.folded")) for target in targets), collections.Counter())
    assert all(folded[stack] >= count for stack, count in own.items())


@pytest.mark.attack
def test_all_shows_nobody_elses(any_python, probe, nobody):
    """Who asks sees the processes that they may look at."""
    shared = probe.mount("allow_other")
    own, other = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT, name="others.py")
    said = run_as(nobody, "cat", shared.path / "all" / "backtrace.python")
    assert said.returncode == 0 and own.pid in processes(said.stdout) and other.pid not in processes(said.stdout)
    said = run_as(nobody, "cat", shared.path / "all" / "stacks.python.folded")
    assert "source.py" in said.stdout and "others.py" not in said.stdout
