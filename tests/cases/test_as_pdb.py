"""Breakpoints and steps, against what CPython's own debugger makes of the same programs."""
import json
import random
import re

import pytest

import debugged
from sql import ask

pytestmark = pytest.mark.python(minimum=(3, 10))

WALK = 60  # commands


def stripped(stops):
    """What differs by nature: a loop on one line is one stop, and that a class's body begins at `class` is none."""
    kept = []
    for what, line, function, values in stops:
        values = {name: re.sub("0x[0-9a-f]+", "0x", value) for name, value in values.items() if name[0] not in "._"}
        if (line, function) != (kept[-1][:2] if kept else None) and (function, values) != ("Local", {}):
            kept.append((line, function, values))
    return kept


@pytest.mark.parametrize("name", debugged.PROGRAMS)
def test_log_on_every_line(probe, python, name):
    script = debugged.write(python, name)
    lines = debugged.lines(python, script)
    wanted = stripped(debugged.oracle(python, script, lines))
    target = python.run(script)
    debugged.set_breakpoints(probe, target.pid, "".join(f"log {script}:{line}\n" for line in lines))
    target.send("go")
    target.expect("done")
    hits = ask(probe.path / str(target.pid) / "query", "SELECT * FROM hits ORDER BY rowid")
    seen = stripped(["line", int(hit["lineno"]), hit["func"].rpartition(".")[2], json.loads(hit["captured"])]
                    for hit in hits)
    assert [stop[:2] for stop in seen] == [stop[:2] for stop in wanted]
    assert seen == wanted
    assert target.stderr() == ""


def walked(probe, target, script, first, commands):
    """Where one stops with these commands, from the first line of main() on, as the oracle says it."""
    debugged.set_breakpoints(probe, target.pid, f"stop {script}:{first} x 1\n")
    stops = []
    with debugged.Events(probe, target.pid) as events:
        target.send("go")
        while True:
            event = events.next("stop")
            if event["func"] == "<module>":
                break
            stops.append([event["lineno"], event["func"].rpartition(".")[2]])
            if len(stops) > len(commands):
                break
            debugged.tell(probe, target.pid, target.pid, commands[len(stops) - 1])
        debugged.tell(probe, target.pid, target.pid, "continue")
    target.expect("done")
    assert target.stderr() == ""
    return stops


@pytest.mark.parametrize("name", debugged.STEPPED)
@pytest.mark.parametrize("seed", range(2))
def test_random_walk(probe, python, name, seed):
    script = debugged.write(python, name)
    first = debugged.source(name).splitlines().index("def main():") + 2
    dice = random.Random(f"{name} {seed}")
    commands = dice.choices(["step", "next", "return"], [6, 3, 1], k=WALK)
    wanted = debugged.oracle(python, script, [first], commands, once=True)
    seen = walked(probe, python.run(script), script, first, commands[:len(wanted)])
    assert seen[:len(wanted)] == [stop[1:3] for stop in wanted]


@pytest.mark.parametrize("seed", range(3))
def test_jumps(probe, python, seed):
    """From any line to any other: what is refused, with CPython's words, and where it goes on."""
    script = debugged.write(python, "control flow")
    dice = random.Random(seed)
    first, to = dice.sample(debugged.lines(python, script), 2)
    wanted = debugged.oracle(python, script, [first], [f"jump {to}", "step", "step", "step"], once=True)
    if not wanted:
        pytest.skip("a line that nothing gets to")
    target = python.run(script)
    debugged.set_breakpoints(probe, target.pid, f"stop {script}:{first} x 1\n")
    with debugged.Events(probe, target.pid) as events:
        target.send("go")
        assert events.next("stop")["lineno"] == first
        if wanted[1][0] == "refused":
            assert wanted[1][3] in debugged.refused(probe, target.pid, target.pid, f"jump {to}")
        else:
            debugged.tell(probe, target.pid, target.pid, f"jump {to}")
            ctl = probe.read(target.pid, "threads", target.pid, "ctl")
            assert f":{wanted[1][1]} (main)" in ctl, ctl
        for stop in [stop for stop in wanted[2:5] if stop[0] == "line"]:
            debugged.tell(probe, target.pid, target.pid, "step")
            assert events.next("stop")["lineno"] == stop[1]
        debugged.tell(probe, target.pid, target.pid, "continue")
    debugged.set_breakpoints(probe, target.pid, "\n")
