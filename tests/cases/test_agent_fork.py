"""Programs that fork, or execute another, while they have an agent."""
import errno
import os

import pytest

import agent_client as agent
from agents import LIBRARY, NAME, clients, connect, descriptors, ended, start  # noqa: F401, a fixture
from interpreters import eventually

pytestmark = pytest.mark.python(minimum=(3, 10))

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


@pytest.mark.python(free_threaded=True)
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


@pytest.mark.python(free_threaded=True)
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


@pytest.mark.python(free_threaded=True)
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


@pytest.mark.python(free_threaded=True)
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
