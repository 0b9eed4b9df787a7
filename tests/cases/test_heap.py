"""heap/: what fills the memory of a process. The oracle is the program itself, which makes so many of each."""
import re

import pytest

from commands import failure, write
from sql import ask, value

SCRIPT = "heap.py"
KINDS = ["Node", "Slot", "Bare", "Real", "Text", "Pair", "Table"]


def census(probe, target):
    """{type: (count, bytes)}, and the lines that say what isn't in it."""
    found, notes, last = {}, [], None
    for line in probe.read(target.pid, "heap", "census").splitlines():
        if line.startswith("#"):
            notes.append(line)
            continue
        count, size, name = re.fullmatch(r"(\d+) (\d+) (\S.*)", line).groups()
        assert name not in found
        assert last is None or int(size) <= last
        found[name], last = (int(count), int(size)), int(size)
    return found, notes


def test_counts_to_the_object(probe, python):
    number = 1_000_000 if python.version[:2] == (3, 14) else 50_000
    target = python.run(SCRIPT, str(number))
    found, notes = census(probe, target)
    for kind in KINDS:
        count, size = found[f"__main__.{kind}"]
        assert count == number, kind
        assert 16 * number <= size <= 512 * number
    assert found["__main__.Gone"][0] == number // 2
    assert found["int"][0] >= number - 1000  # most of range()
    assert found["str"][0] > 1000
    assert "__main__.Nothing" not in found
    assert re.match(r"# \d+ objects in [\d.]+ MB of pools", notes[0])
    assert not [note for note in notes if "cut" in note or "changed" in note]
    query = probe.path / str(target.pid) / "query"
    rows = {row["type"]: row for row in ask(query, "SELECT * FROM heap")}
    for kind in KINDS:
        assert (int(rows[f"__main__.{kind}"]["count"]), int(rows[f"__main__.{kind}"]["bytes"])) == found[f"__main__.{kind}"]
    assert int(value(query, "SELECT count FROM heap WHERE type IS NULL")) > 0
