"""all/backtrace and jobs/<job>/backtrace: equal stacks once, and who is where."""
import collections
import signal

from interpreters import eventually
from sql import settle
from test_jobs import job_of

# in one of two places, as its argument says; a thread more in a pool, and a worker
RANK = """
import concurrent.futures, os, sys
def wait():
    sys.stdin.read()
def reduce():
    wait()
def evaluate():
    wait()
def work():
    print("ready")
    {"reduce": reduce, "evaluate": evaluate}[sys.argv[1]]()
pool = concurrent.futures.ThreadPoolExecutor(1)
for i in range(int(sys.argv[2])):
    pool.submit(int).result()
work()
"""

# each in another line of a loop's body
LOOP = "import sys\ndef step(n):\n" + "".join(
    f"    if n == {n}:\n        sys.stdin.read()\n" for n in range(17)) + """
print("ready")
step(int(sys.argv[1]))
"""


def groups(text):
    """(the lines above, {who: (state and so on, frames)}, the last line); of who has several, the first."""
    head, *rest = text.split("\n\n")
    last = rest.pop() if "without Python" in rest[-1] else ""
    said = {}
    for group in rest:
        first, *frames = group.splitlines()
        who, _, name = first.partition(": ")
        said.setdefault(who, (name, [frame.split("  ")[-1].split(" (")[0] for frame in frames]))
    return head.splitlines(), said, last


def test_equal_stacks_once(probe, any_python):
    env, name = job_of(6)
    places = {"0": "reduce", "1": "reduce", "2": "evaluate", "4": "reduce"}
    targets = [any_python.run_source(RANK, place, 1 + int(rank) % 2, name="stacks_of_ranks.py",
                                     env={**env, "RANK": rank})
               for rank, place in places.items()]
    for target in targets:
        settle(target)
    text = (probe.path / "jobs" / name / "backtrace").read_text()
    head, said, last = groups(text)
    assert head == ["4 processes, 8 threads, 3 different stacks", f"Job {name}: ranks 0-2,4 of 6, not here: 3,5"]
    assert list(said) == ["rank 2 (1)", "ranks 0-1,4 (3)", "ranks 0-2,4 (4)"], "the rarest first"
    assert said["rank 2 (1)"] == ("MainThread [idle, read]", ["wait", "evaluate", "work", "<module>"])
    assert said["ranks 0-1,4 (3)"] == ("MainThread [idle, read]", ["wait", "reduce", "work", "<module>"])
    state, frames = said["ranks 0-2,4 (4)"]
    assert state.startswith("ThreadPoolExecutor-*_* [idle, futex]") and frames[0] == "_worker"
    assert not last
    assert "pid " not in text and "0x" not in text.replace(str(any_python.directory), "")
    # the whole machine's: this job and others
    everybody = probe.read("all", "backtrace")
    assert f"Job {name}: ranks 0-2,4 of 6, not here: 3,5\n" in everybody
    other = any_python.run_source(RANK, "reduce", 1, name="stacks_of_ranks.py")
    settle(other)
    assert f"pid {other.pid}" in probe.read("all", "backtrace")
    # folded: each stack with how often it is there, as one by one
    folded = (probe.path / "jobs" / name / "stacks.folded").read_text()
    one_by_one = collections.Counter("".join(probe.read(target.pid, "stacks.folded")
                                             for target in targets).splitlines())
    assert {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in folded.splitlines()} == \
        {line.rpartition(" ")[0]: n for line, n in one_by_one.items()}


def test_many_places_of_a_loop(probe, any_python):
    """More than 16 stacks that differ only by lines are one."""
    env, name = job_of(17)
    targets = [any_python.run_source(LOOP, rank, name="loop_of_ranks.py", env={**env, "RANK": str(rank)})
               for rank in range(17)]
    for target in targets:
        settle(target)
    _, said, _ = groups((probe.path / "jobs" / name / "backtrace").read_text())
    assert said == {"ranks 0-16 (17)": ("MainThread [idle, read]", ["step", "<module>"])}


def test_those_that_stop_and_end(probe, any_python):
    """A stopped rank is read like any other; one that has ended is missing."""
    env, name = job_of(2)
    targets = [any_python.run_source(RANK, "reduce", 0, name="stacks_of_ranks.py", env={**env, "RANK": str(rank)})
               for rank in range(2)]
    for target in targets:
        settle(target)
    targets[1].signal(signal.SIGSTOP)
    eventually(lambda: targets[1].state() == "T", what="the stop")
    _, said, _ = groups((probe.path / "jobs" / name / "backtrace").read_text())
    assert {who: state for who, (state, _) in said.items()} == {"rank 0 (1)": "MainThread [idle, read]",
                                                               "rank 1 (1)": "MainThread [stopped]"}
    targets[1].close()
    head, said, _ = groups((probe.path / "jobs" / name / "backtrace").read_text())
    assert head == ["1 process, 1 thread, 1 different stack", f"Job {name}: ranks 0 of 2, not here: 1"]
    assert list(said) == ["rank 0 (1)"]
