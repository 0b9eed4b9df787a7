"""What all of this is for: a NaN that appears once in a while, in a job that runs and that nobody has changed, is
caught by one line of a shell."""
import json
import os
import re
import subprocess

import pytest

from commands import shell
from debugged import Events
from interpreters import TARGETS, eventually, patience
from sql import ask

pytestmark = pytest.mark.python(minimum=(3, 10))

SCRIPT = "nan_job.py"


def line_of(comment):
    lines = (TARGETS / SCRIPT).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# here: {comment}"))


SEEN, WRITTEN = line_of("it is seen"), line_of("it is written")


def judge(python, said):
    """The job's results are those that it has without anybody looking."""
    alone = subprocess.run(python.command("-u", python.path(SCRIPT), said["steps"], said["bad"][0]),
                           capture_output=True, timeout=patience(60), stdin=subprocess.DEVNULL)
    assert json.loads(alone.stdout) == said


def end(target):
    target.stdin.close()
    said = json.loads(target.readline())
    assert (target.process.wait(patience(30)), target.stderr()) == (0, "")
    return said


@pytest.mark.parametrize("watch", [False, True], ids=["stop", "stop and watch"])
def test_caught_by_one_echo(probe, python, watch):
    target = python.run(SCRIPT)
    here = probe.path / str(target.pid)
    if watch:
        said = shell('echo "2: log watch model.weights[3] if new != new" > "$1/breakpoints"', here)
        assert said.returncode == 0, said.stderr + (here / "breakpoints").read_text()

    with Events(probe, target.pid) as events:
        said = shell(f'echo "stop {SCRIPT}:{SEEN} if loss != loss" >> "$1/breakpoints"', here)
        assert said.returncode == 0, said.stderr + (here / "breakpoints").read_text()
        target.send("there may be broken samples")
        assert events.next("stop")["tid"] == target.pid
        judge_stopped(target, here / "threads" / str(target.pid))
        if watch:
            judge_writer(target, here)

        said = shell('echo continue > "$1"', here / "threads" / str(target.pid) / "ctl")
        assert said.returncode == 0, said.stderr
        assert events.next("continue")["tid"] == target.pid
        assert events.next("stop")["tid"] == target.pid  # the next one comes as surely
    said = shell('> "$1/breakpoints"; echo continue > "$1/ctl"; cat "$1/breakpoints"', here)
    assert (said.returncode, said.stderr) == (0, "")
    assert [line for line in said.stdout.splitlines() if not line.startswith("#")] == []
    said = end(target)
    assert len(said["bad"]) >= 2
    judge(python, said)


def judge_stopped(target, thread):
    """It stands where it should, its variables are there to read, its code can be asked, and the others go on."""
    state = (thread / "ctl").read_text()
    assert re.match(rf"stopped by breakpoint \d at {re.escape(target.path())}:{SEEN} \(train\) for ", state), state
    innermost, _, _ = (thread / "locals").read_text().partition("#1")
    assert "train" in innermost and "loss = nan" in innermost and "sample = [" in innermost
    ask_frame = evaluator(thread)
    assert ask_frame("loss != loss, model.weights[3] != model.weights[3], step % 300") == "(True, True, 299)"
    assert ask_frame("[i for i, x in enumerate(sample) if x != x]") == "[3]"
    first = int(ask_frame("beats[0]"))
    eventually(lambda: int(ask_frame("beats[0]")) > first, what="the other threads")
    before = len(json.loads(ask_frame("__import__('json').dumps(bad)")))
    assert before == 0


def evaluator(thread):
    def run(code):
        fd = os.open(thread / "eval", os.O_RDWR)
        try:
            os.write(fd, code.encode() + b"\n")
            return os.read(fd, 1 << 16).decode().strip().strip("'")
        finally:
            os.close(fd)
    return run


def judge_writer(target, here):
    """Who made it is named: thread, function, line."""
    (hit,) = eventually(lambda: ask(here / "query", "SELECT * FROM hits WHERE id = 2"), what="the hit")
    named = "SELECT tid FROM threads WHERE thread = 'optimizer'"
    (row,) = eventually(lambda: ask(here / "query", named), what="the optimizer's name")
    optimizer = int(row["tid"])
    assert (int(hit["tid"]), hit["func"].rpartition(".")[2], int(hit["lineno"])) == (optimizer, "apply", WRITTEN)
    assert hit["file"] == target.path() and hit["new_value"] == "nan" and 0 < float(hit["old_value"]) < 1
    assert "apply" in hit["stack"] and "run" in hit["stack"]
