"""Breakpoints over the life of a process: threads, fork, other interpreters, much at once, detach, exit."""
import os
import time

import pytest

import agent_client as agent
import ring_file
from agents import LIBRARY, NAME, clients, connect, ended
from interpreters import eventually, patience
from test_breakpoints import LOOP, breakpoints, do, hits, places, program, set_all

pytestmark = pytest.mark.python(minimum=(3, 10))

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"


def test_too_many_rows(python):
    target, client = program(python, LOOP)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2))
    begun = time.monotonic()
    do(target, "for i in range(100000): add(i, 1)")
    seconds = time.monotonic() - begun + 2  # in each of which a thousand may have a row
    row = breakpoints(target)[1]
    shown = len(ring_file.rows(target.pid, "hits"))
    assert row["hits"] == 100000 and row["dropped"] > min(50000, 100000 - 1000 * seconds)
    assert row["dropped"] > 0 and shown <= 100000 - row["dropped"]


def test_threads(python):
    """Each hit counts once, whatever thread it is in."""
    target, client = program(python, LOOP + """
import threading
def work():
    for i in range(1000):
        add(i, 1)
def all():
    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
""")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, condition="a % 100 == 0"),
            agent.breakpoint(agent.LINE, "source.py", 4, count=50))
    do(target, "all()")
    assert [row["hits"] for row in breakpoints(target).values()] == [80, 50]
    assert len({row["tid"] for row in hits(target)}) == 8 and len(hits(target)) == 130
    assert ended(target) == 0


def test_nothing_in_a_child(python):
    """A child after fork neither stops nor records, and gets breakpoints of its own."""
    target, client = program(python, LOOP + """
import os, probing
def fork():
    pid = os.fork()
    if not pid:
        try:
            for i in range(100): add(i, 1)
            print(os.getpid(), flush=True)
            sys.stdin.readline()
            probing.start()
            sys.stdin.readline()
            add(1, 1)
            sys.stdin.readline()
        finally:
            os._exit(0)
    return pid
""")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, captures=["a"]),
            agent.breakpoint(agent.LINE, "source.py", 4, action=agent.STOP))
    target.send("pid = fork(); os.waitpid(pid, 0)")
    pid = int(target.readline())
    assert hits(target) == []
    target.send("start")
    record = agent.Record(pid, LIBRARY, NAME)
    eventually(lambda: record.read().state == agent.RUNNING)
    child = connect(target, pid)
    set_all(child, agent.breakpoint(agent.LINE, "source.py", 4))
    target.send("add")
    rows = ring_file.wait_rows(pid, "hits", 1)
    assert [(row["id"], row["lineno"], row["tid"]) for row in rows] == [(1, 4, pid)]
    child.close()
    target.send("end")
    target.expect("done")
    set_all(client, agent.breakpoint(agent.REMOVE, id=2))
    do(target, "add(1, 2)")
    assert places(target) == [(1, "add", 2)]
    assert ended(target) == 0


def interpreters_module(python):
    return "_xxsubinterpreters" if python.version < (3, 13) else "_interpreters"


def test_other_interpreters(python):
    target, client = program(python, f"""
import {interpreters_module(python)} as interpreters
CODE = "exec(compile('def f(x):\\\\n  return x\\\\n', '/w/inner.py', 'exec'))"
before = interpreters.create()
run = getattr(interpreters, "run_string")
run(before, CODE)
""")
    set_all(client, agent.breakpoint(agent.LINE, "inner.py", 2, captures=["x"], condition="x > 1"))
    assert breakpoints(target)[1]["places"] == 1
    do(target, "run(before, 'f(1); f(2)')")
    assert [row["captured"] for row in hits(target)] == [{"x": "2"}]
    do(target, "after = interpreters.create(); run(after, CODE)")
    eventually(lambda: do(target, "run(after, 'f(3)')") or hits(target)[1:], what="a hit in the new one")
    count = len(hits(target))
    do(target, "interpreters.destroy(before); run(after, 'f(4)')")
    assert [row["captured"] for row in hits(target)[count - 1:]] == [{"x": "3"}, {"x": "4"}]
    set_all(client, replace=True)
    do(target, "run(after, 'f(5)'); interpreters.destroy(after)")
    assert len(hits(target)) == count + 1
    assert client.detach().error == 0
    assert ended(target) == 0


BUSY = """
import atexit, threading
def add(a, b):
    c = a + b

    return c
counts = [0] * 4
going = True
def work(n):
    while going:
        add(counts[n], 1)
        counts[n] += 1
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
for thread in threads:
    thread.start()
def stop():  # CPython up to 3.11 may crash by itself where daemon threads run on while it ends
    global going
    going = False
    for thread in threads:
        thread.join()
atexit.register(stop)
"""


@pytest.mark.long
@pytest.mark.deadline(240)
def test_set_and_removed_under_load(python):
    """A hundred times a turn, in turns of many changes, while four threads run there."""
    target, client = program(python, BUSY)
    for turn in range(100 if FULL else 20):
        entries = [agent.breakpoint(agent.LINE, "source.py", 4, condition=f"a == {turn}", id=n) for n in range(1, 26)]
        set_all(client, *entries)
        set_all(client, *(agent.breakpoint(agent.REMOVE, id=n) for n in range(1, 26)))
        set_all(client, *entries, replace=True)
        set_all(client, replace=True)
    assert breakpoints(target) == {}
    tool = "sys.monitoring.get_tool(3)" if python.version >= (3, 12) else None
    assert client.eval(f"{tool} is None").text == "True\n"
    eventually(lambda: client.eval("all(c > 0 for c in counts)").text == "True\n", what="a turn of each thread")
    assert ended(target) == 0


def test_a_thousand_at_once(python):
    target, client = program(python, BUSY)
    said = set_all(client,
                   *(agent.breakpoint(agent.LINE, "source.py", 3 + n % 4, condition=f"a == -{n}", captures=["a"])
                             for n in range(1000)))
    assert said.count("# armed") == 1000
    assert len(breakpoints(target)) == 1000
    set_all(client, *(agent.breakpoint(agent.REMOVE, id=n) for n in range(1, 1001, 2)))
    assert sorted(breakpoints(target)) == list(range(2, 1001, 2))
    assert ended(target) == 0


def test_the_limit(python):
    target, client = program(python, "")
    every = [agent.breakpoint(agent.LINE, f"f{n}.py", 1) for n in range(4097)]
    answer = client.breakpoints(*every)
    assert answer.error == 27 and breakpoints(target) == {}
    assert set_all(client, *every[:4096]).count("# pending") == 4096
    assert client.breakpoints(every[4096]).error == 27
    assert len(breakpoints(target)) == 4096


def test_rows_outlive_the_ring(python):
    """However often others change, those that stay are there."""
    target, client = program(python, LOOP)
    stays = [agent.breakpoint(agent.LINE, "source.py", 2 + 2 * n, text=f"{n} " + "x" * 1500) for n in range(2)]
    set_all(client, *stays)
    for turn in range(40):
        entries = [agent.breakpoint(agent.LINE, "none.py", 1, text=f"{turn}.{n} " + "x" * 1500) for n in range(100)]
        set_all(client, *entries)
        set_all(client, *stays, replace=True)
    assert sorted(breakpoints(target)) == [1, 2]


def test_detach_while_a_condition_runs(python):
    """The thread that is in a condition goes on; the library stays for it."""
    target, client = program(python, LOOP + """
import sys
def slow():
    print("slow", flush=True)
    sys.stdin.readline()
    return True
""")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, condition="slow()"))
    target.send("add(1, 2)")
    target.expect("slow")
    begun = time.monotonic()
    answer = client.detach()
    assert answer.error == 0 and not answer.flags & agent.UNLOADABLE
    assert 1 < time.monotonic() - begun < patience(9)
    target.send("")
    target.expect("done")
    assert ended(target) == 0


def test_exit_with_breakpoints(python):
    target, client = program(python, LOOP + """
import atexit
class Late:
    def __del__(self):
        add(1, 2)
late = Late()
atexit.register(add, 3, 4)
""")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2), agent.breakpoint(agent.RAISE, ""))
    assert ended(target) == 0


def test_signals_are_not_lost(python):
    """A handler that raises while a condition is evaluated interrupts the program, not the condition."""
    target, client = program(python, LOOP + """
import signal, time
said = []
def wait():
    said or said.append(print("waits", flush=True))
    time.sleep(0.01)
    return False
def run():
    try:
        while True:
            add(1, 2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
""")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, condition="wait()"))
    target.send("run()")
    target.expect("waits")
    target.signal(2)
    target.expect("interrupted")
    target.expect("done")
    assert hits(target) == [] and ended(target) == 0


def test_hostile_requests(python):
    target, client = program(python, LOOP)
    good = agent.breakpoint(agent.LINE, "source.py", 2)
    for text in (good[:-1], good[:40], b"\1" * 100, good + b"\0" * 8, bytes(len(good)),
                 good[:8] + b"\xff" * 64 + good[72:],
                 agent.breakpoint(agent.WATCH_ADDRESS, address=3, length=4, text="watch 0x3:4"),
                 agent.breakpoint(9, "x", text="x"), agent.breakpoint(agent.LINE, "a\0b", 3, text="ab"),
                 agent.breakpoint(agent.LINE, "x" * 3000, 3)):
        answer = client.breakpoints(text)
        assert answer.error == 22 and answer.words
    assert breakpoints(target) == {}
    set_all(client, good)
    assert ended(target) == 0
