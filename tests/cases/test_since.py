"""For how long threads and tasks have stood where they stand, against clocks that the programs print: CLOCK_MONOTONIC
is the same for all. What is told is never more than it was, and no less than since the first look."""
import os
import pathlib
import re
import time

import pytest

from interpreters import eventually
from recording import tasks
from sql import ask
from stacks import STANDS, parse_backtrace

LONG = 2.5     # seconds that something stands before a case is content
CLOCKS = 0.05  # [s] by which the clocks of the kernel may differ meanwhile

ASLEEP = """\
import sys, threading, time

def asleep():
    lock = threading.Lock()
    lock.acquire()
    print(time.monotonic(), threading.get_native_id(), flush=True)
    started.set()
    lock.acquire()

started = threading.Event()
threading.Thread(target=asleep, name="asleep", daemon=True).start()
started.wait()
print("ready", flush=True)
sys.stdin.read()
"""

BUSY = """\
import threading, time

def on_a_line():
    while True: pass

def on_lines(n):
    while True:
        n += 1
        n -= 1
        n *= 1

print("ready", flush=True)
print(time.monotonic(), flush=True)
{call}
"""

WAKES = """\
import sys, threading, time

def wakes():
    print(threading.get_native_id(), flush=True)
    started.set()
    while True:
        time.sleep(0.05)

started = threading.Event()
threading.Thread(target=wakes, name="wakes", daemon=True).start()
started.wait()
print("ready", flush=True)
sys.stdin.read()
"""

REUSED = """\
import sys, threading, time

def stand(end):
    print(time.monotonic(), threading.get_native_id(), flush=True)
    end.wait()

print("ready", flush=True)
thread = None
for line in sys.stdin:
    if thread:
        end.set()
        thread.join()
    end = threading.Event()
    thread = threading.Thread(target=stand, args=(end,), daemon=True)
    thread.start()
"""

TASKS = """\
import asyncio, time

async def never(event):
    await event.wait()

async def ticks():
    while True:
        await asyncio.sleep(0.05)

async def block(seconds):
    time.sleep(seconds)

async def main():
    waiting = asyncio.create_task(never(asyncio.Event()), name="waiting")
    await asyncio.sleep(0)
    print("ready", flush=True)
    print(time.monotonic(), flush=True)
    {ends}

asyncio.run(main())
"""


def seconds(words):
    """Those in words that tell for how long; 0: nothing is told."""
    return float(re.search(r"(\d+\.\d+) s$", words)[1]) if words else 0.0


def parse(line):
    began, tid = line.split()
    return float(began), int(tid)


def switches(pid, tid):
    """How often a thread has stopped running."""
    status = pathlib.Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return re.findall(r"ctxt_switches:\t(\d+)", status)


def quiet(pid, tid):
    """When it was seen to have run for the last time, or a bit later: it sleeps for good."""
    while True:
        now, before = time.monotonic(), switches(pid, tid)
        stat = pathlib.Path(f"/proc/{pid}/task/{tid}/stat").read_text()
        time.sleep(0.02)
        if stat.rpartition(")")[2].split()[0] in "ST" and switches(pid, tid) == before:
            return now


def threads(probe, target):
    """{tid: words}, as backtrace has them."""
    seen = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid).threads
    return {tid: thread.stands for tid, thread in seen.items()}


def follow(look, began, standing=LONG):
    """Looks until so long is told; each time it is no more than since `began` and no less than since the end of the
    first look. Returns the words that were told last."""
    first = None

    def check():
        nonlocal first
        before = time.monotonic()
        words = look()
        after = time.monotonic()
        told = seconds(words)
        assert told <= after - began + CLOCKS, words
        if first is not None and before - first > 1.1:
            assert told >= before - first - 0.1 - CLOCKS, (words, before - first)
        first = after if first is None else first
        return words if told >= standing else None

    return eventually(check, what="standing")


def test_asleep(probe, python):
    """A thread that waits for a lock, and is left alone by those who look."""
    target = python.run_source(ASLEEP, name="asleep.py", ready=False)
    began, tid = parse(target.readline())
    target.expect("ready")  # nor does the thread wait for the main one any more
    quiet(target.pid, tid)
    ran = switches(target.pid, tid)
    words = follow(lambda: threads(probe, target)[tid], began)
    assert words.startswith("for ")
    follow(lambda: "for %f s" % float(ask(probe.path / str(target.pid) / "query", "SELECT stands FROM threads WHERE "
                                            f"tid = {tid}")[0]["stands"] or 0), began)
    status = probe.read(target.pid, "threads", tid, "status")
    assert STANDS.fullmatch(re.search(r"^Stands: (.*)$", status, re.M)[1])
    assert switches(target.pid, tid) == ran


def test_never_looked_at(probe, any_python):
    """The kernel knows since when of a thread that nobody has looked at so far."""
    ran = re.search(r"se\.exec_start\s*:\s*([\d.]+)", sched.read_text()) \
        if (sched := pathlib.Path("/proc/self/sched")).exists() else None
    if not ran or time.clock_gettime(time.CLOCK_MONOTONIC_RAW) - float(ran[1]) / 1000 > \
            0.05 * time.clock_gettime(time.CLOCK_MONOTONIC_RAW):
        pytest.skip("this kernel doesn't say when a thread ran last")
    target = any_python.run_source(ASLEEP, name="asleep.py", ready=False)
    began, tid = parse(target.readline())
    target.expect("ready")
    last = quiet(target.pid, tid)
    eventually(lambda: time.monotonic() - last > 2 * LONG)
    asked = time.monotonic()

    def tells():
        """More than since the first look; processors may have been taken from the machine: of that the kernel's clocks
        know nothing."""
        before = time.monotonic()
        told = seconds(threads(probe, target)[tid])
        assert told <= time.monotonic() - began + CLOCKS
        return told >= before - asked + LONG

    eventually(tells, what="the time before the first look")


@pytest.mark.long
@pytest.mark.parametrize("call, words", [("on_a_line()", "seen on this line for"), ("on_lines(0)", "seen ")])
def test_busy(probe, python, call, words):
    """What runs in one function for ever is told from what doesn't run."""
    target = python.run_source(BUSY.format(call=call), name="busy.py")
    began = float(target.readline())

    def look():
        told = threads(probe, target)[target.pid]
        assert not told or told.startswith(words)
        assert seconds(told) <= time.monotonic() - began + CLOCKS
        return seconds(told) >= LONG

    eventually(look, what="a busy loop")
    row, = ask(probe.path / str(target.pid) / "query", "SELECT stands, seen_here FROM threads")
    assert row["stands"] == ""


def test_wakes_up(probe, python):
    """A thread that sleeps for 50 ms again and again doesn't stand, though each look sees it in the same call."""
    target = python.run_source(WAKES, name="wakes.py", ready=False)
    tid = int(target.readline())
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        assert not threads(probe, target)[tid].startswith("for ")
        row, = ask(probe.path / str(target.pid) / "query", f"SELECT stands FROM threads WHERE tid = {tid}")
        assert row["stands"] == ""


def test_stopped(probe, any_python):
    """A process that a signal stopped, busy before."""
    target = any_python.run_source(BUSY.format(call="on_a_line()"), name="busy.py")
    target.readline()
    began = time.monotonic()
    target.signal(19)
    eventually(lambda: target.state() == "T")
    quiet(target.pid, target.pid)
    assert follow(lambda: threads(probe, target)[target.pid], began).startswith("for ")


def test_reused_number(probe, any_python):
    """A thread is told its own time, not that of another that had its number."""
    last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        pytest.skip("the kernel can't be told which number comes next")
    target = any_python.run_source(REUSED, name="reused.py")
    target.send("")
    began, tid = parse(target.readline())
    quiet(target.pid, tid)
    follow(lambda: threads(probe, target)[tid], began)

    def again():
        last.write_text(str(tid - 1))
        target.send("")
        began, now = parse(target.readline())
        return began if now == tid else None

    began = eventually(again, what="the same number")
    quiet(target.pid, tid)
    follow(lambda: threads(probe, target)[tid], began)


def test_waits_for_the_gil(probe, python):
    """Neither the thread that holds the GIL in C has run, nor those that wake up to ask for it."""
    began = time.monotonic()
    target = python.run("gil_hog.py")
    quiet(target.pid, target.pid)
    seen = {}

    def look():
        text = probe.read(target.pid, "backtrace")
        seen.update({t.name: t for t in parse_backtrace(text, target.pid).threads.values()})
        return seen["waiter"].stands if seen["waiter"].state == ["gil-wait"] else ""

    def waits():
        told = look()
        assert seconds(told) <= time.monotonic() - began + CLOCKS
        return seconds(told) >= LONG

    eventually(waits, what="waiting for the GIL")
    assert seen["MainThread"].stands.startswith("for ") and seen["waiter"].stands.startswith("for ")


def task(probe, target, name):
    line = next(line for line in probe.read(target.pid, "tasks").splitlines() if f"({name})" in line)
    told = re.search(r", (%s)\]" % STANDS.pattern, line)
    return told[1] if told else ""


@pytest.mark.python(minimum=(3, 12))
def test_task(probe, python):
    """A task that awaits something, in a loop that runs other tasks."""
    target = python.run_source(TASKS.format(ends="await ticks()"), name="tasks_stand.py")
    began = float(target.readline())
    words = follow(lambda: task(probe, target, "waiting"), began)
    assert words.startswith("seen here for ")

    def asked():  # of whoever answers SQL, who may only look from now on
        query = "SELECT stands, printf('%.1f s', seen_here) AS seen FROM tasks WHERE name = 'waiting'"
        row, = ask(probe.path / str(target.pid) / "query", query)
        assert row["stands"] == ""
        return row["seen"]

    follow(asked, began)


@pytest.mark.python(minimum=(3, 12))
def test_task_of_a_blocked_loop(probe, python):
    """Whose loop's thread sleeps: no task of it has run since."""
    target = python.run_source(TASKS.format(ends="await block(10**6)"), name="tasks_stand.py")
    began = float(target.readline())
    quiet(target.pid, target.pid)
    assert follow(lambda: task(probe, target, "waiting"), began).startswith("for ")
    row, = ask(probe.path / str(target.pid) / "query", "SELECT stands FROM tasks WHERE name = 'waiting'")
    assert LONG <= float(row["stands"]) <= time.monotonic() - began + CLOCKS


def test_the_looks_end(probe, any_python):
    """Nobody is looked at before somebody asks, nor what has ended."""
    other = probe.mount()

    def looks():  # where others read for the daemon, these look
        return any("probefs-since" in tasks(pid) for pid in [other.pid, *other.owners()])

    with any_python.run("nested.py") as target:
        other.read(target.pid, "status")
        assert not looks()
        other.read(target.pid, "backtrace")
        eventually(looks)
    eventually(lambda: not looks(), what="the end of the looks")
