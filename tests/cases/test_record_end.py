"""Recording and fork, exec, detach, exit: nothing of it stays in the program."""
import contextlib
import os
import pathlib
import time

import pytest

import agent_client as agent
import ring_file
from agents import LIBRARY, NAME, clients, connect, ended, start  # noqa: F401, a fixture
from commands import Commands
from interpreters import eventually, patience
from recording import AGAIN, DEFAULT, MINIMUM, again, links, off, on, rings_of, tasks

pytestmark = pytest.mark.python(minimum=(3, 10))

FORKER = """
import ctypes, gc, os, probing, sys
gc.disable()
print("ready", flush=True)
for line in sys.stdin:
    if line in ("fork\\n", "raw\\n"):
        child = os.fork() if line == "fork\\n" else ctypes.CDLL(None).syscall(57)
        if child == 0:
            gc.collect()
            print(os.getpid(), flush=True)
        else:
            os.waitpid(child, 0)
    elif line == "collect\\n":
        print(gc.collect() >= 0, flush=True)
    elif line == "start\\n":
        probing.start()
    elif line == "end\\n":
        os._exit(0)
"""


@pytest.mark.parametrize("how", ["fork", "raw"])
def test_fork(python, how):
    """Nothing is recorded in a child until it has an agent of its own; one that is made behind libc's back
    doesn't spoil the parent's rows either."""
    target = start(python, FORKER)
    client = connect(target)
    on(client, "gc")
    on(client, "process_samples")
    ring_file.wait_rows(target.pid, "process_samples", 1)
    client.eval("gc.collect()")
    target.send(how)
    child = int(target.readline())
    for _ in range(3):
        target.send("collect")  # of the child: the parent waits
        target.expect("True")
    with ring_file.find(target.pid, "gc") as ring:
        assert len(ring.rows) == 1 and ring.rows[0].tid != child
    record = agent.Record(child, LIBRARY, NAME)
    if how == "fork":
        assert all(place["fd"] == -1 and not place["on"] for place in record.read().rings.values())
        assert rings_of(child) == 0
        assert len(tasks(child)) == 1
    assert "memfd:probefs-ring" not in pathlib.Path(f"/proc/{child}/maps").read_text() or how == "raw"
    seen = len(ring_file.rows(target.pid, "process_samples"))
    ring_file.wait_rows(target.pid, "process_samples", seen + 2)
    target.send("start")
    other = connect(target, child)
    assert other.eval("len(gc.callbacks)").text == "1\n"  # copied with the interpreter, and not twice
    on(other, "gc")
    on(other, "process_samples")
    target.send("collect")
    target.expect("True")
    assert other.eval("len(gc.callbacks)").text == "1\n"
    assert len(ring_file.rows(child, "gc")) == 1
    row, = ring_file.wait_rows(child, "process_samples", 1)[:1]
    if python.source != "sid":  # there is no /proc in its root
        assert row.threads == len(os.listdir(f"/proc/{child}/task"))
    assert other.detach().error == 0
    assert len(ring_file.rows(target.pid, "gc")) == 1
    target.send("end")
    assert client.eval("gc.collect() >= 0").text == "True\n"
    assert len(ring_file.rows(target.pid, "gc")) == 2
    assert ended(target) == 0


def test_fork_storm(python):
    """Children and threads while everything is recorded and switched; none hangs, none writes."""
    target = start(python, """
        import gc, os, probing, subprocess, sys
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range(200):
            if i % 20 == 0:
                assert subprocess.run(["/bin/true"]).returncode == 0
            child = os.fork()
            if child == 0:
                gc.collect(0)
                os._exit(i % 100)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == i % 100
        print("forked", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    on(client, "gc")
    target.send("fork")
    for i in range(40):
        for table in ("gc", "process_samples"):
            on(client, table, size=(i % 3 + 1) * MINIMUM if table == "gc" else 0)
            off(client, table)
    target.expect("forked")
    tids = {row.tid for row in ring_file.rows(target.pid, "gc")}
    assert tids <= set(map(int, os.listdir(f"/proc/{target.pid}/task")))
    assert ended(target) == 0


def test_exec(python):
    target = start(python, """
        import os, probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        os.execv(sys.executable, [sys.executable, "-uc", "import os; print(os.dup(0)); input()"])
        """)
    client = connect(target)
    on(client, "gc")
    on(client, "process_samples")
    target.send("exec")
    target.expect("3")  # the lowest one that is free


def test_detach(python):
    """Nothing stays: no hook, no thread, no descriptor, no mapping; and it can begin anew."""
    target = start(python, AGAIN)
    client = connect(target)
    client.eval("import gc; gc.disable()")
    for _ in range(5):
        on(client, "gc")
        on(client, "process_samples", size=MINIMUM)
        client.eval("gc.collect()")
        with ring_file.find(target.pid, "gc") as ring:
            assert client.detach().error == 0
            eventually(lambda: len(tasks(target.pid)) == 1)
            assert len(ring.rows) == 1  # who holds it has it
        assert "probefs-ring" not in pathlib.Path(f"/proc/{target.pid}/maps").read_text()
        assert rings_of(target.pid) == 0
        assert all(place["fd"] == -1 and not place["on"] for place in client.record.read().rings.values())
        client = again(target)
        assert client.eval("gc.callbacks").text == "[]\n"
        assert client.status()["rings"] == 0
    assert ended(target) == 0


# what the daemon can record in every interpreter
MOUNTED = ["exceptions", "gc", "process", "spans", "events"]


@pytest.mark.parametrize("end", ["on", "off", "by turns"])
def test_unloaded(probe, python, end):
    """Where a daemon has put it in, the library goes with the last hook."""
    target = python.run_source("import gc, sys\nprint('ready', flush=True)\nsys.stdin.read()")
    before = sorted(links(target.pid).values()), len(tasks(target.pid))
    for _ in range(3):
        commands = Commands(probe, target.pid)
        for table in MOUNTED:
            commands.run("ctl", f"record {table} on\n")
            if end == "by turns":
                commands.run("ctl", f"record {table} off\n")
        assert commands.value("gc.collect() >= 0") == "True"
        with contextlib.suppress(OSError):
            commands.eval("1 / 0")
        if end == "off":
            for table in MOUNTED:
                commands.run("ctl", f"record {table} off\n")
            assert commands.value("gc.callbacks") == "[]"
        said = commands.detach()
        assert "Agent: none" in said, said
        maps = pathlib.Path(f"/proc/{target.pid}/maps")
        eventually(lambda: "memfd:probe" not in maps.read_text(), what="no mapping")
        eventually(lambda: (sorted(links(target.pid).values()), len(tasks(target.pid))) == before, what="as before")
    assert ended(target) == 0


def test_stays_loaded(probe, python):
    """As long as the program holds a function of it."""
    target = python.run_source("import gc, sys\nprint('ready', flush=True)\nsys.stdin.read()")
    commands = Commands(probe, target.pid)
    commands.run("ctl", "record gc on\n")
    commands.eval("kept = list(gc.callbacks)")
    assert int(commands.status()["AgentRings"]) >= DEFAULT
    assert "stays" in commands.detach()
    commands.attach()
    commands.run("ctl", "record gc on\n")
    assert commands.value("kept[0]('start', {}), kept[0]('stop', {})") == "(None, None)"
    commands.eval("del kept")
    assert "Agent: none" in commands.detach()
    assert ended(target) == 0


def test_detach_without_python(any_python):
    """What was recorded without Python needs no GIL to end."""
    target = start(any_python, """
        import ctypes, probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        print("holds", flush=True)
        ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # PyDLL, unlike CDLL, keeps the GIL
        print("let go", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    target.send("go")
    target.expect("holds")
    on(client, "process_samples")
    assert client.detach().error == 0
    target.send("")
    target.expect("let go")
    assert ended(target) == 0


@pytest.mark.parametrize("how", ["pass", "sys.exit(3)", "os._exit(3)", "raise ValueError",
                                 "threading.Thread(target=time.sleep, args=(0.1,)).start()",
                                 "os.kill(os.getpid(), 9)"])
def test_exit(python, how):
    """The interpreter ends as ever, with collections at its very end."""
    target = start(python, f"""
        import gc, os, probing, sys, threading, time
        class Cycle:
            def __init__(self): self.me = self
        cycles = [Cycle() for _ in range(100)]
        print("ready", flush=True)
        sys.stdin.readline()
        {how}
        """)
    client = connect(target)
    on(client, "gc")
    on(client, "process_samples")
    with ring_file.find(target.pid, "gc") as ring:
        begin = time.monotonic()
        target.send("go")
        status = target.process.wait(patience(30))
        assert time.monotonic() - begin < patience(5)
        assert status == (-9 if "kill" in how else 3 if "exit" in how else 1 if "raise" in how else 0)
        assert target.stderr() == "" or "raise" in how
        if "exit(" not in how and "kill" not in how:
            assert ring.rows  # of the interpreter's end, read after it
