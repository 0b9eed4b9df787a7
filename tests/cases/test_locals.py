"""locals, against what the victims' own repr() and f_locals say."""
import errno
import json
import os
import re
import subprocess
import time

import pytest

import sql
from interpreters import OLDEST, eventually


def parse(text):
    """[(headline, {name: text}), ...]; what is cut or unreadable has no " = " and is kept as is."""
    frames = []
    for line in text.splitlines():
        if line.startswith("#"):
            frames.append((line, {}))
        elif line.startswith("    "):
            name, _, value = line[4:].partition(" = ")
            assert name not in frames[-1][1], line
            frames[-1][1][name] = value
        else:
            frames.append((line, None))
    return frames


def function(head):
    return re.match(r"#\d+  (.*) \(.*\)$", head)[1].rpartition(".")[2]


@pytest.mark.python(minimum=OLDEST, free_threaded=True)
def test_values(probe, python):
    target = python.run("values.py", ready=False)
    expected = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    frames = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    seen = [names for head, names in frames if function(head) == "frame"]
    assert len(seen) == len(expected) > 6
    for shown, wanted in zip(seen, expected):
        shown.pop("rest")
        assert len(wanted) > 60
        assert shown == wanted


NUMPY = """
import json, sys
import numpy as np

def frame(name, values):
    local = {f"v{i}": value for i, value in enumerate(values)}
    said = {name: f"numpy.{type(v).__name__}({v!r})" for name, v in local.items()}
    exec("; ".join(f"{name} = local['{name}']" for name in local) + "; go()",
         {"local": local, "go": lambda: (print(json.dumps(said), flush=True), sys.stdin.read())})

np.set_printoptions(legacy="1.21")
values = [np.bool_(True), np.bool_(False)]
for kind in "int8 int16 int32 int64 longlong".split():
    info = np.iinfo(kind)
    values += [getattr(np, kind)(n) for n in (info.min, -1, 0, info.max)]
for kind in "uint8 uint16 uint32 uint64 ulonglong".split():
    values += [getattr(np, kind)(n) for n in (0, np.iinfo(kind).max)]
for kind in "float16 float32 float64".split():
    info = np.finfo(kind)
    values += [getattr(np, kind)(n) for n in (0.0, -0.0, 1, 0.1, -1 / 3, 1e-3, 12345.6, 2.0, 0.125, info.max, info.tiny,
                                              info.smallest_subnormal, float("inf"), float("nan"))]
values += [getattr(np, kind)(1 - 0.1j) for kind in ("complex64", "complex128")]
frame("values", values)
"""


def test_numpy_scalars(probe, any_python):
    if subprocess.run(any_python.command("-c", "import numpy"), capture_output=True,
                      env={"PATH": os.environ["PATH"]}).returncode:
        pytest.skip(f"{any_python} has no numpy")
    target = any_python.run_source(NUMPY, name="scalars.py", ready=False)
    said = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    frames = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    seen = next(names for head, names in frames if "v0" in names)
    assert len(said) > 60
    assert {name: seen[name] for name in said} == said


TENSORS = """
import json, sys
import torch

class Mine(torch.Tensor):
    pass

v0 = torch.zeros(64, 32)
v1 = torch.tensor(1.5, dtype=torch.float64)
v2 = torch.zeros(0, 3, dtype=torch.int64)
v3 = torch.zeros(1, 2, 3, 4, 5, 6, 7, dtype=torch.bool)
v4 = v0.t()[3:]
v5 = torch.nn.Linear(4, 5).weight
v6 = torch.zeros(3, dtype=torch.bfloat16).as_subclass(Mine)
v7 = torch.zeros(5, 6, device="meta")
v8 = [torch.zeros(2, dtype=torch.complex64)]
said = {name: f"{str(v.dtype)[6:]}{list(v.shape)} {v.device}" for name, v in globals().items()
        if isinstance(v, torch.Tensor)}
said["v8"] = "[complex64[2] cpu]"
print("ready", flush=True)
print(json.dumps(said), flush=True)
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.deadline(240)
def test_tensors(probe, any_python):
    if subprocess.run(any_python.command("-c", "import torch"), capture_output=True,
                      env={"PATH": os.environ["PATH"]}).returncode:
        pytest.skip(f"{any_python} has no torch")
    target = any_python.run_source(TENSORS, name="tensors.py", ready=False)
    target.expect("ready", 120)
    said = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    frames = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    seen = next(names for head, names in frames if "v0" in names)
    assert len(said) == 9
    assert {name: seen[name].partition(" {")[0] for name in said} == said


def comparable(said):
    """repr() of some things tells more than can be known from outside."""
    if said.startswith("<module "):
        return re.match(r"<module '[^']*'", said)[0] + ">"
    return said


GENERATORS = """
import asyncio, inspect, json, os, sys, types

def plain(n):
    yield n
    yield n + 1

def delegating(n):
    x = n
    yield from plain(x)

@types.coroutine
def pause():
    yield "paused"

async def coroutine():
    await pause()
    await pause()

async def asynchronous():
    yield 1
    yield 2

class Owner:
    def method(self):
        for i in range(9):
            if i:
                (yield
                 i)

def send(one, times):
    for _ in range(times):
        one.send(None)
    return one

def advance(one, times):
    for _ in range(times):
        try:
            one.asend(None).send(None)
        except (StopIteration, StopAsyncIteration):
            pass
    return one

def closed(one):
    one.close()
    return one

def raised():
    try:
        yield
    finally:
        1 / 0

def failed(one):
    next(one)
    try:
        one.throw(ValueError)
    except ZeroDivisionError:
        return one

def expected(one):
    kind = next(k for k in ("gi", "cr", "ag") if hasattr(one, k + "_frame"))
    frame = getattr(one, kind + "_frame")
    if not frame:
        state = "finished"
    elif getattr(one, kind + "_running"):
        state = f"running at {frame.f_code.co_filename}:{frame.f_lineno}"
    elif frame.f_lasti < 0 or one in new:
        state = "not started"
    else:
        state = f"suspended at {frame.f_code.co_filename}:{frame.f_lineno}"
    return f"{repr(one)[:-1]}, {state}>"

def running():
    yield
    a = one
    b = send(plain(1), 1)
    tell(), sys.stdin.read()

def tell():
    print(json.dumps({**{name: expected(value) for name, value in values.items()}, "running": expected(one)}),
          flush=True)

new = [plain(0), coroutine(), asynchronous()]
values = {
    "new": new[0], "new_coroutine": new[1], "new_asynchronous": new[2], "first": send(plain(1), 1),
    "second": send(plain(1), 2), "delegating": send(delegating(1), 1), "delegating_on": send(delegating(1), 2),
    "coroutine": send(coroutine(), 1), "coroutine_on": send(coroutine(), 2), "asynchronous": advance(asynchronous(), 1),
    "asynchronous_on": advance(asynchronous(), 2), "asynchronous_ended": advance(asynchronous(), 3),
    "closed": closed(send(plain(1), 1)), "never": closed(plain(1)), "failed": failed(raised()),
    "method": send(Owner().method(), 1), "expression": send((i for i in "abc"), 2),
}
one = send(running(), 1)

def hold(*, %s, running):
    running.send(None)

hold(**values, running=one)
"""


@pytest.mark.python(minimum=OLDEST, free_threaded=True)
def test_generators(probe, python):
    """A generator's text says where it stands, as its own attributes do."""
    names = re.findall(r'"(\w+)": (?:new|send|closed|advance|failed)', GENERATORS)
    target = python.run_source(GENERATORS % ", ".join(names), name="standing.py", ready=False)
    said = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    frames = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    shown = next(names for head, names in frames if function(head) == "hold")
    assert len(said) == len(shown) == 18
    assert shown == said


CELLS = """
import json, sys

class Base:
    def __init__(self, value):
        self.value = value
        captured = [value]
        unset = None
        del unset

        def inner(argument):
            nonlocal captured
            captured = captured + [argument]
            later = lambda: unset
            made = [say(x) for x in (1,) if captured]
            return __class__, made

        def say(x):
            frames = [f for f in iter_frames()]
            print(json.dumps(frames), flush=True)
            sys.stdin.read()
            return captured

        inner("arg")

def iter_frames():
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_name in ("inner", "say", "__init__"):
            yield [frame.f_code.co_name, {k: repr(v) for k, v in frame.f_locals.items()
                                          if isinstance(v, (int, str, list, type)) and k not in ("frames", "made")}]
        frame = frame.f_back

Base(5)
"""


@pytest.mark.python(minimum=OLDEST)
def test_cells(probe, python):
    """Free variables and cells show what is in them, under their names, as locals() has it."""
    target = python.run_source(CELLS, name="cells.py", ready=False)
    said = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    frames = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    shown = [(function(head), names) for head, names in frames if function(head) in ("inner", "say", "__init__")]
    assert [name for name, _ in shown] == [name for name, _ in said] == ["say", "inner", "__init__"]
    for (name, names), (_, wanted) in zip(shown, said):
        assert {key: names.get(key) for key in wanted} == wanted, name
        assert "unset" not in names
    assert shown[0][1]["captured"] == shown[1][1]["captured"] == "[5, 'arg']"
    assert shown[1][1]["__class__"] == "<class '__main__.Base'>"


NOT_SHOWN = {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__",
             "__cached__", "__builtins__", "__annotations__"}
# repr() of what was the same at both looks, but of no fixed text
MOVING = re.compile(r"^<(tuple_iterator|list_iterator|frame|_io\.)|^<class |^\{.*<function|^\[<")


def test_bindings(probe, python):
    target = python.run("bindings.py", ready=False)
    said = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    frames = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    assert function(frames[0][0]) == "describe"
    frames = frames[1:]
    assert [function(head) for head, _ in frames] == [name for name, _ in said]
    for (head, shown), (name, wanted) in zip(frames, said):
        wanted = {k: comparable(v) for k, v in wanted.items()
                  if k not in NOT_SHOWN or name not in ("<module>",)}
        free = {"first"} if name == "Body" else set()  # f_locals of a class leaves that out
        assert set(shown) == set(wanted) | free, head
        for key, text in wanted.items():
            if not MOVING.match(text) and len(text) < 200:
                told = re.sub(r"^(<generator .*), running at .*>$", r"\1>", shown[key])
                assert told == text, (head, key)
    shown = dict((function(head), names) for head, names in frames)
    assert shown["innermost"]["целое"] == "5"
    assert "never" not in shown["innermost"] and "unbound" not in shown["innermost"]
    assert shown["enclosing"]["cell"] == shown["inner"]["cell"] == "'in a cell!'"
    assert shown["inner"]["cell_argument"] == "'sent'"
    assert shown["coroutine"]["local"] == "42"
    assert shown["executed"] == {"x": "3", "y": "2"}


def test_one_frame(probe, python):
    target = python.run("bindings.py", ready=False)
    target.readline()
    eventually(lambda: target.state() == "S", what="reading")
    thread = probe.path / str(target.pid) / "threads" / str(target.pid)
    frames = parse(probe.read(thread / "locals"))
    depths = sorted(map(int, os.listdir(thread / "frames")))
    assert depths == list(range(len(frames)))
    for depth, (head, names) in enumerate(frames):
        assert head.startswith(f"#{depth}  ")
        lines = probe.read(thread / "frames" / str(depth) / "locals").splitlines()
        assert lines == [f"{name} = {value}" for name, value in names.items()]
    with pytest.raises(OSError) as raised:
        probe.read(thread / "frames" / str(len(frames)) / "locals")
    assert raised.value.errno == errno.ENOENT


MANY_NAMES = """
import sys
for i in range(500):
    globals()[f"name{i}"] = i
print("ready", flush=True)
sys.stdin.read()
"""


def test_many_names_are_cut(probe, python):
    target = python.run_source(MANY_NAMES, name="many.py")
    (head, names), = parse(probe.read(target.pid, "threads", target.pid, "locals"))
    more = names.popitem()[0]
    assert len(names) == 200
    assert re.match(r"\.\.\. \(\d+ more\)$", more)
    assert int(more.split("(")[1].split()[0]) == 500 + 2 - 200  # sys and i
    assert names["name7"] == "7"


def test_deep_recursion_is_cut(probe, python):
    target = python.run("recursion.py")
    tid = next(tid for tid, thread in target.stacks().items() if thread["name"] == "deep")
    text = probe.read(target.pid, "threads", tid, "locals")
    assert re.search(r"^\.\.\. \(\d+ more frames\)$", text, re.M)
    assert len(text) < 1 << 20


# Every frame's `own` names its function: a value of another frame would show.
CALLS = """
import sys, threading
print("ready", flush=True)
def a(own="a", depth=0):
    kept = own
    return b() + c()
def b(own="b", depth=1):
    kept = own
    return c() + 1
def c(own="c", depth=2):
    kept = own
    return len([own for _ in range(3)])
while True:
    a()
"""


@pytest.mark.python(free_threaded=True)
@pytest.mark.long
def test_of_one_moment(probe, python):
    target = python.run_source(CALLS, name="calls.py")
    path = probe.path / str(target.pid) / "threads" / str(target.pid) / "locals"
    seen = set()

    def look():
        for head, names in parse(path.read_text()):
            name = function(head)
            if name in ("a", "b", "c"):
                seen.add(name)
                assert names["own"] == repr(name)
                assert names.get("kept", repr(name)) == repr(name)
                assert names["depth"] == str("abc".index(name))
        return seen == {"a", "b", "c"}

    for _ in range(150):
        look()
        time.sleep(0.002)  # it runs in between
    eventually(look, what="each function")


@pytest.mark.long
def test_damaged_memory(probe, python):
    """Whatever a target does to itself is a text, or an error, and soon."""
    target = python.run("scribbler.py", 7)
    tids = [tid for tid in os.listdir(f"/proc/{target.pid}/task")]
    for _ in range(2):
        for tid in tids:
            for file in "locals", "frames/0/locals", "frames/1/locals", "frames/1/source":
                try:
                    assert len(probe.read(target.pid, "threads", tid, file)) < 4 << 20
                except OSError as error:
                    assert error.errno in (errno.ESRCH, errno.ENOENT, errno.ETIMEDOUT, errno.EIO,
                                           errno.EAGAIN)
        if target.process.poll() is not None:
            target = python.run("scribbler.py", 8)
            tids = [tid for tid in os.listdir(f"/proc/{target.pid}/task")]


HELD = """
import collections, sys, types

class Node:
    def __init__(self, **own):
        self.__dict__.update(own)

class Slots:
    __slots__ = ("first", "other")

class Table(dict):
    pass

class Loud:
    def __repr__(self):
        raise SystemExit("repr was called")
    __getattr__ = __eq__ = __hash__ = __repr__

def hold(n, empty):
    slots = Slots()
    slots.first = [1, (2, "x")]
    both = Table(a=1, b=[2])
    both.note = "n"
    keys = {"it's": 1, 'a "quote"': [2], 3: "three", 2.5: 4, b"b": 5, None: 6, True: 7, (1, 2): [8], "x" * 300: 9,
            "\\n]": 10}
    node = Node(kids=[Node(meta={"k": {"deep": "here"}}), slots], été={"é": 1}, **{"no name": 11})
    only = {n * 1000}
    proxy = types.MappingProxyType({"p": node})
    many, module, loud, large = list(range(1000)), collections, [Loud()], list(range(9000))
    print("ready", flush=True)
    sys.stdin.read()

hold(5, {})
"""


def test_one_level_of_a_value(probe, python):
    """frames/<depth>/value: each path that is shown leads to what is shown, and no code runs for it."""
    target = python.run_source(HELD)
    eventually(lambda: target.state() == "S", what="reading")
    frames = probe.path / str(target.pid) / "threads" / str(target.pid) / "frames"
    depth, = (path.parent for path in frames.glob("*/locals") if path.read_text().startswith("n = 5\n"))

    def ask(path):
        with open(depth / "value", "r+b", buffering=0) as file:
            file.write(path.encode() + b"\n")
            return file.read(1 << 20).decode().splitlines()

    def refused(path):
        with open(depth / "value", "r+b", buffering=0) as file:
            with pytest.raises(OSError) as raised:
                file.write(path.encode() + b"\n")
            return raised.value.errno, file.read(1 << 20).decode().strip().removeprefix("error: ")

    assert ask("") == (depth / "locals").read_text().splitlines()
    assert ask("n") == ["n = 5"] and ask("empty") == ["empty = {}"] and ask("n from 1") == []
    assert ask("slots") == ["slots.first = [1, (2, 'x')]"]
    assert ask("slots.first[-1]") == ["slots.first[-1][0] = 2", "slots.first[-1][1] = 'x'"]
    assert ask("slots.first[1][1]") == ["slots.first[1][1] = 'x'"]
    assert ask("both") == ["both['a'] = 1", "both['b'] = [2]", "both.note = 'n'"]
    assert ask("node.kids[0].meta['k']") == ["node.kids[0].meta['k']['deep'] = 'here'"]
    assert ask('node.kids{0}.meta["k"]') == ["node.kids{0}.meta[\"k\"]['deep'] = 'here'"]
    assert [line.partition(" = ")[0] for line in ask("node")] == ["node.kids", "node.été", "node{2}"]
    assert ask("node.été") == ["node.été['é'] = 1"] and ask("node{2}") == ["node{2} = 11"]
    assert ask("only") == ["only{0} = 5000"] and ask("only{0}") == ["only{0} = 5000"]
    assert ask("proxy['p'].kids[1].first[0]") == ["proxy['p'].kids[1].first[0] = 1"]
    assert "module.deque = <class 'collections.deque'>" in ask("module")
    assert ask("module.deque") == ["module.deque = <class 'collections.deque'>"]
    assert ask("loud[0]")[0].startswith("loud[0] = <__main__.Loud object")
    keys = ask("keys")
    assert [line.partition(" = ")[0] for line in keys] == \
        ["""keys["it's"]""", """keys['a "quote"']""", "keys[3]", "keys[2.5]", "keys[b'b']", "keys[None]",
         "keys[True]", "keys{7}", "keys{8}", "keys['\\n]']"]
    for line in keys + ask("node") + ask("") + ask("proxy"):
        path, _, value = line.partition(" = ")
        assert any(one == line or one.startswith((path + ".", path + "[", path + "{")) for one in ask(path)), line
    assert ask("keys{7}") == ["keys{7}[0] = 8"]
    first, rest = ask("many"), ask("many from 990")
    assert first[:2] == ["many[0] = 0", "many[1] = 1"] and first[200:] == ["... (more: many from 200)"]
    assert rest == [f"many[{i}] = {i}" for i in range(990, 1000)]
    assert ask("many from 200")[0] == "many[200] = 200" and ask("many[-1]") == ["many[-1] = 999"]
    assert ask("from 2")[0] == (depth / "locals").read_text().splitlines()[2]

    assert refused("absent") == (errno.ENOENT, 'the frame binds nothing for "absent"')
    assert refused("node.kids[2].x") == (errno.ENOENT, 'node.kids holds nothing at "[2].x"')
    for absent in ("many[1000]", "many[-1001]", "many[0].real", "n.real", "loud[0].x", "['k']", "{99}"):
        assert refused(absent)[0] == errno.ENOENT
    for wrong in ("node.", "node[", "node[]", "node{x}", "node{}", "a b", "len(node)", "node..kids", "node]", "1"):
        error, words = refused(wrong)
        assert error == errno.EINVAL and " is no path: NAME, then .NAME, [N], ['KEY'] or {N}" in words
    assert refused("x" * 1024) == (errno.EINVAL, "a path has at most 1023 bytes, none of them zero")
    assert ask("n\nempty") == ["n = 5", "empty = {}"]

    # value() in SQL says the same
    query = probe.path / str(target.pid) / "query"

    def select(path, more=""):
        literal = path.replace("'", "''")
        return sql.ask(query, f"SELECT * FROM value({target.pid}, {depth.name}, '{literal}') {more}")

    for path in ("", "slots", "slots.first[-1]", "both", "node", "node.été", "node{2}", "only", "proxy", "keys", "loud",
                 "module", "keys{7}", 'node.kids{0}.meta["k"]'):
        rows = select(path)
        said = [f"{row['path']} = {row['value']}" for row in rows]
        assert said == ask(path) or not rows and ask(path)[0].startswith(f"{path} = "), path
        assert [int(row["position"]) for row in rows] == list(range(len(rows)))
    assert [row["name"] for row in select("node")] == ["kids", "été", "no name"]
    assert [row["name"] for row in select("keys")][6:9] == ["[True]", "(1, 2)", f"{'x' * 200!r}... 300 characters"]
    assert {row["name"]: (row["type"], row["length"]) for row in select("")} == {
        "n": ("int", ""), "empty": ("dict", "0"), "slots": ("__main__.Slots", ""), "both": ("__main__.Table", "2"),
        "keys": ("dict", "10"), "node": ("__main__.Node", ""), "only": ("set", "1"), "proxy": ("mappingproxy", ""),
        "many": ("list", "1000"), "module": ("module", ""), "loud": ("list", "1"), "large": ("list", "9000")}
    assert len(select("many")) == 1000
    assert [row["value"] for row in select("many", "LIMIT 2 OFFSET 500")] == ["500", "501"]
    assert [row["value"] for row in select("many", "WHERE position > 996 LIMIT 2")] == ["997", "998"]
    *_, last, cut = select("large")
    assert (last["value"], cut["name"]) == ("8191", "")
    assert cut["value"] == "[cut: more than 8,192 values, or 8 MiB; ask for position >= 8192]"
    assert [row["value"] for row in select("large", "WHERE position >= 8192 LIMIT 1 OFFSET 800")] == ["8992"]
    large = f"SELECT value FROM value({target.pid}, {depth.name}, 'large')"
    number, words = sql.refused(query, f"{large} LIMIT 1 OFFSET 8192")
    assert number == errno.EFBIG and words.endswith("ask for position >= 8192, rather than by OFFSET")
    for path in ("absent", "node.kids[2].x", "many[1000]", "node{x}", "a b"):
        literal = path.replace("'", "''")
        assert sql.refused(query, f"SELECT * FROM value({target.pid}, {depth.name}, '{literal}')") == refused(path)
    assert sql.refused(query, f"SELECT * FROM value(1, 0, '{'x' * 1024}')") == \
        (errno.EINVAL, "value: inside may have at most 1023 bytes, and no zero")
    union = " UNION ALL ".join(f"SELECT name FROM value({target.pid}, {depth.name}, 'many[{i}]')" for i in range(9))
    assert sql.refused(query, union) == (errno.EINVAL, "value: one statement may ask at most 8 of them")
    assert target.state() == "S"
