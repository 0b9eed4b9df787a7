"""Watchpoints of one frame: names as a thread has them, for as long as that call lasts."""
import errno
import re

import pytest

from commands import Commands
from debugged import Events
from interpreters import eventually, patience
from sql import ask

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = """
import queue, sys, threading, weakref

class Box:
    pass

def numbers(inbox):
    count = 0
    while True:
        item = inbox.get()
        if item is None:
            return
        count += 1
        yield item

def work(inbox, outbox, boxes):
    total, box = 0, Box()
    box.value = 0
    boxes.append(weakref.ref(box))
    for item in numbers(inbox):
        total += item
        box.value = total
        if item == 13:
            raise ValueError
        if item == 99:
            raise SystemExit
        outbox.put(total)

def serve(inbox, outbox, boxes):
    calls = 0
    while True:
        try:
            work(inbox, outbox, boxes)
        except ValueError:
            pass
        calls += 1
        outbox.put("freed" if boxes.pop()() is None else "kept")

shared = 0
queues = [(queue.SimpleQueue(), queue.SimpleQueue(), []) for _ in range(2)]
threads = [threading.Thread(target=serve, args=each) for each in queues]
for thread in threads:
    thread.start()
print("ready", flush=True)
for line in sys.stdin:
    number, item = line.split()
    if item == "share":
        shared += 1
        print(shared, flush=True)
        continue
    queues[int(number)][0].put(None if item == "end" else int(item))
    if item == "99":
        threads[int(number)].join()
    print("ended" if item == "99" else queues[int(number)][1].get(), flush=True)
for thread, (inbox, *_) in zip(threads, queues):
    if thread.is_alive():
        inbox.put(99)
"""
COUNTS, ADDS = (1 + SOURCE.split("\n").index(line) for line in ("        count += 1", "        total += item"))


RETURNED, ENDED = "its frame has returned", "its thread has ended"


class Program:
    def __init__(self, probe, target, a, b):
        self.target, self.a, self.b = target, a, b
        self.commands = Commands(probe, target.pid)
        self.directory = self.commands.directory
        self.file = self.directory / "breakpoints"
        self.sleeping()

    def sleeping(self):
        for tid in self.a, self.b:
            where = self.directory / f"threads/{tid}/frames/0/locals"
            eventually(lambda: where.parent.exists() and "count = " in where.read_text(), what="a thread that waits")

    def set(self, line, mode="a"):
        """The number of what was set."""
        with open(self.file, mode) as file:
            file.write(line + "\n")
        return int(self.lines()[-1].partition(":")[0])

    def armed(self, number):
        """Its write doesn't wait for a debug register."""
        eventually(lambda: ", by " in (state := self.state(number)) or not state.startswith("hw"), what="its register")

    def lines(self):
        return [line for line in self.file.read_text().splitlines() if not line.startswith("#")]

    def state(self, number):
        (line,) = [line for line in self.lines() if line.startswith(f"{number}:")]
        return line.partition("  # ")[2]

    def ended(self, number, *words):
        """It has no place any more, and says why."""
        state = eventually(lambda: state if (state := self.state(number)).startswith("done") else None,
                           what=f"the end of {number}")
        assert state.endswith(tuple(f", {why}" for why in (RETURNED, *words))), state
        (row,) = ask(self.directory / "query", f"SELECT places FROM breakpoints WHERE id = {number}")
        assert row["places"] == "0"

    def send(self, number, item, answer):
        self.target.send(f"{number} {item}")
        self.target.expect(str(answer))

    def hits(self, number, count):
        def found():
            rows = ask(self.directory / "query", f"""SELECT tid, func, lineno, old_value, new_value FROM hits
                                                     WHERE id = {number} AND hit ORDER BY hit""")
            return rows if len(rows) >= count else None
        rows = eventually(found, what=f"{count} hits")
        return [(int(row["tid"]), row["func"], int(row["lineno"] or 0), row["old_value"], row["new_value"])
                for row in rows]

    def refused(self, line):
        """What can't be done changes nothing."""
        before = self.file.read_text()
        error, words = self.commands.refused("breakpoints", line + "\n")
        assert self.lines() == [line for line in before.splitlines() if not line.startswith("#")]
        return error, words


@pytest.fixture
def program(probe, python):
    target = python.run_source(SOURCE)
    tids = [tid for tid in target.tids() if tid != target.pid]
    program = Program(probe, target, *tids)
    yield program
    assert target.process.poll() is None
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0
    assert target.stderr() == ""


def test_variables(program):
    """Of that thread alone, from the first write on, in a generator and in who calls it."""
    a = program.a
    count, total = program.set(f"watch count in {a}"), program.set(f"watch total in {a}/1")
    assert program.state(count).startswith("line, 0 hits") and program.state(total).startswith("line, 0 hits")
    program.send(0, 5, 5)
    program.send(1, 7, 7)
    program.send(0, 2, 7)
    name = "numbers" if program.hits(count, 2)[0][1] == "numbers" else None
    assert program.hits(count, 2) == [(a, name, COUNTS, "0", "1"), (a, name, COUNTS, "1", "2")]
    assert program.hits(total, 2) == [(a, "work", ADDS, "0", "5"), (a, "work", ADDS, "5", "7")]
    program.send(0, "end", "freed")
    program.ended(count)
    program.ended(total)
    program.sleeping()
    program.send(0, 1, 1)
    assert len(program.hits(total, 2)) == 2


def test_last_write(program):
    """What is written just before the call ends is told."""
    number = program.set(f"watch box.value in {program.a}/1")
    program.armed(number)
    program.send(0, 13, "freed")
    program.ended(number)
    assert [hit[3:] for hit in program.hits(number, 1)] == [("0", "13")]


@pytest.mark.parametrize("expression, depth", [("box.value", 1), ("total", 1), ("count", 0), ("calls", 2)])
@pytest.mark.parametrize("item, answer", [("end", "freed"), (13, "freed"), (99, "ended")])
def test_end(program, expression, depth, item, answer):
    """By a return, an exception, or with its thread; what the frame had is given back as without us."""
    with Events(program.commands.probe, program.target.pid) as events:
        number = program.set(f"watch {expression} in {program.a}/{depth}")
        program.armed(number)
        program.send(0, 3, 3)
        if expression != "calls":
            program.hits(number, 1)
        program.send(0, item, answer)
        if expression == "calls" and item != 99:
            program.hits(number, 1)
            return
        # a generator that is given up is closed without running from 3.13 on: that is found by looking
        program.ended(number, *[ENDED] * (expression == "count" and item == 99))
        event = eventually(lambda: event if (event := events.next("breakpoint"))["state"] == "done" else None)
        assert event["id"] == number and program.state(number).endswith(event["note"])


def test_storage(program):
    """What an attribute is kept in, and a global, are watched as ever."""
    a = program.a
    value, shared = program.set(f"watch box.value in {a}/1"), program.set(f"watch shared in {a}")
    assert re.match("hw|dict|line", program.state(value)) and re.match("hw|dict|line", program.state(shared))
    for number in value, shared:
        program.armed(number)
    program.send(1, 4, 4)
    program.send(0, 5, 5)
    program.send(0, "share", 1)
    assert [hit[3:] for hit in program.hits(value, 1)] == [("0", "5")]
    assert [hit[3:] for hit in program.hits(shared, 1)] == [("0", "1")]


def test_stop(program):
    a = program.a
    program.set(f"stop watch total in {a}/1 if new > 5")
    program.send(1, 6, 6)
    program.send(0, 5, 5)
    program.target.send("0 1")
    ctl = program.directory / f"threads/{a}/ctl"
    eventually(lambda: ctl.read_text().startswith("stopped by watchpoint 1 at "), what="the stop")
    assert "total = 6" in (program.directory / f"threads/{a}/frames/0/locals").read_text()
    value, item = program.set(f"watch box.value in {a}"), program.set(f"watch item in {a}/0")  # where it is held
    program.armed(value)
    program.commands.run(f"threads/{a}/ctl", "continue\n")
    program.target.expect("6")
    program.send(0, -3, 3)
    assert [hit[3:] for hit in program.hits(value, 2)] == [("5", "6"), ("6", "3")]
    assert [hit[3:] for hit in program.hits(item, 1)] == [("1", "-3")]


def test_detach(program, python):
    for expression in "total", "box.value":
        program.set(f"watch {expression} in {program.a}/1")
    program.send(0, 5, 5)
    said = program.commands.detach()  # before 3.12 who was told of lines is told a last time, where code goes on
    assert said == "Agent: none\n" or python.version < (3, 12) and said.startswith("Agent: ended; the library stays")
    program.send(0, 2, 7)
    program.send(0, "end", "freed")


def test_written_back(program):
    """What the file shows is taken as it is, also of what has ended; new words are a new line."""
    a = program.a
    number = program.set(f"watch  count  in {a} / 0 {{item}} if item x 3")
    assert program.lines()[0].startswith(f"{number}: log watch count in {a} {{item}} if item x 3  # line, 0 hits")
    before = program.file.read_text()
    program.set(before, "w")
    assert program.file.read_text() == before
    program.send(0, "end", "freed")
    program.ended(number)
    program.sleeping()
    before = program.file.read_text()
    program.set(before, "w")
    assert program.file.read_text() == before
    other = program.set(f"watch count in {a} {{item}} if item x 3")
    assert other != number
    program.send(0, 5, 5)
    assert len(program.hits(other, 1)) == 1
    program.commands.run("breakpoints", f"-watch count in {a}\n")
    assert program.lines() == []


def test_switched(program):
    """It is looked up anew as it is switched on, in the same thread."""
    number = program.set(f"disabled watch total in {program.a}/1")
    program.send(0, 5, 5)
    program.send(0, "end", "freed")
    program.sleeping()
    program.set(f"enable {number}")
    program.send(0, 2, 2)
    assert [hit[3:] for hit in program.hits(number, 1)] == [("0", "2")]
    program.set(f"disable {number}")
    program.send(0, 99, "ended")
    error, words = program.refused(f"enable {number}")
    assert error == errno.ESRCH and "the thread has ended" in words


def test_refused(program):
    a = program.a
    program.set(f"watch total in {a}/1")
    for line, error, words in [
            (f"watch total in {a}/99", errno.ENOENT, "no frame 99: the thread has 6 now"),
            (f"watch nothing in {a}", errno.EINVAL, "it has no value now: NameError: name 'nothing' is not defined"),
            (f"watch total in {a}", errno.EINVAL, "it has no value now: NameError: name 'total' is not defined"),
            ("watch total in 2147483647", errno.ESRCH, "the process has no thread 2147483647"),
            ("watch total in 0", errno.EINVAL, "no thread has that number"),
            (f"watch total in {a}/99999999999", errno.EINVAL, "no thread has so many frames"),
            (f"watch count in {a} in {a}", errno.EINVAL, "it has no value now: TypeError"),
            (f"watch total in {a} and 1", errno.EINVAL, "it has no value now")]:
        said = program.refused(line)
        assert said[0] == error and words in said[1], (line, said)
    own = program.commands.status()["AgentThreads"].split()[-1]
    assert program.refused(f"watch total in {own}")[0] == errno.ESRCH
    with pytest.raises(OSError):
        program.set("watch nothing", "w")
    program.send(0, 5, 5)
    assert len(program.hits(1, 1)) == 1
