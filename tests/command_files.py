"""The command files of a program that does nothing by itself."""
import contextlib
import os
import pathlib
import subprocess

import pytest

from interpreters import eventually, patience

WAIT = "import sys; print('ready'); sys.stdin.read()"
# one line and so one write(2); says on the target's own output that it has begun
LONG = r"exec('import os, time\nos.write(1, b\'running\\n\')\nwhile True: time.sleep(0.01)')" + "\n"


@pytest.fixture
def target(any_python):
    return any_python.run_source(WAIT)


@pytest.fixture
def ctl(probe, target):
    return probe.path / str(target.pid) / "ctl"


@pytest.fixture
def code(probe, target):
    return probe.path / str(target.pid) / "eval"


def chosen(ctl):
    """The interpreter that the last verb chose."""
    lines = ctl.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Interpreter: ")).split()[1])


def said(ctl):
    """The last reply, without the state and the time in front of it."""
    return ctl.read_text().partition("\nLastReply: ")[2].partition("\n")[2]


@contextlib.contextmanager
def writing(path, text=LONG, script='printf "%s" "$2" > "$1"', **options):
    """A shell whose write waits for what it wrote to be done."""
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", str(path), text], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        **options)
    try:
        eventually(lambda: waits_in_write(process.pid), what="the write")
        yield process
    finally:
        process.kill()
        process.communicate(timeout=patience(30))


def waits_in_write(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == "1"
    except (OSError, IndexError):
        return False
