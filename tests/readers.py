"""Programs that know nothing of us and read tables: what they make of a file."""
import csv
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from interpreters import CACHE, eventually, patience

DUCKDB = """
import json, sys, duckdb
duckdb.sql("SET enable_progress_bar = false")  # it would print one after two seconds
print(json.dumps(duckdb.sql(sys.argv[1]).fetchall()))
"""
PANDAS = """
import json, sys, pandas
frame = pandas.read_csv(sys.argv[1], keep_default_na=False, na_values={name: [""] for name in sys.argv[2:]})
print(frame.to_json(orient="split", index=False))
"""
PANDAS_SQL = """
import contextlib, sqlite3, sys, pandas
with contextlib.closing(sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)) as database:
    print(pandas.read_sql(sys.argv[2], database).to_json(orient="split", index=False))
"""

# a process has ended, or has fewer threads, than when DuckDB looked at its file first
CHANGED = re.compile(r"/tables/\w+\.csv.*No such (file or directory|process)|Could not read enough bytes from file .*"
                     r"/tables/\w+\.csv", re.DOTALL)


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def _python_with(module):
    """An interpreter that can import it: this one, or that of the benchmark's peers."""
    for executable in sys.executable, CACHE / "peers" / "bin" / "python3":
        if os.access(executable, os.X_OK) and \
                subprocess.run([executable, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return executable
    return pytest.skip(f"{module} is not installed")


def duckdb(sql):
    """The rows of its answer."""
    return [tuple(row) for row in json.loads(run(_python_with("duckdb"), "-c", DUCKDB, sql))]


def duckdb_everywhere(sql):
    """The rows of its answer over a file of every process. Asked again only where one of those has changed between two
    of the looks by which DuckDB finds the files, sees how long they are and reads them."""
    def ask():
        try:
            return duckdb(sql)
        except AssertionError as error:
            if not CHANGED.search(str(error)):
                raise
            return None
    return eventually(ask, what="DuckDB over all processes")


def pandas(path, *numbers):
    """Its rows, as dicts. numbers: columns in which no text means no number."""
    return _rows(run(_python_with("pandas"), "-c", PANDAS, path, *numbers))


def pandas_sql(path, sql):
    """What it reads of an SQLite database, as dicts."""
    return _rows(run(_python_with("pandas"), "-c", PANDAS_SQL, path, sql))


def sqlite3(path, sql):
    """What the program of that name does, as dicts; all values are texts."""
    if not shutil.which("sqlite3"):
        pytest.skip("the program sqlite3 is not installed")
    return list(csv.DictReader(run("sqlite3", "-readonly", "-csv", "-header", path, sql).splitlines()))


def _rows(text):
    frame = json.loads(text)
    return [dict(zip(frame["columns"], row)) for row in frame["data"]]
