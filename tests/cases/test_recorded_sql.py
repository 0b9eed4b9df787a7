"""SQL over recorded rows: what they become as columns, and that statements give what they give over ordinary
tables of SQLite with the same rows."""
import csv
import io
import sqlite3

import pytest

from rings import replies
from sql import RECORDED, columns, rows

SPAN = dict(id=1, parent=None, name="step", tid=7, task=None, start=2.5, duration=0.25, failed=0, attrs=None)


def spans(*changes):
    return [("spans", list({**SPAN, **change}.values())) for change in changes]


def test_nothing_recorded():
    for table, said in zip(sorted(RECORDED), replies([], *(f"SELECT * FROM {t}" for t in sorted(RECORDED)))):
        assert said == ",".join(name for name, _ in columns(table)) + "\n"


@pytest.mark.parametrize("table", sorted(RECORDED))
def test_each_column(table):
    """Each has its own value, and its own NULL."""
    values = {"INTEGER": lambda i: i + 1, "REAL": lambda i: i + 0.5, "TEXT": lambda i: f"text {i}"}
    full = [values[kind](i) for i, (_, kind) in enumerate(columns(table))]
    some = [full] + [[None if i == k else v for i, v in enumerate(full)] for k in range(len(full))]
    names, *got = csv.reader(io.StringIO(replies([(table, row) for row in some],
                                                 f"SELECT * FROM python.{table}")[0]))
    assert names == [name for name, _ in columns(table)]
    assert got == [["" if v is None else str(v) for v in row] for row in some]


def test_numbers():
    said, = replies(spans({"id": 2**63 - 1}, {"id": -2**63 + 1}, {"id": -2**63}, {"duration": float("nan")},
                          {"duration": float("inf")}, {"duration": 5e-324}),
                    "SELECT id, typeof(id) t, duration d, typeof(duration) u FROM spans")
    got = [tuple(row.values()) for row in rows(said)]
    assert got[:4] == [("9223372036854775807", "integer", "0.25", "real"),
                       ("-9223372036854775807", "integer", "0.25", "real"), ("", "null", "0.25", "real"),
                       ("1", "integer", "", "null")]
    assert [row[2] for row in got[4:]] == ["Inf", "4.94065645841247e-324"]


NASTY = ["", " ", "'; DROP TABLE spans; --", 'a "b", c', "one\ntwo\r\n", "tab\t", "ümläut", "\U0001f40d", "\0", "a\0b",
         b"\xff", b"a\xc3", b"\xed\xa0\x80", "\x1b[31m", "[x]", "x' || (SELECT 1) || '", "NULL", "1"]


def marked(text):
    """As the CSV shows it: bytes that are no characters, and those that drive terminals, as \\xNN."""
    raw = text.encode() if isinstance(text, str) else text
    return "".join(f"\\x{ord(c) - 0xdc00:02x}" if "\udc80" <= c <= "\udcff" else
                   f"\\x{ord(c):02x}" if c < " " and c not in "\t\r\n" or c == "\x7f" else c
                   for c in raw.decode(errors="surrogateescape"))


def test_texts():
    """Whatever bytes the program gave: in CSV, as values that are compared, and as values that are joined."""
    rows_ = spans(*({"id": i, "name": text, "attrs": text} for i, text in enumerate(NASTY)))
    everything, same, hexed = replies(
        rows_, "SELECT name FROM spans ORDER BY id", "SELECT count(*) n FROM spans a JOIN spans b ON "
        "a.name = b.attrs", "SELECT hex(name) h FROM spans ORDER BY id")
    assert [r["name"] for r in rows(everything)] == [marked(text) for text in NASTY]
    assert rows(same) == [{"n": str(len(NASTY))}]
    assert [r["h"] for r in rows(hexed)] == [
        (t.encode() if isinstance(t, str) else t).hex().upper() for t in NASTY]
    for text in NASTY:
        quoted = (text if isinstance(text, str) else "").replace("'", "''")
        if not isinstance(text, str) or "\0" in text:
            continue
        said, = replies(rows_, f"SELECT id FROM spans WHERE name = '{quoted}'")
        assert [int(r["id"]) for r in rows(said)] == [NASTY.index(text)]


def test_long_texts():
    """Those that didn't fit end in three dots, and not within a character."""
    texts = ["x" * 2048, "x" * 2049, "ü" * 1100, "x" + "ü" * 1100, "xx" + "\U0001f40d" * 600, b"\xff" * 3000,
             b"x" * 2047 + b"\xf0" + b"x" * 9]
    said, = replies(spans(*({"attrs": text} for text in texts)), "SELECT attrs FROM spans")
    assert [r["attrs"] for r in rows(said)] == [
        "x" * 2048, "x" * 2048 + "...", "ü" * 1024 + "...", "x" + "ü" * 1023 + "...",
        "xx" + "\U0001f40d" * 511 + "...", "\\xff" * 2048 + "...", "x" * 2047 + "..."]


def test_overwritten():
    """The newest rows stay."""
    said, = replies(spans(*({"id": i} for i in range(5000))), "SELECT min(id) a, max(id) b, count(*) n FROM spans",
                    size=64 << 10)
    (row,) = rows(said)
    assert int(row["b"]) == 4999 and int(row["b"]) - int(row["a"]) == int(row["n"]) - 1 and int(row["n"]) > 400


GUIDE = """SELECT module, stage, avg(duration) AS avg_time FROM python.torch_trace WHERE step >
(SELECT max(step) - 5 FROM python.torch_trace) GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10"""


def test_the_guide():
    """The debugging guide's statement, as it is written, over what a training loop of 50 steps leaves."""
    traced = [(float(step), step, seq, module, stage, 0.0, (seq + 1) * (1 + step % 7) / 1000, *[None] * 4)
              for step in range(50)
              for seq, (module, stage) in enumerate([(f"layers.{i}", s) for i in range(8)
                                                     for s in ("forward", "backward")] + [("", "step")])]
    said, = replies([("torch_trace", row) for row in traced], GUIDE)
    with sqlite3.connect(":memory:") as db:
        db.execute("ATTACH ':memory:' AS python")
        db.execute(f"CREATE TABLE python.torch_trace({', '.join(n for n, _ in columns('torch_trace'))})")
        db.executemany(f"INSERT INTO python.torch_trace VALUES ({', '.join('?' * len(traced[0]))})", traced)
        wanted = db.execute(GUIDE).fetchall()
    got = [(r["module"], r["stage"], float(r["avg_time"])) for r in rows(said)]
    assert len(got) == 10 and [g[:2] for g in got] == [w[:2] for w in wanted]
    assert [g[2] for g in got] == pytest.approx([w[2] for w in wanted])
