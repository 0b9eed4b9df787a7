"""A thread that keeps the GIL while it waits in C outside Python: it lends it to what is asked for and notices nothing.
Where that isn't known to be safe nothing is touched."""
import errno
import functools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from commands import Commands
from interpreters import Interpreter, eventually, patience
from sql import reply

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "targets" / "gil_keeper.c"
SCRIPT = """
count = 0

def served():
    global count
    count += 1
    seen = count
    print("served", seen, flush=True)
"""
LINE = 8
ENDLESS = "begun = True\nwhile True: pass\n"
BESIDE = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
INSIDE = """
import ctypes
waits = ctypes.PyDLL(None).read  # which keeps the GIL
waits.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
print("ready", flush=True)
waits(0, ctypes.create_string_buffer(1), 1)
"""


def library(interpreter):
    """Its libpython, as seen from outside; None: it has none that is shared."""
    code = ("from sysconfig import get_config_var as get\n"
            "print(get('LIBDIR'), get('LDVERSION'), get('MULTIARCH'))")
    folder, version, machine = subprocess.check_output(interpreter.command("-c", code), text=True).split()
    for place in (folder, f"{folder}/{machine}"):
        path = interpreter.root / place.lstrip("/") / f"libpython{version}.so.1.0"
        if path.exists():
            return path
    return None


@functools.lru_cache(maxsize=None)
def built(interpreter):
    found = library(interpreter)
    if not found or not shutil.which("gcc"):
        return None
    made = interpreter.directory / f"gil_keeper-{interpreter.id}"
    subprocess.run(["gcc", "-o", made, SOURCE, found, "-lpthread", "-Wl,--allow-shlib-undefined",
                    f"-Wl,-rpath,/{found.parent.relative_to(interpreter.root)}"], check=True, capture_output=True)
    embedded = Interpreter("embedded", interpreter.version, "/" + str(made.relative_to(interpreter.root)),
                           interpreter.root)
    embedded.directory = interpreter.directory  # it compiles none of the victims
    return embedded


def keeper(interpreter, call, script=SCRIPT):
    embedded = built(interpreter)
    if not embedded:
        pytest.skip("no gcc, or no shared libpython")
    home = subprocess.check_output(interpreter.command("-c", "import sys; print(sys.base_prefix)"), text=True).strip()
    return embedded.run_source(script, call, env={"PYTHONHOME": home})


def ends(target):
    target.stdin.close()
    target.expect("done")
    assert target.process.wait(patience(60)) == 0, target.stderr()


@pytest.mark.python(minimum=(3, 11))
@pytest.mark.parametrize("call", ["epoll", "poll", "select", "read", "timed", "sleep"])
def test_lends(probe, python, call):
    """All that is asked for, in whichever call it waits; and the agent goes as it came."""
    target = keeper(python, call)
    commands = Commands(probe, target.pid)
    assert commands.eval("40 + 2") == "42\n"
    assert "# armed" in commands.run("breakpoints", f"log {target.script}:{LINE} {{seen}}\n")
    commands.run("ctl", "record exceptions\n")
    for number in 1, 2:
        target.send("")
        target.expect(f"served {number}")
        assert commands.eval("count") == f"{number}\n"
    query = "SELECT captured->>'seen' AS seen FROM hits WHERE hit ORDER BY 1\n"
    eventually(lambda: reply(commands.directory / "query", query) == "seen\n1\n2\n", what="both hits")
    commands.detach()
    assert commands.state() == "none", commands.status()
    target.send("")
    target.expect("served 3")
    ends(target)


def detached(commands):
    """False: code that was interrupted hasn't left yet."""
    try:
        commands.detach()
        return True
    except OSError as error:
        assert error.errno == errno.EBUSY, error
        return False


@pytest.mark.python(minimum=(3, 11))
def test_is_interrupted(probe, python):
    """What runs for long has the GIL by turns with what comes for the program, and ends when its writer goes."""
    target = keeper(python, "epoll")
    commands = Commands(probe, target.pid)
    assert commands.eval("1") == "1\n"
    writer = subprocess.Popen(["sh", "-c", 'printf %s "$1" > "$2"', "sh", ENDLESS, commands.code],
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for number in range(1, 6):
        target.send("")
        target.expect(f"served {number}")
    eventually(lambda: commands.directory.joinpath("status").exists(), what="a daemon that answers")
    writer.send_signal(signal.SIGINT)
    assert writer.wait(patience(60)) != 0
    assert commands.eval("count") == "5\n"
    eventually(lambda: detached(commands), what="the end of it")
    assert commands.state() == "none", commands.status()
    ends(target)


@pytest.mark.long
@pytest.mark.python(minimum=(3, 11))
@pytest.mark.parametrize("call", ["epoll", "timed", "sleep"])
def test_beside_what_is_served(probe, python, call):
    """Evals in their hundreds beside lines that come at any moment: each is served, in its turn."""
    target = keeper(python, call)
    commands = Commands(probe, target.pid)
    over = threading.Event()
    failures = []

    def evaluate():
        try:
            for n in range(200):
                assert commands.eval(f"count * 0 + {n}") == f"{n}\n"
        except (AssertionError, OSError) as error:
            failures.append(error)
        over.set()

    thread = threading.Thread(target=evaluate)
    thread.start()
    chance, number = random.Random(17), 0
    while not over.is_set() and target.process.poll() is None:
        number += 1
        target.send("")
        target.expect(f"served {number}")
        time.sleep(chance.random() * 0.02)
    thread.join()
    assert not failures, failures
    commands.detach()
    ends(target)


@pytest.mark.long
@pytest.mark.python(minimum=(3, 11))
def test_daemon_is_killed(probe, python):
    """At any moment of it: the thread goes on, with the GIL."""
    target = keeper(python, "timed")
    chance = random.Random(18)
    for number in range(1, 21):
        other = probe.mount()
        code = other.path / str(target.pid) / "eval"
        eventually(code.exists, what="the process")
        writer = subprocess.Popen(["sh", "-c", 'echo 1 > "$1"', "sh", code], stderr=subprocess.DEVNULL)
        time.sleep(chance.random() * 0.1)
        other.kill()
        writer.wait(patience(60))
        other.close(check=False)
        probe.extra.remove(other)
        target.send("")
        target.expect(f"served {number}")
    commands = Commands(probe, target.pid)
    assert commands.eval("count") == "20\n"
    commands.detach()
    ends(target)


@pytest.mark.long
@pytest.mark.python(minimum=(3, 11))
@pytest.mark.parametrize("call, code, times", [  # epoll_wait(2) ends by a stop, also without us
    ("poll", "6 * 7", 60), ("timed", "6 * 7", 60),
    pytest.param("timed", "sum(range(1000000)) * 0 + 42", 2000, marks=pytest.mark.skipif(
        os.environ.get("PROBEFS_TEST_FULL") != "1", reason="it takes minutes: tests/run --full has it"))],
    ids=["poll", "timed", "waited for"])
def test_is_stopped(probe, python, call, code, times):
    """By SIGSTOP, at any moment of it, also as it waits to have the GIL again: nothing is lost, and it runs on once it
    may."""
    if times > 60 and python.source == "sid":
        pytest.skip("glibc from 2.41 on: its code doesn't tell which call it is that goes on")
    target = keeper(python, call)
    commands = Commands(probe, target.pid)
    assert commands.eval("40 + 2") == "42\n"
    over = threading.Event()
    failures, answers = [], []

    def evaluate():
        while not over.is_set():
            try:
                answers.append(commands.eval(code))
            except (AssertionError, OSError) as error:
                failures.append(error)

    thread = threading.Thread(target=evaluate)
    thread.start()
    chance = random.Random(19)
    try:
        for number in range(1, times + 1):
            time.sleep(chance.random() * 0.02)
            os.kill(target.pid, signal.SIGSTOP)
            time.sleep(chance.random() * 0.02)
            os.kill(target.pid, signal.SIGCONT)
            target.send("")
            target.expect(f"served {number}")
    finally:
        over.set()
        thread.join()
    assert answers and set(answers) == {"42\n"}
    assert {getattr(error, "errno", 0) for error in failures} <= {errno.ETIMEDOUT}, failures  # nobody lent it in time
    commands.detach()
    ends(target)


@pytest.mark.python(minimum=(3, 11))
@pytest.mark.parametrize("call, script", [("cond", SCRIPT), ("epoll", SCRIPT + BESIDE)], ids=["for another", "beside"])
def test_is_not_asked_to(probe, python, call, script):
    """Where it waits for another of the program's threads, or Python has more of them: said, and nothing done."""
    target = keeper(python, call, script)
    number, words = Commands(probe, target.pid).refused("eval", "1\n")
    assert number == errno.ETIMEDOUT and ") holds it and sleeps outside Python, in " in words, words
    target.close()


@pytest.mark.long
@pytest.mark.python(minimum=(3, 11))
def test_is_not_asked_inside(probe, python):
    """A call that a function of Python's is in the middle of."""
    target = keeper(python, "epoll", SCRIPT + INSIDE)
    number, words = Commands(probe, target.pid).refused("eval", "1\n")
    assert number == errno.ETIMEDOUT and "the GIL was not to be had within 10 s" in words, words
    target.send("")
    target.expect("ready")
    target.send("")
    target.expect("served 1")
    ends(target)
