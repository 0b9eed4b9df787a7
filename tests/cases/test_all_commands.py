"""What is written to jobs/<job>/eval, ctl and breakpoints, and to all/: done in many processes, and answered once."""
import errno
import os
import re
import signal
import time

import pytest

from commands import failure, write
from interpreters import eventually, patience
from sql import refused, reply
from test_access import run_as
from test_jobs import FORK, job_of

RANK = """
import os, sys, time
rank = int(os.environ["RANK"])
def train():
    loss = rank % 2
    print("ready", flush=True)
    while True:
        loss = loss
        time.sleep(0.01)
train()
"""

# holds its GIL in C, for good
STUCK = """
import ctypes
print("ready", flush=True)
ctypes.PyDLL(None).sleep(100000)
"""


def ranks_of(python, n, env):
    return [python.run_source(RANK, name="ranks_that_train.py", env={**env, "RANK": str(rank)}) for rank in range(n)]


@pytest.fixture
def job(probe, any_python):
    env, name = job_of(4)
    job = probe.path / "jobs" / name
    job_targets = ranks_of(any_python, 4, env)
    return job, job_targets


def test_eval(job, any_python):
    directory, targets = job
    assert reply(directory / "eval", "loss\n") == "ranks 0,2 (2): 0\nranks 1,3 (2): 1\n"
    assert reply(directory / "eval", "rank > 9\n") == "ranks 0-3 (4): False\n"
    assert reply(directory / "eval",
                 "print('a')\nprint(rank // 3)\n") == "ranks 0-2 (3):\n  a\n  0\nrank 3 (1):\n  a\n  1\n"
    assert reply(directory / "eval", "None\n") == ""
    assert reply(directory / "eval", "-- format: json\non 1\nrank\n").replace("\x1e", "^") == (
        'rank 1 (1): ^{"type":"int","value":"1"}\n')
    # some fail: these say so, and it has been done
    said = reply(directory / "eval", "1 / loss\n")
    assert said.startswith("ranks 0,2 (2):\n  Traceback") and said.endswith("division by zero\nranks 1,3 (2): 1.0\n")
    number, said = failed(directory / "eval", "-- strict\n1 / loss\n")
    assert number == errno.EIO and said.endswith("error: it was done in 2 of 4 processes\n")
    number, said = failed(directory / "eval", "1 / 0\n")
    assert number == errno.EIO and said.startswith("ranks 0-3 (4):\n  Traceback")
    assert said.endswith("error: it was done in no process\n")


def failed(path, text):
    """The errno of a write, and what is read then."""
    fd = os.open(path, os.O_RDWR)
    try:
        return failure(os.write, fd, text.encode()), os.read(fd, 1 << 20).decode()
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


def in_lines(path, text):
    """As shells write it: a write(2) a line. What all of it was answered."""
    fd = os.open(path, os.O_RDWR)
    try:
        for line in text.splitlines(keepends=True):
            os.write(fd, line.encode())
        said = b""
        while got := os.read(fd, 1 << 16):
            said += got
        return said.decode()
    finally:
        os.close(fd)


def test_eval_on_some_ranks(job, any_python):
    directory, targets = job
    for write_all in reply, in_lines:
        assert write_all(directory / "eval", "on 1,3\nrank\n") == "rank 1 (1): 1\nrank 3 (1): 3\n"
        # for all that follows in the same open file, and in no other
        said = write_all(directory / "eval",
                         "on 2-3\nmark = rank\nfor i in range(1):\n    mark += 1\n\n'mark' in globals()\n")
        assert said == "ranks 2-3 (2): True\n"
        assert reply(directory / "eval", "'mark' in globals()\n") == "ranks 0-1 (2): False\nranks 2-3 (2): True\n"
        assert reply(directory / "eval", "on 2-3\nmark, rank\n") == "rank 2 (1): (3, 2)\nrank 3 (1): (4, 3)\n"
        assert reply(directory / "eval", "on 0-3\nglobals().pop('mark', None) and 1\n") == "ranks 2-3 (2): 1\n"
    assert reply(directory / "eval", "on = 1\non\n") == "ranks 0-3 (4): 1\n", "a name of Python's"
    for ranks in ("7", "4-9"):
        assert refused(directory / "eval", f"on {ranks}\n1\n") == (
            errno.ESRCH, "there is none of these ranks here that you may control")
    for wrong in ("on 1-x\n1\n", "on 3-2\n1\n", "on 1, 2\n1\n", "on 1 print(1)\n"):
        assert refused(directory / "eval", wrong) == (
            errno.EINVAL, "ranks belong behind `on`, and nothing else: on 0,2-3")


def test_one_that_does_not_answer(probe, any_python):
    """The others do, and it is named."""
    env, name = job_of(3)
    targets = ranks_of(any_python, 2, env)
    stuck = any_python.run_source(STUCK, env={**env, "RANK": "2"})
    begun = time.monotonic()
    said = reply(probe.path / "jobs" / name / "eval", "rank + 1\n")
    assert time.monotonic() - begun < patience(60)
    assert said.startswith("rank 0 (1): 1\nrank 1 (1): 2\nrank 2 (1): error: ") and "GIL" in said
    assert stuck.state() in "RS" and all(target.process.poll() is None for target in targets)


def test_workers_are_left_alone(probe, any_python):
    """In a job the ranks themselves are meant."""
    env, name = job_of(1)
    target = any_python.run_source(FORK, env={**env, "RANK": "0"}, ready=False)
    child = int(target.readline())
    target.expect("ready")
    assert (probe.path / "jobs" / name / "workers" / "0.0" / "status").read_text().startswith(f"Pid: {child}\n")
    assert reply(probe.path / "jobs" / name / "eval", "on 0\nos.getpid()\n") == f"rank 0 (1): {target.pid}\n"
    assert reply(probe.path / "jobs" / name / "eval", "os.getpid()\n") == f"rank 0 (1): {target.pid}\n"
    assert "Agent: none" in probe.read(child, "status")
    os.kill(child, signal.SIGKILL)


def held(probe, target):
    said = dict(line.split(": ", 1) for line in probe.read(target.pid, "status").splitlines())
    return said.get("Stopped", "none") != "none"


def test_ctl(probe, job, any_python):
    directory, targets = job
    said = eventually(lambda: re.search(r"ranks? 0.*:[^:]*Stopped: 1 thread\n", text := reply(
        directory / "ctl", "on 0-1 pause for 5m\n")) and text, what="one that is held when it is told")
    assert "Timeouts go on meanwhile" in said
    assert not any(str(target.pid) in said for target in targets), "equal answers are one"
    eventually(lambda: held(probe, targets[0]) and held(probe, targets[1]), what="two that are held")
    assert not held(probe, targets[2]) and not held(probe, targets[3])
    said = (directory / "backtrace").read_text()
    assert re.search(r"ranks? 0(-1)? \(\d\): MainThread \[held, pause\]", said), said
    assert reply(directory / "ctl", "\ncontinue\n") == ""
    eventually(lambda: not any(held(probe, target) for target in targets), what="all that go on")
    said = reply(directory / "ctl", "stop all for 5m\n")
    assert said.count("Timeouts go on meanwhile") == 1
    eventually(lambda: all(held(probe, target) for target in targets), what="all that are held")
    assert reply(directory / "ctl", "continue\n") == ""
    eventually(lambda: not any(held(probe, target) for target in targets), what="all that go on")
    said = reply(directory / "ctl", "on 1-2 stop all for 5m here_is.py:7 if x\n")
    assert "Timeouts go on meanwhile" in said
    assert ["stop for 300s here_is.py:7 if x" in probe.read(target.pid, "breakpoints").replace("5m", "300s")
            for target in targets] == [False, True, True, False]
    write(directory / "breakpoints", "")
    # eval of one process has the same first line
    own = [probe.path / str(target.pid) / "eval" for target in targets[:2]]
    assert [reply(file, "on 1-2\nx = 5\nx + 1\n") for file in own] == ["", "6\n"]
    write(directory / "ctl", "on 2 record exceptions on\n")
    assert ["Record: exceptions" in probe.read(target.pid, "ctl") for target in targets] == [False, False, True, False]
    # a process's own file has the same words
    write(directory / "ranks" / "1" / "ctl", "on 0,2-3 record gc on\non 1 record spans on\n")
    said = probe.read(targets[1].pid, "ctl")
    assert "Record: spans" in said and "Record: gc" not in said
    number, said = refused(directory / "ctl", "nonsense\n")
    assert number == errno.EINVAL and said.startswith("unknown verb") and said.endswith("\n  nonsense\n  ^")
    number, said = refused(directory / "ctl", "on 1,x pause\n")
    assert (number, said) == (errno.EINVAL, "ranks belong here: 0,2-3\n  on 1,x pause\n       ^")
    number, said = refused(directory / "ctl", "on 1\n")
    assert number == errno.EINVAL and said.startswith("a verb belongs here")
    assert refused(directory / "ctl", "on 9 pause\n")[0] == errno.ESRCH


def sets(probe, targets):
    return [probe.read(target.pid, "breakpoints").partition("  #")[0] for target in targets]


def test_breakpoints(probe, job, any_python):
    directory, targets = job
    line = "log ranks_that_train.py:7 {loss}"
    write(directory / "breakpoints", f"on 1,3 {line}\n")
    assert sets(probe, targets) == ["", f"1: {line}", "", f"1: {line}"]
    (one, three) = directory.joinpath("breakpoints").read_text().splitlines()
    assert one.startswith(f"1: {line}  # pid {targets[1].pid}")
    with open(directory / "breakpoints", "a") as file:
        file.write("on 1 -1\n")
    assert sets(probe, targets) == ["", "", "", f"1: {line}"]
    # a process's own file has the same words
    own = probe.path / str(targets[0].pid) / "breakpoints"
    with open(own, "a") as file:
        file.write(f"on 1-3 {line}\n7: on 0 {line}\n")
    assert sets(probe, targets)[0] == f"7: {line}"
    before = sets(probe, targets)
    for wrong, at in (("on x log a.py:1", 3), ("on 1- log a.py:1", 3), ("on 1", 4)):
        number, said = refused(directory / "breakpoints", wrong + "\n")
        assert number == errno.EINVAL and said.endswith(f"\n  {wrong}\n  {' ' * at}^"), said
    number, said = refused(directory / "breakpoints", "on 8 log a.py:1\n")
    assert (number, said) == (errno.ESRCH, "there is none of these ranks here that you may control")
    assert sets(probe, targets) == before
    # what replaces the set does so everywhere
    (directory / "breakpoints").write_text("on 0 log a.py:1\n")
    assert [line.partition(" ")[2] for line in sets(probe, targets)] == ["log a.py:1", "", "", ""]


@pytest.mark.alone
def test_all(probe, job, any_python):
    """Two jobs, and a process of none."""
    directory, targets = job
    env, other = job_of(1)
    any_python.run_source(RANK, name="ranks_that_train.py", env={**env, "RANK": "0"})
    loose = any_python.run_source("import sys; rank = 77\nprint('ready')\nsys.stdin.read()\n", name="of_no_job.py")
    answers = reply(probe.path / "all" / "eval", "globals().get('rank', -2) // 2\n").splitlines()
    jobs = sorted([(directory.name, "ranks 0-1"), (other, "rank 0")])
    assert "; ".join(f"{name} {ranks}" for name, ranks in jobs) + " (3): 0" in answers
    assert f"{directory.name} ranks 2-3 (2): 1" in answers and f"pid {loose.pid} (1): 38" in answers
    assert reply(probe.path / "all" / "eval", "on 0\nrank\n") == "; ".join(
        f"{name} rank 0" for name in sorted((directory.name, other))) + " (2): 0\n"
    assert "error" not in reply(probe.path / "all" / "ctl", "on 0-3 status\n")


@pytest.mark.attack
def test_only_where_they_may(probe, any_python, nobody):
    """Others' processes are neither asked nor told of."""
    mount = probe.mount("allow_other", "hidepid=0")
    env, name = job_of(2)
    mine = any_python.run_source(RANK, name="ranks_that_train.py", env={**env, "RANK": "0"})
    theirs = any_python.run_source(RANK, name="ranks_that_train.py", env={**env, "RANK": "1"}, user=nobody)
    said = run_as(nobody, "sh", "-c", 'echo "rank" > "$1"; cat "$1"', "sh", mount.path / "jobs" / name / "eval")
    assert (said.stdout, said.stderr) == ("rank 1 (1): 1\n", "")
    said = run_as(nobody, "sh", "-c", 'echo "on 0 pause" > "$1"; cat "$1"', "sh", mount.path / "all" / "ctl")
    assert "there is none of these ranks" in said.stdout
    assert "write error" in said.stderr.lower() or "I/O error" in said.stderr
    assert "Agent: none" in probe.read(mine.pid, "status")
    assert theirs.process.poll() is None
