"""locks, of asyncio tasks (tests/targets/tasks_wait.py): what each waits for, who holds it, which wait in circles."""
import pathlib
import re

import pytest

from interpreters import eventually
from sql import ask

SCRIPT = "tasks_wait.py"
LINES = (pathlib.Path(__file__).parent.parent / "targets" / SCRIPT).read_text().splitlines()
MARKS = {mark: str(number) for number, line in enumerate(LINES, 1)
         for mark in re.findall("# (.+ (?:waits|takes))$", line)}

# name: kind, call, name of it, holder, certain
WAITS = {
    "seller": ("asyncio.Lock", "acquire", "ledger.lock", "buyer", "1"),
    "buyer": ("asyncio.Lock", "acquire", "inventory.lock", "seller", "1"),
    "wanting": ("asyncio.Lock", "acquire", "lock", "holder", "1"),
    "twice": ("asyncio.Lock", "acquire", "lock", "twice", "1"),
    "listener": ("asyncio.Event", "wait", "event", "", ""),
    "getter": ("asyncio.Queue", "get", "queue", "", ""),
    "putter": ("asyncio.Queue", "put", "queue", "", ""),
    "joiner": ("asyncio.Queue", "join", "queue", "", ""),
    "uncounted": ("asyncio.Semaphore", "acquire", "semaphore", "counter", "0"),
    "waiter": ("asyncio.Condition", "wait", "condition", "", ""),
    "second": ("asyncio.Condition", "acquire", "condition", "condition's", "1"),
    "promised": ("asyncio.Future", "", "future", "", ""),
    "mutual-1": ("Task", "", "mutual-2", "mutual-2", "1"),
    "mutual-2": ("Task", "", "mutual-1", "mutual-1", "1"),
    "back": ("Task", "", "several", "several", "1"),
}
DEADLOCKS = {frozenset({"seller", "buyer"}), frozenset({"twice"}), frozenset({"mutual-1", "mutual-2"}),
             frozenset({"several", "back"})}


def places(probe, target):
    return ask(probe.path / str(target.pid) / "query",
               "SELECT * FROM locks WHERE task IS NOT NULL ORDER BY waiter, holder")


@pytest.mark.python(minimum=(3, 12))
def test_tasks(probe, python):
    target = python.run(SCRIPT)
    rows = places(probe, target)
    several = [row for row in rows if row["waiter"] == "several"]
    assert [row["holder"] for row in several] == ["back", "idle"]  # gather() ends with both
    others = [row for row in rows if row not in several]
    found = {row["waiter"]: (row["kind"], row["call"], row["name"], row["holder"], row["certain"]) for row in others}
    assert found == WAITS
    assert len(others) == len(WAITS)
    for row in rows:
        assert row["tid"] == str(target.pid) and row["file"].endswith(SCRIPT)
        assert row["lineno"] == MARKS[f"{row['waiter']} waits"], row
        if row["holder"] and row["kind"] != "Task":
            assert row["taken_lineno"] == MARKS[f"{row['holder']} takes"], row
            assert row["holder_tid"] == str(target.pid) and row["holder_task"]
    deadlocks = {}
    for row in rows:
        if row["deadlock"]:
            deadlocks.setdefault(row["deadlock"], set()).add(row["waiter"])
    assert {frozenset(names) for names in deadlocks.values()} == DEADLOCKS
    assert len({row["address"] for row in rows if row["waiter"] in ("putter", "joiner")}) == 1


@pytest.mark.python(minimum=(3, 12))
def test_text(probe, python):
    """Deadlocks first, and since when."""
    target = python.run(SCRIPT)
    path = probe.path / str(target.pid) / "locks"
    lines = path.read_text().splitlines()
    assert all(re.match(r"deadlock( until a timeout)?: task 0x", line) for line in lines[:4]), lines
    assert not any("deadlock" in line for line in lines[4:])
    circle = next(line for line in lines if "ledger.lock" in line)
    for name, lock, other in ("seller", "inventory", "ledger"), ("buyer", "ledger", "inventory"):
        assert (f"holds asyncio.Lock {lock}.lock ({SCRIPT}:{MARKS[name + ' takes']}) and waits for asyncio.Lock "
                f"{other}.lock ({SCRIPT}:{MARKS[name + ' waits']})") in circle, circle
    assert any(re.fullmatch(rf"task 0x[0-9a-f]+ \(listener\) waits for asyncio\.Event event in listen "
                            rf"\({SCRIPT}:{MARKS['listener waits']}\)(, for .* s)?", line) for line in lines), lines
    assert re.search(r"^Stuck: deadlock of task 0x", (path.parent / "status").read_text(), re.M)
    eventually(lambda: re.search(r"\(listener\) waits for .*, for [\d.]+ s$", path.read_text(), re.M))


CHURN = """
import asyncio, random
async def take(locks, n):
    while True:
        async with locks[n % 2]:
            await asyncio.sleep(0)
            if n % 4 == 0:
                async with locks[2]:
                    for _ in range(random.randrange(1, 4)):  # else all may go round in step for ever
                        await asyncio.sleep(0)
        if n % 3 == 0:
            await locks[2].acquire()
            await asyncio.sleep(0)
            locks[2].release()
async def main():
    locks = [asyncio.Lock() for _ in range(3)]
    tasks = [asyncio.create_task(take(locks, n)) for n in range(12)]
    print("ready", flush=True)
    await asyncio.gather(*tasks)
asyncio.run(main())
"""


@pytest.mark.python(minimum=(3, 12))
def test_churn(probe, python):
    """However fast locks change hands, nobody is said to hold one that another one holds, or that he waits for."""
    target = python.run_source(CHURN)
    path = probe.path / str(target.pid) / "locks"
    waits = re.compile(r"task (0x[0-9a-f]+) .* waits for asyncio\.Lock (\S+) .*?held by task (0x[0-9a-f]+) ")
    seen = []

    def enough():
        lines = path.read_text().splitlines()
        if any(line.startswith("[torn") for line in lines):
            return False
        assert not any("deadlock" in line for line in lines), lines
        holders = {}
        for waiter, lock, holder in (found.groups() for line in lines if (found := waits.match(line))):
            assert waiter != holder and holders.setdefault(lock, holder) == holder, lines
            seen.append(lock)
        return len(seen) >= 200 and len(set(seen)) == 3
    eventually(enough, what="200 waits of three locks")


@pytest.mark.python(maximum=(3, 11))
def test_older(probe, python):
    """Tasks can't be found there; threads are told as ever."""
    target = python.run_source("""
import asyncio
async def main():
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
""")
    assert places(probe, target) == []
    assert "task" not in (probe.path / str(target.pid) / "locks").read_text()
