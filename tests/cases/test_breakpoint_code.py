"""Breakpoints in every kind of code, also where it runs already, and where it comes later."""

import pytest

import agent_client as agent
import ring_file
from agents import clients, connect, ended, start
from interpreters import eventually
from test_breakpoints import breakpoints, do, hits, named, places, program, set_all

pytestmark = pytest.mark.python(minimum=(3, 10))

# (source, the line of the breakpoint, what is run, how often it hits and in which functions)
KINDS = {
    "one-line def": ("def f(x): return x + 1", 1, "f(1); f(2)", ["f", "f"]),
    "lambda": ("f = lambda x: x + 1", 1, "f(1); f(2)", ["<lambda>", "<lambda>"]),
    "lambda of several lines": ("f = lambda x: (x +\n  1)", 2, "f(1)", ["<lambda>"]),
    "lambda in a call": ("def f(n):\n  return list(map(lambda x: x + n,\n    [1]))", 2, "f(1)",
                         ["f", "f.<locals>.<lambda>"]),
    "nested function": ("def f(n):\n  def g():\n    return n\n  return g()", 3, "f(1); f(2)", ["f.<locals>.g"] * 2),
    "generator": ("def f(n):\n  for i in range(n):\n    yield i\n", 3, "list(f(3))", ["f"] * 3),
    "one-line generator": ("def f(n): yield n", 1, "list(f(3))", ["f"]),
    "generator expression": ("def f(n):\n  return sum(\n    i for i in range(n))", 3, "f(2)", None),
    "comprehension": ("def f(n):\n  x = [\n    i + 1\n    for i in range(n)]\n  return x", 3, "f(3)", ["f"] * 3),
    "coroutine": ("async def f(n):\n  m = n\n  return m\n", 2, "import asyncio; asyncio.run(f(1))", ["f"]),
    "one-line coroutine": ("async def f(n): return n", 1, "import asyncio; asyncio.run(f(1))", ["f"]),
    "asynchronous generator": ("async def f(n):\n  yield n\n  yield n\nasync def g():\n"
                               "  return [x async for x in f(1)]",
                               3, "import asyncio; asyncio.run(g())", ["f"]),
    "method": ("class C:\n  def m(self):\n    return self\n", 3, "C().m()", ["C.m"]),
    "property": ("class C:\n  @property\n  def p(self):\n    return 1\n", 4, "C().p", ["C.p"]),
    "static and class methods": ("class C:\n  @staticmethod\n  def s():\n    return 1\n", 4, "C.s()", ["C.s"]),
    "decorated": ("import functools\ndef d(f):\n  @functools.wraps(f)\n  def w(*a):\n    return f(*a)\n  return w\n"
                  "@d\ndef f(x):\n  return x\n", 9, "f(1)", ["f"]),
    "cached": ("import functools\n@functools.cache\ndef f(x):\n  return x\n", 4, "f(1); f(1)", ["f"]),
    "closure that only a container has": ("fs = []\ndef f():\n  def g():\n    return 1\n  fs.append(g)\nf()\ndel f\n",
                                          4, "fs[0]()", ["f.<locals>.g"]),
    "recursion": ("def f(n):\n  if n:\n    f(n - 1)\n  return n\n", 4, "f(3)", ["f"] * 4),
    "try": ("def f():\n  try:\n    1 / 0\n  except ZeroDivisionError:\n    x = 1\n  finally:\n    y = 2\n", 5, "f()",
            ["f"]),
    "finally": ("def f():\n  try:\n    pass\n  finally:\n    y = 2\n", 5, "f()", ["f"]),
    "with": ("import contextlib\ndef f():\n  with contextlib.nullcontext():\n    x = 1\n", 4, "f()", ["f"]),
    "match": ("def f(x):\n  match x:\n    case 1:\n      return 2\n", 4, "f(1)", ["f"]),
    "loop": ("def f(n):\n  while n:\n    n -= 1\n", 3, "f(4)", ["f"] * 4),
    "loop's own line": ("def f(n):\n  for i in range(n):\n    pass\n", 2, "f(3)", None),
    "one-line loop": ("def f(n):\n  for i in range(n): n = i\n", 2, "f(3)", ["f"] * 4),
    "one-line while": ("def f(n):\n  while n: n -= 1\n", 2, "f(3)", None),
    "one-line loop over comprehensions": ("def f(n):\n"
                                          "  for i in range(n): n = [i * j for i in [1, 2] for j in [3] if i]\n", 2,
                                          "f(2)", ["f"] * 3),
    "one-line comprehension": ("def f(n):\n  x = [[i * j for i in range(n) if i] for j in range(n)]\n  return x\n", 2,
                               "f(3)", ["f"]),
    "one-line generator expression": ("def f(n):\n  return sum(i for i in range(n))\n", 2, "f(3)",
                                      ["f", "f.<locals>.<genexpr>"]),
    "loop over a call of several lines": ("def f(n):\n  for i in range(\n      n):\n    pass\n", 2, "f(0); f(0)",
                                          ["f"] * 2),
    "call of several lines in a loop": ("def f(n):\n  for i in range(n):\n    print(\n      end='')\n", 3, "f(4)",
                                        ["f"] * 4),
    "call of several lines": ("def f(n):\n  x = max(\n    n,\n    2,\n  )\n  return x\n", 2, "f(1)", ["f"]),
}


# those that CPython 3.10 and 3.11 have more events for, as their own debugger shows
AS_EVER = {"lambda in a call", "comprehension", "loop over a call of several lines", "call of several lines in a loop",
           "call of several lines", "one-line comprehension", "one-line loop over comprehensions"}


@pytest.mark.parametrize("kind", KINDS)
def test_kind(python, kind):
    source, line, run, where = KINDS[kind]
    target, client = program(python, source)
    said = set_all(client, agent.breakpoint(agent.LINE, "source.py", line))
    assert said.endswith("# armed\n")
    do(target, run)
    found = places(target)
    assert {number for _, _, number in found} == {line}
    if where is not None and (python.version >= (3, 12) or kind not in AS_EVER):
        where = [named(python, function) for function in where]
        assert [func for _, func, _ in found] == where
    assert ended(target) == 0


LOOPS = """
import threading, time
def spin(out):
    while True:
        x = len(out)
        time.sleep(0.001)
def waits(out):
    def inner():
        while True:
            yield len(out)
    it = inner()
    while True:
        next(it)
        time.sleep(0.001)
async def loops(out):
    import asyncio
    while True:
        await asyncio.sleep(0.001)
        x = len(out)
out = []
for f, a in ((spin, (out,)), (waits, (out,))):
    threading.Thread(target=f, args=a, daemon=True).start()
import asyncio
threading.Thread(target=asyncio.run, args=(loops(out),), daemon=True).start()
"""


ONE_LINE = """
import threading, time
def spin(out):
    while True: time.sleep(0.001)
def generates():
    while True: yield time.sleep(0.001)
def draws(out):
    for x in (time.sleep(0.001) for i in iter(int, 1)): pass
def asks(out):
    any(x for x in generates())
for f in spin, draws, asks:
    threading.Thread(target=f, args=([],), daemon=True).start()
"""


@pytest.mark.parametrize("line, funcs", [(3, {"spin"}), (5, {"generates"}), (7, {"draws", "draws.<locals>.<genexpr>"})])
def test_one_line_that_runs_already(python, line, funcs):
    """A loop that stands on one line begins it again at each turn."""
    target, client = program(python, ONE_LINE)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", line, count=12))
    ring_file.wait_rows(target.pid, "hits", 12)
    eventually(lambda: breakpoints(target)[1]["state"] == "done")
    assert {(row["func"], row["lineno"]) for row in hits(target)} == {(named(python, func), line) for func in funcs}
    assert ended(target) == 0


@pytest.mark.parametrize("line, func", [(4, "spin"), (9, "waits.<locals>.inner"), (12, "waits"), (17, "loops")])
def test_code_that_runs_already(python, line, func):
    """Loops that are never left."""
    target, client = program(python, LOOPS)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", line, count=3))
    ring_file.wait_rows(target.pid, "hits", 3)  # the last one is written after that it is done
    eventually(lambda: breakpoints(target)[1]["state"] == "done")
    assert [(row["func"], row["hit"]) for row in hits(target)] == [(named(python, func), i) for i in (1, 2, 3)]
    assert ended(target) == 0


def test_module_that_runs(python):
    target = start(python, """
        import probing, sys, time
        print("ready", flush=True)
        i = 1
        while not i or i < 1 << 40:
            i += 1
            time.sleep(0.001)
    """)
    client = connect(target)
    set_all(client,
            agent.breakpoint(agent.LINE, "source.py", 6, captures=["i > 0", "[i - i for _ in range(2)]"], count=2))
    rows = ring_file.wait_rows(target.pid, "hits", 2)
    assert {(row["func"], row["captured"])
            for row in rows} == {("<module>", '{"i > 0": "True", "[i - i for _ in range(2)]": "[0, 0]"}')}


def test_import_and_reload(python):
    target, client = program(python, "import importlib")
    (python.directory / "loaded_later.py").write_text("X = 1\n\ndef f():\n    return X\n")
    set_all(client, agent.breakpoint(agent.LINE, "loaded_later.py", 4),
            agent.breakpoint(agent.FUNCTION, "loaded_later.f"),
            agent.breakpoint(agent.LINE, "loaded_later.py", 1, captures=["__name__"]))
    assert {row["state"] for row in breakpoints(target).values()} == {"pending"}
    do(target, f"sys.path.insert(0, {python.path('')!r}); import loaded_later as m; m.f()")
    expected = [(3, "<module>", 1), (2, "f", 3), (1, "f", 4)]
    assert places(target) == expected
    assert {row["state"] for row in breakpoints(target).values()} == {"armed"}
    do(target, "importlib.reload(m).f()")
    assert places(target) == 2 * expected
    assert ended(target) == 0


def test_code_that_comes_and_goes(python):
    """What is armed in code goes with it."""
    target, client = program(python, "import gc")
    set_all(client, agent.breakpoint(agent.FUNCTION, "passing", count=1), agent.breakpoint(agent.LINE, "made.py", 2))
    made = r"exec(compile('if __name__ is None:\n  print()\ndef passing(): pass\npassing()', 'made.py', 'exec'), {})"
    do(target, f"for i in range(300): {made}")
    do(target, "gc.collect()")
    if python.version < (3, 12):
        do(target, made)  # nobody tells of an end there: what has ended is noticed when more comes
    rows = breakpoints(target)
    assert (rows[1]["state"], rows[1]["hits"]) == ("done", 1)
    assert rows[1]["places"] <= 2 and rows[2]["places"] <= 2
    assert ended(target) == 0


def test_files(python):
    """A file is found by its end, on whole parts; all of one name are armed, and that is said."""
    target, client = program(python, r"""
for path in ("/w/one/same.py", "/w/two/oo/same.py", "/w/two/notsame.py", "rel/same.py"):
    exec(compile("def f_%d():\n  return 1" % path.count("o"), path, "exec"))
""")
    said = set_all(client, agent.breakpoint(agent.LINE, "same.py", 2), agent.breakpoint(agent.LINE, "oo/same.py", 2),
                   agent.breakpoint(agent.LINE, "/w/two/oo/same.py", 2),
                   agent.breakpoint(agent.LINE, "/x/rel/same.py", 2), agent.breakpoint(agent.LINE, "o/same.py", 2))
    notes = [line.partition("# ")[2] for line in said.splitlines()]
    assert notes == ["armed, in 3 files of that name", "armed", "armed", "armed",
                     "pending, no code of such a file was loaded when it was set"]
    assert [row["places"] for row in breakpoints(target).values()] == [3, 1, 1, 1, 0]


def test_compiled_modules(python):
    """What is machine code has lines that nobody sees: that is said, and that it costs, which it doesn't, isn't."""
    target, client = program(python, r"""
import sys, types
here = types.ModuleType("here")   # as Nuitka leaves one
here.__file__, here.__compiled__, here.work = "/w/here.py", object(), len
sys.modules["here"] = here
there = types.ModuleType("pack.there")   # as Cython does, and C
there.__file__, there.work = "/w/pack/there.cpython-399-x86_64-linux-gnu.so", len
sys.modules["pack.there"] = there
""")
    line, call = ("pending, its module is compiled (Nuitka, Cython, C): no line of it is seen",
                  "pending, it is compiled (Nuitka, Cython, C): no call of it is seen")
    lines = {"here.py": line, "/w/here.py": line, "there.pyx": line, "pack/there.py": line, "other/there.py": None}
    calls = {"here.work": call, "there.work": call, "w.pack.there.work": call, "work": call, "here.rest": None}
    said = set_all(client, *(agent.breakpoint(agent.LINE, where, 3) for where in lines),
                   *(agent.breakpoint(agent.FUNCTION, where) for where in calls))
    notes = [line.partition("# ")[2] for line in said.splitlines()]
    wanted = [*lines.values(), *calls.values()]
    assert [note if note in (line, call) else None for note in notes] == wanted, notes


def test_texts_of_one_name(python):
    """Code of one file name may come from several texts: all that has the line is armed."""
    target, client = program(python, r"""
def load(text, path="texts.py"):
    space = {}
    exec(compile(text, path, "exec"), space)
    return space.popitem()[1]
first = load("def f(x):\n  y = x\n  return y\n")
again = load("def f(x):\n  y = x\n  return y\n")
later = load("\ndef g(x):\n  return x\n")
longer = load("def h(x):\n  y = [\n\n    x, x]\n  return y\n")
made = load("def k(x):\n  x += 1\n  return x\n", "<string>")
other = load("\n\ndef k(x): return x\n", "<string>")
""")
    said = set_all(client, agent.breakpoint(agent.LINE, "texts.py", 3), agent.breakpoint(agent.LINE, "<string>", 3))
    assert [line.partition("# ")[2] for line in said.splitlines()] == ["armed", "armed"]
    for name in "first", "again", "later", "longer", "made", "other":
        do(target, f"{name}(1)")
    assert places(target) == [(1, "f", 3), (1, "f", 3), (1, "g", 3), (1, "h", 4), (2, "k", 3), (2, "k", 3)]
    assert ended(target) == 0


def test_reloaded_file(python):
    """What the program still holds of a file that has changed since."""
    target, client = program(python, "import importlib")
    file = python.directory / "changes.py"
    file.write_text("def f():\n  x = 1\n  x = 2\n  return x\n")
    do(target,
       f"sys.dont_write_bytecode = True; sys.path.insert(0, {python.path('')!r}); import changes as m; old = m.f")
    file.write_text("# changed\n\ndef f():\n  return 3\n")
    do(target, "importlib.reload(m)")
    set_all(client, agent.breakpoint(agent.LINE, "changes.py", 4))
    do(target, "old(); m.f()")
    assert places(target) == [(1, "f", 4), (1, "f", 4)]
    assert ended(target) == 0


def test_lines_without_code(python):
    target, client = program(python, """
# a comment
def f(x):
    '''docs'''
    # before

    return x
""")
    said = set_all(client, *(agent.breakpoint(agent.LINE, "source.py", line) for line in (3, 4, 5, 6, 100)))
    notes = [line.partition("# ")[2] for line in said.splitlines()]
    used = "armed, line 6 is used, the next one with code"
    assert notes == [used, used, used, "armed", "pending, no code is at that line or behind it"]
    do(target, "f(1)")
    assert places(target) == [(1, "f", 6), (2, "f", 6), (3, "f", 6), (4, "f", 6)]


def test_code_that_the_collector_was_told_to_forget(python):
    """gc.freeze(), as servers that fork have it."""
    target, client = program(python, """
import functools, gc
def f():
    return 1
class C:
    @functools.cached_property
    def p(self):
        return 2
    @classmethod
    def c(cls):
        return [3 for _ in "a"]
gc.freeze()
""")
    said = set_all(client, agent.breakpoint(agent.LINE, "source.py", 3), agent.breakpoint(agent.FUNCTION, "p"),
                   agent.breakpoint(agent.RETURN, "source.C.c"))
    assert said.count("# armed\n") == 3
    do(target, "f(); C().p; C.c()")
    assert [number for number, *_ in places(target)] == [1, 2, 3]
    assert ended(target) == 0


def test_the_compiler_warns_nobody(python):
    target, client = program(python, "def f(x):\n    return x\n")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, condition="x is 1",
                                     captures=["'\\d'", "x is 1 or x == '\\w'"]))
    do(target, "f(1)")
    assert len(hits(target)) == 1
    assert ended(target) == 0 and target.stderr() == ""


def test_names_in_expressions(python):
    """What an expression names is what it would be in the code there."""
    target, client = program(python, """
G = "global"
def outer(a):
    cell = [a]
    def inner(b):
        local = b
        return cell, local
    return inner
class C:
    attribute = "class"
    seen = attribute
""")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 6, captures=[
        "cell", "local", "G", "len", "[x for x in cell if x is not local]", "(lambda: local)()", "{'if': local}",
        "G[:3]", "(y := local)", "max(x.__class__.__name__ for x in (1,))", "cell if local else G"]))
    do(target, "outer(1)(2)")
    assert hits(target)[0]["captured"] == {
        "cell": "[1]", "local": "2", "G": "'global'", "len": "<built-in function len>",
        "[x for x in cell if x is not local]": "[1]", "(lambda: local)()": "2", "{'if': local}": "{'if': 2}",
        "G[:3]": "'glo'", "(y := local)": "2", "max(x.__class__.__name__ for x in (1,))": "'int'",
        "cell if local else G": "[1]"}
    set_all(client, agent.breakpoint(agent.LINE, "body.py", 3, captures=["x", "G", "len([1])", "[x for _ in 'a']"]))
    do(target, r"exec(compile('class D:\n  x = 5\n  y = x', 'body.py', 'exec'))")
    assert hits(target)[1]["captured"] == {"x": "5", "G": "'global'", "len([1])": "1", "[x for _ in 'a']": "[5]"}
    assert ended(target) == 0
