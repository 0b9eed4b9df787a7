"""Getting a library into a process, without daemon and agent: what tests/inject_cycle and
tests/intruder.c do to a victim, whatever happens meanwhile."""
import contextlib
import functools
import operator
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import mount

from interpreters import eventually, patience
from victims import Victim

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
KILLS = 500 if FULL else 8
SEED = int(os.environ.get("PROBEFS_TEST_SEED", time.time_ns() % 10**6))
WARM_UP = 3 # cycles after which a victim has what it will keep: a cached stack, malloc's arenas

pytestmark = pytest.mark.python(minimum=(3, 10))


def command(pid, cycles, *options, library="intruder.so"):
    """Each step may take as long as the load of now asks for, where the case sets no deadline."""
    build = mount.build() / "tests"
    if "--deadline" not in options:
        options += ("--deadline", str(int(patience(5) * 1000)))
    return [str(build / "inject_cycle"), str(pid), str(cycles), str(build / library), *options]


class Cycles:
    """What the injector said. lines: of each step (what, result, words); failed: of those."""

    def __init__(self, pid, cycles, *options, library="intruder.so"):
        done = subprocess.run(command(pid, cycles, *options, library=library), text=True,
                              capture_output=True, timeout=patience(150))
        assert done.returncode in (0, 1) and not done.stderr, (done.returncode, done.stderr)
        self.text = done.stdout
        self.lines = []
        for line in done.stdout.splitlines():
            step = re.fullmatch(r"(cycle|call|unload) (\S+) \d+ \d+ \d+ \d+ \w+ (.*)", line)
            if step:
                self.lines.append(step.groups())
        self.failed = [line for line in self.lines
                       if line[1] != "0" and not line[1].startswith("entry:")]

    def count(self, what):
        return sum(line[0] == what for line in self.lines)


def refused(pid, milliseconds):
    """Why no thread of it can be borrowed. One without a processor isn't stopped in time: then it is asked again."""
    def judged():
        (what, result, words), = Cycles(pid, 1, "--deadline", str(milliseconds)).lines
        assert (what, result) == ("cycle", "ETIMEDOUT"), words
        return None if "be stopped in time" in words else words
    return eventually(judged, what="that a thread is stopped in time")


def system_call(pid):
    """The one that its main thread is in: its number and arguments, as words; of one that runs or is gone, none."""
    try:
        number, *arguments = pathlib.Path(f"/proc/{pid}/syscall").read_text().split()
    except (OSError, ValueError):
        return "", []
    return number, arguments


def shims(pid):
    """Mappings that an injection uses for itself: the only shared ones of its memory file."""
    return [line for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
            if "memfd:probe-agent" in line and re.match(r"\S+ ...s", line)]


def ours(footprint):
    return [line for line in footprint.mappings if "probe-agent" in line]


def blocked(pid):
    """The signals that each thread blocks."""
    masks = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            masks[task.name] = re.search(r"SigBlk:\s*(\w+)", task.joinpath("status").read_text())[1]
        except OSError:
            pass
    return masks


def masks_at_rest(victim):
    """The same without a signal that is blocked only now and then, while it is handled: each thread moves in
    between."""
    seen = [blocked(victim.pid)]
    for _ in range(10):
        victim.judge()
        seen.append(blocked(victim.pid))
    lasting = set.intersection(*map(set, seen))  # threads
    return {tid: functools.reduce(operator.and_, (int(masks[tid], 16) for masks in seen)) for tid in lasting}


@pytest.mark.parametrize("kind", ["idle", "sums", "waits", "registers", "errno"])
def test_in_and_out(python, kind):
    """In, called, out again: nothing is lost, changed or left."""
    with Victim(python, kind) as victim:
        victim.judge()
        assert not Cycles(victim.pid, WARM_UP, "--unload").failed
        victim.judge()
        before = victim.footprint()
        cycles = Cycles(victim.pid, 6, "--unload", "--call", "intruder_call")
        assert not cycles.failed
        assert [line[1] for line in cycles.lines if line[0] == "call"] == ["entry:1"] * 6
        victim.judge()
        eventually(lambda: victim.footprint().leaked(before) == [], what="the end of its thread")
        assert ours(victim.footprint()) == []
        victim.end()


def test_stays_loaded(python):
    with Victim(python, "sums") as victim:
        before = victim.footprint()
        cycles = Cycles(victim.pid, 1)
        assert not cycles.failed
        eventually(lambda: not shims(victim.pid), what="the end of the shim")
        eventually(lambda: victim.footprint().leaked(before) == [], what="the end of its thread")
        assert ours(victim.footprint()), "it was not told to be unloaded"
        victim.end()


@pytest.mark.long
@pytest.mark.deadline(3600 if FULL else 120)
@pytest.mark.parametrize("kind", ["idle", "sums", "malloc, 4 threads", "waits, Python's", "signals",
                                  "registers", "asyncio"])
def test_injector_killed(any_python, kind):
    """The borrowed thread restores itself, and the next injector gets in. Python's own waits only: a call like
    epoll_wait() that a stop has cut short says EINTR if who stopped the thread dies before it can be made to begin
    anew, and no tracer can help that (probefs(1), limits); Python calls again."""
    dice = random.Random(SEED)
    with Victim(any_python, kind) as victim:
        assert not Cycles(victim.pid, WARM_UP, "--unload").failed
        before, masks = victim.footprint(), masks_at_rest(victim)
        for number in range(KILLS):
            injector = subprocess.Popen(command(victim.pid, 100, "--unload"),
                                        stdout=subprocess.DEVNULL)
            time.sleep(0.001 + dice.random() * 0.006)
            injector.kill()
            injector.wait()
            if number % 4 == 0:
                victim.judge()
        victim.judge()
        eventually(lambda: not shims(victim.pid), what=f"the end of the shim (seed {SEED})")
        eventually(lambda: masks_at_rest(victim) == masks, what=f"its masks as before (seed {SEED})")
        assert not {"t", "T"} & set(victim.target.states().values())
        eventually(lambda: victim.footprint().leaked(before) == [], what=f"calm (seed {SEED})")
        assert not Cycles(victim.pid, 2, "--unload").failed
        victim.end()


@pytest.mark.deadline(3600 if FULL else 120)
def test_target_killed(any_python):
    dice = random.Random(SEED)
    for _ in range(KILLS):
        with Victim(any_python, "sums, 4 threads") as victim:
            injector = subprocess.Popen(command(victim.pid, 10000, "--unload"), text=True,
                                        stdout=subprocess.PIPE)
            time.sleep(dice.random() * 0.01)
            victim.target.signal(signal.SIGKILL)
            said, _ = injector.communicate(timeout=patience(30))
            failed = [line for line in said.splitlines()
                      if re.match(r"(cycle|unload) (?!0 )", line)]
            assert all(line.split()[1] == "ESRCH" for line in failed), (failed, SEED)


POLLS = """
import ctypes, time
poll = ctypes.CDLL(None, use_errno=True).poll
print("ready", flush=True)
while True:
    begin = time.monotonic()
    said = poll(None, 0, 20)  # goes on by the kernel's restart block
    assert said == 0, (said, ctypes.get_errno())
    assert time.monotonic() - begin >= 0.0199
"""


def stands_still(target, states=frozenset("T")):
    """Whether all its threads are stopped, for a tenth of a second."""
    for _ in range(10):
        if not states.issuperset(target.states().values()):
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("kind", ["sums", "polls"])
def test_job_control(any_python, kind):
    """A SIGSTOP that comes meanwhile stops it afterwards, for as long as it should."""
    target = (any_python.run_source(POLLS) if kind == "polls"
              else any_python.run("storm/sums.py"))
    assert not Cycles(target.pid, WARM_UP, "--unload").failed
    for _ in range(15):
        injector = subprocess.Popen(command(target.pid, 100, "--unload", "--deadline", "2000"),
                                    stdout=subprocess.DEVNULL)
        time.sleep(0.004)
        target.signal(signal.SIGSTOP)
        eventually(lambda: stands_still(target), what="the stop")  # what is just being borrowed first comes back
        assert stands_still(target, frozenset("Tt")), "it stays stopped"
        target.signal(signal.SIGCONT)
        injector.kill()
        injector.wait()
        eventually(lambda: set(target.states().values()) <= {"R", "S"}, what="going on")
    assert not Cycles(target.pid, 1, "--unload").failed
    eventually(lambda: not shims(target.pid), what="the end of the shim")
    assert target.process.poll() is None, target.stderr()


def test_stopped(any_python):
    with Victim(any_python, "sums, 4 threads") as victim:
        victim.target.signal(signal.SIGSTOP)
        eventually(lambda: set(victim.target.states().values()) == {"T"}, what="the stop")
        (what, result, words), = Cycles(victim.pid, 1).lines
        assert (what, result) == ("cycle", "ETIMEDOUT") and "SIGCONT" in words
        assert set(victim.target.states().values()) == {"T"}
        victim.target.signal(signal.SIGCONT)
        victim.judge()
        victim.end()



ITERATES = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.dl_iterate_phdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
pause = ctypes.cast(libc.pause, ctypes.c_void_p)
print("ready", flush=True)
libc.dl_iterate_phdr(pause, None)  # sleeps in pause(), called by libc, which holds the loader's lock
"""
PAUSE, EPOLL_WAITS = "34", {"232", "281"}


def test_no_safe_place(any_python):
    """Its only thread sleeps with the loader's lock held."""
    target = any_python.run_source(ITERATES)
    eventually(lambda: system_call(target.pid)[0] == PAUSE, what="its pause()")
    words = refused(target.pid, 300)
    assert "safe" in words and re.search(r"\(\d+ tries\)", words) and " of " in words, words
    eventually(lambda: system_call(target.pid)[0] == PAUSE, what="that it sleeps on")


WAITS = """
import select
print("ready", flush=True)
select.epoll().poll(1000)
"""


def test_a_wait_is_not_begun_anew(python):
    """epoll_wait() returns early when its thread is stopped; Python waits for what is left."""
    target = python.run_source(WAITS)

    def waits():  # milliseconds
        number, arguments = system_call(target.pid)
        return int(arguments[3], 16) & 0xffffffff if number in EPOLL_WAITS else None
    assert eventually(waits, what="its epoll_wait()") == 1000_000
    time.sleep(0.1)
    assert not Cycles(target.pid, 1, "--unload").failed
    assert 0 < eventually(waits, what="its next one") <= 1000_000 - 100


def test_unresolved(any_python):
    """dlopen()'s own words."""
    with Victim(any_python, "sums") as victim:
        assert Cycles(victim.pid, WARM_UP, "--unload").count("cycle") == WARM_UP
        before = victim.footprint()
        (what, result, words), = Cycles(victim.pid, 1, library="unresolved.so").lines
        assert (what, result) == ("cycle", "ENOEXEC") and "undefined symbol" in words
        victim.judge()
        eventually(lambda: victim.footprint().leaked(before) == [], what="the end of its thread")
        assert ours(victim.footprint()) == []
        victim.end()


# it holds the lock of stdin while it waits
HOLDS = """
import ctypes
print("ready", flush=True)
libc = ctypes.CDLL(None)
libc.fgets(ctypes.create_string_buffer(9), 9, ctypes.c_void_p.in_dll(libc, "stdin"))
"""


def test_in_a_function_that_holds_a_lock(python):
    """It is refused, and named: not what it called itself, and not what called it."""
    target = python.run_source(HOLDS)
    def reads():
        number, arguments = system_call(target.pid)
        return number == "0" and arguments[0] == "0x0"
    eventually(reads, what="its read(0)")
    words = refused(target.pid, 200)
    assert re.search(r"stood in a function of libc that may hold a lock: (_IO_)?fgets of libc\.so\.6$",
                     words), words


CLOSES = """
import os, sys, threading
def close():
    while True:
        os.closerange(3, 60)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=close).start()
print("ready", flush=True)
close()
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_descriptors_closed_by_others(any_python, threads):
    """Another thread closes what an injection has just opened, or the borrowed one when it is back."""
    target = any_python.run_source(CLOSES, threads)
    for _ in range(20):
        for _, result, words in Cycles(target.pid, 1).lines:
            assert result in {"0", "EPROTO", "ENOEXEC"}, words
    assert target.state() in "RS"
    eventually(lambda: not shims(target.pid), what="the end of the shim")


def test_nothing_of_it_in_a_program_executed_next(any_python):
    """What was loaded before an exec can't be closed after it."""
    with Victim(any_python, "exec") as victim:
        cycles = Cycles(victim.pid, 30, "--unload", "--call", "intruder_call")
        assert cycles.count("cycle") >= 1
        # a program that has just begun has no libc yet: EOPNOTSUPP
        assert {result for _, result, _ in cycles.failed} <= {"ESRCH", "ENOENT", "ETIMEDOUT",
                                                              "EOPNOTSUPP"}
        victim.judge()
        victim.end()


def test_two_injectors(any_python):
    """Each finds the other's tracer, and tries again."""
    with Victim(any_python, "sums, 4 threads") as victim:
        both = [subprocess.Popen(command(victim.pid, 40, "--unload", "--deadline", "30000"), stdout=subprocess.PIPE,
                                 text=True) for _ in range(2)]
        said = [one.communicate(timeout=patience(60))[0] for one in both]
        for text in said:
            assert "loaded 40 failed 0" in text, [line for line in text.splitlines()
                                                  if not re.match("(cycle|unload) 0 ", line)]
        victim.judge()
        victim.end()


TRACER = """
import ctypes, os, sys
SEIZE, INTERRUPT, NEXT_SYSCALL, PEEKUSER, DETACH, ORIG_RAX = 0x4206, 0x4207, 24, 3, 17, 120
WALL = 0x40000000
tid, name, syscall = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
def ptrace(request, address=None):
    ctypes.set_errno(0)
    said = libc.ptrace(request, tid, address, None)
    assert not ctypes.get_errno(), os.strerror(ctypes.get_errno())
    return said
open("/proc/self/comm", "w").write(name)
ptrace(SEIZE)
ptrace(INTERRUPT)
os.waitpid(tid, WALL)
while syscall >= 0 and ptrace(PEEKUSER, ORIG_RAX) != syscall:
    ptrace(NEXT_SYSCALL)
    os.waitpid(tid, WALL)
print("holds", flush=True)
sys.stdin.read()
ptrace(DETACH)
"""


@contextlib.contextmanager
def held_by(name, tid, syscall=-1):
    """Another tracer keeps a thread stopped: in a system call, if one is named by its number."""
    with subprocess.Popen([sys.executable, "-c", TRACER, str(tid), name, str(syscall)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracer:
        try:
            assert tracer.stdout.readline() == "holds\n"
            yield
            tracer.stdin.close()
            assert tracer.wait(patience(10)) == 0
        finally:
            tracer.kill()


def test_beside_a_debugger(any_python):
    with Victim(any_python, "idle") as victim:
        with held_by("debugger", victim.pid):
            (what, result, words), = Cycles(victim.pid, 1).lines
            assert (what, result) == ("cycle", "EBUSY") and "(debugger) is tracing it" in words
        assert not Cycles(victim.pid, 1).failed
        victim.end()


def test_beside_another_daemon(any_python):
    """Its tracer lets go of what it has: that is waited for until the deadline, also where it gets no processor."""
    with Victim(any_python, "idle") as victim:
        with held_by("probefs-tracer", victim.pid):
            (what, result, words), = Cycles(victim.pid, 1, "--deadline", str(int(patience(2) * 1000))).lines
            assert (what, result) == ("cycle", "EBUSY") and "(probefs-tracer) is tracing it" in words
            injector = subprocess.Popen(command(victim.pid, 1, "--deadline", "60000"), stdout=subprocess.PIPE,
                                        text=True)
            with pytest.raises(subprocess.TimeoutExpired):
                injector.wait(1)
        said, _ = injector.communicate(timeout=patience(60))
        assert "loaded 1 failed 0" in said
        victim.end()


# Its second thread asks the kernel for memory with malloc's lock held: all threads have the same arena, and blocks of
# this size are no mappings of their own.
GROWS = """
import ctypes, threading, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def grow():
    while True:
        blocks = [libc.malloc(100_000) for _ in range(50)]
        for block in blocks:
            libc.free(block)
        libc.malloc_trim(0)
thread = threading.Thread(target=grow, daemon=True)
thread.start()
print("ready", flush=True)
print(thread.native_id, flush=True)
time.sleep(100000)
"""
BRK = 12


def test_nothing_stands_where_a_debugger_keeps_a_lock(any_python):
    """A thread borrowed meanwhile would wait for that lock for as long as the debugger likes."""
    target = any_python.run_source(GROWS, env={"MALLOC_ARENA_MAX": "1"})
    with held_by("debugger", int(target.readline()), BRK):
        cycles = Cycles(target.pid, 1)
        (what, result, words), = cycles.lines
        assert (what, result) == ("cycle", "EBUSY") and "(debugger) is tracing it" in words
        assert cycles.text.startswith("cycle EBUSY 0 "), "none was stopped"
    assert not Cycles(target.pid, 1).failed


@pytest.mark.deadline(180)
def test_without_a_processor(any_python):
    """The borrowed thread may execute for 100 us every three seconds: it is waited for until the deadline."""
    chrt = shutil.which("chrt") or pytest.skip("there is no chrt")
    target = any_python.run_source("import time; print('ready', flush=True); time.sleep(100000)")
    eventually(lambda: target.state() == "S", what="sleep")
    done = subprocess.run([chrt, "--reset-on-fork", "--deadline", "--sched-runtime", "100000", "--sched-deadline",
                           "3000000000", "--sched-period", "3000000000", "--pid", "0", str(target.pid)],
                          capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    assert not Cycles(target.pid, 1, "--deadline", "120000").failed


def test_another_user_is_refused(any_python, nobody):
    with Victim(any_python, "idle") as victim:
        done = subprocess.run(command(victim.pid, 1), user=nobody, text=True, capture_output=True,
                              extra_groups=[])
        assert done.returncode == 1, done
        victim.judge()
        victim.end()
