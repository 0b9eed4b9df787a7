"""Watchpoints: what is found behind an expression, and what is seen of it, on every version."""
import errno
import signal

import pytest

import agent_client as agent
from agent_client import WATCH, WATCH_ADDRESS
from agents import connect, ended, start
from interpreters import eventually, patience
from sql import settle
from stopping import reads_input
from watching import Hardware, armed, hits, moved, needs_hardware, remove, rows, send, slots, state, watch

PROGRAM = """
import array, ctypes, sys, threading
import probing

class Plain:
    pass

class Slots:
    __slots__ = "a", "b"

class Struct(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]

counter = 0
items = [0, 10, 20]
table = {"lr": 0.1, 5: 1}
plain = Plain()
plain.first, plain.second = 1, 2
slots = Slots()
slots.a, slots.b = "a", "b"
floats = array.array("d", [1.0, 2.0, 3.0])
bytes_ = bytearray(b"abcdefgh")
view = memoryview(floats)
ints = (ctypes.c_int * 4)(1, 2, 3, 4)
struct = Struct(1, 2.0)

def write(statement):
    exec(compile("def writer():\\n    " + statement + "\\nwriter()\\n", "writer.py", "exec"), globals())

print("ready", flush=True)
for line in sys.stdin:
    line = line.strip()
    if line.startswith("thread "):
        thread = threading.Thread(target=write, args=[line[7:]])
        thread.start()
        thread.join()
    else:
        write(line)
    print("done", flush=True)
"""


@pytest.fixture
def victim(python):
    return start(python, PROGRAM, name="watchpoints.py")


@pytest.fixture
def client(victim):
    return connect(victim)


def do(target, statement):
    target.send(statement)
    target.expect("done")


def check(hit, old, new, tid=None, func="writer", line=2):
    assert (hit.old_value, hit.new_value) == (old, new)
    assert (hit.func, hit.file, hit.lineno) == (func, "writer.py", line)
    assert tid is None or hit.tid == tid


pytestmark = pytest.mark.python(minimum=(3, 10))

HARDWARE = [
    ("items[1]", "items[1] = 11", "10", "11"),
    ("items[-1]", "items[2] = None", "20", "None"),
    ("plain.second", "plain.second = [7]", "2", "[7]"),
    ("slots.b", "slots.b = 'c'", "'b'", "'c'"),
    ("floats[2]", "floats[2] = 4.5", "3.0", "4.5"),
    ("bytes_[1]", "bytes_[1] = 120", "98", "120"),
    ("view[0]", "floats[0] = -1", "1.0", "-1.0"),
    ("ints[3]", "ints[3] = -4", "4", "-4"),
]


@needs_hardware
@pytest.mark.parametrize("expression, statement, old, new", HARDWARE, ids=[each[0] for each in HARDWARE])
def test_hardware(victim, client, expression, statement, old, new):
    watch(client, expression)
    hardware = Hardware(client).look()
    assert state(client)[1].state == "hw"
    do(victim, statement)
    check(*hits(client, 1), old, new, victim.pid)
    assert hits(client, 1)[0].address
    assert hits(client, 1)[0].stack.endswith("writer (writer.py:2)")
    assert hits(client, 1)[0].stack.startswith(f"<module> ({victim.path()}:")
    remove(client, 1)
    hardware.look()
    assert not hardware.events
    do(victim, statement.replace("=", "= 1 if True else"))
    assert len(rows(client, "hits")) == 1
    hardware.close()


@pytest.mark.parametrize("expression, inside", [("items", True), ("table", True), ("counter", False), ("plain", False)])
def test_whole(victim, client, python, expression, inside):
    """Of what can be changed in place it is said that only another one in its place is seen."""
    watch(client, expression)
    row = state(client)[1]
    assert row.state == ("dict" if python.version >= (3, 12) else "hw")
    assert ("watch an element" in (row.note or "")) == inside


@needs_hardware
def test_hardware_in_a_row(victim, client):
    """Numbers are known however fast others take their place; what else was there for a moment is known, or said not to
    be: never another one that is at its address."""
    written = ["-(1 << 40)", "0.5", "True", "None", "'x' * 50", "'y' * 50", "3", "-4", "2.5", "'end'"]
    watch(client, "slots.b")
    hardware = Hardware(client).look()
    do(victim, "; ".join(f"slots.b = {value}" for value in written))
    found = hits(client, len(written))
    wanted = [repr(eval(value)) for value in written]
    for i, (hit, value) in enumerate(zip(found, wanted)):
        assert hit.new_value == value or hit.new_value is None and value[0] == "'" and i + 1 < len(wanted)
        assert hit.old_value == (found[i - 1].new_value if i else "'b'")
    hardware.close()


@needs_hardware
def test_hardware_in_threads(victim, client):
    watch(client, "floats[0]")
    hardware = Hardware(client).look()
    do(victim, "thread floats[0] = 2")
    do(victim, "thread floats[0] = 3")
    do(victim, "floats[0] = 3")  # no change
    do(victim, "floats[0] = 4")
    found = hits(client, 3)
    assert [(each.old_value, each.new_value) for each in found] == [("1.0", "2.0"), ("2.0", "3.0"), ("3.0", "4.0")]
    assert found[2].tid == victim.pid and victim.pid not in (found[0].tid, found[1].tid)
    assert ";write (" in found[0].stack
    hardware.close()


@needs_hardware
def test_storage_moves(victim, client):
    watch(client, "items[1]")
    hardware = Hardware(client).look()
    before = slots(client)[0]
    do(victim, "items.extend(range(1000))")
    moved(client, before)
    hardware.look()
    assert "moved" in eventually(lambda: state(client)[1].note)
    do(victim, "items[1] = 5")
    check(*hits(client, 1), "10", "5")
    do(victim, "globals().update(items=[1, 2, 3])")
    other = hits(client, 2)[1]
    assert (other.old_value, other.new_value, other.func) == ("5", "2", None)
    hardware.look()
    do(victim, "items[1] = 7")
    check(hits(client, 3)[2], "2", "7")
    hardware.close()


DICTS = [
    ("counter", "globals()['counter'] = 3", "0", "3"),
    ("counter", "global counter; counter += 1", "0", "1"),
    ("table['lr']", "table['lr'] = 0.2", "0.1", "0.2"),
    ("table[5]", "del table[5]", "1", None),
    ("table['lr']", "table.clear()", "0.1", None),
    ("table['lr']", "table.update(lr=1)", "0.1", "1"),
    ("sys.maxsize", "sys.maxsize = 5", "9223372036854775807", "5"),
    ("items", "global items; items = ()", "[0, 10, 20]", "()"),
]


@pytest.mark.python(minimum=(3, 12))
@pytest.mark.parametrize("expression, statement, old, new", DICTS, ids=[f"{each[0]}-{each[1][:9]}" for each in DICTS])
def test_dict(victim, client, expression, statement, old, new):
    watch(client, expression)
    assert state(client)[1].state == "dict"
    do(victim, "globals()['unrelated'] = 1")
    do(victim, statement)
    check(*hits(client, 1), old, new, victim.pid)
    assert hits(client, 1)[0].address is None
    remove(client, 1)
    do(victim, "table['lr'] = 9; globals().update(counter=9)")
    assert len(rows(client, "hits")) == 1


@needs_hardware
@pytest.mark.python(maximum=(3, 11))
@pytest.mark.parametrize("expression, statement, old, new", DICTS, ids=[f"{each[0]}-{each[1][:9]}" for each in DICTS])
def test_dict_hardware(victim, client, expression, statement, old, new):
    watch(client, expression)
    assert state(client)[1].state == "hw"
    hardware = Hardware(client).look()
    do(victim, statement)
    hit = hits(client, 1)[0]
    if statement == "table.clear()":  # all of its memory is given back, and nothing written
        assert (hit.old_value, hit.new_value, hit.func) == (old, new, None)
        do(victim, "table['lr'] = 7")
        assert hits(client, 2)[1].new_value == "7"
    else:
        check(hit, old, new, victim.pid)
    hardware.close()


LOCALS = """
import sys
import probing

def work(start):
    total = start
    parts = []
    for i in range(3):
        total += i
        parts.append(total)
    total = None
    return parts

def main():
    count = 0
    print("ready", flush=True)
    for line in sys.stdin:
        count += 1
        box = [count]
        box[0] = len(work(5))
        exec(line)
        print("done", flush=True)

main()
"""


@pytest.fixture
def local(python):
    return start(python, LOCALS, name="watched_locals.py")


def lineno(source, text):
    return 1 + source.split("\n").index(text)


def test_local(local, python):
    client = connect(local)
    watch(client, "count")
    assert state(client)[1].state == "line"
    do(local, "")
    do(local, "pass")
    line = lineno(LOCALS, "        count += 1")
    found = hits(client, 2)
    assert [(hit.old_value, hit.new_value, hit.lineno) for hit in found] == [("0", "1", line), ("1", "2", line)]
    assert {(hit.func, hit.file, hit.tid) for hit in found} == {("main", local.path(), local.pid)}
    assert all(hit.stack.endswith(f";main ({local.path()}:{line})") for hit in found)
    remove(client, 1)
    do(local, "pass")
    assert len(rows(client, "hits")) == 2


COMPUTED = """
import sys
import probing

class Thing:
    count = 0
    twice = property(lambda self: 2 * self.count)

def main():
    held = Thing()
    print("ready", flush=True)
    for line in sys.stdin:
        held.count += 1
        print("done", flush=True)

main()
"""


def test_names_are_the_programs(python):
    """The thread that looks the names up may be the one whose names they are: not those of what looks them up."""
    target = start(python, COMPUTED, name="watched_computed.py")
    client = connect(target)
    watch(client, "held.twice")
    assert state(client)[1].state == "line"
    do(target, "")
    do(target, "")
    line = lineno(COMPUTED, "        held.count += 1")
    found = [(hit.old_value, hit.new_value, hit.lineno) for hit in hits(client, 2)]
    assert found == [("0", "2", line), ("2", "4", line)]


ARRAYS = """
import sys
import probing
import numpy as np
try:
    if "numpy" in sys.argv[1:]:  # it needs no more, which takes a second of a processor
        raise ImportError
    import torch
except ImportError:
    torch = None

class Model:
    pass

grid = np.zeros((4, 5))
small = np.zeros(8, dtype="f4")[::2]
flags = np.zeros(3, dtype=bool)
zero = np.array(1.5)
single_ = np.array([0.5], dtype="f4")
model = Model()
if torch:
    model.weight = torch.nn.Parameter(torch.zeros(2, 3))
    half = torch.zeros(4, dtype=torch.bfloat16)
    loss = torch.tensor(0.0)

def write(statement):
    exec(compile("def writer():\\n    " + statement + "\\nwriter()\\n", "writer.py", "exec"), globals())

print("torch" if torch else "numpy", flush=True)
print("ready", flush=True)
for line in sys.stdin:
    write(line.strip())
    print("done", flush=True)
"""

NUMPY = [
    ("grid[1,2]", "grid[1, 2] = 4", "0.0", "4.0"),
    ("grid[-1][0]", "grid[3] += 1", "0.0", "1.0"),
    ("grid[0,0]", "np.add(grid, 2, out=grid)", "0.0", "2.0"),
    ("small[1]", "small[:] = 3", "0.0", "3.0"),
    ("flags[2]", "flags[2] = True", "False", "True"),
    ("zero", "zero[()] = np.nan", "1.5", "nan"),
    ("single_", "single_[0] = np.nan", "0.5", "nan"),
]
TORCH = [
    ("model.weight.data[0,1]", "model.weight.data[0, 1] = float('nan')", "0.0", "nan"),
    ("model.weight[1,2].item()", "model.weight.data.add_(1)", "0.0", "1.0"),
    ("half[3]", "half[3] = -2", "0.0", "-2.0"),
    ("loss", "loss.add_(5)", "0.0", "5.0"),
]


def arrays(any_python, *only):
    if any_python.source != "debian":
        pytest.skip("numpy comes with Debian's interpreter")
    return start(any_python, ARRAYS, *only, name="watched_arrays.py", ready=False)


def check_array(target, expression, statement, old, new):
    target.expect("ready")
    client = connect(target)
    watch(client, expression)
    hardware = Hardware(client).look()
    assert state(client)[1].state == "hw"
    do(target, statement)
    check(*hits(client, 1), old, new, target.pid)
    hardware.close()


@pytest.mark.long
@needs_hardware
@pytest.mark.parametrize("expression, statement, old, new", NUMPY, ids=[each[0] for each in NUMPY])
def test_numpy(any_python, expression, statement, old, new):
    target = arrays(any_python, "numpy")
    target.readline()
    check_array(target, expression, statement, old, new)


@pytest.mark.long
@needs_hardware
@pytest.mark.parametrize("expression, statement, old, new", TORCH, ids=[each[0] for each in TORCH])
def test_torch(any_python, expression, statement, old, new):
    target = arrays(any_python)
    if target.readline() != "torch":
        pytest.skip("no torch")
    check_array(target, expression, statement, old, new)


@needs_hardware
def test_torch_follows_data(any_python):
    target = arrays(any_python)
    if target.readline() != "torch":
        pytest.skip("no torch")
    target.expect("ready")
    client = connect(target)
    watch(client, "model.weight.data[0, 1]")
    hardware = Hardware(client).look()
    before = slots(client)[0]
    do(target, "model.weight.data = torch.ones(2, 3)")
    assert moved(client, before)["address"] != before["address"]
    hardware.look()
    do(target, "model.weight.data[0, 1] = 2")
    found = hits(client, 2)
    assert [(hit.old_value, hit.new_value, hit.lineno) for hit in found] == [("0.0", "1.0", None), ("1.0", "2.0", 2)]
    hardware.close()


@needs_hardware
def test_address(victim, client):
    address = int(client.eval("floats.buffer_info()[0]").text)
    answer = send(client, WATCH_ADDRESS, text=f"watch {address + 8:#x}:8", address=address + 8, length=8)
    assert answer.error == 0, answer.words
    hardware = Hardware(client).look()
    do(victim, "floats[1] = 2.5")
    check(*hits(client, 1), str(0x4000000000000000), str(0x4004000000000000), victim.pid)
    hardware.close()


def test_address_refused(any_python):
    client = connect(start(any_python, PROGRAM))
    answer = send(client, WATCH_ADDRESS, text="watch 0x1000:8", address=0x1000, length=8)
    assert answer.error == errno.EFAULT and "no memory at 0x1000" in answer.words + answer.text
    for expression in "nothing", "1 +", "items[7]", "plain.none":
        answer = send(client, WATCH, expression)
        assert answer.error == errno.EINVAL, (expression, answer.words)
    assert not any(slot["id"] for slot in client.record.read().watches)


def test_slots(any_python):
    client = connect(start(any_python, PROGRAM))
    for number in range(4):
        watch(client, f"ints[{number}]")
    answer = send(client, WATCH, "bytes_[0]")
    assert answer.error == errno.EBUSY and "1, 2, 3, 4" in answer.words + answer.text
    remove(client, 2)
    watch(client, "bytes_[0]")
    assert [slot["length"] for slot in client.record.read().watches] == [4, 1, 4, 4]


def test_refused_by_daemon(victim, client):
    """Where no debug register is to be had, values are compared at lines."""
    watch(client, "floats[0]")
    slot = client.record.read().watches[0]
    assert armed(client, 0, slot["change"], errno.EBUSY, words="gdb (pid 7) traces it").error == 0
    row = state(client)[1]
    assert row.state == "line" and "gdb (pid 7) traces it" in row.note
    assert client.record.read().watches[0]["id"] == 0
    written = ["1.0"]

    def proven():
        """Who wrote is certain where no other thread had the GIL: the agent's own takes it four times a second."""
        written.append(f"{len(written)}.5")
        do(victim, f"floats[0] = {written[-1]}")
        hit = hits(client, len(written) - 1)[-1]
        assert (hit.old_value, hit.new_value, hit.tid, hit.address) == (*written[-2:], victim.pid, None)
        return hit if hit.func else hit.error.endswith(", or in another thread") and None
    check(eventually(proven, what="a writer that is certain"), *written[-2:], victim.pid)


WRITERS = """
import sys, threading
import probing

cell = [0]

def write(first):
    for i in range(2000):
        cell[0] = first + i / 4

print("ready", flush=True)
sys.stdin.readline()
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=write, args=(10000.0 * n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done", flush=True)
sys.stdin.read()
"""


def test_threads_that_compare(python):
    """Comparing runs Python, and so other threads, which compare as well: a value lives as long as somebody looks at
    it, and none comes after one that was written later."""
    target = start(python, WRITERS, name="writers.py")
    client = connect(target)
    watch(client, "cell[0]")
    armed(client, 0, client.record.read().watches[0]["change"], errno.EBUSY, words="nobody is there")
    assert state(client)[1].state == "line"
    target.send("go")
    target.expect("done")
    written = {repr(10000.0 * n + i / 4): (n, i) for n in range(4) for i in range(2000)}
    seen = rows(client, "hits")
    assert seen and {row.new_value for row in seen} <= set(written)
    for row in seen:
        (before, old), (writer, new) = written.get(row.old_value, (None, None)), written[row.new_value]
        assert before != writer or old < new, (row.old_value, row.new_value)
    assert ended(target) == 0


@needs_hardware
def test_throttled(any_python):
    victim = start(any_python, PROGRAM)
    client = connect(victim)
    watch(client, "ints[0]")
    hardware = Hardware(client)

    def ended_meanwhile():
        """It is written until it is left alone: whether it still is once the writer has heard of that, and has
        ended."""
        hardware.look()
        do(victim, "globals().update(over=[])")
        victim.send("while not over: ints[0] += 1")
        eventually(lambda: slots(client)[0]["id"] == 0, what="it is left alone")
        hardware.look()
        client.eval("over.append(1)")
        victim.expect("done")
        return slots(client)[0]["id"] == 0
    eventually(ended_meanwhile, what="an end within that second")
    last = client.eval("ints[0]").text.strip()
    assert any("left alone" in (row.note or "") for row in rows(client, "breakpoints"))
    eventually(lambda: slots(client)[0]["id"] == 1, what="it is watched again")
    hardware.look()
    do(victim, "ints[0] = -1")
    hit = eventually(lambda: row if (row := rows(client, "hits")[-1]).new_value == "-1" else None,
                     what="the last write")
    check(hit, last, "-1", victim.pid)
    hardware.close()


TRAPS = """
import os, signal, sys
import probing

def caught(number, frame):
    print("caught", number, flush=True)

signal.signal(signal.SIGTRAP, {})
cell = [1]
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


def trap_in(pid, name):
    """Whether a line of /proc/PID/status has SIGTRAP."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(name + ":"))
    return bool(int(line.split()[1], 16) & 1 << signal.SIGTRAP - 1)


def catches(pid):
    """Whether a process has a handler of SIGTRAP."""
    return trap_in(pid, "SigCgt")


def test_other_traps(any_python):
    """SIGTRAP that isn't ours goes on to the program's own handler, or does what it would do without us."""
    target = start(any_python, TRAPS.replace("{}", "caught"))
    client = connect(target)
    watch(client, "cell[0]")
    for _ in range(2):
        # before, Python calls a handler only afterwards
        eventually(lambda: reads_input(target.pid), what="that it reads")
        target.signal(signal.SIGTRAP)
        target.expect("caught 5")
        do(target, "signal.signal(signal.SIGTRAP, caught)")
    # the agent's threads take none of the program's
    do(target, "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTRAP])")
    target.signal(signal.SIGTRAP)
    eventually(lambda: trap_in(target.pid, "SigPnd"), what="the signal in the main thread")
    do(target, "pass")
    target.send("signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTRAP])")
    target.expect("caught 5")
    target.expect("done")
    target = start(any_python, TRAPS.replace("{}", "signal.SIG_DFL"))
    watch(connect(target), "cell[0]")
    target.signal(signal.SIGTRAP)
    assert target.process.wait(patience(30)) == -signal.SIGTRAP


@needs_hardware
def test_detach(any_python):
    target = start(any_python, TRAPS.replace("{}", "signal.SIG_DFL"))
    client = connect(target)
    watch(client, "cell[0]")
    hardware = Hardware(client).look()
    assert catches(target.pid)
    do(target, "cell[0] = 5")
    hardware.close()
    assert client.detach().error == 0
    assert not catches(target.pid)
    do(target, "cell[0] = 6")


@needs_hardware
def test_fork(any_python):
    """A child isn't watched."""
    target = start(any_python, TRAPS.replace("{}", "signal.SIG_DFL"))
    client = connect(target)
    watch(client, "cell[0]")
    hardware = Hardware(client).look()
    do(target, "pid = os.fork() or (cell.__setitem__(0, 2), os._exit(7)); assert os.waitpid(pid, 0)[1] == 7 << 8")
    do(target, "cell[0] = 5")
    assert [hit.new_value for hit in hits(client, 1)] == ["5"]
    hardware.close()


STOPS = """
import sys
import probing

cell = [0]
value = 0
turns = [0]

def helper(i):
    return i

def work():
    global value
    local = 0
    for i in range(10**9):
        if go[0]:
            go[0] = False
            cell[0] = value = local = i
            wrote = i
        helper(i)
        turns[0] = i

go = [False]
print("ready", flush=True)
sys.stdin.readline()
work()
"""


@needs_hardware
@pytest.mark.parametrize("expression", ["cell[0]", "value", "local"])
def test_stop(python, expression):
    """The writer is held soon after; of what is compared at lines, at the next one."""
    target = start(python, STOPS, name="watched_stops.py")
    client = connect(target)
    if expression == "local":
        target.send("go")
        eventually(lambda: client.eval("turns[0]").text != "0\n")
    watch(client, expression, action=agent.STOP, condition="new")
    hardware = Hardware(client).look()
    if expression != "local":
        target.send("go")
        eventually(lambda: client.eval("turns[0]").text != "0\n")
    client.eval("go[0] = True")
    stop = eventually(lambda: client.record.threads().get(target.pid))
    hit, row = hits(client, 2)[:2]
    assert (stop["id"], stop["why"]) == (1, agent.BY_WATCH)
    line = lineno(STOPS, "            cell[0] = value = local = i")
    assert (hit.func, hit.lineno, hit.hit, hit.stopped, hit.resumed) == ("work", line, 1, 0, None)
    assert (row.lineno, row.hit, row.stopped, row.resumed, row.tid) == (stop["line"], None, 1, None, target.pid)
    assert stop["line"] in range(lineno(STOPS, "def helper(i):"), lineno(STOPS, "        turns[0] = i") + 1)
    if expression == "local":
        assert stop["line"] == line + 1
    assert client.eval("cell[0]").text == f"{hit.new_value}\n"
    assert client.order(agent.CONTINUE).error == 0
    assert eventually(lambda: hits(client, 2)[1].resumed) > hit.ts
    eventually(lambda: client.eval("go[0]").text == "False\n")
    hardware.close()


@needs_hardware
@pytest.mark.parametrize("expression", ["grid[1,2]", "model.weight.data[0,1]"])
def test_stop_at_nan(any_python, expression):
    """What made a NaN is held, however often there are other numbers."""
    target = arrays(any_python)
    if target.readline() != "torch":
        pytest.skip("no torch")
    target.expect("ready")
    client = connect(target)
    watch(client, expression, action=agent.STOP, condition="new != new")
    hardware = Hardware(client).look()
    do(target, f"exec('for i in range(200): {expression} = i')")
    do(target, "globals().update(over=[])")
    target.send(f"{expression} = np.nan; all(not over for _ in iter(int, 1))")  # it is held while it runs Python
    assert eventually(lambda: client.record.threads().get(target.pid))["why"] == agent.BY_WATCH
    hit = hits(client, 1)[0]
    assert (hit.old_value, hit.new_value, hit.func, hit.file, hit.lineno) == ("199.0", "nan", "writer", "writer.py", 2)
    assert client.order(agent.CONTINUE).error == 0
    client.eval("over.append(1)")
    target.expect("done")
    hardware.close()


@needs_hardware
def test_deep(victim, client):
    """A stack that is too long is cut at its outer end."""
    watch(client, "ints[2]")
    hardware = Hardware(client).look()
    do(victim, "f = lambda n: f(n - 1) if n else ints.__setitem__(2, 77); globals()['f'] = f; f(200)")
    stack = hits(client, 1)[0].stack
    assert stack.startswith("...;") and stack.count(";") > 50 and 1900 < len(stack) <= 2048
    assert stack.split(";")[1:] == [stack.split(";")[-1]] * (stack.count(";"))
    hardware.close()


@needs_hardware
def test_memory_given_back(victim, client):
    """Who gives a list's memory back writes there before the list says that it is elsewhere: that is no object."""
    watch(client, "items[0]")
    hardware = Hardware(client).look()
    for _ in range(3):
        do(victim, "[(items.extend(range(n % 300)), items.__delitem__(slice(1, None))) for n in range(3000)]")
        hardware.look()
        do(victim, "globals().update(items=[object() for _ in range(9)])")
    do(victim, "items.clear(); import gc; gc.collect()")
    assert victim.process.poll() is None and {hit.error for hit in rows(client, "hits")} <= {None}
    hardware.close()


CALLS = """
import sys, threading
import probing

class Hidden:
    def __len__(self):
        return len(self.all)
    def __getitem__(self, key):
        return self.all[key]
    def __setitem__(self, key, value):
        self.all[key] = value

hidden = Hidden()
hidden.all = {}
count = 0

def inner(n):
    return n + 1

def outer(n):
    return inner(n) + inner(n)

def fails(n):
    raise ValueError(n)

def numbers(n):
    for i in range(n):
        yield i

def nested(n):
    hidden.all[1] = outer(n)
    hidden.all[1] = [inner(n) for n in range(n)]
    hidden.all[1] = sum(numbers(n))
    try:
        hidden.all[1] = fails(n)
    except ValueError:
        hidden.all[1] = -n
    hidden.all[1] = sorted([3, n], key=inner)
    return hidden

def closure():
    shared = 0
    def change():
        nonlocal shared
        shared += 1
    print("ready", flush=True)
    for line in sys.stdin:
        nested(int(line))
        change()
        print("done", flush=True)

there, never = threading.Lock(), threading.Lock()
there.acquire(), never.acquire()

def other():
    there.release(); never.acquire()

threading.Thread(target=other, daemon=True).start()
there.acquire()
closure()
"""


@pytest.fixture
def calls(python):
    return start(python, CALLS, name="watched_calls.py")


def watch_alone(target, client, where):
    """Watches it at lines, and returns once no other thread than the main one goes on to take the GIL."""
    watch(client, where)
    assert state(client)[1].state == "line"
    client.eval("None")  # behind what the agent's thread does after a change of the set
    settle(target)


def test_writer_calls(calls, python):
    """The line that wrote, however many functions it has called meanwhile."""
    client = connect(calls)
    watch_alone(calls, client, "hidden[1] if 1 in hidden.all else None")
    for number in range(5, 8):
        do(calls, str(number))
    writers = [line for line, text in enumerate(CALLS.split("\n"), 1) if text.lstrip().startswith("hidden.all[1]")]
    writers.remove(lineno(CALLS, "        hidden.all[1] = fails(n)"))
    found = hits(client, 15)
    assert [(hit.func, hit.file, hit.lineno, hit.error) for hit in found] == \
        [("nested", calls.path(), line, None) for line in writers] * 3
    assert all(f";nested ({calls.path()}:{hit.lineno})" in hit.stack for hit in found)


def test_writer_unproven(calls):
    """Where another function may have written, the row says between which lines."""
    client = connect(calls)
    watch_alone(calls, client, "shared")
    do(calls, "5")
    hit = hits(client, 1)[0]
    line = lineno(CALLS, "        change()")
    assert (hit.old_value, hit.new_value, hit.func, hit.lineno) == ("0", "1", None, None)
    assert hit.error == f"written between {calls.path()}:{line} and {calls.path()}:{line + 1}"


THREADS = """
import sys, threading, _thread
import probing

class Hidden:
    def __len__(self):
        return 0

hidden = Hidden()
hidden.value = {1: 0}
go, gone, never = _thread.allocate_lock(), _thread.allocate_lock(), _thread.allocate_lock()
go.acquire(), gone.acquire(), never.acquire()

def other():
    go.acquire()
    hidden.value[1] += 1; gone.release(); never.acquire()

_thread.start_new_thread(other, ())
print("ready", flush=True)
for line in sys.stdin:
    go.release(); gone.acquire()
    go = _thread.allocate_lock()
    print("done", flush=True)
"""


def test_writer_in_another_thread(python):
    """What is seen in one thread, another one may have written that is still in its line."""
    victim = start(python, THREADS, name="watched_threads.py")
    client = connect(victim)
    watch(client, "len(hidden) or hidden.value[1]")
    assert state(client)[1].state == "line"
    do(victim, "")
    hit = hits(client, 1)[0]
    line = lineno(THREADS, "    go.release(); gone.acquire()")
    assert (hit.old_value, hit.new_value, hit.func, hit.lineno) == ("0", "1", None, None)
    assert hit.error == f"written between {victim.path()}:{line} and {victim.path()}:{line + 1}, or in another thread"
