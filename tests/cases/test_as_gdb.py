"""Watchpoints, against what gdb's see in the same process."""
import re
import shutil
import subprocess

import pytest

import debugged
from interpreters import eventually, patience
from sql import ask

pytestmark = [pytest.mark.python(minimum=(3, 10)),
              pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")]

# all but the one that writes the same; struct clears them first
CHANGES = ["element", "viewed", "packed", "packed", "pointed", "sliced", "byte", "moved"]


def by_gdb(target, address):
    """[(old, new, address behind the instruction)] of what happens at the next line of input."""
    commands = ["set pagination off", f"watch *(long *) {address}", "continue"]
    for _ in CHANGES:
        commands += ["print $pc", "continue"]
    commands.pop()  # the last one would wait for ever
    gdb = subprocess.Popen(["gdb", "-q", "-batch", "-nx", "-p", str(target.pid),
                            *(word for command in commands for word in ("-ex", command))],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    said = ""
    try:
        for line in gdb.stdout:
            said += line
            if "Hardware watchpoint 1:" in line and "*(long *)" in line and said.count("Hardware watchpoint 1:") == 1:
                eventually(lambda: target.state() == "S", what="gdb to let it go on")
                target.send("go")
        assert gdb.wait(patience(60)) == 0, said
    finally:
        gdb.kill()
    target.expect("done")
    values = re.findall(r"Old value = (-?\d+)\s+New value = (-?\d+)", said)
    counters = re.findall(r"\$\d+ = .*?(0x[0-9a-f]+)", said)
    assert len(values) == len(counters) == len(CHANGES), said
    return [(int(old), int(new), int(counter, 16)) for (old, new), counter in zip(values, counters)]


@pytest.mark.parametrize("route", ["perf", "ptrace"])
def test_what_gdb_sees(probe, python, route):
    target = python.run("stores.py")
    address = target.readline()
    theirs = by_gdb(target, address)
    eventually(lambda: target.state() == "S", what="gdb to go")
    debugged.set_breakpoints(probe, target.pid, f"1: log watch {address}:8 hw={route}\n")
    eventually(lambda: "# hw" in (probe.path / str(target.pid) / "breakpoints").read_text(), what="the watch")
    target.send("go")
    target.expect("done")
    query = probe.path / str(target.pid) / "query"
    eventually(lambda: len(ask(query, "SELECT * FROM hits")) >= len(CHANGES), what="the hits")
    hits = ask(query, "SELECT * FROM hits ORDER BY rowid")
    assert [hit["func"] for hit in hits] == CHANGES
    shift = 8  # how many numbers were written in the first round
    for hit, (_, new, counter) in zip(hits, theirs):
        assert int(hit["address"]) == counter, hit["func"]
        if hit["func"] != "byte" and new:
            assert int(hit["new_value"]) == new + shift
    for before, after in zip(hits, hits[1:]):
        assert after["old_value"] == before["new_value"]
    assert {int(hit["tid"]) for hit in hits} == {target.pid}
