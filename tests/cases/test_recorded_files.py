"""What a process has recorded, through its files: its rows as any program reads them, how many there are, and that
looking for them takes nothing of the process."""
import csv
import json
import os
import pathlib
import threading

import pytest

import readers
from interpreters import eventually
from readers import run
from recorded import do, recorded, write
from sql import RECORDED, ask, columns, reply, rows, value
from stopping import reads_input

NASTY = ["", " lead", "'; DROP TABLE spans; --", 'a "b", c', "one\ntwo\r\n", "ümläut", "nul\0nul", "\udcff\udc80",
         "\x1b[31m", "x' || (SELECT 1) || '", "NULL", "=1+1"]
SHOWN = [text.replace("\0", "\\x00").replace("\x1b", "\\x1b").replace("\udcff\udc80", "\\xff\\x80") for text in NASTY]


def nasty_spans():
    return [(i + 1, i or None, text, 7, None, 100 + i / 4, None if i % 3 == 0 else i / 8, 0, json.dumps({"i": i}))
            for i, text in enumerate(NASTY)]


@pytest.fixture
def target(recorded):
    target = recorded()
    write(target, "spans", nasty_spans())
    return target


@pytest.fixture
def top(probe, target):
    return probe.path / str(target.pid)


# ---- the rows ----

def test_values_survive(top):
    wanted = [str(i + 1) for i in range(len(NASTY))]
    for text in (reply(top / "query", "SELECT * FROM spans"), (top / "tables" / "spans.csv").read_bytes().decode()):
        got = rows(text)
        assert [r["id"] for r in got] == wanted and [r["name"] for r in got] == SHOWN
        assert [r["duration"] for r in got] == ["" if i % 3 == 0 else str(i / 8) for i in range(len(NASTY))]
        assert [json.loads(r["attrs"])["i"] for r in got] == list(range(len(NASTY)))
    said = json.loads(reply(top / "query", "-- format: json\nSELECT id, name, duration FROM spans"))
    assert [r["name"] for r in said] == [text.replace("\udcff\udc80", "\\xff\\x80") for text in NASTY]
    assert said[0]["duration"] is None and said[1]["duration"] == 0.125
    table = reply(top / "query", "-- format: table\nSELECT id, name FROM spans").splitlines()
    assert len(table) == len(NASTY) + 2


def test_all(probe, recorded, target):
    others = [recorded(env={"RANK": str(rank)}) for rank in (4, 5)]
    for rank, other in enumerate(others):
        write(other, "spans", [(1, None, f"only {rank}", other.pid, None, 5.0, 1.0, 0, None)] * (rank + 1))
    mine = ", ".join(str(t.pid) for t in [target, *others])
    query = probe.path / "all" / "query"
    got = ask(query, f"SELECT pid, rank, name, count(*) AS n FROM spans WHERE pid IN ({mine}) AND name LIKE 'only %' "
                     "GROUP BY pid, rank, name ORDER BY rank DESC")
    assert [tuple(r.values()) for r in got] == [(str(others[1].pid), "5", "only 1", "2"),
                                                (str(others[0].pid), "4", "only 0", "1")]
    assert [r["name"] for r in ask(query, f"SELECT * FROM spans WHERE pid = {target.pid}")] == SHOWN
    # what was recorded, beside what is seen
    assert value(query, "SELECT count(*) FROM spans s JOIN threads t USING (host, pid, tid) WHERE s.name LIKE 'only %' "
                        f"AND pid IN ({mine})") == "3"
    seen = [r for r in rows((probe.path / "all" / "tables" / "spans.csv").read_bytes().decode())
            if int(r["pid"]) == target.pid]
    assert [r["name"] for r in seen] == SHOWN and list(seen[0])[:3] == ["host", "pid", "rank"]
    kept = ask(query, f"SELECT pid, kept, lost FROM tables WHERE name = 'spans' AND pid IN ({mine}) ORDER BY kept")
    assert [tuple(r.values()) for r in kept] == [
        (str(others[0].pid), "1", "0"), (str(others[1].pid), "2", "0"), (str(target.pid), str(len(NASTY)), "0")]


def test_lost(probe, recorded):
    """What was overwritten is counted, and the newest rows are there."""
    target = recorded()
    do(target, "ring = open_ring('spans', 1 << 16); [span(ring, i + 1) for i in range(5000)]")
    query = probe.path / str(target.pid) / "query"
    (row,) = ask(query, "SELECT kept, lost, (SELECT count(*) FROM spans) AS n, (SELECT min(id) FROM spans) AS first, "
                        "(SELECT max(id) FROM spans) AS last FROM tables WHERE name = 'spans'")
    row = {name: int(text) for name, text in row.items()}
    assert row["last"] == 5000 and row["n"] == row["kept"] == 5000 - row["lost"] and row["first"] == row["lost"] + 1
    assert 0 < row["kept"] < 2000
    assert ask(query, "SELECT kept, lost FROM tables WHERE name = 'gc'") == [{"kept": "", "lost": ""}]


@pytest.mark.long
def test_while_it_is_written(probe, recorded):
    """Each statement sees the rows of one moment, whoever else asks and writes."""
    target = recorded()
    do(target, "ring = open_ring('spans', 1 << 20); span(ring, 1); import threading, itertools; stop = False")
    do(target, "def go():\\n for i in itertools.count(2):\\n  span(ring, i)\\n  if stop: break".join(["exec('", "')"]))
    do(target, "threading.Thread(target=go, daemon=True).start()")
    query = probe.path / str(target.pid) / "query"
    assert int(value(query, "SELECT count(*) FROM spans")) > 0  # whoever else comes has what it found
    wrong, last = [], []

    def ask_often():
        for _ in range(16):
            (row,) = ask(query, "SELECT count(*) AS n, min(id) AS first, max(id) AS last, count(DISTINCT id) AS d FROM "
                                "spans WHERE name = 'step'")
            n, first, newest, different = map(int, row.values())
            if not n == different == newest - first + 1:
                wrong.append(row)
            last.append(newest)

    threads = [threading.Thread(target=ask_often) for _ in range(16)]  # more would meet the deadline
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(last) == 256 and max(last) > min(last)


# ---- other programs ----

def test_sqlite3(top):
    said = run("sqlite3", ":memory:", "-cmd", f".import --csv {top}/tables/spans.csv t",
               "SELECT count(*), sum(id), group_concat(hex(name), ' ') FROM t")
    n, ids, names = said.strip().split("|")
    assert (int(n), int(ids)) == (len(NASTY), sum(range(1, len(NASTY) + 1)))
    assert [bytes.fromhex(name).decode() for name in names.split(" ")] == SHOWN


@pytest.mark.long
def test_pandas(top):
    said = readers.pandas(top / "tables" / "spans.csv", "duration", "parent")
    assert [r["id"] for r in said] == list(range(1, len(NASTY) + 1)) and [r["name"] for r in said] == SHOWN
    assert [r["duration"] for r in said] == [None if i % 3 == 0 else i / 8 for i in range(len(NASTY))]


@pytest.mark.long
def test_duckdb(probe, recorded, target, top):
    other = recorded()
    write(other, "spans", [(1, None, "step", 7, None, 5.0, 1.5, 0, None)])
    assert readers.duckdb(f"SELECT count(*), sum(id), max(start), count(duration) FROM "
                          f"read_csv('{top}/tables/spans.csv')"
                          ) == [(len(NASTY), sum(range(1, len(NASTY) + 1)), 100 + (len(NASTY) - 1) / 4,
                                 sum(i % 3 > 0 for i in range(len(NASTY))))]
    counts = dict(readers.duckdb_everywhere("SELECT filename, count(*) FROM read_csv("
                                            f"'{probe.path}/*/tables/spans.csv', filename = true, "
                                            "union_by_name = true, all_varchar = true) GROUP BY 1"))
    assert counts[str(top / "tables" / "spans.csv")] == len(NASTY)
    assert counts[str(probe.path / str(other.pid) / "tables" / "spans.csv")] == 1


def test_sizes(top):
    for table in sorted(RECORDED):
        path = top / "tables" / f"{table}.csv"
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            assert os.fstat(file.fileno()).st_size == size == len(file.read()) > 0
    assert run("tail", "-n", "1", top / "tables" / "spans.csv").startswith(f"{len(NASTY)},")
    assert run("wc", "-l", top / "tables" / "gc.csv").split()[0] == "1"


# ---- nothing is touched ----

def test_looking_takes_nothing(probe, python):
    """A process that never recorded has no rows, and nothing is put into it."""
    target = python.run_source("import sys; print('ready'); sys.stdin.read()")
    eventually(lambda: reads_input(target.pid), what="reading")
    here = pathlib.Path(f"/proc/{target.pid}")

    def seen():
        switches = [line for line in (here / "status").read_text().splitlines() if "ctxt" in line]
        return ((here / "maps").read_text(), sorted(os.listdir(here / "fd")), os.listdir(here / "task"), switches)

    before = seen()
    top = probe.path / str(target.pid)
    for table in sorted(RECORDED):
        header = ",".join(name for name, _ in columns(table)) + "\n"
        assert reply(top / "query", f"SELECT * FROM python.{table}") == header
        assert (top / "tables" / f"{table}.csv").read_text() == header
    assert value(top / "query", "SELECT count(*) FROM tables WHERE kept IS NOT NULL") == "0"
    (row,) = csv.DictReader(reply(probe.path / "all" / "query", "SELECT count(*) AS n FROM spans WHERE pid = "
                                  f"{target.pid}").splitlines())
    assert row == {"n": "0"}
    assert seen() == before
    assert not (top / "errors").read_text()
