"""globals/<module> and the table globals, against what the programs themselves say of their modules."""
import csv
import io
import json
import os
import re
import subprocess

import pytest

from interpreters import OLDEST, eventually
from sql import reply, rows as rows_of

SHOP = """
import json, math, os, sys, types

shop = types.ModuleType("shop")
exec('''
retries = 3
rate = 0.5
names = ["anna", "bert"]
stock = {"pen": 12, "ink": None}
class Order: pass
def buy(): pass
text = "a\\\\nb"
''', shop.__dict__)
deep = types.ModuleType("pack.sub.deep")
deep.retries = 4
sys.modules["shop"] = shop
sys.modules["pack.sub.deep"] = deep
own = (1, 2)
skip = {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__builtins__",
        "__annotations__"}
simple = (int, float, str, bytes, type(None), tuple, list, dict, type)

def said(module):
    return {name: repr(value) if isinstance(value, simple) else None
            for name, value in vars(module).items() if name not in skip}

print(json.dumps({"modules": list(sys.modules), "shop": said(shop), "pack.sub.deep": said(deep), "math": said(math)}),
      flush=True)
sys.stdin.read()
"""


def bound(text):
    """{name: value} of a file; lines about what isn't shown have no name."""
    return dict(line.split(" = ", 1) for line in text.splitlines() if not line.startswith("... ("))


def select(probe, pid, statement):
    return rows_of(reply(probe.path / str(pid) / "query", statement))


def wait_asleep(target):
    eventually(lambda: target.state() == "S", what="reading")


def test_files(probe, python):
    target = python.run_source(SHOP, ready=False)
    said = json.loads(target.readline())
    wait_asleep(target)
    top = probe.path / str(target.pid) / "globals"
    names = os.listdir(top)
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(said["modules"])
    for module in ("shop", "pack.sub.deep", "math"):
        shown = bound((top / module).read_text())
        wanted = said[module]
        assert list(shown) == list(wanted)
        assert {n: v for n, v in shown.items() if wanted[n] is not None} == {n: v for n, v in wanted.items() if v}
    assert bound((top / "__main__").read_text())["own"] == "(1, 2)"
    assert re.search(r"^buy = <function buy at 0x[0-9a-f]+>$", (top / "shop").read_text(), re.M)
    for nowhere in ("nosuch", "shop.x", "sho", "1234", "x" * 255):
        assert not (top / nowhere).exists()
    with pytest.raises(FileNotFoundError):
        (top / "nosuch").read_text()
    seen = subprocess.run(["grep", "-r", "retries", top], capture_output=True, text=True)
    assert not seen.stderr and not seen.returncode
    found = {line.replace(str(top) + "/", "") for line in seen.stdout.splitlines()}
    assert {"shop:retries = 3", "pack.sub.deep:retries = 4"} <= found


@pytest.mark.python(minimum=OLDEST, free_threaded=True)
def test_table(probe, python):
    target = python.run_source(SHOP, ready=False)
    said = json.loads(target.readline())
    wait_asleep(target)
    rows = select(probe, target.pid, "SELECT name, type, value FROM globals WHERE module = 'shop'")
    assert [r["name"] for r in rows] == list(said["shop"])
    assert {r["name"]: r["type"] for r in rows}["stock"] == "dict"
    assert {r["name"]: r["value"] for r in rows if said["shop"][r["name"]]} == \
        {n: v for n, v in said["shop"].items() if v}
    rows = select(probe, target.pid, "SELECT module, value FROM globals WHERE name = 'retries' ORDER BY value")
    assert [(r["module"], r["value"]) for r in rows if r["module"] in said] == \
        [("shop", "3"), ("pack.sub.deep", "4")]
    everything = select(probe, target.pid, "SELECT DISTINCT module FROM globals")
    assert {r["module"] for r in everything} <= set(said["modules"])
    assert {"shop", "pack.sub.deep", "__main__", "sys"} <= {r["module"] for r in everything}
    assert not select(probe, target.pid, "SELECT * FROM globals WHERE module = 'nosuch'")
    text = (probe.path / str(target.pid) / "tables" / "globals.csv").read_text()
    table = list(csv.DictReader(io.StringIO(text)))
    assert {"module": "shop", "name": "rate", "type": "float", "value": "0.5"} in table


ODD = """
import sys, types

def module(name, **names):
    made = sys.modules[name] = types.ModuleType("m")
    vars(made).update(names)

class Lazy(types.ModuleType):
    pass

class Slots:
    __slots__ = ("one", "two")
    one_of_class = 1

module("../x", found="up")
module("a/b/../../../etc/passwd", found="slash")
module("new\\nline\\x1b[31m", found="control")
module("..", found="parent")
module(".", found="here")
module("", found="empty")
module("long" * 100, found="long")
module("caf\\xe9", found="accent")
module("\\udcff", found="surrogate")
module("back\\\\slash", found="backslash")
sys.modules["none"] = None
sys.modules["number"] = 7
sys.modules["listed"] = [1, 2]
sys.modules["lazy"] = Lazy("lazy")
sys.modules["lazy"].found = "lazy"
sys.modules["space"] = types.SimpleNamespace(found="space", other=2)
sys.modules["slots"] = Slots()
sys.modules["slots"].one = "first"
sys.modules["class"] = Slots
sys.modules[3] = types.ModuleType("three")
sys.modules[b"bytes"] = types.ModuleType("bytes")
empty = sys.modules["bare"] = types.ModuleType("bare")
vars(empty).clear()
vars(empty)[1] = "not a str"
vars(empty)["line\\nbreak = 1"] = 2
print("ready", flush=True)
sys.stdin.buffer.raw.read(1)
"""


@pytest.mark.attack
def test_odd_modules(probe, python):
    """Names that are no file's, and what is no module, harm nobody and stand where one can find them."""
    target = python.run_source(ODD)
    wait_asleep(target)
    top = probe.path / str(target.pid) / "globals"
    names = set(os.listdir(top))
    want = {"..\\x2fx": "up", "a\\x2fb\\x2f..\\x2f..\\x2f..\\x2fetc\\x2fpasswd": "slash",
            "new\\nline\\x1b[31m": "control", "\\x2e.": "parent", "\\x2e": "here", "caf\xe9": "accent",
            "\\udcff": "surrogate", "back\\slash": "backslash", "lazy": "lazy", "space": "space"}
    assert set(want) <= names
    assert not {n for n in names if "long" * 50 in n or "/" in n or n in ("", "3", "bytes")}
    for name, found in want.items():
        assert f"found = '{found}'\n" in (top / name).read_text(), name
    assert (top / "none").read_text() == "... (not a module: None)\n"
    assert (top / "number").read_text() == "... (not a module: 7)\n"
    assert (top / "listed").read_text() == "... (not a module: [1, 2])\n"
    assert "other = 2\n" in (top / "space").read_text()
    assert "one = 'first'\n" in (top / "slots").read_text()
    assert (top / "class").read_text().startswith("... (not a module: <class '__main__.Slots'>)\n")
    assert "one_of_class = 1\n" in (top / "class").read_text()
    assert set((top / "bare").read_text().splitlines()) == {"1 = 'not a str'", "line\\nbreak = 1 = 2"}
    # those that have no file are in the table
    rows = select(probe, target.pid, "SELECT module FROM globals WHERE name = 'found' AND value IN ('long', 'empty')")
    assert not rows  # as repr() shows them
    rows = select(probe, target.pid, """SELECT length(module) AS n, value FROM globals WHERE name = 'found'""")
    assert {(r["n"], r["value"]) for r in rows} >= {("400", "'long'"), ("0", "'empty'")}
    rows = select(probe, target.pid, "SELECT name, type, value FROM globals WHERE module = 'none'")
    assert [(r["name"], r["type"], r["value"]) for r in rows] == [("", "NoneType", "None")]
    assert target.state() == "S"


MANY = """
import sys, types
for i in range(10000):
    made = sys.modules[f"many.m{i}"] = types.ModuleType("m")
    made.retries = i
    made.name = f"module {i}"
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_ten_thousand(probe, any_python):
    target = any_python.run_source(MANY)
    wait_asleep(target)
    top = probe.path / str(target.pid) / "globals"
    names = os.listdir(top)
    assert {f"many.m{i}" for i in range(10000)} <= set(names)
    seen = subprocess.run(["grep", "-r", "retries", top], capture_output=True, text=True)
    assert not seen.stderr
    found = re.findall(r"many\.m(\d+):retries = (\d+)$", seen.stdout, re.M)
    assert len(found) == 10000 and all(a == b for a, b in found)
    rows = select(probe, target.pid, "SELECT name, value FROM globals WHERE module = 'many.m9999'")
    assert [(r["name"], r["value"]) for r in rows] == [("retries", "9999"), ("name", "'module 9999'")]


LARGE = """
import sys
globals().update({f"n{i}": i for i in range(5000)})
big = sys.modules["big"] = type(sys)("big")
vars(big).update({f"n{i}": "x" * 150 for i in range(5000)})
print("ready", flush=True)
sys.stdin.read()
"""


def test_large_module(probe, any_python):
    """What isn't shown is counted."""
    target = any_python.run_source(LARGE)
    wait_asleep(target)
    for module, most in (("__main__", 4096), ("big", 4096)):
        *lines, last = probe.read(target.pid, "globals", module).splitlines()
        assert 1000 < len(lines) <= most
        more = int(re.fullmatch(r"\.\.\. \((\d+) more\)", last)[1])
        ours = sum(1 for line in lines if line.startswith("n"))
        assert 0 <= ours + more - 5000 < 10
    (row,) = select(probe, target.pid, "SELECT count(*) AS n FROM globals WHERE module = 'big' AND name LIKE 'n%'")
    assert row["n"] == "5000"


CHURN = """
import itertools, sys, threading, types
steady = types.ModuleType("steady")
sys.modules["steady"] = steady
vars(steady).update({f"s{i}": i for i in range(200)}, turn=0)
moving = sys.modules["moving"] = types.ModuleType("moving")
print("ready", flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), done.append(1)), daemon=True).start()
done = []
for turn in itertools.count():
    if done:
        break
    for i in range(100):
        vars(moving)[f"n{(turn * 100 + i) % 3000}"] = i
        vars(moving).pop(f"n{(turn * 100 + i + 1500) % 3000}", None)
    made = types.ModuleType("come")
    made.value = turn
    sys.modules[f"come{turn % 300}"] = made
    sys.modules.pop(f"come{(turn + 150) % 300}", None)
    steady.turn = turn
print("good", flush=True)
"""


@pytest.mark.long
def test_changing_all_the_time(probe, python):
    """grep -r through modules that come and go ends, and complains about nothing; what stays is shown as it is."""
    target = python.run_source(CHURN)
    top = probe.path / str(target.pid) / "globals"
    for _ in range(3):
        seen = subprocess.run(["grep", "-r", "value", top], capture_output=True, text=True)
        assert not seen.stderr
        lines = (top / "steady").read_text().splitlines()
        assert lines[:200] == [f"s{i} = {i}" for i in range(200)] and len(lines) == 201
        for line in (top / "moving").read_text().splitlines():
            assert re.fullmatch(r"n\d+ = \d+|\.\.\. \(\d+ more\)", line), line
    rows = select(probe, target.pid, "SELECT name, value FROM globals WHERE module = 'steady'")
    assert [(r["name"], r["value"]) for r in rows][:200] == [(f"s{i}", str(i)) for i in range(200)]
    for row in select(probe, target.pid, "SELECT * FROM globals WHERE module LIKE 'come%'"):
        assert row["name"] == "value" and row["value"].isdigit()
    target.stdin.close()
    target.expect("good")


GONE = """
import sys, types
for line in sys.stdin:
    word, name = line.split()
    if word == "add":
        made = sys.modules[name] = types.ModuleType(name)
        made.turn = len(sys.modules)
    else:
        del sys.modules[name]
    print("done", flush=True)
"""


def test_gone_and_come_again(probe, any_python):
    target = any_python.run_source(GONE, ready=False)

    def tell(*words):
        target.send(" ".join(words))
        target.expect("done")
        wait_asleep(target)

    tell("add", "first")
    top = probe.path / str(target.pid) / "globals"
    assert "first" in os.listdir(top)
    before = (top / "first").read_text()
    tell("add", "second")
    assert (top / "second").read_text().startswith("turn = ")  # without a look at the listing
    tell("del", "first")
    assert "first" not in os.listdir(top)
    assert (top / "first").read_text() == "... (no longer in sys.modules)\n"  # for who saw it listed
    assert not select(probe, target.pid, "SELECT * FROM globals WHERE module = 'first'")
    tell("add", "first")
    assert (top / "first").read_text() not in (before, "")
    assert select(probe, target.pid, "SELECT * FROM globals WHERE module = 'first'")


@pytest.mark.attack
def test_another_user_sees_no_names(probe, any_python):
    """Which modules a program has is nobody else's business, nor is what they bind, on a mount that all may enter."""
    if os.geteuid() != 0:
        pytest.skip("wants a second user: run it as root")
    target = any_python.run_source(SHOP, ready=False)
    target.readline()
    wait_asleep(target)
    for hidepid in 0, 2:
        shared = probe.mount("allow_other", f"hidepid={hidepid}")
        top = shared.path / str(target.pid) / "globals"
        assert "retries = 3\n" in (top / "shop").read_text()
        for command in (["ls", top], ["cat", top / "shop"], ["stat", top / "shop"], ["stat", top / "nosuch"],
                        ["grep", "-r", "retries", top]):
            tried = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                    *map(str, command)], capture_output=True, text=True)
            assert tried.returncode and not tried.stdout, command
            assert "ermission denied" in tried.stderr or hidepid, command


INTERPRETERS = """
import sys, types
import %s as interpreters
sys.modules["only_here"] = types.ModuleType("only_here")
made = interpreters.create()
interpreters.run_string(made, "import sys, types; sys.modules['only_there'] = types.ModuleType('only_there')")
print("ready", flush=True)
sys.stdin.read()
"""


def test_main_interpreter(probe, python):
    module = "_interpreters" if python.version >= (3, 13) else "_xxsubinterpreters"
    target = python.run_source(INTERPRETERS % module)
    wait_asleep(target)
    names = os.listdir(probe.path / str(target.pid) / "globals")
    assert "only_here" in names and "only_there" not in names
