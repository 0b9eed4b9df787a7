"""A process that pretends to have an agent: whatever its record and its channel say, the daemon
neither crashes, nor waits for ever, nor grows, and serves others meanwhile."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import mount
from agents import links
from commands import Commands
from interpreters import eventually, patience
from victims import Victim

pytestmark = [pytest.mark.long, pytest.mark.attack]

TALKS = ["garbage", "near_garbage", "silent", "deaf", "stalls", "floods_first", "floods_output",
         "floods_strangers", "floods_rings", "rings_instead", "other_version", "wrong_size", "hangs_up",
         "lies", "descriptors"]
DESCRIPTORS = ["zero", "pipe", "epoll", "listener", "datagrams", "stream", "file", "0", "-1",
               "1000000000"]
GROWTH = 96 << 10  # kB: a reply of 16 MiB, held in a few places
QUARANTINE = 256 << 10  # kB that a daemon with AddressSanitizer doesn't give back
PATIENCE = 1       # seconds before a writer is told to give up, as by Ctrl-C
INTERRUPTED = 15   # seconds in which it must have done so then


def resident(pid):
    """kB of memory."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def is_sanitized():
    return b"__asan_init" in (mount.build() / "fs" / "probefs").read_bytes()


def room():
    """kB by which a daemon may grow."""
    return GROWTH + QUARANTINE * is_sanitized()


def channels(pid):
    """How many a daemon has open."""
    return sum(link.startswith("socket:") for link in links(pid).values())


def write(path, text):
    """echo, by a shell that is interrupted if that takes long; its end is not waited for for ever."""
    shell = subprocess.Popen(["bash", "-c", 'echo "$1" > "$2"', "bash", text, path],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        shell.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        shell.send_signal(signal.SIGINT)
        try:
            shell.wait(patience(INTERRUPTED))
        except subprocess.TimeoutExpired:
            shell.kill()
            raise AssertionError(f"writing {text[:20]!r} did not end by Ctrl-C") from None


def run(interpreter, mode, seed=1):
    library = interpreter.directory / "storm" / "probing-imposter.so"
    if not library.exists():
        shutil.copy(mount.build() / "tests" / "targets" / "probing-imposter.so", library)
    return interpreter.run("storm/hostile.py", interpreter.path("storm/probing-imposter.so"), mode, seed)


@pytest.mark.parametrize("mode", [*TALKS, "scribbles", *DESCRIPTORS])
def test_hostile(probe, any_python, mode):
    """A mount of its own, so that its memory is what this costs."""
    mounted = probe.mount()
    with Victim(any_python, "idle") as honest, run(any_python, mode) as hostile:
        others = Commands(mounted, honest.pid)
        assert others.eval("6 * 7") == "42\n"
        memory = resident(mounted.pid)
        directory = mounted.path / str(hostile.pid)
        for name, text in [("ctl", "attach"), ("eval", "1"), ("eval", "'" + "x" * 10**5 + "'"),
                           ("ctl", "status"), ("eval", "2"), ("ctl", "detach")]:
            write(directory / name, text)
            assert mounted.alive()
            assert others.eval("6 * 7", timeout=20) == "42\n", "others are served"
        assert hostile.process.poll() is None, hostile.stderr()
        assert resident(mounted.pid) < memory + room()
        assert "Process" in mounted.read(hostile.pid, "backtrace")
        hostile.signal(signal.SIGKILL)
        eventually(lambda: not os.path.exists(directory), what="its going")
        others.detach()
        honest.end()


def test_nothing_of_it_stays(probe, any_python):
    """Once such a process has ended, the daemon closes what it had of it."""
    mounted = probe.mount()
    with run(any_python, "lies") as hostile:
        # on a busy machine the writer may give up before it has attached
        eventually(lambda: write(mounted.path / str(hostile.pid) / "ctl", "attach") or channels(mounted.pid),
                   what="a channel")
    # it looks for the dead now and then, when somebody looks
    eventually(lambda: os.listdir(mounted.path) and channels(mounted.pid) == 0, what="closing")


def test_floods_while_many_write(probe, any_python):
    """Twenty writers at a process that floods each of them."""
    mounted = probe.mount()
    with run(any_python, "floods_output") as hostile:
        path = mounted.path / str(hostile.pid) / "eval"
        memory = resident(mounted.pid)
        writers = [subprocess.Popen(["bash", "-c", 'echo 1 > "$1"', "bash", path],
                                    stderr=subprocess.DEVNULL) for _ in range(20)]
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert mounted.alive()
            assert resident(mounted.pid) < memory + room() + 20 * (32 << 10)
            time.sleep(0.1)
        for writer in writers:
            writer.send_signal(signal.SIGINT)
        for writer in writers:
            writer.wait(patience(INTERRUPTED))
        with Victim(any_python, "idle") as honest:
            assert Commands(mounted, honest.pid).eval("6 * 7") == "42\n"
