"""kill -9 at random moments, of the daemon and of its target, while an agent comes, works and goes."""
import errno
import os
import random
import signal
import threading
import time

import pytest

from commands import Commands, Refused
from interpreters import eventually, patience
from stopping import reads_input
from victims import Victim

pytestmark = pytest.mark.long

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
KILLS = 500 if FULL else 30
SEED = int(os.environ.get("PROBEFS_TEST_SEED", time.time_ns() % 10**6))
# not "waits": a daemon that is killed between the stop and the restart of what it cut short leaves a
# bare epoll_wait() with EINTR, as a shell's Ctrl-Z does; Python's own waits go on
KINDS = ["idle", "sums", "malloc, 4 threads", "loader", "fork", "waits, Python's", "signals",
         "registers"]
LONGEST = 0.06  # seconds from the first write to the kill: two cycles or so
GONE = {errno.ENOENT, errno.ESRCH}


class Writer(threading.Thread):
    """Attaches, evaluates and detaches until something fails: error."""

    def __init__(self, commands):
        super().__init__(daemon=True)
        self.commands, self.error, self.begun = commands, None, threading.Event()

    def run(self):
        self.begun.set()
        try:
            while True:
                self.commands.attach()
                assert self.commands.eval("sum(range(100))") == "4950\n"
                self.commands.detach()
        except OSError as error:
            self.error = error

    def after(self, seconds):
        """Starts it, and returns so many seconds later."""
        self.start()
        self.begun.wait()
        time.sleep(seconds)
        return self

    def ended(self):
        self.join(patience(30))
        assert not self.is_alive(), "a writer still waits"
        return self.error


def untouched(victim):
    """Nobody traces it any more, and none of its threads is stopped."""
    states = {}

    def all_run():
        states.update(victim.target.states())
        return not {"t", "T"} & set(victim.target.states().values())

    eventually(all_run, 2, f"going on (seed {SEED}, {states})")


@pytest.mark.deadline(3600 if FULL else 120)
@pytest.mark.parametrize("kind", KINDS)
def test_the_daemon(probe, any_python, kind):
    """The target goes on, all its results right, and the next daemon gets in."""
    dice = random.Random(SEED)
    with Victim(any_python, kind) as victim:
        mounted = probe.mount()
        Commands(mounted, victim.pid).attach()
        Commands(mounted, victim.pid).detach()
        before = victim.footprint()
        for number in range(KILLS):
            writer = Writer(Commands(mounted, victim.pid)).after(dice.random() * LONGEST)
            mounted.kill()
            assert writer.ended(), f"seed {SEED}"
            untouched(victim)
            if number % 5 == 0:
                victim.judge()
            mounted.start()
        commands = Commands(mounted, victim.pid)
        commands.attach()
        assert commands.eval("6 * 7") == "42\n"
        commands.detach()
        victim.judge()
        eventually(lambda: victim.footprint().leaked(before) == [], what=f"calm (seed {SEED})")
        victim.end()


@pytest.mark.deadline(3600 if FULL else 120)
@pytest.mark.parametrize("kind", ["idle", "malloc, 4 threads", "fork"])
def test_the_target(probe, any_python, kind):
    """The writer is told that it is gone, and the daemon serves the next."""
    dice = random.Random(SEED)
    for _ in range(KILLS):
        with Victim(any_python, kind) as victim:
            writer = Writer(Commands(probe, victim.pid)).after(dice.random() * LONGEST)
            victim.target.signal(signal.SIGKILL)
            error = writer.ended()
            assert error.errno in GONE, f"{error} (seed {SEED})"
            if isinstance(error, Refused):
                assert error.errno == errno.ESRCH
    with Victim(any_python, "sums") as victim:
        assert Commands(probe, victim.pid).eval("6 * 7") == "42\n"


HOLDS = """
import ctypes, os, sys, time
print("ready", flush=True)
sys.stdin.readline()
print("holding", flush=True)
ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # PyDLL, unlike CDLL, keeps the GIL
print("let go", flush=True)
time.sleep(10**6)
"""


def hold(target):
    """It has the GIL from here on, until it is sent a line."""
    target.send("hold")
    target.expect("holding")
    eventually(lambda: reads_input(target.pid), what="the GIL held")


@pytest.mark.python(minimum=(3, 10))
def test_the_gil_is_never_released(probe, any_python, tmp_path):
    """The write fails in the time that is stated, and what it said never runs."""
    target = any_python.run_source(HOLDS)
    commands = Commands(probe, target.pid)
    commands.attach()
    hold(target)
    begin = time.monotonic()
    with pytest.raises(Refused) as raised:
        commands.eval(f"open({str(tmp_path / 'fired')!r}, 'w')")
    took = time.monotonic() - begin
    assert raised.value.errno == errno.ETIMEDOUT and "GIL" in raised.value.words
    assert 9 < took < patience(19), "10 s are stated"
    target.send("")
    target.expect("let go")
    assert commands.eval("6 * 7") == "42\n"
    assert os.listdir(tmp_path) == []
    commands.detach()
    assert os.listdir(tmp_path) == []


@pytest.mark.python(minimum=(3, 10))
def test_attaching_needs_no_gil(probe, python):
    target = python.run_source(HOLDS)
    hold(target)
    commands = Commands(probe, target.pid)
    commands.attach()
    assert "running" in str(commands.status()).lower()
    commands.detach()
