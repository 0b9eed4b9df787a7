"""No stack that never was: what is shown of victims whose function names spell out their only
legal caller is right, or marked. PROBEFS_TEST_STACKS is how many stacks to judge of each victim
and version: 100,000 take an evening."""
import os
import time

import pytest

from interpreters import eventually
from stacks import parse_backtrace
from targets import again, legal

STACKS = int(os.environ.get("PROBEFS_TEST_STACKS", "500"))
CALLS = legal.tree()[1]


def judge(probe, target, threads):
    """Reads until STACKS stacks of walking threads were judged; returns how many of them were
    accepted, marked, and not inside the tree at that moment."""
    accepted = marked = outside = 0
    path = probe.path / str(target.pid) / "backtrace"
    deepest = set()

    def look():
        nonlocal accepted, marked, outside
        seen = parse_backtrace(path.read_text(encoding="utf-8"), target.pid)
        for thread in seen.threads.values():
            if thread.unreadable:
                marked += 1
                continue
            if not any(function == "walk" for function, _, _ in thread.frames):
                assert not any(file.endswith(legal.FILE) for _, file, _ in thread.frames), \
                    thread.lines
                outside += 1
                continue
            why = legal.wrong(thread.frames, CALLS)
            assert why is None, "\n".join([why, *thread.lines])
            accepted += 1
            deepest.add(len(thread.frames))
        return len(deepest) > 3

    while accepted + marked < STACKS:
        look()
    eventually(look, what="more than the same stack again and again, which proves nothing")
    return accepted, marked, outside


@pytest.mark.python(free_threaded=True)
@pytest.mark.deadline(3600)
@pytest.mark.parametrize("threads", [1, 10])
def test_no_wrong_stack(probe, python, record_property, threads):
    target = python.run("legal.py", threads)
    time.sleep(0.1)
    accepted, marked, _ = judge(probe, target, threads)
    record_property("accepted", accepted)
    record_property("marked", marked)
    print(f"{python}, {threads} threads: {accepted} right, {marked} marked")
    assert accepted > marked * 9, f"{marked} of {marked + accepted} stacks could not be read"


@pytest.mark.python(free_threaded=True)
def test_same_again(probe, python):
    target = python.run("again.py")
    lines = {(function, again.line_of(function)) for function in ("one", "other")}
    path = probe.path / str(target.pid) / "backtrace"
    seen = set()

    def look():
        thread = parse_backtrace(path.read_text(encoding="utf-8"), target.pid).threads[target.pid]
        frames = [(function, line) for function, file, line in thread.frames if file.endswith("again.py")]
        if not thread.unreadable and len(frames) == 3:
            called, caller = frames[0][0], frames[1]
            assert caller[0] == "turn" and (called, caller[1]) in lines, thread.lines
            seen.add(called)
        return len(seen) == 2

    for _ in range(3 * STACKS if python.version < (3, 11) else STACKS):
        look()
    eventually(look, what="both of what it does")


def test_the_judge_finds_fault():
    """The judge itself: it accepts a right stack and refuses each kind of wrong one."""
    def frames(*pairs):
        return [(function, legal.FILE, line) for function, line in pairs] + \
            [("walk", "legal.py", 1)]

    n, n_0 = CALLS["n", "n_0"], CALLS["n_0", "n_0_1"]
    assert legal.wrong(frames(("n_0_1", 1), ("n_0", n_0), ("n", n)), CALLS) is None
    assert legal.wrong(frames(("n_0_1", 1), ("n", n)), CALLS)
    assert legal.wrong(frames(("n_0_1", 1), ("n_0", n_0 + 1), ("n", n)), CALLS)
    assert legal.wrong(frames(("n_0_1", 1), ("n_0", n_0)), CALLS)
    assert legal.wrong(frames(("n", n))[:1], CALLS)
