"""SQL over recorded rows: what they become as columns, and that statements give what they give over ordinary
tables of SQLite with the same rows."""
import csv
import io
import random
import sqlite3

import pytest

from rings import replies
from sql import RECORDED, SCHEMA, columns, rows

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
    full = [values[kind](i) for i, (_, kind) in enumerate(columns(table, added=False))]
    wanted = [name for name, _ in columns(table, added=False)]
    some = [full] + [[None if i == k else v for i, v in enumerate(full)] for k in range(len(full))]
    names, *got = csv.reader(io.StringIO(replies([(table, row) for row in some],
                                                 f"SELECT {', '.join(wanted)} FROM python.{table}")[0]))
    assert names == wanted
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
        "xx" + "\U0001f40d" * 511 + "...", "\\xff" * 2048 + "...", "x" * 2047 + "\\xf0..."]


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
        db.execute(f"CREATE TABLE python.torch_trace({', '.join(n for n, _ in columns('torch_trace', added=False))})")
        db.executemany(f"INSERT INTO python.torch_trace VALUES ({', '.join('?' * len(traced[0]))})", traced)
        wanted = db.execute(GUIDE).fetchall()
    got = [(r["module"], r["stage"], float(r["avg_time"])) for r in rows(said)]
    assert len(got) == 10 and [g[:2] for g in got] == [w[:2] for w in wanted]
    assert [g[2] for g in got] == pytest.approx([w[2] for w in wanted])


# ---- against ordinary tables ----

INTEGERS = [None, 0, 1, 2, 3, -1, 7, 2**53 + 1, 2**63 - 1, -2**63 + 1]
REALS = [None, 0.0, 0.25, 0.5, -0.25, 1.5, 2.0, 1e9, -3.0, 1e300, -1e300]
TEXTS = [None, "", "a", "A", "ab", "a\0", "a\0b", b"\xff", b"a\xffb", "ü", "'", "step", "x" * 30, "x" * 30 + "y", "1",
         "2.0"]
DOMAINS = {"INTEGER": INTEGERS, "REAL": REALS, "TEXT": TEXTS}
NAMES = {kind: [name for name, k in columns("spans") if k == kind] for kind in DOMAINS}


def shown(expression):
    """An expression whose text says value and type, whatever bytes there are."""
    return (f"typeof({expression}) || CASE typeof({expression}) WHEN 'text' THEN hex({expression}) "
            f"ELSE quote({expression}) END")


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, (str, bytes)):
        raw = value.encode() if isinstance(value, str) else value
        return f"CAST(x'{raw.hex()}' AS TEXT)" if b"\0" in raw or not raw.isascii() else \
            "'" + raw.decode().replace("'", "''") + "'"
    return repr(value)


class Statements:
    """Random ones over the spans; each with how many of its first columns it is ordered by."""

    def __init__(self, random):
        self.random = random

    def column(self):
        return self.random.choice(self.random.choice(list(NAMES.values())))

    def some(self, low, high):
        names = [name for name, _ in columns("spans")]
        return self.random.sample(names, self.random.randint(low, high))

    def condition(self, alias=""):
        kind = self.random.choice(list(NAMES))
        name = alias + self.random.choice(NAMES[kind])
        other = self.random.choice(list(DOMAINS)) if self.random.random() < 0.2 else kind
        values = [literal(self.random.choice(DOMAINS[other])) for _ in range(3)]
        return self.random.choice([
            *[f"{name} {op} {values[0]}" for op in ("=", "<", "<=", ">", ">=", "<>", "IS", "IS NOT")],
            f"{name} BETWEEN {values[0]} AND {values[1]}", f"{name} IN ({', '.join(values)})",
            f"{name} IS NULL", f"{name} = {values[0]} COLLATE NOCASE", f"{name} LIKE 'a%'",
            f"{name} > 1.5", f"{name} <= 2.5", f"{name} = 2.0",
            f"{name} > (SELECT {values[0]})", f"{name} = {alias}{self.column()}"])

    def where(self, alias=""):
        n = self.random.choice([0, 0, 1, 1, 2])
        glue = self.random.choice([" AND ", " AND ", " OR "])
        return " WHERE " + glue.join(self.condition(alias) for _ in range(n)) if n else ""

    def directions(self, names):
        return ", ".join(name + self.random.choice(["", "", " ASC", " DESC", " DESC NULLS FIRST", " NULLS LAST"])
                         for name in names)

    def ordered(self):
        keys = self.some(1, 3)
        rest = self.some(0, 3)
        end = self.random.choice(["", "", " LIMIT 7", " LIMIT 5 OFFSET 3"])
        return (f"SELECT {', '.join(map(shown, keys + ([] if end else rest)))} FROM spans{self.where()} "
                f"ORDER BY {self.directions(keys)}{end}", len(keys))

    def grouped(self):
        keys = self.some(1, 3)
        ordering = self.random.choice([0, 0, 1, 2])
        order = f" ORDER BY {self.directions(keys)}" if ordering == 1 else \
            f" ORDER BY {self.directions(self.random.sample(keys, len(keys)))}" if ordering == 2 else ""
        column = self.random.choice(NAMES["INTEGER"] + NAMES["REAL"])
        other = self.column()
        return (f"SELECT {', '.join(map(shown, keys))}, count(*), count({column}), {shown(f'min({other})')}, "
                f"{shown(f'max({other})')}, count(DISTINCT {other}) FROM spans{self.where()} GROUP BY "
                f"{', '.join(keys)}{order}", len(keys) if ordering == 1 else 0)

    def distinct(self):
        keys = self.some(1, 3)
        order = self.random.choice(["", f" ORDER BY {self.directions(keys)}"])
        return (f"SELECT {', '.join(map(shown, keys))} FROM (SELECT DISTINCT {', '.join(keys)} FROM "
                f"spans{self.where()}{order})", 0)

    def extreme(self):
        name = self.column()
        extreme = self.random.choice(["min", "max"]) + f"({name})"
        return f"SELECT {shown(extreme)}, {shown(name)} FROM spans{self.where()}", 0

    def joined(self):
        left = self.random.choice(["", "LEFT "])
        one, other = self.random.choice([("parent", "id"), ("id", "parent"), ("name", "task"), ("name", "attrs"),
                                         ("start", "duration"), ("id", "start"), ("failed", "name")])
        collation = self.random.choice(["", " COLLATE NOCASE"])
        keys = self.some(1, 2)
        return (f"SELECT {', '.join(shown('a.' + k) for k in keys)}, {shown('b.name')}, count(*) FROM spans a "
                f"{left}JOIN spans b ON a.{one} = b.{other}{collation}{self.where('a.')} GROUP BY "
                f"{', '.join('a.' + k for k in keys)}, b.name", 0)

    def windowed(self):
        part, by = self.some(2, 2)
        return (f"SELECT {shown(part)}, {shown(by)}, rank() OVER (PARTITION BY {part} ORDER BY {by}) FROM spans"
                f"{self.where()}", 0)

    def nested(self):
        name = self.column()
        more = self.random.choice(["", " AND b.id > 1"])
        return (f"SELECT {shown(name)}, (SELECT count(*) FROM spans b WHERE b.{name} = a.{name}{more}) FROM spans a"
                f"{self.where('a.')}", 0)

    def one(self):
        return self.random.choice([self.ordered, self.ordered, self.grouped, self.grouped, self.distinct, self.extreme,
                                   self.joined, self.windowed, self.nested])()


def reference(all_rows):
    db = sqlite3.connect(":memory:")
    db.execute(SCHEMA["spans"].read_text())
    casts = ", ".join("CAST(? AS TEXT)" if kind == "TEXT" else "?" for _, kind in columns("spans"))
    db.executemany(f"INSERT INTO spans VALUES ({casts})",
                   [[v.encode() if isinstance(v, str) else v for v in row] for row in all_rows])
    return db


@pytest.mark.parametrize("seed", range(12))
def test_same_as_ordinary_tables(seed):
    chance = random.Random(seed)
    few = {kind: chance.sample(values, chance.randint(1, len(values))) for kind, values in DOMAINS.items()}
    all_rows = [[chance.choice(few[kind]) for _, kind in columns("spans")]
                for _ in range(chance.choice([0, 1, 2, 30, 100]))]
    if chance.random() < 0.5:  # as they are mostly
        all_rows.sort(key=lambda row: (row[5] is not None, row[5]))
    statements = [Statements(chance).one() for _ in range(60)]
    db = reference(all_rows)
    said = replies([("spans", row) for row in all_rows], *(sql for sql, _ in statements))
    for (sql, ordered), text in zip(statements, said):
        wanted = [tuple("" if v is None else str(v) for v in row) for row in db.execute(sql)]
        got = [tuple(row) for row in csv.reader(io.StringIO(text))][1:]
        assert sorted(got) == sorted(wanted), sql
        assert [row[:ordered] for row in got] == [row[:ordered] for row in wanted], sql
    db.close()
