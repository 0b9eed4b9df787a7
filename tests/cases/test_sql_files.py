"""tests/sql/*.test: for each table what statements give, as text. A file is

    over rings                 rows that the file writes itself (tests/rings.py), or
    over SCRIPT                a victim of tests/targets, from Python MAJOR.MINOR on if that follows

    rows TABLE                 each line is a JSON array: a value for each column; \\udcXX is a byte
    query [sorted]             then SQL, ----, and the lines of its CSV; sorted: in any order
    error                      then SQL, ----, and what its words begin with

Blocks are separated by empty lines; # begins a comment."""
import json
import os

import pytest

from mount import REPOSITORY
from rings import replies
from sql import SCHEMA, columns, refused, reply, settle

FILES = {path.stem: path for path in sorted((REPOSITORY / "tests" / "sql").glob("*.test"))}


def blocks(path):
    """[(words of the first line, lines before ----, lines after it), ...]"""
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    for block in text.split("\n\n"):
        head, *lines = block.strip("\n").splitlines() or [""]
        if head:
            cut = lines.index("----") if "----" in lines else len(lines)
            yield head.split(), lines[:cut], lines[cut + 1:]


def over(name):
    (words, *_), *_ = blocks(FILES[name])
    assert words[0] == "over"
    return words


def rows(table, lines):
    kinds = [kind for _, kind in columns(table, added=False)]
    for line in lines:
        values = json.loads(line)
        assert len(values) == len(kinds), line
        yield table, [None if value is None else float(value) if kind == "REAL" else
                      os.fsencode(value) if kind == "TEXT" else value for kind, value in zip(kinds, values)]


def compare(how, sql, said, wanted):
    header, *body = said.splitlines()
    if "sorted" in how:
        body, wanted = sorted(body), wanted[:1] + sorted(wanted[1:])
    assert [header, *body] == wanted, sql


def over_rings(parts):
    filled = [row for how, lines, _ in parts if how[0] == "rows" for row in rows(how[1], lines)]
    asked = [(how, "\n".join(sql), wanted) for how, sql, wanted in parts if how[0] in ("query", "error")]
    for (how, sql, wanted), said in zip(asked, replies(filled, *(sql for _, sql, _ in asked))):
        if how[0] == "error":
            assert said.startswith("error: " + "\n".join(wanted)), sql
        else:
            compare(how, sql, said, wanted)
    return len(asked)


def over_victim(probe, python, script, parts):
    target = python.run(script, env={"CASE": 'a "b", c', "RANK": "3"})
    settle(target)
    query = probe.path / str(target.pid) / "query"
    asked = [(how, "\n".join(sql).replace("$PID", str(target.pid)), wanted) for how, sql, wanted in parts]
    for how, sql, wanted in asked:
        if how[0] == "error":
            assert refused(query, sql)[1].startswith("\n".join(wanted).replace("$PID", str(target.pid))), sql
        else:
            compare(how, sql, reply(query, sql), [line.replace("$PID", str(target.pid)) for line in wanted])
    return len(asked)


def test_every_table_has_one():
    assert set(FILES) >= set(SCHEMA)


@pytest.mark.parametrize("name", [name for name in FILES if over(name)[1] == "rings"])
def test_over_rings(name):
    _, *parts = blocks(FILES[name])
    assert over_rings(parts) > 0


@pytest.mark.parametrize("name", [name for name in FILES if over(name)[1] != "rings"])
def test_over_victims(probe, python, name):
    _, script, *since = over(name)
    if since and python.version < tuple(map(int, since[0].split("."))):
        pytest.skip(f"{name}: needs Python {since[0]}")
    _, *parts = blocks(FILES[name])
    assert over_victim(probe, python, script, parts) > 0
