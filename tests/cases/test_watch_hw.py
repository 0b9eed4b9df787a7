"""Watchpoints by debug registers, by both routes, from the file to the row: who is watched, what goes on beside it, who
is in the way, and what is left when the daemon is killed."""
import contextlib
import ctypes
import errno
import itertools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from commands import Commands, Refused, fields
from interpreters import eventually, patience
from sql import rows
from stacks import parse_backtrace
from stopping import reads_input
from test_namespaces import ROOTLESS, Inside
from watching import needs_hardware

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
KILLS = 300 if FULL else 10
SEED = int(os.environ.get("PROBEFS_TEST_SEED", time.time_ns() % 10**6))
SECCOMP_EXEC = str(pathlib.Path(__file__).resolve().parent.parent / "seccomp-exec")
ROUTES = ["perf", "ptrace"]

pytestmark = [pytest.mark.python(minimum=(3, 10)), needs_hardware]


@pytest.fixture
def target(python):
    with python.run("watched.py") as target:
        yield target


@pytest.fixture
def any_target(any_python):
    with any_python.run("watched.py") as target:
        yield target


def do(target, *words):
    target.send(" ".join(map(str, words)))
    target.expect("done")


def breakpoints(commands):
    """What reading shows: {id: (line, notes)}."""
    found = {}
    for line in (commands.directory / "breakpoints").read_text().splitlines():
        text, _, notes = line.partition("  # ")
        number, colon, what = text.partition(": ")
        if colon and number.isdigit():
            found[int(number)] = what, notes
    return found


def hits(probe, pid):
    return rows(probe.read(pid, "tables", "hits.csv"))


def arm(commands, line, how):
    """Sets it, and waits until it is armed so."""
    commands.run("breakpoints", line + "\n")
    return eventually(lambda: [notes for text, notes in breakpoints(commands).values()
                               if text == line and how in notes], 10,
                      f"{how}: {breakpoints(commands)}")


def status(tid, name):
    return fields(pathlib.Path(f"/proc/{tid}/status").read_text())[name].strip()


def tracers(pid):
    """Of each thread that is there long enough to be asked."""
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(int(status(tid, "TracerPid")))
    return found


def is_traced(pid):
    return any(tracers(pid))


def expect_hit(probe, target, values, tid=None):
    """The last row tells of these, old and new."""
    def last():
        found = hits(probe, target.pid)[-1:]
        return [row for row in found if (row["old_value"], row["new_value"]) == tuple(map(str, values))]

    before = probe.read(target.pid, "breakpoints")
    try:
        (row,) = eventually(last, 10)
    except AssertionError as error:
        raise AssertionError(f"{values}: {hits(probe, target.pid)[-3:]}, {before}, {tracers(target.pid)}, "
                             f"{probe.read(target.pid, 'breakpoints')}") from error
    assert row["func"] == "write" and row["file"].endswith("watched.py")
    assert tid is None or int(row["tid"]) == tid


def was_hit(probe, target, value):
    return any(hit["new_value"] == value for hit in hits(probe, target.pid))


def moves(target):
    """Both its threads write."""
    def count():
        target.send("count")
        return list(map(int, target.readline().split()))

    first = count()
    eventually(lambda: all(b > a for a, b in zip(first, count())), 20, f"going on (seed {SEED})")


@pytest.mark.parametrize("route", ROUTES)
def test_who_writes(probe, target, route):
    """Any thread, new ones too; not a child's copy, and not what is written beside it."""
    commands = Commands(probe, target.pid)
    arm(commands, f"log watch w[3] hw={route}", f"by {route}")
    assert is_traced(target.pid) == (route == "ptrace")
    do(target, "write", 3, 1)
    expect_hit(probe, target, (0.0, 1.0), target.pid)
    do(target, "write", 4, 7)
    do(target, "child", 3, 8)
    do(target, "thread", 3, 2)
    expect_hit(probe, target, (1.0, 2.0))
    assert int(hits(probe, target.pid)[-1]["tid"]) != target.pid
    assert len(hits(probe, target.pid)) == 2
    commands.run("breakpoints", "-1\n")
    eventually(lambda: not is_traced(target.pid), 5, "letting go")
    do(target, "write", 3, 3)
    assert len(hits(probe, target.pid)) == 2
    assert "the program forked" in commands.detach()  # and so the library stays
    assert target.process.poll() is None


@pytest.mark.parametrize("route", ROUTES)
def test_at_once(probe, any_target, route):
    """What is written after the command has returned is seen."""
    commands = Commands(probe, any_target.pid)
    for number in range(10):
        commands.run("breakpoints", f"log watch w[{number}] hw={route}\n")
        do(any_target, "write", number, number + 1)
        expect_hit(probe, any_target, (0.0, number + 1.0))
        commands.run("breakpoints", f"-{number + 1}\n")


@pytest.mark.long
@pytest.mark.parametrize("route", ROUTES)
def test_looking_meanwhile(probe, target, route):
    """While memory is watched that is written all the time everything else can be read; nothing hangs."""
    commands = Commands(probe, target.pid)
    arm(commands, f"log watch w[9] hw={route}", f"by {route}")
    do(target, "hot")
    moves(target)  # a thread that has just been started is not in hot() yet

    def whole():
        """Not one at an instruction where native and Python frames don't agree, nor by a reader without a processor."""
        threads = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid).threads.values()
        marked = any(thread.unreadable for thread in threads)
        assert marked or any(function == "hot" for thread in threads for function, _, _ in thread.frames)
        return not marked

    for _ in range(10):
        eventually(whole, what="a whole stack")
    assert commands.eval("w[9]") == "0.0\n"
    do(target, "write", 9, 5)
    expect_hit(probe, target, (0.0, 5.0), target.pid)
    assert "Agent: none" in commands.detach()
    eventually(lambda: not is_traced(target.pid), 5, "letting go")
    moves(target)


@pytest.mark.parametrize("route", ROUTES)
def test_five(probe, any_target, route):
    """There are four registers; who asks for one more is told who has them."""
    commands = Commands(probe, any_target.pid)
    for slot in range(4):
        commands.run("breakpoints", f"log watch w[{slot}] hw={route}\n")
    eventually(lambda: all(f"by {route}" in notes for _, notes in breakpoints(commands).values()), 10, "four")
    with pytest.raises(Refused) as refused:
        commands.run("breakpoints", f"log watch w[8] hw={route}\n")
    assert refused.value.errno == errno.EBUSY
    assert "1, 2, 3, 4" in refused.value.words
    for slot in range(4):
        do(any_target, "thread", slot, slot + 1)
        expect_hit(probe, any_target, (0.0, slot + 1.0))
    commands.run("breakpoints", "-2\n")
    arm(commands, f"log watch w[8] hw={route}", f"by {route}")
    do(any_target, "write", 8, 1)
    expect_hit(probe, any_target, (0.0, 1.0))


@pytest.mark.parametrize("route", ROUTES)
def test_another_program(probe, any_target, route):
    commands = Commands(probe, any_target.pid)
    arm(commands, f"log watch w[3] hw={route}", f"by {route}")
    do(any_target, "write", 3, 1)
    do(any_target, "execute")
    eventually(lambda: not is_traced(any_target.pid), what="letting go")
    assert any_target.process.poll() is None


@pytest.mark.parametrize("route", ROUTES)
def test_blocked(probe, target, route):
    """A thread that blocks SIGTRAP can't be watched, which is said; one that begins to, and writes, costs a process
    that is traced its handler, but not its life: values are compared from then on."""
    do(target, "blocked", 9, 1)
    commands = Commands(probe, target.pid)
    arm(commands, f"log watch w[3] hw={route}", f"by {route}, not in 1 thread that blocks SIGTRAP")
    do(target, "write", 3, 1)
    expect_hit(probe, target, (0.0, 1.0))
    do(target, "blocked", 3, 2)
    if route == "ptrace":
        eventually(lambda: ["by" for _, notes in breakpoints(commands).values() if notes.startswith("line,")], 10,
                   f"lines: {breakpoints(commands)}")
        eventually(lambda: not is_traced(target.pid), 5, "letting go")
    for value in range(3, 20):
        do(target, "thread", 3, value)
    assert target.process.poll() is None
    do(target, "write", 3, 21)
    eventually(lambda: was_hit(probe, target, "21.0"), what=f"the last one: {hits(probe, target.pid)[-5:]}")
    if route == "perf":  # the signal is still on its way to that thread
        error, words = commands.refused("ctl", "detach\n")
        assert error == errno.EBUSY and "blocks SIGTRAP" in words
        later = itertools.count(22)  # what was taken out is put back in its time

        def is_hit_again():
            last = next(later)
            do(target, "write", 3, last)
            return any(was_hit(probe, target, f"{value}.0") for value in range(22, last + 1))

        eventually(is_hit_again, what="another one")
    else:  # the library stays, unless its handler was put back meanwhile
        commands.detach()
        do(target, "thread", 3, 22)
    assert target.process.poll() is None


def dispositions(pid):
    """What is done about SIGTRAP: (caught, ignored)."""
    return tuple(bool(int(status(pid, name), 16) >> (signal.SIGTRAP - 1) & 1) for name in ("SigCgt", "SigIgn"))


@pytest.mark.parametrize("how", ["default", "ignored", "handled"])
@pytest.mark.parametrize("route", ROUTES)
def test_the_programs_own_sigtrap(probe, target, route, how):
    """What the program wants done about SIGTRAP is done about those that aren't ours, and about no others; what it
    writes is seen all the same, and doesn't cost it its life."""
    commands = Commands(probe, target.pid)
    arm(commands, f"log watch w[3] hw={route}", f"by {route}")
    for _ in range(3):
        do(target, "trap", how)
    expect_hit(probe, target, (39.0, -39.0))
    if how != "default":
        # before, Python calls a handler only afterwards
        eventually(lambda: reads_input(target.pid), what="that it reads")
        target.signal(signal.SIGTRAP)
    if how == "handled":
        target.expect("caught")
    do(target, "write", 3, 40)
    expect_hit(probe, target, (-39.0, 40.0))
    commands.detach()
    assert dispositions(target.pid) == (how == "handled", how == "ignored")
    if how == "default":
        target.signal(signal.SIGTRAP)
        assert target.process.wait(patience(30)) == -signal.SIGTRAP


# what `signal.signal()` doesn't see
DEFAULT_IN_C = """
import array, ctypes, sys
w = array.array("d", [0.0] * 8)
default = ctypes.create_string_buffer(256)  # a struct sigaction
print("ready", flush=True)
for line in sys.stdin:
    ctypes.CDLL(None).sigaction(5, default, None)
    w[3] += 1
    print("written", flush=True)
"""


def test_a_librarys_default_while_traced(probe, python):
    """One in C that gives SIGTRAP its default back doesn't end the process by its next write."""
    target = python.run_source(DEFAULT_IN_C)
    commands = Commands(probe, target.pid)
    arm(commands, "log watch w[3] hw=ptrace", "by ptrace")
    for _ in range(3):
        target.send("write")
        target.expect("written")


# ---- others ----

@contextlib.contextmanager
def tracing(pid):
    """strace(1), which has all of its threads."""
    strace = shutil.which("strace") or pytest.skip("there is no strace")
    tracer = subprocess.Popen([strace, "-f", "-e", "trace=none", "-p", str(pid)], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: all(tracers(pid)), 10, "strace")
        yield tracer
    finally:
        tracer.terminate()
        tracer.wait()


def test_beside_another_tracer(probe, any_target):
    """perf events do; a second tracer there can't be, and who it is is said."""
    commands = Commands(probe, any_target.pid)
    commands.attach()
    with tracing(any_target.pid):
        arm(commands, "log watch w[3] hw=perf", "by perf")
        do(any_target, "thread", 3, 1)
        expect_hit(probe, any_target, (0.0, 1.0))
        commands.run("breakpoints", "log watch w[4] hw=ptrace\n")
        notes = eventually(lambda: [notes for text, notes in breakpoints(commands).values() if "strace" in notes], 10,
                           "who is in the way")
        assert "is tracing it" in notes[0]
    do(any_target, "write", 3, 2)
    expect_hit(probe, any_target, (1.0, 2.0))


def test_another_tracer_beside(probe, any_target):
    commands = Commands(probe, any_target.pid)
    arm(commands, "log watch w[3] hw=ptrace", "by ptrace")
    strace = shutil.which("strace") or pytest.skip("there is no strace")
    tried = subprocess.run([strace, "-p", str(any_target.pid)], capture_output=True, text=True, timeout=patience(60))
    assert tried.returncode and "Operation not permitted" in tried.stderr
    do(any_target, "write", 3, 1)
    expect_hit(probe, any_target, (0.0, 1.0))


def gdb(pid, *orders):
    executable = shutil.which("gdb") or pytest.skip("there is no gdb")
    return subprocess.run([executable, "-nx", "-batch", "-p", str(pid), *(f"-ex={order}" for order in orders)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(100))


def test_beside_gdb(probe, any_target):
    """It gets in and out, with the agent there and with memory watched by perf; where ptrace watches it says who is
    there."""
    commands = Commands(probe, any_target.pid)
    arm(commands, "log watch w[3] hw=perf", "by perf")
    assert "detached" in gdb(any_target.pid, "bt 1", "detach").stdout
    do(any_target, "write", 3, 1)
    expect_hit(probe, any_target, (0.0, 1.0))
    arm(commands, "log watch w[4] hw=ptrace", "by ptrace")
    said = gdb(any_target.pid, "bt 1").stderr
    assert "Operation not permitted" in said or f"already traced by process {probe.pid}" in said
    do(any_target, "write", 4, 1)
    expect_hit(probe, any_target, (0.0, 1.0))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("wrapper", [
    ["unshare", "--pid", "--fork", "--mount-proc"],
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"],
    ROOTLESS,
], ids=["pid", "container", "rootless"])
def test_other_namespaces(probe, any_python, wrapper, route):
    with Inside(wrapper, any_python, "watched.py") as inside:
        eventually(lambda: os.path.isdir(probe.path / str(inside.pid)), 20, "its directory")
        commands = Commands(probe, inside.pid)
        arm(commands, f"log watch w[3] hw={route}", f"by {route}")
        for value in range(1, 4):
            inside.process.stdin.write(f"thread 3 {value}\n")
            inside.process.stdin.flush()
            assert inside.process.stdout.readline() == "done\n"
        eventually(lambda: len(hits(probe, inside.pid)) == 3, 10, "three hits")
        assert "Agent: none" in commands.detach()


# ---- what is forbidden ----

def test_without_perf(probe, any_target):
    """A daemon that may not use perf events takes the other way, unless it was told which."""
    mounted = probe.mount(within=[sys.executable, SECCOMP_EXEC, "EPERM", "perf_event_open"])
    commands = Commands(mounted, any_target.pid)
    arm(commands, "log watch w[3]", "by ptrace")
    do(any_target, "thread", 3, 1)
    expect_hit(mounted, any_target, (0.0, 1.0))
    commands.run("breakpoints", "log watch w[4] hw=perf\n")
    notes = eventually(lambda: [notes for text, notes in breakpoints(commands).values() if "refused" in notes], 10,
                       "why")
    assert "perf_event_open(2) is refused" in notes[0]


def test_filtered_target(probe, any_python):
    """What cleans up after a daemon that was killed would be killed itself: so ptrace watches nothing there."""
    with any_python.run("watched.py", within=[sys.executable, SECCOMP_EXEC, "kill", "ptrace"]) as target:
        commands = Commands(probe, target.pid)
        arm(commands, "log watch w[3]", "by perf")
        do(target, "thread", 3, 1)
        expect_hit(probe, target, (0.0, 1.0))
        commands.run("breakpoints", "log watch w[4] hw=ptrace\n")
        eventually(lambda: [notes for text, notes in breakpoints(commands).values() if "seccomp filter" in notes], 10,
                   f"why: {breakpoints(commands)}")
        eventually(lambda: not is_traced(target.pid), what="letting go of what was looked at")
        assert target.process.poll() is None


# ---- the daemon is killed ----

def armed_registers(pid):
    """How many debug registers are enabled in the main thread of a process that nobody traces: DR7, as ptrace(2) shows
    it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    peekuser, detach, seize, interrupt, dr7 = 3, 17, 0x4206, 0x4207, 848 + 7 * 8
    if libc.ptrace(seize, pid, None, None) < 0:
        return None  # what clears them is just there
    assert libc.ptrace(interrupt, pid, None, None) == 0
    _, status = os.waitpid(pid, 0x40000000)  # __WALL
    found = libc.ptrace(peekuser, pid, dr7, None)
    libc.ptrace(detach, pid, None, os.WSTOPSIG(status) if status >> 16 == 0 else None)
    return (found & 0xFF).bit_count()


def without_proc():
    """A command that runs another where /proc is empty."""
    within = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""]
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made")
    return within


@pytest.mark.parametrize("how", ["root", "nobody", "without /proc"])
def test_cleared(probe, any_python, nobody, how):
    """What ptrace has left armed is cleared, by root's processes and by others'."""
    if how == "nobody" and any_python.root != pathlib.Path("/"):
        pytest.skip("only root may change to its root")
    mounted = probe.mount()
    with any_python.run("watched.py", user="nobody" if how == "nobody" else None,
                        within=without_proc() if how == "without /proc" else ()) as target:
        commands = Commands(mounted, target.pid)
        arm(commands, "log watch w[3] hw=ptrace", "by ptrace")
        do(target, "hot")
        moves(target)
        mounted.kill()
        eventually(lambda: not is_traced(target.pid), 5, "being let go")
        moves(target)
        eventually(lambda: armed_registers(target.pid) == 0, 5, "clearing")
        moves(target)
        mounted.start()


@pytest.mark.parametrize("route", ROUTES)
def test_unnamed(probe, any_target, route):
    """A write of which the kernel doesn't know that it was one, since a hypervisor has lost that: neither it nor what
    is told of it late costs the target its life. An int1 of the program's own does."""
    commands = Commands(probe, any_target.pid)
    arm(commands, f"log watch w[3] hw={route}", f"by {route}")
    for value in range(1, 20):
        do(any_target, "unnamed", 3, value)
    expect_hit(probe, any_target, (18.0, 19.0))
    do(any_target, "unnamed", 5, 1)
    any_target.send("int1")
    assert any_target.process.wait(patience(30)) == -signal.SIGTRAP


@pytest.mark.long
@pytest.mark.deadline(3600 if FULL else 120)
@pytest.mark.parametrize("route", ROUTES)
def test_killed(probe, any_target, route):
    """Whatever is armed, and however often that is written: the target goes on, at its own pace soon, and the next
    daemon watches it again."""
    dice = random.Random(SEED)
    mounted = probe.mount()
    do(any_target, "hot")
    for _ in range(KILLS):
        commands = Commands(mounted, any_target.pid)
        commands.run("breakpoints", f"log watch w[3] hw={route}\n")
        time.sleep(dice.random() * 0.05)
        mounted.kill()
        assert any_target.process.poll() is None, f"seed {SEED}"
        moves(any_target)
        eventually(lambda: not is_traced(any_target.pid), 5, "being let go")
        mounted.start()
        with contextlib.suppress(Refused):
            Commands(mounted, any_target.pid).run("breakpoints", "-1\n")
    said = Commands(mounted, any_target.pid).detach()
    assert "Agent: none" in said or route == "ptrace" and "stays" in said  # registers that can't be cleared in a second
    moves(any_target)
