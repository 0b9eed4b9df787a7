"""tables/NAME.csv: read by programs that know nothing of us, in whatever way they read files."""
import csv
import errno
import os
import shutil
import tarfile
import threading
import time

import pytest

import readers
from commands import shell
from interpreters import eventually
from readers import run
from sql import FUNCTIONS, SCHEMA, ask, columns, rows, settle

WAIT = "import sys; print('ready'); sys.stdin.read()"


@pytest.fixture
def target(any_python):
    target = any_python.run("threads.py", 4, 6)
    settle(target)
    return target


@pytest.fixture
def tables(probe, target):
    return probe.path / str(target.pid) / "tables"


TASKS = {"tasks", "task_edges"}
UNKNOWN = {"heap"}


def test_every_table(probe, python):
    target = python.run("threads.py", 2, 3)
    settle(target)
    directory = probe.path / str(target.pid) / "tables"
    assert {path.stem for path in directory.iterdir()} == set(SCHEMA) - FUNCTIONS
    for table in set(SCHEMA) - FUNCTIONS:
        text = (directory / f"{table}.csv").read_text()
        header, *body = csv.reader(text.splitlines(keepends=True))
        assert header == [name for name, _ in columns(table)]
        assert all(len(row) == len(header) for row in body)
        said = ask(directory.parent / "query", f"SELECT * FROM {table}") \
            if table not in TASKS or python.version >= (3, 12) else []
        if table not in ("process", "threads", "locks"):  # times
            assert rows(text) == said
        else:
            assert len(rows(text)) == len(said)
    if python.version < (3, 12):
        said = probe.read(target.pid, "errors")
        assert all(f"tables/{table}.csv EOPNOTSUPP" in said for table in TASKS)


def test_sizes(tables):
    """What stat says of a file that isn't open is the length of what its opener will read, and what
    fstat says of one that is, too. It says nothing of what takes long to be read."""
    for table in set(SCHEMA) - FUNCTIONS:
        path = tables / f"{table}.csv"
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            known = os.fstat(file.fileno()).st_size
            assert size == (0 if table in UNKNOWN else known) and known > 0
            assert len(file.read()) == known
            assert os.fstat(file.fileno()).st_blocks == -(-known // 512)


def test_size_of_what_changes(probe, any_python):
    """tar and the like: the size that was asked for first is that of what is read then."""
    target = any_python.run_source("""
import threading, time
def f(n):
    if n: f(n - 1)
    else: time.sleep(0.001)
print('ready', flush=True)
n = 0
while True:
    n = (n + 1) % 50
    f(n)
""")
    path = probe.path / str(target.pid) / "tables" / "backtrace.csv"
    sizes = set()

    def look():
        begun = time.monotonic()
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            assert len(file.read()) == size or time.monotonic() - begun > 2  # for so long it is kept
        sizes.add(size)
        return len(sizes) > 5
    for _ in range(50):
        look()
    eventually(look, what="other sizes")


def test_each_caller_has_its_own(tables):
    """Two threads that look at once don't mix up what they see."""
    wrong = []

    def look():
        for _ in range(40):
            path = tables / "locals.csv"
            size = os.stat(path).st_size
            with open(path, "rb") as file:
                if len(file.read()) != size:
                    wrong.append(size)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_offsets(tables):
    path = tables / "maps.csv"
    fd = os.open(path, os.O_RDONLY)
    try:
        whole = os.pread(fd, 1 << 20, 0)
        assert b"".join(os.pread(fd, 7, at) for at in range(0, len(whole), 7)) == whole
        assert os.lseek(fd, 0, os.SEEK_END) == len(whole)
        assert os.pread(fd, 100, len(whole)) == b""
    finally:
        os.close(fd)


def test_unix_tools(tables, target):
    threads = str(tables / "threads.csv")
    assert run("wc", "-l", threads).split()[0] == str(len(target.tids()) + 1)
    assert run("tail", "-n", "+2", threads).count("\n") == len(target.tids())
    # the main thread, which comes first, may have the highest number
    others = sorted(set(target.tids()) - {target.pid})
    assert run("tail", "-n", "1", threads).startswith(f"{others[-1]},")
    tids = run("awk", "-F,", "NR > 1 {print $1}", threads).split()
    assert sorted(map(int, tids)) == target.tids()
    assert run("cut", "-d,", "-f1", threads).split()[1:] == tids
    assert run("grep", "-c", "worker-", threads) == "4\n"
    assert run("grep", "-c", ",oracle,", threads) == "1\n"
    assert run("sort", "-t,", "-k1n", threads).count("\n") == len(tids) + 1
    result = shell('cd "$1"; for f in *.csv; do [ -s "$f" ] || echo "$f"; done; head -qn1 *.csv',
                   tables)
    assert result.stdout.splitlines() == [f"{table}.csv" for table in sorted(UNKNOWN)] + \
        [",".join(n for n, _ in columns(t)) for t in sorted(set(SCHEMA) - FUNCTIONS)]


def test_tar(tables, tmp_path):
    archive = tmp_path / "tables.tar"
    run("tar", "-C", tables, "-cf", archive, *sorted(os.listdir(tables)))
    with tarfile.open(archive) as tar:
        members = {m.name: m for m in tar.getmembers() if m.isfile()}
        assert set(members) == {f"{t}.csv" for t in set(SCHEMA) - FUNCTIONS}
        for member in members.values():
            text = tar.extractfile(member).read()
            assert b"\0" not in text and text.endswith(b"\n")


def test_cp(tables, tmp_path):
    shutil.copytree(tables, tmp_path / "copy", copy_function=shutil.copyfile)
    assert rows((tmp_path / "copy" / "columns.csv").read_text()) == \
        rows((tables / "columns.csv").read_text())


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3 is not installed")
def test_sqlite3(tables, target):
    said = run("sqlite3", ":memory:", "-cmd", f".import --csv {tables}/threads.csv t",
               "SELECT count(*), max(tid), sum(thread LIKE 'worker%') FROM t")
    assert said == f"{len(target.tids())}|{max(target.tids())}|4\n"


@pytest.mark.long
def test_duckdb(probe, tables, target):
    (workers,), = readers.duckdb(f"SELECT count(*) FROM read_csv('{tables}/threads.csv') WHERE thread LIKE 'worker%'")
    assert workers == 4
    everybody = readers.duckdb_everywhere(f"SELECT DISTINCT filename FROM "
                                          f"read_csv('{probe.path}/*/tables/threads.csv', "
                                          "filename = true, union_by_name = true)")
    assert (str(tables / "threads.csv"),) in everybody
    files = readers.duckdb(f"SELECT DISTINCT filename FROM read_csv('{tables}/*.csv', filename = true, "
                           "union_by_name = true)")
    assert {(str(tables / f"{t}.csv"),) for t in ("backtrace", "threads", "maps")} <= set(files)


def test_pandas(tables, target):
    frame = readers.pandas(tables / "backtrace.csv", "depth", "lineno")
    assert {row["tid"] for row in frame} == set(target.tids())
    assert all(max(row["number"] for row in frame if row["tid"] == tid) > 3 for tid in target.tids())


NASTY = r"""
import sys, threading
value = 'a "quoted", text\n\x1b[31m\udcff'
def f(left=None):
    threading.Event().wait()
threading.Thread(target=f, args=(value,), name='x,"y"', daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def test_values_survive(probe, python):
    target = python.run_source(NASTY)
    tables = probe.path / str(target.pid) / "tables"
    text = eventually(lambda: (t := (tables / "locals.csv").read_text()) and "left" in t and t)
    (row,) = [r for r in rows(text) if r["name"] == "left"]
    assert row["value"] == repr('a "quoted", text\n\x1b[31m\udcff')
    (row,) = [r for r in rows((tables / "threads.csv").read_text()) if r["is_main"] == "0"]
    assert row["thread"] == 'x,"y"'
    assert "\x1b" not in text


def test_nothing_can_be_written(tables):
    with pytest.raises(OSError) as caught:
        open(tables / "threads.csv", "w").close()
    assert caught.value.errno == errno.EACCES
    with pytest.raises(FileNotFoundError):
        open(tables / "nothing.csv").close()


def test_dead_process(probe, any_python):
    target = any_python.run_source(WAIT)
    path = probe.path / str(target.pid) / "tables" / "threads.csv"
    with open(path) as file:
        first = file.read(10)
        target.close()
        assert len(rows(first + file.read())) == 1  # what its open saw
    with pytest.raises(FileNotFoundError):
        path.read_text()
