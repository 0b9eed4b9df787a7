"""Breakpoints where CPython has but a trace function for them (3.10 and 3.11): what is traced and what isn't."""
import pathlib

import pytest

import agent_client as agent
from agents import clients, ended
from commands import Commands
from interpreters import eventually
from test_breakpoints import do, hits, places, program, set_all

pytestmark = pytest.mark.python(minimum=(3, 10), maximum=(3, 11))

THREAD = """
import threading
def leaf(n):
    x = n
    return x
def spin():
    while not spin.stop:
        leaf(1)
        spin.turns += 1
def outer():
    y = 1
    spin()
    y = 2
    return y
def begin():
    spin.stop, spin.turns = False, 0
    begin.thread = threading.Thread(target=outer)
    begin.thread.start()
    while spin.turns < 10:
        pass
def end():
    spin.stop = True
    begin.thread.join()
"""


def line_of(source, text):
    return source.lstrip("\n").splitlines().index(text) + 1


def test_frames_that_run_already(python):
    """A loop that is never left, what it is called from, and what it calls."""
    target, client = program(python, THREAD)
    do(target, "begin()")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", line_of(THREAD, "        spin.turns += 1"), count=3),
            agent.breakpoint(agent.LINE, "source.py", line_of(THREAD, "    y = 2"), captures=["y"]),
            agent.breakpoint(agent.LINE, "source.py", line_of(THREAD, "    return x"), count=2),
            agent.breakpoint(agent.LINE, "source.py", line_of(THREAD, "    y = 1")))
    eventually(lambda: len(hits(target)) == 5)
    do(target, "end()")
    assert sorted(id for id, _, _ in places(target)) == [1, 1, 1, 2, 3, 3]
    assert hits(target)[-1]["captured"] == {"y": "1"}
    do(target, "begin(); end()")
    assert [id for id, _, _ in places(target)][6:] == [4, 2]
    assert ended(target) == 0


CODE = """
import asyncio, functools
def deco(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)
    return wrapper
@deco
def decorated(n):
    return n + 1
class Thing:
    size = 5
    def method(self):
        return self.size
    @property
    def prop(self):
        return self.size
    def __getitem__(self, i):
        return i
    @staticmethod
    def fixed():
        return 1
def generator(n):
    for i in range(n):
        yield i
async def coroutine():
    await asyncio.sleep(0)
    return 7
async def asynchronous():
    yield 1
    await asyncio.sleep(0)
    yield 2
def nested():
    def inner():
        return 3
    return inner()
one = lambda: 4
def short(): return 5
def squares(n): return [
    i * i
    for i in range(n)]
async def drain():
    return [x async for x in asynchronous()]
def thrown():
    g = generator(9)
    next(g)
    try:
        g.throw(KeyError("k"))
    except KeyError as error:
        return error.args
def index(thing):
    for i in range(100):
        thing[i]
"""

RUNS = [  # function, code that runs it, hits at its entry, hits at its return
    ("decorated", "decorated(1)", 1, ["2"]),
    ("wrapper", "decorated(1)", 1, ["2"]),
    ("Thing.method", "Thing().method()", 1, ["5"]),
    ("Thing.prop", "Thing().prop", 1, ["5"]),
    ("Thing.fixed", "Thing.fixed()", 1, ["1"]),
    ("Thing.__getitem__", "index(Thing())", 100, [str(i) for i in range(100)]),
    ("generator", "list(generator(3))", 1, ["None"]),
    ("coroutine", "asyncio.run(coroutine())", 1, ["7"]),
    ("asynchronous", "asyncio.run(drain())", 1, ["None"]),
    ("nested.inner", "nested()", 1, ["3"]),
    ("short", "short()", 1, ["5"]),
]


def test_functions_of_all_kinds(python):
    target, client = program(python, CODE)
    do(target, "index(Thing())")  # as specialized code, on 3.11
    for function, run, entries, returned in RUNS:
        before = len(hits(target))
        set_all(client, agent.breakpoint(agent.FUNCTION, function),
                agent.breakpoint(agent.RETURN, function, captures=["__return__"]), replace=True)
        do(target, run)
        found = hits(target)[before:]
        ids = [row["hit"] for row in found if "__return__" not in row["captured"]]
        assert (function, len(ids)) == (function, entries)
        assert [row["captured"]["__return__"] for row in found if "__return__" in row["captured"]] == returned
    assert ended(target) == 0


def test_lines_of_all_kinds(python):
    target, client = program(python, CODE)
    for text, run, times in (("one = lambda: 4", "one()", 1), ("        yield i", "list(generator(3))", 3),
                             ("    return 7", "asyncio.run(coroutine())", 1),
                             ("    yield 2", "asyncio.run(drain())", 1), ("        return 3", "nested()", 1),
                             ("        return i", "index(Thing())", 100),
                             ("        g.throw(KeyError(\"k\"))", "thrown()", 1),
                             ("    return n + 1", "decorated(1)", 1)):
        before = len(hits(target))
        set_all(client, agent.breakpoint(agent.LINE, "source.py", line_of(CODE, text)), replace=True)
        do(target, run)
        assert (text, len(hits(target)) - before) == (text, times)
    assert ended(target) == 0


def test_results_are_the_same(python):
    """Exceptions that are thrown into generators too."""
    target, client = program(python, CODE)
    set_all(client, agent.breakpoint(agent.FUNCTION, "nobody"))
    do(target, "assert thrown() == ('k',)")
    set_all(client, agent.breakpoint(agent.FUNCTION, "generator"), agent.breakpoint(agent.FUNCTION, "thrown"),
            agent.breakpoint(agent.RAISE, "KeyError"))
    do(target, "assert thrown() == ('k',)")
    assert places(target)[-1][0] == 4
    assert client.switch("exceptions").error == 0
    do(target, "assert thrown() == ('k',) and list(generator(2)) == [0, 1]")
    do(target, "assert asyncio.run(drain()) == [1, 2] and squares(3) == [0, 1, 4]")
    assert ended(target) == 0


def test_deep_recursion(python):
    """From 3.11 on it needs no stack of C, and must not when it is heard of."""
    depth = 100_000 if python.version >= (3, 11) else 5_000
    target, client = program(python,
                             "def deep(n):\n    return deep(n - 1) + 1 if n else 0\ndef leaf():\n    return 1\n")
    do(target, "sys.setrecursionlimit(1 << 30)")
    set_all(client, agent.breakpoint(agent.FUNCTION, "leaf"))
    do(target, f"assert deep({depth}) == {depth}; leaf()")
    do(target, "leaf()")
    assert [name for _, name, _ in places(target)] == ["leaf", "leaf"]
    set_all(client, agent.breakpoint(agent.FUNCTION, "deep", condition="n == 7"))
    do(target, f"assert deep({depth}) == {depth}")
    assert len(hits(target)) == 3
    assert ended(target) == 0


def test_programs_own_trace_function(python):
    target, client = program(python, THREAD + """
events = []
def trace(frame, event, arg):
    if frame.f_code.co_name == "leaf":
        events.append(event)
    return trace
def traced():
    sys.settrace(trace)
    leaf(1)
    same = sys.gettrace() is trace
    sys.settrace(None)
    return same
""")
    set_all(client, agent.breakpoint(agent.FUNCTION, "leaf"))
    do(target, "assert traced() and events == ['call', 'line', 'line', 'return']")
    assert places(target) == []
    do(target, "assert sys.gettrace() is None; leaf(2)")
    assert len(places(target)) == 1
    do(target, "import cProfile; p = cProfile.Profile(); p.enable(); leaf(3); leaf(4); p.disable()")
    do(target, "assert [e.callcount for e in p.getstats() if getattr(e.code, 'co_name', 0) == 'leaf'] == [2]")
    assert len(places(target)) == 3
    do(target, "sys.settrace(trace)")
    answer = client.breakpoints(agent.breakpoint(agent.FUNCTION, "spin"))
    assert "not seen: 1 threads that have a trace function of their own" in answer.text
    assert ended(target) == 0


def test_child_after_fork(python):
    target, client = program(python, THREAD + """
import os
def child():
    number = os.fork()
    if number == 0:
        leaf(1)
        os._exit(leaf(5) if sys.gettrace() is None else 1)
    assert os.waitpid(number, 0)[1] >> 8 == 5
""")
    set_all(client, agent.breakpoint(agent.FUNCTION, "leaf"), agent.breakpoint(agent.FUNCTION, "child"))
    do(target, "child()")
    do(target, "leaf(1)")
    assert [name for _, name, _ in places(target)] == ["child", "leaf"]
    assert ended(target) == 0


@pytest.mark.long
def test_library_leaves(probe, python):
    """Once nothing that is armed is called through it any more."""
    target = python.run_source(THREAD + 'import sys\nprint("ready", flush=True)\n'
                               'for line in sys.stdin:\n    exec(line)\n    print("done", flush=True)\n')
    commands, maps = Commands(probe, target.pid), pathlib.Path(f"/proc/{target.pid}/maps")
    for turn in range(3):
        do(target, "begin()")
        commands.run("breakpoints", "source.py:4 x 5\nleaf()\nsource.py:13\n")
        commands.run("ctl", "detach")
        eventually(lambda: "probe-agent" not in maps.read_text(), what="no mapping")
        do(target, "end()")
    commands.run("breakpoints", "outer() {y}\n")
    do(target, "begin()")  # outer() calls spin() through the library
    commands.run("ctl", "detach")
    do(target, "end()")
    assert "probe-agent" in maps.read_text()
    commands.run("ctl", "attach")
    commands.run("ctl", "detach")
    eventually(lambda: "probe-agent" not in maps.read_text(), what="no mapping")
    do(target, "begin(); end()")
    assert ended(target) == 0
