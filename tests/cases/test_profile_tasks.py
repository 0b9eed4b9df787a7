"""asyncio in profiles: which task runs, whom it runs for, and what tasks wait for, of tests/targets/shares.py's tasks,
which measure themselves; of very many tasks; of names that would be too many."""
import collections
import re

import pytest

import shares
from commands import Commands
from interpreters import eventually, patience
from mount import REPOSITORY
from test_profile import pprof, samples, started, status
from test_profile_kernel import noise

BURNS = {"burn10": "ten", "burn20": "twenty", "burn30": "thirty", "burn40": "forty"}
GATHERED = {"twenty": "gatherer", "thirty": "gatherer", "forty": "maker"}
LOOP = re.compile(r"/asyncio/(base_events|events|runners)\.py")
WAITS = {"sleeper": "sleep", "giver": "sleep", "taker": "Queue.get", "reader": "sock_recv", "waiter": "Event.wait"}

MANY = """
import asyncio, sys
async def leaf(event):
    await event.wait()
async def main():
    event = asyncio.Event()
    kept = [asyncio.create_task(leaf(event)) for _ in range(10000)]
    kept += [asyncio.create_task(leaf(event), name=f"call {n} of {n * 7}") for n in range(2000)]
    await asyncio.sleep(0)
    print("ready", flush=True)
    while True:
        sum(range(1000))
        await asyncio.sleep(0.001)
asyncio.run(main())
"""


def function(frame):
    return frame.split(" (")[0].rpartition(".")[2] if not frame.startswith("[") else frame


def task(stack):
    """The innermost task's name, and its frames."""
    at = max((i for i, frame in enumerate(stack) if frame.startswith("[task ")), default=None)
    return (None, ()) if at is None else (stack[at][len("[task "):-1], stack[at + 1:])


def by_task(folded, waits):
    """{task: count} of what runs, or of what waits."""
    found = collections.Counter()
    for stack, count in shares.stacks(folded):
        if (stack[0] == "[awaiting]") == waits and task(stack)[0]:
            found[task(stack)[0]] += count
    return found


def worst(found, truth):
    """Points."""
    total, whole = sum(found.values()), sum(truth.values())
    return max(abs(100 * (found[name] / total - spent / whole)) for name, spent in truth.items())


def mode(probe, target, name):
    return probe.read(target.pid, "profile", "modes", name, "folded")


def measured(probe, target):
    """What the tasks have spent, while a profile was taken, in all modes."""
    commands = started(probe, target, "profile cpu wall 997hz", 20)
    if target.interpreter.version >= (3, 12):
        eventually(lambda: "[task gatherer];" in mode(probe, target, "cpu"), what="who awaits whom")
    commands.run("ctl", "profile clear\n")
    shares.begin(target)
    eventually(lambda: samples(probe, target.pid) > 3000, patience(60), "samples")
    spent = shares.end(target)
    commands.run("ctl", "profile off\n")
    return spent


def lineages(cpu):
    """{whether a task's awaiters are known, None: nor the task: count}. No sample is under a task that didn't run, none
    has what calls it."""
    found = collections.Counter()
    for stack, count in shares.stacks(cpu):
        burns = [BURNS[function(frame)] for frame in stack if function(frame) in BURNS]
        if burns:
            above = [frame for frame in stack if frame.startswith("[task ")]
            name = task(stack)[0]
            if not name:
                found[None] += count
                continue
            wanted = [f"[task {GATHERED[name]}]"] if name in GATHERED else []
            assert [name] == burns and above[:-1] in ([], wanted), stack
            assert not LOOP.search(";".join(stack)), stack
            found[above[:-1] == wanted] += count
    return found


def test_truth(probe, python):
    target = python.run("shares.py", "tasks")
    spent = measured(probe, target)
    cpu, wall, off = (mode(probe, target, name) for name in ("cpu", "wall", "off"))
    judged = shares.judge(cpu, {name: spent[of][0] for name, of in BURNS.items()})
    assert judged.worst < noise(300), (judged, spent)
    assert judged.impossible == 0
    known = lineages(cpu)
    assert not known[None], known
    assert "[task ten]" in probe.read(target.pid, "profile", "top")
    assert "[task ten]" in probe.read(target.pid, "profile", "flamegraph.html")
    if python.version < (3, 12):  # which don't tell who awaits a task, nor what tasks there are
        assert "[awaiting]" not in off
        return
    assert known[True] > 0.9 * sum(known.values()), known
    found = pprof((probe.path / str(target.pid) / "profile" / "pprof").read_bytes())
    assert any("[task gatherer]" in stack and "[task twenty]" in stack for stack in found)

    waited = by_task(wall, True)
    truth = {name: waits for name, (_, waits) in spent.items() if waits}
    assert worst(waited, truth) < noise(300), (waited, truth)
    for stack, _ in shares.stacks(off):
        if stack[0] == "[awaiting]" and task(stack)[0] in WAITS:
            assert WAITS[task(stack)[0]].rpartition(".")[2] in map(function, task(stack)[1]), stack
    assert waited["waiter"] / 1e6 < 1.05 * float(status(probe, target.pid)["Lasted"])


@pytest.mark.python(minimum=(3, 13), maximum=(3, 14))  # by a dict, and by the thread's own word
def test_from_outside(probe, python):
    """What the daemon does where the kernel may not help it."""
    other = probe.mount(within=[REPOSITORY / "tests" / "seccomp-exec", "EPERM", "bpf,perf_event_open"])
    target = python.run("shares.py", "tasks")
    spent = measured(other, target)
    assert status(other, target.pid)["Source"] == "timer"
    cpu = mode(other, target, "cpu")
    judged = shares.judge(cpu, {name: spent[of][0] for name, of in BURNS.items()})
    assert judged.worst < noise(300), (judged, spent)
    known = lineages(cpu)
    assert known[None] < 0.1 * sum(known.values()), known


@pytest.mark.python(minimum=(3, 14), maximum=(3, 14))  # where the interpreter itself lists them
def test_very_many(probe, python):
    target = python.run_source(MANY)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "profile off cpu 97hz\n")
    names = eventually(lambda: by_task(mode(probe, target, "off"), True), patience(60), "a census")
    commands.run("ctl", "profile off\n")
    assert len(names) < 600
    assert 4 * names["Task-*"] > 3 * sum(names.values())
    assert names["call * of *"] > names["Task-*"] / 10
