"""The agent in the target: started by `import probing`, spoken to in its own protocol, so that it
needs neither ptrace nor a mount."""
import errno
import os
import pathlib
import random
import shutil
import signal
import struct
import textwrap
import time

import pytest

import agent_client as agent
from interpreters import eventually
from mount import REPOSITORY, build

pytestmark = pytest.mark.python(minimum=(3, 10))

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
LIBRARY = build() / "agent" / "probe-agent.so"
NAME = "probing.abi3.so"

# 3.12 and later warn of fork() in a process with threads, and the agent's is one
QUIET = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}

IDLE = """
import probing, sys
print("ready", flush=True)
sys.stdin.read()
"""


def library(python):
    """The directory that holds the module, outside and inside the interpreter's root."""
    directory = python.directory / "agent"
    if not directory.is_dir():
        directory.mkdir()
        shutil.copy(LIBRARY, directory / NAME)
    return directory, python.path("agent")


def start(python, source=IDLE, *args, env=None, **options):
    _, inside = library(python)
    return python.run_source(textwrap.dedent(source), *args,
                             env={"PYTHONPATH": inside, **QUIET, **(env or {})}, **options)


def connect(target, pid=None, **options):
    return agent.Client(pid or target.pid, LIBRARY, NAME, **options)


def descriptors(pid):
    """What each descriptor is; of a socket just that it is one."""
    return sorted(os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0]
                  for fd in os.listdir(f"/proc/{pid}/fd"))


def ended(target):
    """Its exit status, and nothing on standard error."""
    target.stdin.close()
    status = target.process.wait(30)
    assert target.stderr() == ""
    return status


@pytest.fixture(autouse=True)
def clients():
    """Conversations that a test leaves open are closed."""
    yield
    for client in list(agent.Client.open):
        client.close()


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
    """What it costs the target, measured from outside."""
    target = start(python, """
        import sys, time
        print("ready", flush=True)
        sys.stdin.readline()
        import probing
        print("imported", flush=True)
        sys.stdin.read()
        """)

    def dirty():
        text = pathlib.Path(f"/proc/{target.pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines()
                   if line.startswith("Private_Dirty")) << 10

    before = dirty()
    target.send("import")
    target.expect("imported")
    client = connect(target)
    client.eval("1")
    assert dirty() - before <= 2 << 20
    assert client.status()["memory"] <= 2 << 20


def test_text_of_many_frames(python):
    client = connect(start(python))
    text = "x = [\n" + "1,\n" * 100_000 + "]\nlen(x)\n"
    assert client.eval(text).text == "100000\n"
    done = client.eval("print('é' * 100_000)", output_max=1000)
    assert done.output == "é".encode() * 500 and done.flags & agent.CUT
    client.eval("big = 'x' * (3 << 20)")
    assert len(client.eval("print(big)", output_max=16 << 20).output) == (3 << 20) + 1


def test_incomplete_text(python):
    client = connect(start(python))
    answer = client.eval("x = 1\nfor i in range(3):\n    x += i\n", last=False)
    assert answer.error == 0 and answer.done[2] == len("x = 1\n")
    assert client.eval("x").text == "1\n"
    assert client.eval("1 +").error == errno.EINVAL
    raised = client.eval("1 / 0")
    assert raised.error == errno.EIO and "ZeroDivisionError" in raised.text


def test_many_at_once(python):
    client = connect(start(python))
    numbers = [client.start(f"print({i}, {'x' * i!r})") for i in range(32)]
    for i, number in enumerate(numbers):
        assert client.wait(number).text == f"{i} {'x' * i}\n"


def test_too_many(python):
    client = connect(start(python))
    client.eval("import time")
    numbers = [client.start("time.sleep(0.3)")] + [client.start("1") for _ in range(300)]
    errors = [client.wait(number).error for number in numbers]
    assert set(errors) == {0, errno.EBUSY}
    assert errors.count(errno.EBUSY) == 301 - 256


def test_cancel_queued(python):
    client = connect(start(python))
    client.eval("import time; ran = []")
    first = client.start("time.sleep(0.5)")
    client.wait_started(first)
    second, third = client.start("ran.append(2)"), client.start("ran.append(3)")
    client.cancel(second)
    answer = client.wait(second)
    assert answer.error == errno.ECANCELED and not answer.started
    assert client.answers[first].done is None  # at once
    assert client.wait(third).error == 0
    assert client.eval("ran").text == "[3]\n"


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


def test_code_that_does_not_end(python):
    """A call into C can't be interrupted: another thread takes over, and the first ends with it."""
    target = start(python)
    client = connect(target)
    client.eval("import _thread; lock = _thread.allocate_lock(); lock.acquire()")
    threads = len(os.listdir(f"/proc/{target.pid}/task"))
    stuck = []
    for _ in range(3):
        number = client.start("lock.acquire(); print('has it')")
        client.wait_started(number)
        client.cancel(number)
        time.sleep(0.6)
        assert client.eval("1 + 1").text == "2\n"
        stuck.append(number)
    assert len(os.listdir(f"/proc/{target.pid}/task")) == threads + 3
    assert all(client.answers[number].done is None for number in stuck)
    assert client.wait(client.send(agent.DETACH)).error == errno.EBUSY
    assert client.eval("1 + 1").text == "2\n"
    for ended in range(1, 4):
        client.eval("lock.release()")
        eventually(lambda: client.status() and sum(client.answers[number].done is not None
                                                   for number in stuck) == ended)
    assert {client.answers[number].error for number in stuck} == {errno.EINTR}
    eventually(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == threads)
    assert client.wait(client.send(agent.DETACH)).error == 0


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
        ctypes.PyDLL(None).usleep(1_500_000)
        print("let go", flush=True)
        sys.stdin.readline()
        print(globals().get("fired"), flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("hold")
    target.expect("holds")
    time.sleep(0.1)
    numbers = [client.start("fired = True") for _ in range(3)]
    time.sleep(0.1)
    assert client.status()["evals"] == 1  # answers all the same
    for number in numbers:
        client.cancel(number)
        assert client.wait(number).error == errno.ECANCELED
    detach = client.send(agent.DETACH)
    client.cancel(detach)
    assert client.wait(detach).error == errno.ETIMEDOUT
    assert client.status()["evals"] == 1
    target.expect("let go")
    assert client.eval("1 + 1").text == "2\n"
    target.send("look")
    target.expect("None")


def test_daemon_goes(python):
    target = start(python)
    before = descriptors(target.pid)
    client = connect(target)
    client.eval("import time; ran = []; fast = True")
    for i in range(20):
        generation = client.record.read().generation
        running = client.start("while fast: pass\nran.append(1)")
        client.wait_started(running)
        client.start("ran.append(2)")
        client.close()
        eventually(lambda: client.record.read().generation == generation + 1)
        client = connect(target)
        assert client.eval("ran").text == "[]\n"
    client.close()
    eventually(lambda: descriptors(target.pid) == before)
    assert len(target.tids()) == 3
    assert ended(target) == 0


def test_daemon_does_not_read(python):
    target = start(python)
    client = connect(target)
    generation = client.record.read().generation
    client.start("print('x' * (4 << 20))", output_max=16 << 20)
    eventually(lambda: client.record.read().generation > generation)
    client = connect(target)
    assert client.eval("1").text == "1\n"


def test_second_daemon(python):
    target = start(python)
    first = connect(target, hello=False)
    second = connect(target, hello=False)
    first.nonce, second.nonce = 11, 22
    a = first.send(agent.HELLO, struct.pack("=IIQ", 1, 0, 11))
    assert first.wait(a).ready["nonce"] == 11
    b = second.send(agent.HELLO, struct.pack("=IIQ", agent.VERSION, 0, 22), 7)
    assert second.wait(b).ready["nonce"] == 11
    second.close()
    assert first.eval("1").text == "1\n"


def test_garbage(python):
    """A daemon that breaks the protocol loses its channel; the target does not care."""
    target = start(python)
    seed = random.Random(5)
    header = agent.HEADER.pack
    eval_body = agent.EVAL_BODY.pack(0, 0, 1, 0, 0, 4, 0)
    frames = [
        b"x", b"", header(17, agent.STATUS, 0, 1), header(16, agent.STATUS, 1, 1),
        header(16, agent.STATUS, 0, 0), header(16, 0, 0, 1), header(16, agent.READY, 0, 1),
        header(20, agent.EVAL, 0, 1) + b"xxxx",
        header(16 + 40 + 5, agent.EVAL, 0, 1) + eval_body + b"12345",
        header(16 + 40, agent.EVAL, 0, 1) + agent.EVAL_BODY.pack(0, 0, 1, 0, 0, (1 << 20) + 1, 0),
        header(16 + 40, agent.EVAL, 0, 1) + agent.EVAL_BODY.pack(0, 0, 1, 0, 0, 1, (16 << 20) + 1),
        *[seed.randbytes(seed.randrange(1, 200)) for _ in range(20)],
        *[header(16 + n, seed.choice([8, 63, 99]), 0, 1) + seed.randbytes(n) for n in range(20)],
    ]
    for frame in frames:
        for greet in (True, False):
            client = connect(target, hello=greet)
            client.send_raw(frame)
            with pytest.raises((agent.Gone, TimeoutError)):
                client.receive(10)
            client.close()
    client = connect(target)
    # an id that is used twice, and an address that is no switch interval
    number = client.start("x", gil_interval=0x1000)
    assert client.wait(number).error == errno.EIO
    number = client.start("import time; time.sleep(0.2)", gil_interval=1)
    with pytest.raises(agent.Gone):
        client.send(agent.EVAL, eval_body, number)
        client.wait(number)
    assert connect(target).eval("1").text == "1\n"
    assert ended(target) == 0


def test_program_closes_descriptors(python):
    """A program that closes all descriptors, and gets their numbers for itself, keeps what it
    then opens."""
    target = start(python, """
        import os, probing, socket, sys
        print("ready", flush=True)
        sys.stdin.readline()
        os.closerange(3, 100)
        pairs = [socket.socketpair() for _ in range(4)]
        print("closed", flush=True)
        sys.stdin.readline()
        for a, b in pairs:
            a.send(b"mine")
            assert b.recv(10) == b"mine"
        print("whole", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("close")
    target.expect("closed")
    with pytest.raises(agent.Gone):
        for _ in range(3):
            client.send(agent.STATUS)
            client.receive()
    client.close()
    client = connect(target)
    assert client.eval("1").text == "1\n"
    target.send("use")
    target.expect("whole")
    assert ended(target) == 0


FORKER = """
    import os, probing, sys
    print("ready", flush=True)
    sys.stdin.readline()
    child = os.fork()
    if child == 0:
        sys.stdin.readline()
        probing.start()
        sys.stdin.readline()
        os._exit(7)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.read()
    """


@pytest.mark.parametrize("used", [False, True])
def test_fork(python, used):
    """A child has no agent until it gets one of its own; the parent keeps its."""
    target = start(python, FORKER)
    client = connect(target)
    if used:
        client.eval("x = 1; import threading, time")
    else:
        client.eval("x = 1")
    if used:
        running = client.start("while time.sleep(0.001) is None: pass")
        client.wait_started(running)
    target.send("fork")
    child = int(target.readline())
    record = agent.Record(child, LIBRARY, NAME).read()
    eventually(lambda: record.read().state == agent.IDLE)
    assert record.channel == -1
    assert len(os.listdir(f"/proc/{child}/task")) == 1
    assert "socket" not in descriptors(child)
    if used:
        client.cancel(running)
        assert client.wait(running).error == errno.EINTR
    assert client.eval("os.getpid()").text == f"{target.pid}\n"
    target.send("start")
    other = connect(target, child)
    assert other.record.read().owner == child
    assert other.eval("os.getpid(), x").text == f"({child}, 1)\n"
    assert other.eval("import threading; len(threading.enumerate())").text == "1\n"
    assert client.eval("os.getpid()").text == f"{target.pid}\n"
    target.send("end")
    target.expect("7")
    assert ended(target) == 0


def test_fork_from_a_thread(python):
    """The thread that forked is the child's main thread, in whose frames names resolve."""
    target = start(python, """
        import os, probing, sys, threading
        def work():
            sys.stdin.readline()
            local = "before"
            child = os.fork()
            if child == 0:
                local = "in the child"
                probing.start()
                sys.stdin.readline()
                os._exit(0)
            print(child, flush=True)
            os.waitpid(child, 0)
        thread = threading.Thread(target=work)
        print("ready", flush=True)
        thread.start()
        thread.join()
        """)
    client = connect(target)
    assert client.eval("local").error == errno.EIO
    target.send("fork")
    child = int(target.readline())
    other = connect(target, child)
    assert other.eval("local").text == "'in the child'\n"
    target.send("end")
    assert ended(target) == 0


def test_fork_from_eval(python):
    target = start(python)
    client = connect(target)
    client.eval("import os")
    answer = client.eval("if child := os.fork():\n"
                         "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
                         "else:\n"
                         "    os._exit(3)\n")
    assert answer.text == "3\n"
    assert client.eval("child = os.fork()").error == 0  # it has nothing to go back to, and ends
    assert client.eval("os.waitpid(child, 0)[0] == child").text == "True\n"
    assert ended(target) == 0


def test_fork_storm(python):
    """Forks meet the agent at any moment; no child hangs."""
    target = start(python, """
        import os, probing, sys, threading
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range(300):
            child = os.fork()
            if child == 0:
                os._exit(i % 100)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == i % 100
        print("forked", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("fork")
    for i in range(100):
        assert client.eval(f"{i}").text == f"{i}\n"
        client.status()
    target.expect("forked")
    assert ended(target) == 0


def test_exec(python):
    target = start(python, """
        import os, probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        os.execv(sys.executable, [sys.executable, "-uc", "import os; print(os.dup(0)); input()"])
        """)
    client = connect(target)
    client.eval("1")
    target.send("exec")
    target.expect("3")  # the lowest one that is free
    with pytest.raises(agent.Gone):
        client.receive()


def test_detach(python):
    """Nothing is left; it may start again."""
    target = start(python, """
        import probing, sys, _thread
        print("ready", flush=True)
        for line in sys.stdin:
            probing.start()
            print("started", flush=True)
        """)
    for i in range(5):
        client = connect(target)
        client.eval("import time; x = 1")
        running = client.start("while True: time.sleep(0.001)")
        client.wait_started(running)
        queued = client.start("x = 2")
        answer = client.detach()
        assert answer.error == 0
        assert client.answers[running].error == errno.EINTR
        assert client.answers[queued].error == errno.ECANCELED
        assert not answer.flags & agent.UNLOADABLE  # the program imported it
        eventually(lambda: len(target.tids()) == 1)
        assert "socket" not in descriptors(target.pid)
        assert client.record.read().state == agent.ENDED and client.record.channel == -1
        with pytest.raises(agent.Gone):
            client.receive()
        client.close()
        target.send("start")
        target.expect("started")
    with connect(target) as client:
        assert client.eval("x").text == "1\n"
    assert ended(target) == 0


def test_unload(python):
    """What an injection does, without ptrace: nothing refers to the library after a detach."""
    _, inside = library(python)
    target = start(python, """
        import ctypes, _ctypes, struct, sys
        print("ready", flush=True)
        for line in sys.stdin:
            library = ctypes.PyDLL(sys.argv[1])
            boot = struct.pack("=QII", 0, 1, 0)
            print(library.probe_agent_start(boot), flush=True)
            sys.stdin.readline()
            _ctypes.dlclose(library._handle)
            print("closed", flush=True)
        """, inside + "/" + NAME)

    def mapped():
        return NAME in pathlib.Path(f"/proc/{target.pid}/maps").read_text()

    for i in range(20):
        target.send("load")
        target.expect("0")
        with connect(target) as client:
            assert client.hello["origin"] == agent.INJECTED
            if i:
                client.eval("import sys; out = sys.stdout; x = [1]; def f(): return x")
                client.eval("1 / 0")
                running = client.start("while True: pass")
                client.wait_started(running)
            answer = client.detach()
            assert answer.error == 0 and answer.flags == agent.UNLOADABLE
        eventually(lambda: len(target.tids()) == 1)
        assert mapped()
        target.send("unload")
        target.expect("closed")
        assert not mapped()
        assert "socket" not in descriptors(target.pid)
    assert ended(target) == 0


def test_not_unloadable(python):
    """Somebody kept a function of ours."""
    _, inside = library(python)
    target = start(python, """
        import ctypes, gc, struct, sys
        library = ctypes.PyDLL(sys.argv[1])
        library.probe_agent_start(struct.pack("=QII", 0, 1, 0))
        print("ready", flush=True)
        sys.stdin.readline()
        kept = [o for o in gc.get_objects() if getattr(o, "__name__", "") == "probefs_agent_exit"]
        print(len(kept), flush=True)
        sys.stdin.readline()
        print(kept[0](), flush=True)
        sys.stdin.read()
        """, inside + "/" + NAME)
    client = connect(target)
    client.eval("1")
    target.send("look")
    target.expect("1")
    answer = client.detach()
    assert answer.error == 0 and answer.flags == 0
    target.send("call")
    target.expect("None")
    assert ended(target) == 0


def test_detach_unused(python):
    target = start(python)
    client = connect(target)
    assert client.detach().error == 0
    eventually(lambda: len(target.tids()) == 1)
    assert ended(target) == 0


EXITS = {
    "end": ("", "pass", 0),
    "exit": ("", "sys.exit(3)", 3),
    "threads": (
        "for daemon in (True, False):\n"
        "    threading.Thread(target=work, daemon=daemon).start()", "sys.exit(4)", 4),
    "exception": ("", "1 / 0", 1),
    "os._exit": ("", "os._exit(5)", 5),
    "signal": ("", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
}

EXITING = """
import os, random, signal, sys, time
{threads}
import probing

def work():
    for _ in range(20):
        time.sleep(0.0005)
        sum(range(1000))

{before}
print("ready", flush=True)
sys.stdin.readline()
time.sleep(random.random() * 0.003)
{how}
"""

DURING = ["", "1", "while True: pass", "time.sleep(0.05)", "import threading; threading.enumerate()",
          "while True: time.sleep(0.0001)"]


@pytest.mark.deadline(900)
@pytest.mark.parametrize("way", EXITS)
def test_exit(python, way):
    """The interpreter ends as ever, whatever the agent does."""
    before, how, status = EXITS[way]
    for i in range(50 if FULL else 12):
        source = EXITING.format(threads="import threading" if before or i % 2 else "",
                                before=before, how=how)
        target = start(python, source)
        during = DURING[i % len(DURING)]
        client = connect(target)
        if i // len(DURING) % 2:
            client.eval("import time")  # else the first request meets the end
        if during:
            client.start("import time\n" + during)
        begin = time.monotonic()
        target.send("go")
        assert target.process.wait(30) == status, (i, during, target.stderr())
        assert time.monotonic() - begin < 5
        assert "Fatal" not in target.stderr() and "Assertion" not in target.stderr()
        if way != "exception":
            assert target.stderr() == ""
        client.close()
        target.close()


def test_requests_at_the_end(python):
    """While the interpreter ends requests are refused; when only its main thread ended they work."""
    target = start(python, """
        import atexit, probing, sys, threading, time
        def wait():
            sys.stdin.readline()
        @atexit.register
        def last():
            print("last", flush=True)
            sys.stdin.readline()
        threading.Thread(target=wait).start()
        print("ready", flush=True)
        """)
    client = connect(target)
    assert client.eval("6 * 7").text == "42\n"
    running = client.start("while True: pass")
    client.wait_started(running)
    target.send("end the thread")
    target.expect("last")
    assert client.wait(running).error == errno.EINTR
    assert client.eval("1").error == errno.ESHUTDOWN
    assert client.status()["evals"] >= 2
    assert client.detach().error == 0
    assert ended(target) == 0


SUBINTERPRETER = """
    import probing, sys, threading
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    {create}
    run(other, "import sys; where = 'in another'")
    print("ready", flush=True)
    print(int(other), flush=True)
    for line in sys.stdin:
        if line == "destroy\\n":
            interpreters.destroy(other)
            print("destroyed", flush=True)
        elif line == "create\\n":
            other = interpreters.create()
            print(int(other), flush=True)
    """


@pytest.mark.parametrize("own_gil", [False, pytest.param(True, marks=pytest.mark.python(
    minimum=(3, 13)))])
def test_subinterpreters(python, own_gil):
    if own_gil and python.version < (3, 13):
        pytest.skip("no interpreter with a GIL of its own can be made from Python")
    create = 'other = interpreters.create("isolated")' if own_gil else \
        'other = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create()'
    target = start(python, SUBINTERPRETER.format(create=create))
    other = int(target.readline())
    client = connect(target)
    assert client.eval("where").error == errno.EIO
    assert client.eval("where", interp=other).text == "'in another'\n"
    assert client.eval("1", interp=999).error == errno.ENOENT
    for _ in range(5):
        number = client.start("while True: pass", interp=other)
        client.wait_started(number)
        client.cancel(number)
        assert client.wait(number).error == errno.EINTR
    client.eval("import threading; mine = threading.current_thread()", interp=other)
    assert client.eval("threading.enumerate() == [threading.main_thread()]",
                       interp=other).text == "True\n"
    # its end interrupts what runs there, and waits for it; up to 3.11 the module refuses to end an
    # interpreter that has more than one thread
    number = client.start("import time\nwhile True: time.sleep(0.0001)", interp=other)
    client.wait_started(number)
    if python.version < (3, 12):
        client.cancel(number)
        client.wait(number)
    target.send("destroy")
    target.expect("destroyed")
    assert client.wait(number).error == errno.EINTR
    assert client.eval("1", interp=other).error in (errno.ENOENT, errno.ESHUTDOWN)
    for _ in range(40):  # more than are remembered at once
        target.send("create")
        other = int(target.readline())
        assert client.eval("import sys; 6 * 7", interp=other).text == "42\n"
        target.send("destroy")
        target.expect("destroyed")
    target.send("create")
    other = int(target.readline())
    assert client.eval("6 * 7", interp=other).text == "42\n"
    assert client.detach().error == 0
    target.send("destroy")
    target.expect("destroyed")
    assert ended(target) == 0


def test_threading_is_right(python):
    """The agent may be the first to import threading, and is no thread of the program's."""
    target = start(python, """
        import probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        import _thread, os, threading
        main = threading.main_thread()
        assert main is threading.current_thread(), main
        assert main.ident == _thread.get_ident() and main.native_id == os.getpid()
        assert threading.enumerate() == [main], threading.enumerate()
        worker = threading.Thread(target=sys.stdin.readline)
        worker.start()
        waiter = threading.Thread(target=main.join)
        waiter.start()
        print("started", flush=True)
        worker.join()
        assert threading.enumerate() == [main, waiter], threading.enumerate()
        print("joined", flush=True)
        """)
    client = connect(target)
    answer = client.eval("import threading\nthreading.current_thread().name[:5]\n"
                         "threading.current_thread() is threading.main_thread()\n"
                         "len(threading.enumerate())")
    assert answer.text == "'Dummy'\nFalse\n2\n"
    assert client.eval("threading.enumerate()").text.count("<") == 1
    target.send("import")
    target.expect("started")
    assert client.eval("len(threading.enumerate())").text == "3\n"
    target.send("")
    target.expect("joined")
    assert ended(target) == 0


def test_tracing_tools_see_nothing(python):
    """Functions that the program set to trace or profile all its threads, and sys.monitoring's."""
    target = start(python, """
        import probing, sys, threading
        seen = []
        def trace(frame, event, argument):
            if threading.get_native_id() not in known:
                seen.append((event, frame.f_code.co_name))
        known = {threading.get_native_id()}
        print("ready", flush=True)
        sys.stdin.readline()
        if hasattr(threading, "settrace_all_threads"):
            threading.settrace_all_threads(trace)
            threading.setprofile_all_threads(trace)
        if hasattr(sys, "monitoring"):
            tool = sys.monitoring.PROFILER_ID
            sys.monitoring.use_tool_id(tool, "test")
            sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, lambda code, offset:
                threading.get_native_id() in known or seen.append(code.co_name))
            sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
        print("traced", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("trace")
    target.expect("traced")
    client.eval("def f(): pass\nf()\nsum(map(int, '123'))")
    assert client.eval("seen").text == "[]\n"
    target.close()


@pytest.mark.parametrize("asked", ["1", "0", None])
def test_startup(python, asked):
    """PROBING=1 starts it where the .pth file is."""
    directory, inside = library(python)
    site = directory / "site"
    site.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "contrib" / "probing.pth", site)
    (directory / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({inside + '/site'!r})\n")
    env = {"PYTHONPATH": inside, **QUIET}
    if asked:
        env["PROBING"] = asked
    try:
        target = python.run_source("import sys\nprint('ready', flush=True)\nsys.stdin.read()\n", env=env)
        if asked == "1":
            client = connect(target)
            assert client.hello["origin"] == agent.STARTUP
            assert client.eval("6 * 7").text == "42\n"
        else:
            assert len(target.tids()) == 1
            with pytest.raises(LookupError):
                connect(target)
        assert ended(target) == 0
    finally:
        (directory / "sitecustomize.py").unlink()


def test_two_copies(python):
    """`import probing` where a daemon has put an agent in starts no second one."""
    directory, inside = library(python)
    shutil.copy(LIBRARY, directory / "injected.so")
    target = start(python, """
        import ctypes, struct, sys
        library = ctypes.PyDLL(sys.argv[1])
        library.probe_agent_start(struct.pack("=QII", 0, 1, 0))
        import probing
        probing.start()
        print("ready", flush=True)
        sys.stdin.read()
        """, inside + "/injected.so")
    assert agent.Record(target.pid, LIBRARY, NAME).read().state == agent.IDLE
    client = agent.Client(target.pid, LIBRARY, "injected.so")
    assert client.eval("1").text == "1\n"
    assert len(target.tids()) == 3
    assert ended(target) == 0


def test_starts_at_once(python):
    """Starting a running agent does nothing, from many threads too."""
    target = start(python, """
        import probing, sys, threading
        threads = [threading.Thread(target=probing.start) for _ in range(20)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print("ready", flush=True)
        sys.stdin.read()
        """)
    assert len(target.tids()) == 2
    assert connect(target).eval("1").text == "1\n"
    assert ended(target) == 0


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
    assert max(waits[0]) > 500_000_000 > max(waits[address])
    for wrong in (1, 8, address + 1, runtime - 8, 2**64 - 8):
        assert client.eval("1", gil_interval=wrong).error == 0
    assert switch_intervals(target, runtime, 612345) == [address]
    target.close()
