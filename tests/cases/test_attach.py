"""Getting an agent, finding one that is there already, and parting from it: through the mount, with
the process's own /proc as the judge."""
import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import textwrap
import threading
import time

import pytest

from agents import links
from commands import Commands, Refused, fields, stops, write
from interpreters import eventually, patience
from mount import REPOSITORY, build
from test_namespaces import Inside

pytestmark = pytest.mark.python(minimum=(3, 10))

LIBRARY = build() / "agent" / "probe-agent.so"

# works a little all the time, and says its pid when asked
WORKER = """
import os, sys, threading, time

def work():
    while True:
        sum(range(100))
        time.sleep(0.001)

threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
"""


def images(pid):
    """Where the agent's library, or something like it, is mapped from its beginning."""
    return [line.split()[0] for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
            if "probe-agent" in line and line.split()[1] != "rw-s" and line.split()[2] == "00000000"]


def threads(pid):
    names = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            names[int(tid)] = pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return names


def agent_threads(pid):
    return sorted(tid for tid, name in threads(pid).items() if name in ("probe-agent", "probe-python"))


@pytest.fixture
def worker(python):
    return python.run_source(WORKER)


@pytest.fixture
def commands(probe, worker):
    return Commands(probe, worker.pid)


def test_shown_state_is_live(worker, commands):
    """Each read shows how things are now; what the last reply said stands below, with its time."""
    def shown():
        state, _, reply = commands.ctl.read_text().partition("\n\n")
        return fields(state), reply
    assert shown() == ({"Agent": "none", "Interpreter": "0", "OnCrash": "off"}, "")
    commands.attach()
    first, reply = shown()
    assert first["Agent"] == "running, connected" and first["AgentEvals"] == "0" and first["Stopped"] == "none"
    when, *said = reply.splitlines()
    assert re.match(r"LastReply: \d{4}-\d\d-\d\dT", when) and said[0] == "Agent: running, connected"
    commands.eval("1")
    commands.eval("2")
    commands.run("ctl", "record gc on\n")
    now, reply = shown()
    assert now["AgentEvals"] == "2" and int(now["AgentRings"]) > int(first["AgentRings"])
    assert "Agent:" not in reply and "Record: gc on" in reply
    status = fields((commands.directory / "status").read_text())
    assert (status["AgentEvals"], status["AgentRings"]) == (now["AgentEvals"], now["AgentRings"])
    commands.detach()
    assert shown()[0]["Agent"] == "none" and "AgentEvals" not in shown()[0]


def test_every_key_is_explained(worker, commands):
    page = (REPOSITORY / "contrib" / "probefs.5").read_text()
    commands.eval("1")
    commands.run("ctl", "record gc on\n")
    said = "".join((commands.directory / name).read_text() for name in (
        "status", "ctl", f"threads/{worker.pid}/status"))
    keys = set(re.findall(r"^([A-Z]\w+): ", said, re.M))
    assert {"AgentPause", "Record", "LastReply", "GilHolder", "CpuUser", "Rss"} <= keys
    assert {key for key in keys if not re.search(rf"^\.BR?I? .*\b{key}\b", page, re.M)} == set()


def test_many_attach_at_once(worker, commands):
    """Eight writers are one attach."""
    failed = []

    def attach():
        try:
            commands.attach()
        except OSError as error:
            failed.append(error)

    writers = [threading.Thread(target=attach) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failed
    assert commands.state() == "running, connected"
    assert len(images(worker.pid)) == 1
    eventually(lambda: len(agent_threads(worker.pid)) == 2, what="the channel's thread, and Python's")
    commands.attach()
    assert len(images(worker.pid)) == 1


def test_detach_leaves_nothing(worker, commands):
    before = links(worker.pid), set(threads(worker.pid))
    for _ in range(5):
        assert commands.value("1 + 1") == "2"
        assert len(agent_threads(worker.pid)) == 2
        commands.detach()
        assert commands.state() == "none"
        # the thread that unloaded the library takes itself out a moment later
        eventually(lambda: (links(worker.pid), set(threads(worker.pid))) == before,
                   what="its descriptors and threads as before")
        eventually(lambda: not images(worker.pid), what="no library")
    maps = f"/proc/{worker.pid}/maps"
    eventually(lambda: "probe-agent" not in pathlib.Path(maps).read_text(), what="no mapping")
    commands.detach()  # is done already
    assert commands.state() == "none"


def test_the_next_daemon_finds_it(probe, worker):
    """After an unmount, and after kill -9: the same agent, and what it had in Python."""
    with probe.mount() as first:
        commands = Commands(first, worker.pid)
        write(commands.code, "import __main__; __main__.kept = 41\n")
        there = agent_threads(worker.pid)
    with probe.mount() as second:
        commands = Commands(second, worker.pid)
        assert commands.state() == "running"
        assert commands.value("kept + 1") == "42"
        assert agent_threads(worker.pid) == there
    for _ in range(3):
        doomed = probe.mount()
        probe.extra.remove(doomed)
        commands = Commands(doomed, worker.pid)
        assert commands.value("kept") == "41"
        doomed.kill()
        doomed.close(check=False)
    commands = Commands(probe, worker.pid)
    assert commands.value("kept") == "41"
    assert agent_threads(worker.pid) == there
    assert len(images(worker.pid)) == 1
    commands.detach()
    assert commands.state() == "none"


def test_killed_while_code_runs(probe, worker):
    """What ran for a dead daemon is interrupted, and the next one is served."""
    doomed = probe.mount()
    probe.extra.remove(doomed)
    commands = Commands(doomed, worker.pid)
    worker.send("import __main__; __main__.turns = 0")
    writer = subprocess.Popen(["dd", f"of={commands.code}", "bs=4096", "conv=notrunc"],
                              stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    writer.stdin.write(rb"exec('import os; turns = 1; os.write(1, b\"runs\\n\")\nwhile True: turns += 1')" + b"\n")
    writer.stdin.close()
    eventually(lambda: commands.state() == "running, connected" and
               len(agent_threads(worker.pid)) == 2, what="the agent")
    worker.expect("runs")
    doomed.kill()
    writer.wait(patience(30))
    doomed.close(check=False)
    commands = Commands(probe, worker.pid)
    assert commands.value("turns") != "0"
    eventually(lambda: commands.value("turns") == commands.value("turns"), what="an end of the loop")  # or it runs on


def test_one_daemon_at_a_time(probe, worker):
    with probe.mount() as other:
        first, second = Commands(probe, worker.pid), Commands(other, worker.pid)
        assert first.value("1") == "1"
        assert second.state() == "running"
        error, words = second.refused("ctl", "attach\n")
        assert error == errno.EBUSY
        assert "another daemon" in words
        assert first.value("2") == "2"
        first.detach()
        assert second.value("3") == "3"
        second.detach()


def test_child_of_a_fork(probe, worker, commands):
    """A child has the library, but no agent; it gets its own, and the parent's is not disturbed."""
    assert commands.value("os.getpid()") == str(worker.pid)
    worker.send("pid = os.fork() or (print(os.getpid(), flush=True), time.sleep(1000))")
    child = Commands(probe, int(worker.readline()))
    assert child.state() == "loaded, not running"
    assert child.value("os.getpid()") == str(child.pid)
    assert commands.value("os.getpid()") == str(worker.pid)
    assert child.value("1") == "1"
    child.detach()
    assert child.state() == "none"
    assert commands.value("2") == "2"
    # whoever has forked keeps the library: libc may be just about to call into it
    assert "forked" in commands.detach() and commands.state() == "loaded, not running"
    # and a child that never had one, of a parent that had
    worker.send("pid = os.fork() or (print(os.getpid(), flush=True), time.sleep(1000))")
    child = Commands(probe, int(worker.readline()))
    assert child.state() == "loaded, not running"
    assert child.value("os.getpid()") == str(child.pid)
    assert commands.value("3") == "3" and len(images(worker.pid)) == 1


def test_exec(probe, worker, commands, python):
    """A process that executes another program has no agent, and gets a new one."""
    commands.attach()
    arguments = [*python.command("-u", "-c", "import sys; print('ready'); sys.stdin.read()")]
    if arguments[0] == "chroot":
        arguments = arguments[2:]
    worker.send(f"os.execv({arguments[0]!r}, {arguments!r})")
    worker.expect("ready")
    eventually(lambda: commands.state() == "none", what="a process without an agent")
    assert commands.value("__import__('sys').argv[0]") == "'-c'"
    assert len(images(worker.pid)) == 1


# has the GIL, where no thread can be borrowed, until it is sent a line; then it executes another program
UNSAFE_EXEC = """
import ctypes, os, sys
getchar, execv = ctypes.PyDLL(None).getchar, os.execv
print("ready", flush=True)
getchar()
execv(sys.argv[1], sys.argv[1:])
"""
OTHER = "import time\nprint('other', flush=True)\nwhile True: time.sleep(0.01)"


@pytest.mark.attack
def test_exec_meanwhile(probe, python, tmp_path):
    """What is written to one program isn't run by the next one, which may be a setuid one."""
    arguments = python.command("-u", "-c", OTHER)
    target = python.run_source(UNSAFE_EXEC, *(arguments[2:] if arguments[0] == "chroot" else arguments))
    commands = Commands(probe, target.pid)
    refusals, before = [], stops(target.pid)

    def write_it():
        refusals.append(commands.refused("eval", "__import__('sys').argv\n"))

    writer = threading.Thread(target=write_it)
    writer.start()
    eventually(lambda: stops(target.pid) > before + 4, what="tries to borrow its thread")
    target.send("")
    target.expect("other")
    writer.join(patience(60))
    assert [error for error, _ in refusals] == [errno.ESRCH]
    # the agent may have come between the line and the other program
    assert re.search("another program|its agent ended meanwhile", refusals[0][1])
    assert not images(target.pid)
    eventually(lambda: commands.value("__import__('sys').argv[0]") == "'-c'", what="what the new one says")


SPAWNS = """
import os, sys
def spawn():  # the child has this memory until it has opened what it is to have as its standard input
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
print("ready", flush=True)
for line in sys.stdin:
    if line == "quit\\n":
        break
    spawn()
    print("spawned", flush=True)
print("bye", flush=True)
"""


@pytest.mark.attack
@pytest.mark.parametrize("name, text", [("ctl", "attach\n"), ("eval", "1 + 1\n"), ("ctl", "detach\n"),
                                        ("ctl", "attach remote-exec\n")])
def test_vfork(probe, python, name, text):
    """A child that has its parent's memory is left alone: its parent would be what is changed."""
    fifo = python.directory / "fifo"
    target = python.run_source(SPAWNS, python.path("fifo"))
    parent = Commands(probe, target.pid)
    assert parent.eval("1 + 1") == "2\n"
    os.mkfifo(fifo)
    try:
        target.send("spawn")
        children = pathlib.Path(f"/proc/{target.pid}/task/{target.pid}/children")
        child = int(eventually(lambda: children.read_text().split(), what="its child")[0])
        eventually(lambda: (probe.path / str(child)).exists(), what="the child's directory")
        error, words = Commands(probe, child).refused(name, text)
        assert (error, f"process {target.pid}" in words) == (errno.EBUSY, True), words
    finally:
        with open(fifo, "r+b", buffering=0):
            target.expect("spawned")
        fifo.unlink()
    assert parent.eval("1 + 1") == "2\n"
    parent.detach()
    target.send("quit")
    target.expect("bye")


def test_imported(probe, python):
    """An agent that the program brought in itself: found without ptrace, and left where it is."""
    directory = python.directory / "attach"
    if not directory.is_dir():
        directory.mkdir()
        shutil.copy(LIBRARY, directory / "probing.abi3.so")
    target = python.run_source("import probing\n" + textwrap.dedent(WORKER),
                               env={"PYTHONPATH": python.path("attach")})
    commands = Commands(probe, target.pid)
    assert commands.state() == "running"
    assert commands.value("6 * 7") == "42"
    assert not images(target.pid)
    assert "AgentOrigin: import probing" in commands.ctl.read_text()
    assert "AgentPause" not in commands.ctl.read_text()
    commands.detach()
    assert commands.state() == "loaded, not running"
    eventually(lambda: not agent_threads(target.pid), what="the end of what has been joined")
    assert commands.value("6 * 7") == "42"  # it can be started again
    target.send("print(probing.__version__, flush=True)")
    assert target.readline()


def test_idle_subinterpreters(probe, python):
    """Interpreters in which no thread is, newer than the one that has them all."""
    target = python.run_source(textwrap.dedent("""
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        others = [interpreters.create() for _ in range(3)]
        print("ready", flush=True)
        sys.stdin.read()
        """))
    commands = Commands(probe, target.pid)
    commands.attach()
    assert commands.value("len(others)") == "3"
    commands.detach()
    if python.version >= (3, 14):
        assert "remote_exec" in commands.run("ctl", "attach remote-exec\n")
    target.close()


def test_descriptors_closed(worker, commands):
    """By a program that closes what it doesn't know: what is asked next says so, and what comes then is done."""
    commands.attach()
    worker.send("os.closerange(3, 100)")
    worker.send("print(os.getpid(), flush=True)")
    worker.expect(str(worker.pid))
    try:
        commands.run("ctl", "record gc on\n")
    except Refused as refused:
        assert refused.errno == errno.ESRCH and "if it runs, try again" in str(refused)
    assert "gc on" in commands.run("ctl", "record gc on\n")


def test_stopped(worker, commands):
    """A process that is stopped stays so, and answers with words instead of hanging."""
    worker.signal(signal.SIGSTOP)
    eventually(lambda: set(worker.states().values()) == {"T"}, what="a stopped process")
    error, words = commands.refused("ctl", "attach\n")
    assert error == errno.ETIMEDOUT and "SIGCONT" in words
    assert set(worker.states().values()) == {"T"}
    worker.signal(signal.SIGCONT)
    assert commands.value("1") == "1"
    worker.signal(signal.SIGSTOP)
    eventually(lambda: set(worker.states().values()) == {"T"}, what="a stopped process")
    assert commands.state() == "running, connected"
    error, words = commands.refused("ctl", "status\n")
    assert error == errno.ETIMEDOUT
    worker.signal(signal.SIGCONT)
    assert commands.value("2") == "2"


def test_killed_while_somebody_waits(worker, commands):
    commands.attach()
    errors = []
    interpreter = worker.interpreter
    begun = interpreter.directory / "begun"
    begun.unlink(missing_ok=True)

    def wait():
        try:
            write(commands.code, f"open({interpreter.path('begun')!r}, 'w').close()\nwhile True: pass\n\n")
        except OSError as error:
            errors.append(error.errno)

    writer = threading.Thread(target=wait)
    writer.start()
    eventually(begun.exists, what="running code")
    worker.signal(signal.SIGKILL)
    writer.join(patience(30))
    assert errors == [errno.ESRCH]


@pytest.mark.parametrize("wrapper", [
    ["unshare", "--pid", "--fork", "--mount-proc"],
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"],
], ids=["pid", "container"])
def test_other_namespaces(probe, python, wrapper):
    with Inside(wrapper, python, "threads.py", 3, 5) as inside:
        commands = Commands(probe, inside.pid)
        eventually(lambda: commands.ctl.exists(), what="its directory")
        for _ in range(2):
            assert commands.value("__import__('os').getpid()") == "1"
            commands.detach()
            assert commands.state() == "none"
            eventually(lambda: not agent_threads(inside.pid), what="the end of what has been joined")


@pytest.mark.long
def test_all_at_once(probe, worker, commands):
    """Writers and one that detaches again and again: each gets an answer, and nobody is harmed."""
    over = threading.Event()
    unexpected = []
    answered = [0, 0]

    def ask():
        while not over.is_set():
            try:
                write(commands.code, "1 + 1\n")
                answered[0] += 1
            except OSError as error:
                answered[1] += 1
                # it was detached before it began, while it ran, or is just being
                if error.errno not in (errno.ESRCH, errno.EBUSY, errno.EINTR, errno.EIO):
                    unexpected.append(error)

    def part():
        while not over.is_set():
            try:
                commands.detach()
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ESRCH):
                    unexpected.append(error)
            time.sleep(0.05)  # without a pause no writer ever comes to its end

    workers = [threading.Thread(target=ask) for _ in range(4)] + [threading.Thread(target=part)]
    for thread in workers:
        thread.start()
    time.sleep(1)
    try:
        eventually(lambda: answered[0], what="an answer")
    finally:
        over.set()
    for thread in workers:
        thread.join(patience(60))
    assert not unexpected
    assert commands.value("1") == "1"
    commands.detach()
    assert commands.state() == "none"
    worker.send("print('fine', flush=True)")
    worker.expect("fine")
