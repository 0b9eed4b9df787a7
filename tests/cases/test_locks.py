"""locks: who waits for what, and who holds it, against programs that know."""
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

from interpreters import OLDEST, eventually
from sql import ask, columns, rows, settle
from stacks import parse_backtrace

LOOKS = 1200 if os.environ.get("PROBEFS_TEST_FULL") == "1" else 100  # of each interpreter
MARK = re.compile(r"# ([\w-]+) (waits|takes)$")


def marks(target):
    """{(who, "waits" or "takes"): line} of its scene."""
    lines = target.path_seen(target.script).read_text().splitlines()
    found, scene = {}, None
    for number, line in enumerate(lines, 1):
        if begins := re.match(r"def (\w+)\(", line):
            scene = begins[1]
        if scene == target.scene and (mark := MARK.search(line)):
            found[mark[1], mark[2]] = number
    return found


def scene(python, name, still=True):
    target = python.run("locks.py", name)
    target.scene = name
    if still:
        settle(target)
    return target


# what test_waits_between.py is about
OUTSIDE = {"child", "descriptors", "file", "file lock", "pipe", "sleep", "socket"}


def look(probe, target):
    """{name of who waits: rows of the table}, without the main thread, the one that reads commands, and waits for
    others than threads of the process."""
    text = (probe.path / str(target.pid) / "tables" / "locks.csv").read_text()
    said, integers = {}, [name for name, kind in columns("locks") if kind == "INTEGER"]
    for row in rows(text):
        row = {name: None if value == "" else int(value) if name in integers else value
               for name, value in row.items()}
        if row["waiter"] not in ("MainThread", "oracle") and row["kind"] not in OUTSIDE:
            said.setdefault(row["waiter"], []).append(row)
    return said


def one(said, waiter):
    (row,) = said[waiter]
    return row


def scope(target, waiter, row, kind, call, name, line=None):
    """What is waited for, and where."""
    assert (row["kind"], row["call"]) == (kind, call), row
    assert row["name"] == name, row
    assert row["file"] == target.path(target.script)
    assert row["lineno"] == (line or marks(target)[waiter, "waits"])


def held(target, row, holder, line=True, certain=1):
    tids = {thread["name"]: tid for tid, thread in target.stacks().items()}
    assert (row["holder"], row["holder_tid"], row["certain"]) == (holder, tids[holder], certain), row
    assert row["taken_lineno"] == (marks(target)[line if isinstance(line, str) else holder, "takes"]
                                   if line else None), row
    if line:
        assert row["taken_file"] == target.path(target.script)


def stuck(what, *circle):
    """What status may say of a circle, of which any may be the first."""
    tids = [row["tid"] for row in circle]
    turns = [[*map(str, tids[i:] + tids[:i])] for i in range(len(tids))]
    return {f"Stuck: {what} of {', '.join(turn[:-1])} and {turn[-1]}, see locks" for turn in turns}


@pytest.mark.python(minimum=OLDEST)
def test_deadlock(probe, python):
    target = scene(python, "deadlock")
    said = look(probe, target)
    assert set(said) == {"seller", "buyer"}
    seller, buyer = one(said, "seller"), one(said, "buyer")
    scope(target, "seller", seller, "Lock", "acquire", "ledger.lock")
    scope(target, "buyer", buyer, "Lock", "acquire", "inventory.lock")
    held(target, seller, "buyer")
    held(target, buyer, "seller")
    assert seller["deadlock"] == buyer["deadlock"] == 1
    first, *others = probe.read(target.pid, "locks").splitlines()
    at = marks(target)
    file = target.script
    def circle(one, two):  # it begins with either
        return f"deadlock: thread {one['tid']} ({one['waiter']}) " \
            f"holds Lock {two['name']} ({file}:{at[one['waiter'], 'takes']}) " \
            f"and waits for Lock {one['name']} ({file}:{at[one['waiter'], 'waits']}) held by thread {two['tid']} " \
            f"({two['waiter']}), which holds Lock {one['name']} ({file}:{at[two['waiter'], 'takes']}) " \
            f"and waits for Lock {two['name']} ({file}:{at[two['waiter'], 'waits']}) held by thread {one['tid']} " \
            f"({one['waiter']})"
    assert first in (circle(seller, buyer), circle(buyer, seller))
    line = next(line for line in others if line.startswith(f"thread {seller['tid']} (seller) waits for "))
    assert re.sub(r", for (at least )?\d+\.\d s", "", line).endswith(
        f"sell ({file}:{at['seller', 'waits']}), held by thread {buyer['tid']} (buyer) ({file}:{at['buyer', 'takes']})")
    status = probe.read(target.pid, "status").splitlines()
    assert status[2] in stuck("deadlock", seller, buyer)
    backtrace = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)
    assert backtrace.threads[seller["tid"]].state == ["idle", f"waits for ledger.lock held by {buyer['tid']}"]
    alone = probe.read(target.pid, "threads", buyer["tid"], "backtrace")
    assert f"[idle, waits for inventory.lock held by {seller['tid']}" in alone.splitlines()[0]


def test_deadlock_without_with_blocks(probe, python):
    target = scene(python, "bare_deadlock")
    said = look(probe, target)
    seller, buyer = one(said, "seller"), one(said, "buyer")
    held(target, seller, "buyer", certain=0)
    held(target, buyer, "seller", certain=0)
    assert seller["deadlock"] == buyer["deadlock"] == 1
    at = marks(target)
    assert probe.read(target.pid, "locks").startswith(tuple(
        f"likely deadlock: thread {one['tid']} ({one['waiter']}) holds Lock {two['name']} "
        f"({target.script}:{at[one['waiter'], 'takes']}) " for one, two in ((seller, buyer), (buyer, seller))))
    assert stuck("likely deadlock", seller, buyer) & {*probe.read(target.pid, "status").splitlines()}


def test_circle_of_three(probe, python):
    target = scene(python, "circle_of_three")
    said = look(probe, target)
    circle = [one(said, f"philosopher-{i}") for i in range(3)]
    for i, row in enumerate(circle):
        scope(target, "philosopher", row, "Lock", "acquire", f"forks[{(i + 1) % 3}]")
        held(target, row, f"philosopher-{(i + 1) % 3}", "philosopher")
        assert row["deadlock"] == 1
    assert probe.read(target.pid, "locks").startswith("deadlock: ")
    assert stuck("deadlock", *circle) & {*probe.read(target.pid, "status").splitlines()}


def test_one_that_waits_for_itself(probe, python):
    target = scene(python, "itself")
    row = one(look(probe, target), "careless")
    held(target, row, "careless")
    assert row["deadlock"] == 1
    assert f"Stuck: deadlock of {row['tid']}, see locks\n" in probe.read(target.pid, "status")


def test_rlock(probe, python):
    target = scene(python, "rlock")
    said = look(probe, target)
    assert set(said) == {"waiter"}
    row = one(said, "waiter")
    scope(target, "waiter", row, "RLock", "acquire", "inventory.again")
    held(target, row, "holder")
    assert row["deadlock"] is None
    assert "Stuck:" not in probe.read(target.pid, "status")


def test_where_a_lock_is_found(probe, python):
    target = scene(python, "plain")
    said = look(probe, target)
    for waiter in "of-self", "of-class", "of-module", "of-dict", "of-argument", "of-method":
        row = one(said, waiter)
        held(target, row, "holder")
        name = "by_name['red']"
        if waiter in ("of-self", "of-class"):
            attribute = "_lock" if waiter == "of-self" else "common"
            assert re.fullmatch(rf"self\.{attribute} of <__main__\.plain\.<locals>\.Keeper object at 0x\w+>",
                                row["name"])
            name = row["name"]
        if waiter in ("of-module", "of-argument", "of-method"):
            name = row["name"]  # a local or a global name, of whoever was looked at first: both are right
            assert name in ("given", "shared")
        scope(target, waiter, row, "Lock", "acquire", name)


def test_condition(probe, python):
    target = scene(python, "condition")
    said = look(probe, target)
    waiter = one(said, "waiter")
    scope(target, "waiter", waiter, "Condition", "acquire", "inventory.full")
    held(target, waiter, "holder")
    for name, timed in ("sleeper", 0), ("patient", 1):
        row = one(said, name)
        scope(target, name, row, "Condition", "wait", "ledger.full")
        assert (row["holder_tid"], row["timed"], row["deadlock"]) == (None, timed, None)


def test_what_nobody_holds(probe, python):
    target = scene(python, "others")
    said = look(probe, target)
    kinds = dict(getter=("Queue", "get", "jobs"), putter=("Queue", "put", "few"), finisher=("Queue", "join", "few"),
                 taker=("SimpleQueue", "get", "simple"), listener=("Event", "wait", "event"),
                 guest=("Semaphore", "acquire", "semaphore"), early=("Barrier", "wait", "five"),
                 client=("Future", "result", "future"))
    assert set(said) == set(kinds)
    for waiter, (kind, call, name) in kinds.items():
        row = one(said, waiter)
        scope(target, waiter, row, kind, call, name)
        assert (row["holder"], row["certain"], row["deadlock"], row["timed"]) == (None, None, None, 0)
    backtrace = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)
    named = {thread.name: thread for thread in backtrace.threads.values()}
    assert named["getter"].state == ["idle", "waits for Queue jobs"]


def test_semaphore(probe, python):
    target = scene(python, "semaphore")
    row = one(look(probe, target), "waiter")
    scope(target, "waiter", row, "BoundedSemaphore", "acquire", "one")
    held(target, row, "holder")  # all of its one place


def test_join(probe, python):
    target = scene(python, "join")
    said = look(probe, target)
    joiner, client = one(said, "joiner"), one(said, "client")
    scope(target, "joiner", joiner, "Thread", "join", "worker")
    held(target, joiner, "worker", None)
    scope(target, "client", client, "Future", "result", None)
    held(target, client, "pool_0", None)
    assert ", run by thread " in probe.read(target.pid, "locks")


def test_end_of_the_interpreter(probe, python):
    target = scene(python, "end")
    text = eventually(lambda: " in _shutdown " in (said := probe.read(target.pid, "locks")) and said, what="the wait")
    tids = {thread["name"]: tid for tid, thread in target.stacks().items()}
    assert re.search(rf"^thread {target.pid} \(MainThread\) waits for Thread in _shutdown \(threading.py:\d+\)"
                     rf".*, run by thread {tids['eternal']} \(eternal\)$", text, re.M), text


def test_holder_that_is_not_known(probe, python):
    """Nothing is guessed."""
    target = scene(python, "bare")
    row = one(look(probe, target), "waiter")
    scope(target, "waiter", row, "Lock", "acquire", "shared")
    assert (row["holder"], row["holder_tid"], row["certain"]) == (None, None, None)


def test_import(probe, python):
    target = scene(python, "imports")
    path = probe.path / str(target.pid) / "tables" / "locks.csv"
    said = eventually(lambda: len(found := {row["waiter"]: row for row in rows(path.read_text())
                                             if row["kind"] not in OUTSIDE}) == 2 and found,
                      what="both wait")
    importer, main = said["importer"], said["MainThread"]
    assert (importer["kind"], importer["call"]) == ("_ModuleLock", "acquire")
    assert importer["name"] == "locks_imported"
    assert importer["file"] == target.path("locks_imported.py") and importer["func"].endswith("again")
    assert (importer["holder_tid"], importer["certain"]) == (str(target.pid), "1")
    assert (main["kind"], main["holder_tid"], main["certain"]) == ("Thread", importer["tid"], "1")
    assert importer["deadlock"] == main["deadlock"] == "1"


def test_multiprocessing(probe, python):
    target = scene(python, "processes")
    said = look(probe, target)
    waiter, other = one(said, "waiter"), one(said, "other")
    scope(target, "waiter", waiter, "multiprocessing.Lock", "acquire", "one")
    held(target, waiter, "holder")
    assert (other["kind"], other["call"], other["lineno"]) == ("SemLock", "acquire", marks(target)["other", "waits"])
    held(target, other, "holder")


def test_c_extension_that_keeps_the_gil(probe, python):
    target = scene(python, "mutex", still=False)
    # one that waits for the GIL wakes now and then
    said = eventually(lambda: len(found := look(probe, target)) == 2 and found["caller"][0]["deadlock"] and found,
                      what="both wait")
    caller, extension = one(said, "caller"), one(said, "extension")
    assert (caller["kind"], caller["holder"], caller["certain"]) == ("mutex", "extension", 1)
    assert caller["lineno"] == marks(target)["caller", "waits"]
    assert (extension["kind"], extension["holder"], extension["certain"]) == ("GIL", "caller", 1)
    assert caller["deadlock"] == extension["deadlock"] == 1
    eventually(lambda: probe.read(target.pid, "locks").startswith("deadlock: "), what="the same in words")


def test_holder_that_fork_left_behind(probe, python):
    target = python.run("locks.py", "fork", ready=False)
    target.scene = "fork"
    child = int(target.readline())
    text = eventually(lambda: "waits for RLock" in (said := probe.read(child, "locks")) and said, what="the wait")
    assert re.search(rf"^thread {child} \(MainThread\) waits for RLock self\.lock of "
                     rf"<__main__\.fork\.<locals>\.Handler object at "
                     rf"0x\w+> in .*, held by a thread that is no more$", text, re.M), text
    assert re.search(rf"^Stuck: {child} waits for self\.lock of .* held by a thread that is no more, see locks$",
                     probe.read(child, "status"), re.M)


BECOMES_STUCK = """
import sys, threading
first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
def take(a, b):
    with a:
        both.wait()
        with b:
            pass
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=take, args=(first, second), daemon=True).start()
take(second, first)
"""


def test_becomes_stuck(probe, python):
    """What status has said before isn't said for good."""
    target = python.run_source(BECOMES_STUCK, name="becomes_stuck.py")
    assert "Stuck:" not in probe.read(target.pid, "status")
    assert "Stuck:" not in probe.read(target.pid, "status")
    target.send("go")
    eventually(lambda: "Stuck: deadlock of " in probe.read(target.pid, "status"), what="that it is stuck")
    assert "Stuck: deadlock of " in probe.read(target.pid, "status")


# between two that wait for one lock many wait for locks that have no name, and cost all that is spent on looking for
# one
NAMELESS = """
import threading
shared, boxes = threading.Lock(), [[[threading.Lock()]] for _ in range(300)]
def take(i):
    (shared if i is None else boxes[i][0][0]).acquire()
def start(i):
    threading.Thread(target=take, args=(i,), daemon=True).start()
shared.acquire()
start(None)
for i in range(len(boxes)):
    boxes[i][0][0].acquire()
    start(i)
start(None)
print("ready", flush=True)
threading.Event().wait()
"""


def test_name_that_is_known(probe, python):
    """It is looked for once, however many wait in between."""
    target = python.run_source(NAMELESS, name="nameless.py")
    def waits():
        found = [line for line in probe.read(target.pid, "locks").splitlines() if " waits for Lock " in line]
        return found if len(found) == 302 else None
    found = eventually(waits, what="302 that wait")
    assert sum(" waits for Lock shared in take " in line for line in found) == 2, found


def holdings(events):
    """{lock: [(from, to, thread)]}: when a thread may have held it; {thread: [(from, to, lock)]}: when it may have
    waited. What a thread wants it can't have had before the one before it began to give it back."""
    spans, waits = {}, {}
    for thread, noted in events.items():
        want, got, last = {}, {}, {lock: what for _, what, lock in noted}
        goes_on = {"want": ["got", "give", "gave"], "got": ["give", "gave"], "give": ["got", "give", "gave"],
                   "gave": []}
        for when, what, lock in noted + [(float("inf"), what, lock) for lock in last for what in goes_on[last[lock]]]:
            if what == "want":
                want[lock] = when
            elif what == "got":
                waits.setdefault(thread, []).append((want[lock], when, lock))
                got[lock] = (want[lock], when)
            elif what == "give":
                wanted, had = got[lock]
                spans.setdefault(lock, []).append([had, when, thread, wanted, when])
                want[lock] = when  # a condition's lock is taken again
            elif what == "gave":
                spans[lock][-1][1] = when
    held = {}
    for lock, found in spans.items():
        found.sort()
        before = 0
        for _, gave, thread, wanted, give in found:
            held.setdefault(lock, []).append((max(wanted, before), gave, thread))
            before = give
    return held, waits


def overlaps(spans, begin, end, whose):
    return [(max(a, begin), min(b, end)) for a, b, who in spans if who == whose and a <= end and b >= begin]


def test_holders_of_what_changes_hands_all_the_time(probe, python):
    """Nobody is ever said to hold a lock who didn't while the other one waited, and nobody is deadlocked."""
    target = python.run("lock_churn.py")
    claims, path, looks = [], probe.path / str(target.pid) / "tables" / "locks.csv", 0

    def enough():  # quick looks see one state several times
        return all(sum(row["certain"] == which for *_, row in claims) > LOOKS / 20 for which in "01")
    while looks < LOOKS or (looks < 20 * LOOKS and not enough()):
        looks += 1
        begin = time.monotonic_ns()
        text = path.read_text()
        end = time.monotonic_ns()
        claims += [(begin, end, row)
                   for row in rows(text) if row["kind"] not in {"GIL", *OUTSIDE} and row["waiter"].startswith("churn")]
    target.send("history")
    said = json.loads(target.readline())
    held, waited = holdings(said["events"])
    certain = likely = 0
    for begin, end, row in claims:
        assert row["deadlock"] == "", row
        name = row["name"] if row["kind"] == "Condition" else said["names"][row["address"]]
        name = "told" if row["kind"] == "Condition" else name
        if row["call"] == "wait":
            assert row["holder"] == "", row
            continue
        waits = overlaps(waited[row["waiter"]], begin, end, name)
        assert waits, f"{row['waiter']} didn't wait for {name}: {row}"
        if not row["holder"]:
            continue
        certain += row["certain"] == "1"
        likely += row["certain"] == "0"
        holds = overlaps(held[name], begin, end, row["holder"])
        assert any(a <= d and c <= b for a, b in holds for c, d in waits), \
            f"{row['holder']} didn't hold {name} while {row['waiter']} waited: {row}"
    assert certain > LOOKS / 20 and likely > LOOKS / 20, \
        f"{certain} holders, and {likely} likely ones, in {looks} looks, {len(claims)} waits"


def test_nobody_waits(probe, any_python):
    """For a lock: it reads a pipe, which the table says, too."""
    target = any_python.run_source("import sys; print('ready'); sys.stdin.read()")
    table = probe.path / str(target.pid) / "tables" / "locks.csv"
    eventually(lambda: [row["kind"] for row in rows(table.read_text())] == ["pipe"], what="a read of the pipe")
    assert " waits for " not in probe.read(target.pid, "locks")


def test_in_sql(probe, any_python):
    target = scene(any_python, "deadlock")
    said = ask(probe.path / str(target.pid) / "query",
               "SELECT a.waiter, b.waiter AS blocked_by, t.state FROM locks a JOIN locks b ON b.tid = a.holder_tid "
               "JOIN threads t ON t.tid = a.tid WHERE a.deadlock ORDER BY 1")
    assert said == [{"waiter": "buyer", "blocked_by": "seller", "state": "idle"},
                    {"waiter": "seller", "blocked_by": "buyer", "state": "idle"}]


def test_holder_by_calls_of_acquire(probe, python):
    """A table of functions: who is behind a call of acquire(), and on all ways there, likely holds the lock."""
    target = python.run("lock_calls.py")
    settle(target)
    takes, names, function = {}, [], None
    for number, line in enumerate(target.path_seen(target.script).read_text().splitlines(), 1):
        if begins := re.match(r"def (\w+)\(", line):
            function = begins[1]
        if line == "@sample":
            names.append(None)
        if begins and names and names[-1] is None:
            names[-1] = function
        if line.endswith("# takes"):
            takes[names[-1]] = number
    said = look(probe, target)
    wrong, own = [], target.path(target.script)
    for name in names:
        row = one(said, f"waiter-{name}")
        holder = None if name.startswith("not_") else name
        certain = None if not holder else int(name.startswith("certainly"))
        line = takes.get(name)
        got, expected = (row["holder"], row["certain"]), (holder, certain)
        if got != expected or (holder and row["taken_lineno"] != line and row["taken_file"] == own) or row["deadlock"]:
            wrong.append((name, got, expected, row["taken_lineno"], line, row["deadlock"]))
    assert not wrong, wrong
    assert len(takes) > 25
    assert one(said, "itself_waiting")["holder"] is None


@pytest.mark.python(minimum=OLDEST)
def test_opcodes(python):
    """What the table says of a version is what that version says."""
    frames = pathlib.Path(__file__).resolve().parents[2] / "fs/remote/frames"
    row = subprocess.run(python.command("-"), input=(frames / "opcodes_row.py").read_text(), text=True, check=True,
                         capture_output=True).stdout
    assert row.count("\n") == 9 and row in (frames / "opcodes_table.h").read_text()


SLEEPS = """
import sys, threading, time
def hold(lock):
    with lock:
        time.sleep(1e6)
def want(lock):
    with lock:
        pass
lock = threading.Lock()
for function in hold, want:
    threading.Thread(target=function, name=function.__name__, args=(lock,), daemon=True).start()
    while function is hold and not lock.locked():
        time.sleep(0.001)
print("ready")
sys.stdin.read()
"""


def test_for_how_long(probe, python):
    """The table has it as the file does: of the thread that waits, and of the one that holds."""
    target = python.run_source(SLEEPS, name="sleeps.py")
    said = probe.path / str(target.pid) / "query"

    def known():
        found = ask(said, "SELECT waited, held FROM locks WHERE waiter = 'want' AND holder = 'hold'")
        return found and found[0]["waited"] and found[0]["held"] and found[0]
    row = eventually(known, what="for how long they stand")
    assert float(row["waited"]) >= 0 and float(row["held"]) >= 0


def test_sleeps(probe, python):
    """By whatever system call time.sleep() has."""
    target = python.run_source(SLEEPS, name="sleeps.py")
    settle(target)
    text = probe.read(target.pid, "locks")
    assert re.search(r"^thread \d+ \(hold\) sleeps in hold \(sleeps.py:5\)", text, re.M), text


TABLES = """
import sys, threading
def deep(n):
    if n:
        return deep(n - 1)
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()
number = lambda n, first=0: bytes([first | 0x40 | n >> 6, n & 0x3f])
entry = lambda start, length: number(start, 0x80) + number(length) + bytes([2, 0])
deep.__code__ = deep.__code__.replace(co_exceptiontable=entry(0, 0) * 10_000 + entry(0, 4000))
lock = threading.Lock()
sys.setrecursionlimit(100_000)
deep(60_000)
"""


@pytest.mark.attack
@pytest.mark.python(minimum=(3, 11))
def test_large_exception_tables(probe, python):
    """Each of 60,000 frames has a table of 10,000 entries, the last of which leads to itself: that is not gone through
    for each of them."""
    target = python.run_source(TABLES, name="large_tables.py")
    settle(target)
    text = probe.read(target.pid, "locks")
    assert re.search(r"^thread \d+ \(MainThread\) waits for Lock lock in deep ", text, re.M), text[:500]


ITSELF = """
import threading
condition, lock = threading.Condition(), threading.Lock()
lock.acquire()
with condition:
    condition._lock = condition
    print("ready", flush=True)
    lock.acquire()
"""


@pytest.mark.attack
def test_condition_of_itself(probe, python):
    """What it is made of isn't followed for ever."""
    target = python.run_source(ITSELF, name="itself.py")
    settle(target)
    text = probe.read(target.pid, "locks")
    assert re.search(r"^thread \d+ \(MainThread\) waits for Lock lock in ", text, re.M), text


BASES = """
import threading
Large = type("Large", (), {f"name_{i}": i for i in range(200_000)})
Gone = type("Gone", (), {f"name_{i}": i for i in range(200_000)})
for name in [name for name in vars(Gone) if name.startswith("name_")]:
    delattr(Gone, name)  # their places in its dict stay
class Many(type):
    def mro(cls):
        return [cls] + [Large if cls.__name__ == "Full" else Gone] * 200_000 + [object]
class Full(metaclass=Many):
    pass
class Empty(metaclass=Many):
    pass
calls = "".join(f"        x.a{i}.acquire(); y.a{i}.acquire()\\n" for i in range(25))
exec(f'''
def wait(n, x, y, no=False):
    if no:
{calls}
    if n:
        return wait(n - 1, y, x)
    print("ready", flush=True)
    lock.acquire()
''')
lock = threading.Lock()
lock.acquire()
wait(500, Full(), Empty)
"""


@pytest.mark.attack
def test_many_large_bases(probe, any_python):
    """A class of 200,000 bases with 200,000 attributes each: an attribute isn't looked for in all of them."""
    target = any_python.run_source(BASES, name="bases.py")
    settle(target)
    text = probe.read(target.pid, "locks")
    assert re.search(r"^thread \d+ \(MainThread\) waits for Lock lock in wait ", text, re.M), text


NAMES = """
import sys, threading
names = "".join(f"        global name_{i}; name_{i} = name_{i} + {i}\\n" for i in range(4000))
exec(f'''
def deep(n, no=False):
    if no:
{names}
        lock.release()
    if n:
        return deep(n - 1)
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()
''')
lock = threading.Lock()
sys.setrecursionlimit(100_000)
deep(60_000)
"""


@pytest.mark.attack
@pytest.mark.python(minimum=(3, 11))
def test_large_functions(probe, python):
    """Each of 60,000 frames has a function of 4,000 names, which is too large to be looked at."""
    target = python.run_source(NAMES, name="large_functions.py")
    settle(target)
    text = probe.read(target.pid, "locks")
    assert re.search(r"^thread \d+ \(MainThread\) waits for Lock \w+ in deep ", text, re.M), text[:500]
