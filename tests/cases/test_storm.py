"""The injection storm in a short form: every victim, a few cycles each, on one interpreter after the
other. `tests/storm` is the long one."""
import os
import re
import time

import pytest

import victims
from interpreters import interpreters
from job_storm import JobStorm
from storming import Debugged, Injected, Mounted, Recorded, Sampled, storm

pytestmark = pytest.mark.long

CYCLES = 8
STARTING = 600 if os.environ.get("PROBEFS_TEST_FULL") == "1" else 3  # seconds
OLDEST = (3, 10)
DAEMON = os.environ.get("PROBEFS_TEST_DAEMON")


def cells(way):
    """Each kind of victim with one interpreter, so that each of those has its turn. Where only the daemon is of
    interest, which does the same for each kind, each goes one of the four ways."""
    supported = [i for i in interpreters() if i.version >= OLDEST]
    chosen = []
    for number, kind in enumerate(victims.KINDS):
        able = [i for i in supported if victims.can_run(i, kind)]
        if able and (not DAEMON or number % 4 == way):
            interpreter = able[number % len(able)]
            chosen.append(pytest.param(interpreter, kind, id=f"{kind}-{interpreter}"))
    return chosen


def calm(tally, kind):
    """Nothing was harmed, and nearly every cycle got in."""
    assert tally.harms == []
    if kind == "exec":  # most of it may fall into the start of the next program
        return
    assert sum(tally.refusals.values()) <= tally.cycles // 2, tally.refusals


@pytest.mark.parametrize("interpreter, kind", cells(0))
def test_injector_alone(interpreter, kind):
    calm(storm(Injected(), interpreter, kind, CYCLES), kind)


@pytest.mark.parametrize("interpreter, kind", cells(1))
def test_through_the_mount(probe, interpreter, kind):
    calm(storm(Mounted(probe), interpreter, kind, CYCLES), kind)


@pytest.mark.parametrize("interpreter, kind", cells(2))
def test_while_recording(probe, interpreter, kind):
    tally = storm(Recorded(probe, seed=f"{interpreter} {kind}"), interpreter, kind, CYCLES)
    calm(tally, kind)


@pytest.mark.parametrize("interpreter, kind", [cell for cell in cells(2)
                                               if re.match("alloc|malloc,|fork|short|exec|asyncio", cell.values[1])])
def test_while_sampling(probe, interpreter, kind):
    tally = storm(Sampled(probe.mount(), seed=f"{interpreter} {kind}"), interpreter, kind, CYCLES)
    assert tally.harms == []


@pytest.mark.parametrize("interpreter, kind", cells(3))
def test_while_debugging(probe, interpreter, kind):
    tally = storm(Debugged(probe.mount(), seed=f"{interpreter} {kind}"), interpreter, kind, CYCLES)
    assert tally.harms == []


@pytest.mark.python(minimum=OLDEST)
@pytest.mark.deadline(STARTING + 120)
def test_while_threads_start(probe, python):
    """Breakpoints, pauses and recorders come and go while threads of Python's and of C's begin and end as fast as they
    can: a thread state that is linked need not be one yet, nor still be one (agent/cpython/thread_states.h)."""
    probe, dice, end = probe.mount(), str(python), time.monotonic() + STARTING
    while time.monotonic() < end:
        for way in Debugged(probe, seed=dice), Recorded(probe, seed=dice):
            assert storm(way, python, "threads that start", CYCLES).harms == []
        dice += "."


@pytest.mark.deadline(600)
def test_of_a_job(probe, any_python):
    """Ranks, workers and the daemon are killed while each command is given to a job."""
    full = os.environ.get("PROBEFS_TEST_FULL") == "1"
    job = JobStorm(probe.mount(), any_python, "of a case", freezes=full)
    try:
        job.run(len(JobStorm.COMMANDS) * (40 if full else 2))
    finally:
        job.close()
