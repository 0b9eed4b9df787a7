"""The agent's end: by a detach, or since the program ends."""
import errno
import os
import pathlib
import signal
import time

import pytest

import agent_client as agent
from agents import NAME, clients, connect, descriptors, ended, library, start  # noqa: F401, a fixture
from interpreters import eventually, patience
from stopping import reads_input

pytestmark = pytest.mark.python(minimum=(3, 10))

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"


@pytest.mark.python(free_threaded=True)
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
            # it is at rest, and waits for no GIL
            eventually(lambda: reads_input(target.pid) and (tid := client.record.read().python_tid) and
                       target.state(tid) == "S")
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


@pytest.mark.python(free_threaded=True)
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


@pytest.mark.python(free_threaded=True)
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


@pytest.mark.python(free_threaded=True)
@pytest.mark.long
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
        assert target.process.wait(patience(30)) == status, (i, during, target.stderr())
        assert time.monotonic() - begin < patience(5)
        assert "Fatal" not in target.stderr() and "Assertion" not in target.stderr()
        if way != "exception":
            assert target.stderr() == ""
        client.close()
        target.close()


@pytest.mark.python(free_threaded=True)
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
