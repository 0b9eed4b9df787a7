"""Breakpoints of an agent that is asked in its own protocol: where they hit, and what their rows say."""
import json
import re

import pytest

import agent_client as agent
import ring_file
from agents import clients, connect, ended, start
from interpreters import eventually

pytestmark = pytest.mark.python(minimum=(3, 10))

# the program does what it is told, one expression or statement a line, in the module's namespace
TOLD = """
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


def program(python, source):
    """A program that has defined what is in source, whose first line is line 1, and what it does afterwards."""
    target = start(python, source.lstrip("\n") + "\nimport probing, sys\nprint('ready', flush=True)\n" + TOLD)
    return target, connect(target)


def do(target, line):
    target.send(line)
    target.expect("done")


def set_all(client, *entries, replace=False):
    answer = client.breakpoints(*entries, replace=replace)
    assert answer.error == 0, answer.words
    return re.sub(r"[;,] slows [^;\n]*before CPython 3.12", "", answer.text)


def hits(target):
    """The rows of hits, without what differs from run to run."""
    rows = ring_file.rows(target.pid, "hits")
    return [dict(row, captured=json.loads(row["captured"])) for row in rows]


def places(target):
    """(id, function, line) of each hit."""
    return [(row["id"], row["func"], row["lineno"]) for row in hits(target)]


def named(python, function):
    """As rows have it: qualified from 3.11 on."""
    return function if python.version >= (3, 11) else function.split(".")[-1]


def breakpoints(target):
    """The rows of the set: of each id the last one."""
    rows = {row["id"]: row for row in ring_file.rows(target.pid, "breakpoints")}
    return {number: row for number, row in rows.items() if row["state"] != "removed"}


LOOP = """
def add(a, b):
    c = a + b

    return c
"""


def test_line(python):
    target, client = program(python, LOOP)
    said = set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, captures=["a", "a + b", "len(sys.argv)"]))
    assert said == "1: log source.py:2 {a, a + b, len(sys.argv)}  # armed\n"
    do(target, "add(1, 2)")
    row, = hits(target)
    assert (row["id"], row["hit"], row["func"], row["lineno"], row["tid"]) == (1, 1, "add", 2, target.pid)
    assert row["file"] == target.path() and row["error"] is None and row["stopped"] == 0 and row["resumed"] is None
    assert row["captured"] == {"a": "1", "a + b": "3", "len(sys.argv)": "1"}
    assert row["stack"].endswith(f";<module> (<string>:1);add ({target.path()}:2)")
    assert (breakpoints(target)[1]["state"], breakpoints(target)[1]["hits"]) == ("armed", 1)
    assert ended(target) == 0


def test_next_line_with_code(python):
    target, client = program(python, LOOP)
    said = set_all(client, agent.breakpoint(agent.LINE, "source.py", 3))
    assert "# armed, line 4 is used" in said
    do(target, "add(1, 2)")
    assert places(target) == [(1, "add", 4)]
    assert hits(target)[0]["captured"] == {"a": "1", "b": "2", "c": "3"}


def test_condition_and_count(python):
    target, client = program(python, LOOP)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 4, condition="c % 2", count=3))
    do(target, "for i in range(20): add(i, 0)")
    assert [row["captured"]["a"] for row in hits(target)] == ["1", "3", "5"]
    row = breakpoints(target)[1]
    assert (row["state"], row["hits"], row["errors"]) == ("done", 3, 0)


def test_failures_are_hits(python):
    target, client = program(python, LOOP)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 4, condition="1 / b", captures=["a", "nobody", "c[0]"]),
            agent.breakpoint(agent.LINE, "source.py", 2, captures=["c"]))
    do(target, "add(1, 0)")
    unbound, failed = hits(target)
    assert failed["error"] == "ZeroDivisionError: division by zero"
    assert failed["captured"] == {"a": "1", "nobody": None, "c[0]": None}
    assert unbound["error"].startswith("NameError: 'c'") and unbound["captured"] == {"c": None}
    assert [row["errors"] for row in breakpoints(target).values()] == [1, 1]
    assert ended(target) == 0


def test_condition_that_raises_stops_nothing(python):
    """It is told once, in a row that is no hit, and in the note."""
    target, client = program(python, LOOP)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 4, condition="1 / b", action=agent.STOP, count=1))
    for _ in range(3):
        do(target, "add(1, 0)")
    row, = hits(target)
    assert (row["hit"], row["stopped"], row["error"]) == (None, 0, "ZeroDivisionError: division by zero")
    one = breakpoints(target)[1]
    assert (one["state"], one["hits"], one["errors"]) == ("armed", 0, 3)
    assert one["note"].endswith("its condition raised ZeroDivisionError: division by zero")
    target.send("add(1, 2)")
    eventually(lambda: target.pid in client.record.threads())
    eventually(lambda: len(hits(target)) > 1, what="the row of this stop")
    assert [(row["hit"], row["stopped"]) for row in hits(target)] == [(None, 0), (1, 1)]
    set_all(client, agent.breakpoint(agent.REMOVE, id=1))
    target.expect("done")
    assert ended(target) == 0


def test_functions(python):
    target, client = program(python, """
class Net:
    def forward(self, x):
        return x * 2
""")
    set_all(client, agent.breakpoint(agent.FUNCTION, "Net.forward"), agent.breakpoint(agent.RETURN, "forward"),
            agent.breakpoint(agent.FUNCTION, "source.Net.forward"), agent.breakpoint(agent.FUNCTION, "Other.forward"))
    do(target, "Net().forward(4)")
    forward = named(python, "Net.forward")
    assert places(target) == [(1, forward, 2), (3, forward, 2), (2, forward, 3)]
    assert hits(target)[-1]["captured"]["return"] == "8"
    assert breakpoints(target)[4]["state"] == "pending"


RAISES = """
class Mine(KeyError):
    pass

def inner(kind):
    raise kind("x")

def outer(kind):
    try:
        inner(kind)
    except IndexError:
        pass

def survive(kind):
    try:
        outer(kind)
    except BaseException as e:
        return e

def again(kind):
    try:
        raise survive(kind)
    except BaseException:
        list(x for x in [1])
"""


def test_raise(python):
    target, client = program(python, RAISES)
    set_all(client, agent.breakpoint(agent.RAISE, "LookupError"), agent.breakpoint(agent.RAISE, "Mine"),
            agent.breakpoint(agent.RAISE, ""), agent.breakpoint(agent.RAISE, "OSError"))
    for kind in ("IndexError", "Mine", "ValueError"):
        do(target, f"survive({kind})")
    assert [(row["id"], row["func"], row["lineno"], row["captured"]["exception"]) for row in hits(target)] == [
        (1, "inner", 5, "IndexError('x')"), (3, "inner", 5, "IndexError('x')"),
        (1, "inner", 5, "Mine('x')"), (2, "inner", 5, "Mine('x')"), (3, "inner", 5, "Mine('x')"),
        (3, "inner", 5, "ValueError('x')")]
    do(target, "again(Mine)")
    assert len(hits(target)) == 9  # raised again, it is the same


def test_raise_beside_the_recorder(python):
    target, client = program(python, RAISES)
    assert client.switch("exceptions").error == 0
    set_all(client,
            agent.breakpoint(agent.RAISE, "builtins.ValueError", captures=["kind.__name__", "__exception__.args"]))
    assert client.switch("exceptions").error == 0
    do(target, "survive(ValueError)")
    set_all(client, replace=True)
    do(target, "survive(ValueError)")
    assert [row["captured"] for row in hits(target)] == \
        [{"kind.__name__": "'ValueError'", "__exception__.args": "('x',)"}]
    assert [row["type"] for row in ring_file.rows(target.pid, "exceptions")] == ["ValueError", "ValueError"]
    assert ended(target) == 0


def test_pending_code_arms_itself(python):
    target, client = program(python, "")
    said = set_all(client, agent.breakpoint(agent.LINE, "later.py", 3), agent.breakpoint(agent.FUNCTION, "late"))
    assert said.count("# pending, no ") == 2
    do(target, r"exec(compile('\ndef late():\n    return 5\n', '/w/later.py', 'exec'))")
    assert [row["state"] for row in breakpoints(target).values()] == ["armed", "armed"]
    do(target, "late()")
    assert places(target) == [(2, "late", 2), (1, "late", 3)]


def test_replace_add_remove(python):
    target, client = program(python, LOOP)
    two, four = agent.breakpoint(agent.LINE, "source.py", 2), agent.breakpoint(agent.LINE, "source.py", 4)
    set_all(client, two, four)
    do(target, "add(1, 2)")
    set_all(client, four, agent.breakpoint(agent.LINE, "source.py", 2, condition="a"), replace=True)
    assert {number: (row["breakpoint"], row["hits"]) for number, row in breakpoints(target).items()} == \
        {3: ("log source.py:2 if a", 0), 2: ("log source.py:4", 1)}
    set_all(client, agent.breakpoint(agent.REMOVE, id=3))
    do(target, "add(1, 2)")
    assert breakpoints(target)[2]["hits"] == 2 and len(breakpoints(target)) == 1
    set_all(client, agent.breakpoint(agent.REMOVE, "source.py:4"))
    do(target, "add(1, 2)")
    assert breakpoints(target) == {} and len(hits(target)) == 3
    assert ended(target) == 0


def test_ids_are_used_once(python):
    """What has an id in hits is never another breakpoint, even if that asks for it."""
    target, client = program(python, LOOP)
    two, four = agent.breakpoint(agent.LINE, "source.py", 2), agent.breakpoint(agent.LINE, "source.py", 4)
    set_all(client, two)
    set_all(client, four, replace=True)  # nothing has hit yet
    assert set(breakpoints(target)) == {1}
    do(target, "add(1, 2)")
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2, id=1), replace=True)
    assert {number: row["breakpoint"] for number, row in breakpoints(target).items()} == {2: "log source.py:2"}
    do(target, "add(1, 2)")
    set_all(client, replace=True)
    set_all(client, four)
    set_all(client, agent.breakpoint(agent.FUNCTION, "add", id=3))
    assert {number: row["breakpoint"] for number, row in breakpoints(target).items()} == {3: "log add()"}
    do(target, "add(1, 2)")
    assert [row["id"] for row in hits(target)] == [1, 2, 3]
    assert ended(target) == 0


def test_what_is_not_there(python):
    """A note says so, until it is there."""
    target, client = program(python, LOOP)
    said = set_all(client, agent.breakpoint(agent.RAISE, "LaterError"), agent.breakpoint(agent.LINE, "later.py", 1),
                   agent.breakpoint(agent.FUNCTION, "later"), agent.breakpoint(agent.RAISE, "ZeroDivisionError"),
                   agent.breakpoint(agent.RAISE, ""))
    assert [line.partition("  # ")[2] for line in said.splitlines()] == [
        "pending, there was no such class when it was set",
        "pending, no code of such a file was loaded when it was set",
        "pending, no such function was loaded when it was set", "armed", "armed"]
    do(target, "exec(compile('class LaterError(KeyError): pass\\ndef later(): raise LaterError', 'later.py', 'exec'), "
               "globals())")
    assert [row["state"] for row in breakpoints(target).values()] == ["pending", "armed", "armed", "armed", "armed"]
    do(target, "exec('import contextlib\\nwith contextlib.suppress(KeyError): later()')")
    first = breakpoints(target)[1]
    assert (first["state"], first["hits"], "class" in (first["note"] or "")) == ("armed", 1, False)
    assert ended(target) == 0


def test_all_or_none(python):
    target, client = program(python, LOOP)
    good = agent.breakpoint(agent.LINE, "source.py", 2)
    answer = client.breakpoints(good, agent.breakpoint(agent.LINE, "source.py", 2, condition="a ="))
    assert answer.error == 22 and answer.done[2] > len(good) and "syntax" in answer.words
    answer = client.breakpoints(good, agent.breakpoint(agent.REMOVE, id=7))
    assert answer.error == 2 and answer.words == "there is no breakpoint 7"
    do(target, "add(1, 2)")
    assert hits(target) == [] and breakpoints(target) == {}


def test_detach(python):
    target, client = program(python, LOOP)
    set_all(client, agent.breakpoint(agent.LINE, "source.py", 2))
    do(target, "add(1, 2)")
    answer = client.detach()
    assert answer.error == 0
    if python.version >= (3, 12):
        do(target, "add(1, 2); assert not any(map(sys.monitoring.get_tool, range(6)))")
    else:
        do(target, "add(1, 2); assert sys.gettrace() is None")
    eventually(lambda: client.record.read().state == agent.ENDED)
    assert ended(target) == 0
