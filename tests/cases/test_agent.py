"""The agent in the target: started by `import probing`, asked in its own protocol, so that it needs neither
ptrace nor a mount."""
import errno
import os
import pathlib
import random
import signal
import struct
import time

import pytest

import agent_client as agent
from agents import clients, connect, ended, library, start  # noqa: F401, a fixture
from interpreters import eventually
from stopping import reads_input

pytestmark = pytest.mark.python(minimum=(3, 10))


@pytest.mark.python(free_threaded=True)
def test_ready(python):
    target = start(python)
    before = time.time_ns()
    client = connect(target)
    said = client.hello
    assert said["version"] == agent.VERSION
    assert said["origin"] == agent.IMPORTED
    assert before - 60 * 10**9 < said["since_ns"] < before
    assert said["python_tid"] == 0
    assert said["channel_tid"] in target.tids()
    assert client.record.read().channel == -1
    assert client.record.owner == target.pid
    assert client.eval("6 * 7").text == "42\n"
    said = client.status()
    assert said["python_tid"] in target.tids() and len(target.tids()) == 3
    assert said["evals"] == 1 and 0 < said["memory"] <= 2 << 20
    assert ended(target) == 0


@pytest.mark.python(free_threaded=True)
def test_signals_are_blocked(python):
    target = start(python)
    client = connect(target)
    client.eval("1")
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
              signal.SIGSYS}
    said = client.status()
    for tid, open_ones in ((said["channel_tid"], set()), (said["python_tid"], faults)):
        status = pathlib.Path(f"/proc/{target.pid}/task/{tid}/status").read_text()
        mask = int(next(l for l in status.splitlines() if l.startswith("SigBlk")).split()[1], 16)
        for number in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}:
            assert bool(mask >> (number - 1) & 1) == (number not in open_ones), number


def test_memory(python):
    """What it costs the target, measured from outside: its own pages, not the library's text. (That counts as dirty
    too as long as the file is freshly copied and isn't on the disk yet.)"""
    target = start(python, """
        import sys, time
        print("ready", flush=True)
        sys.stdin.readline()
        import probing
        print("imported", flush=True)
        sys.stdin.read()
        """)

    def own():
        text = pathlib.Path(f"/proc/{target.pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines()
                   if line.startswith("Anonymous")) << 10

    before = own()
    target.send("import")
    target.expect("imported")
    client = connect(target)
    client.eval("1")
    assert own() - before <= 2 << 20
    assert client.status()["memory"] <= 2 << 20


@pytest.mark.python(free_threaded=True)
def test_text_of_many_frames(python):
    client = connect(start(python))
    text = "x = [\n" + "1,\n" * 100_000 + "]\nlen(x)\n"
    assert client.eval(text).text == "100000\n"
    done = client.eval("print('é' * 100_000)", output_max=1000)
    assert done.output == "é".encode() * 500 and done.flags & agent.CUT
    client.eval("big = 'x' * (3 << 20)")
    assert len(client.eval("print(big)", output_max=16 << 20).output) == (3 << 20) + 1


@pytest.mark.python(free_threaded=True)
def test_incomplete_text(python):
    client = connect(start(python))
    answer = client.eval("x = 1\nfor i in range(3):\n    x += i\n", last=False)
    assert answer.error == 0 and answer.done[2] == len("x = 1\n")
    assert client.eval("x").text == "1\n"
    assert client.eval("1 +").error == errno.EINVAL
    raised = client.eval("1 / 0")
    assert raised.error == errno.EIO and "ZeroDivisionError" in raised.text


@pytest.mark.python(free_threaded=True)
def test_many_at_once(python):
    client = connect(start(python))
    numbers = [client.start(f"print({i}, {'x' * i!r})") for i in range(32)]
    for i, number in enumerate(numbers):
        assert client.wait(number).text == f"{i} {'x' * i}\n"


def gate(target):
    """Code that ends once open_gate() was called."""
    os.mkfifo(target.cwd / "gate")
    return "open('gate').close()"


def open_gate(target):
    open(target.cwd / "gate", "w").close()


@pytest.mark.python(free_threaded=True)
def test_too_many(python):
    target = start(python)
    client = connect(target)
    client.eval("1")
    numbers = [client.start(gate(target))] + [client.start("1") for _ in range(300)]
    client.status()  # it has received them
    open_gate(target)
    errors = [client.wait(number).error for number in numbers]
    assert set(errors) == {0, errno.EBUSY}
    assert errors.count(errno.EBUSY) - (301 - 256) in {0, 1}  # the import's place is free a moment after its answer


@pytest.mark.python(free_threaded=True)
def test_cancel_queued(python):
    target = start(python)
    client = connect(target)
    client.eval("ran = []")
    first = client.start(gate(target))
    client.wait_started(first)
    second, third = client.start("ran.append(2)"), client.start("ran.append(3)")
    client.cancel(second)
    answer = client.wait(second)
    assert answer.error == errno.ECANCELED and not answer.started
    assert client.answers[first].done is None  # at once
    open_gate(target)
    assert client.wait(third).error == 0
    assert client.eval("ran").text == "[3]\n"


@pytest.mark.python(free_threaded=True)
def test_cancel_running(python):
    client = connect(start(python))
    for _ in range(20):
        number = client.start("while True: pass")
        client.wait_started(number)
        client.cancel(number)
        assert client.wait(number).error == errno.EINTR
        assert client.eval("1 + 1").text == "2\n"  # what came late strikes nobody else
    client.cancel(number)  # long gone
    client.cancel(10**6)   # never was
    assert client.eval("1 + 1").text == "2\n"


@pytest.mark.python(free_threaded=True)
def test_cancel_in_an_import(python):
    """Whose lock is every thread's: it isn't left taken."""
    client = connect(start(python))
    # kept, so that none goes: what is raised in its weak reference's callback is only printed
    client.eval("import _imp, _frozen_importlib as importer\nkept = importer._get_module_lock('some.module')")
    for _ in range(20):
        number = client.start("while True:\n    importer._get_module_lock('some.module')\n"
                              "    for i in range(20): pass")
        client.wait_started(number)
        client.cancel(number)
        assert client.wait(number).error == errno.EINTR
        assert client.eval("_imp.lock_held()").text == "False\n"


@pytest.mark.python(free_threaded=True)
def test_code_that_does_not_end(python):
    """A call into C can't be interrupted: another thread takes over, and the first ends with it."""
    target = start(python)
    client = connect(target)
    fd = int(client.eval("import os; there, here = os.pipe(); there").text)
    threads = len(os.listdir(f"/proc/{target.pid}/task"))
    stuck = []
    for _ in range(3):
        number = client.start("os.read(there, 1); print('has it')")
        client.wait_started(number)
        tid = client.status()["python_tid"]
        reads = ["0", hex(fd)]  # read(2) of x86-64
        eventually(lambda: pathlib.Path(f"/proc/{tid}/syscall").read_text().split()[:2] == reads, what="the call")
        client.cancel(number)
        client.status()  # it has received that
        time.sleep(0.6)
        assert client.eval("1 + 1").text == "2\n"
        stuck.append(number)
    # on a busy machine one that was only slow may have been taken over from, too: it ends
    eventually(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == threads + 3, what="the threads that are stuck")
    assert all(client.answers[number].done is None for number in stuck)
    assert client.wait(client.send(agent.DETACH)).error == errno.EBUSY
    assert client.eval("1 + 1").text == "2\n"
    for ended in range(1, 4):
        client.eval("os.write(here, b'x')")
        eventually(lambda: client.status() and sum(client.answers[number].done is not None
                                                   for number in stuck) == ended)
    assert {client.answers[number].error for number in stuck} == {errno.EINTR}
    eventually(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == threads)
    assert client.wait(client.send(agent.DETACH)).error == 0


@pytest.mark.python(free_threaded=True)
def test_cancel_races_with_the_end(python):
    client = connect(start(python))
    client.eval("n = 0")
    for i in range(300):
        number = client.start("for i in range(200): pass\nn += 1")
        time.sleep(random.random() * 0.0004)
        client.cancel(number)
        assert client.wait(number).error in (0, errno.EINTR, errno.ECANCELED)
    assert client.eval("'alive'").text == "'alive'\n"


def test_gil_held(python):
    """What was given up while the GIL was out of reach never runs."""
    _, inside = library(python)
    target = python.run("gil_hog.py", "3", env={"PYTHONPATH": inside, "PROBING": "1"})
    # gil_hog.py does not import it
    with pytest.raises(LookupError):
        connect(target)
    target = start(python, """
        import ctypes, probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        print("holds", flush=True)
        ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # PyDLL, unlike CDLL, keeps the GIL
        print("let go", flush=True)
        sys.stdin.readline()
        print(globals().get("fired"), flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("hold")
    target.expect("holds")
    eventually(lambda: reads_input(target.pid), what="the GIL held")
    numbers = [client.start("fired = True") for _ in range(3)]
    assert client.status()["evals"] == 1  # answers all the same
    for number in numbers:
        client.cancel(number)
        assert client.wait(number).error == errno.ECANCELED
    detach = client.send(agent.DETACH)
    client.cancel(detach)
    assert client.wait(detach).error == errno.ETIMEDOUT
    assert client.status()["evals"] == 1
    target.send("")
    target.expect("let go")
    assert client.eval("1 + 1").text == "2\n"
    target.send("look")
    target.expect("None")


def switch_intervals(target, runtime, microseconds):
    """Addresses in _PyRuntime that hold the number."""
    found = []
    with open(f"/proc/{target.pid}/mem", "rb", buffering=0) as memory:
        for page in range(runtime & ~4095, runtime + (1 << 20), 4096):
            try:
                memory.seek(page)
                words = struct.unpack("=512Q", memory.read(4096))
            except (OSError, struct.error):
                break
            found += [page + 8 * i for i, word in enumerate(words) if word == microseconds]
    return found


@pytest.mark.long
def test_switch_interval(python):
    """With its address the agent does not wait as long as the program's threads would for each other."""
    target = start(python, """
        import ctypes, probing, sys, threading
        sys.setswitchinterval(0.612345)
        runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        print("ready", flush=True)
        print(runtime, flush=True)
        def busy():
            while True:
                pass
        threading.Thread(target=busy, daemon=True).start()
        sys.stdin.read()
        """)
    runtime = int(target.readline())
    client = connect(target)
    address, = switch_intervals(target, runtime, 612345)
    client.eval("import sys")
    waits = {}
    for hint in (0, address):
        for _ in range(4):
            time.sleep(0.05)  # the busy thread has the GIL again
            answer = client.eval("round(sys.getswitchinterval() * 1e6)", gil_interval=hint)
            assert answer.text == "612345\n"
            waits.setdefault(hint, []).append(answer.done[3])
    assert max(waits[0]) > 500_000_000 > sorted(waits[address])[1]  # one may be late, for want of a processor
    for wrong in (1, 8, address + 1, runtime - 8, 2**64 - 8):
        assert client.eval("1", gil_interval=wrong).error == 0
    assert switch_intervals(target, runtime, 612345) == [address]
    target.close()
