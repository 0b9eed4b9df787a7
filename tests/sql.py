"""How a test asks a process, or all of them, in SQL."""
import csv
import io
import os
import re
import sqlite3
import time

from commands import failure
from interpreters import eventually
from mount import REPOSITORY

SCHEMA = {path.stem: path for path in sorted((REPOSITORY / "schema").glob("*.sql"))}
RECORDED = {name for name, path in SCHEMA.items() if "-- source: recorded\n" in path.read_text()}
FUNCTIONS = {name for name, path in SCHEMA.items() if " ARGUMENT " in path.read_text()}  # in no file of tables/


def settle(target):
    """Returns once all threads of a victim that waits for ever have slept for a while."""
    def asleep():
        return set(target.states().values()) == {"S"}
    eventually(lambda: asleep() and not time.sleep(0.05) and asleep(), what="all threads asleep")


def columns(table, hidden=False, added=True):
    """[(name, type), ...] of SELECT *, as SQLite itself understands schema/TABLE.sql; hidden: and those that must be
    named; added: and those that aren't recorded."""
    with sqlite3.connect(":memory:") as db:
        db.execute(SCHEMA[table].read_text())
        return [(row[1], re.split("[ (]", row[2])[0])
                for row in db.execute(f"PRAGMA table_info({table})")
                if (hidden or " HIDDEN" not in row[2]) and (added or not row[2].endswith(" ADDED"))]


def reply(path, text):
    """What one open file answers to one write(2)."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.write(fd, text.encode())
        said = b""
        while got := os.read(fd, 1 << 20):
            said += got
        return said.decode()
    finally:
        os.close(fd)


def refused(path, text):
    """The errno of a write, and the words behind it."""
    fd = os.open(path, os.O_RDWR)
    try:
        number = failure(os.write, fd, text.encode())
        said = os.read(fd, 1 << 20).decode()
        assert said.startswith("error: ") and said.endswith("\n")
        return number, said[7:-1]
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


def rows(text):
    """The rows of a CSV as dicts: no value is '', an empty text is '' too."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def ask(path, sql):
    return rows(reply(path, sql))


def value(path, sql):
    """The only value of the only row."""
    (row,) = ask(path, sql)
    (only,) = row.values()
    return only
