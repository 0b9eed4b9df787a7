"""Breakpoints and steps, against what CPython's own debugger makes of the same programs."""
import json
import re

import pytest

import debugged
from sql import ask

pytestmark = pytest.mark.python(minimum=(3, 10))

programs = pytest.mark.parametrize("name", debugged.PROGRAMS)


def stripped(stops):
    """What differs by nature: a loop on one line is one stop, and that a class's body begins at `class` is none."""
    kept = []
    for what, line, function, values in stops:
        values = {name: re.sub("0x[0-9a-f]+", "0x", value) for name, value in values.items() if name[0] not in "._"}
        if (line, function) != (kept[-1][:2] if kept else None) and (function, values) != ("Local", {}):
            kept.append((line, function, values))
    return kept


@programs
def test_log_on_every_line(probe, python, name):
    script = debugged.write(python, name)
    lines = debugged.lines(python, script)
    wanted = stripped(debugged.oracle(python, script, lines))
    target = python.run(script)
    debugged.set_breakpoints(probe, target.pid, "".join(f"log {script}:{line}\n" for line in lines))
    target.send("go")
    target.expect("done")
    hits = ask(probe.path / str(target.pid) / "query", "SELECT * FROM hits ORDER BY rowid")
    seen = stripped(["line", int(hit["lineno"]), hit["func"].rpartition(".")[2], json.loads(hit["captured"])] for hit in hits)
    assert [stop[:2] for stop in seen] == [stop[:2] for stop in wanted]
    assert seen == wanted
    assert target.stderr() == ""
