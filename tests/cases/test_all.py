"""all/query and all/tables: every process at once, and what becomes of one that can't be read."""
import ctypes
import errno
import os
import pathlib
import platform
import signal
import socket
import time

import pytest

from interpreters import eventually, patience
from sql import FUNCTIONS, RECORDED, SCHEMA, ask, columns, reply, rows, value
from test_access import answer, run_as

WAIT = "import sys; print('ready'); sys.stdin.read()"

# a local variable whose bytes can't be read by anybody: who tries waits until the process ends
HANGS = """
import ctypes, fcntl, struct, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
fd = libc.syscall(323, 0)                                # userfaultfd(2), x86-64
if fd < 0:
    print("refused", flush=True)
    sys.exit()
fcntl.ioctl(fd, 0xc018aa3f, struct.pack("QQQ", 0xaa, 0, 0))            # UFFDIO_API
fcntl.ioctl(fd, 0xc020aa00, struct.pack("QQQQ", page, 4096, 1, 0))     # UFFDIO_REGISTER, missing
data = bytearray(64)
ctypes.c_uint64.from_address(id(data) + 40).value = page               # ob_start
def f(data):
    print("ready", flush=True)
    sys.stdin.read()
f(data)
"""


@pytest.fixture
def everybody(probe):
    return probe.path / "all" / "query"


def test_rows_of_every_process(probe, python, everybody):
    targets = [python.run("threads.py", 2, 3, env={"RANK": str(rank)}) for rank in (7, 8)]
    plain = python.run("threads.py", 1, 3)
    eventually(lambda: all(t.state() == "S" for t in (*targets, plain)))
    mine = ", ".join(str(t.pid) for t in (*targets, plain))
    seen = ask(everybody, f"SELECT * FROM python.threads WHERE pid IN ({mine})")
    assert list(seen[0]) == ["host", "pid", "rank"] + [name for name, _ in columns("threads")]
    assert {r["host"] for r in seen} == {socket.gethostname()}
    for target, rank in (*zip(targets, ("7", "8")), (plain, "")):
        own = [r for r in seen if int(r["pid"]) == target.pid]
        assert {int(r["tid"]) for r in own} == set(target.tids())
        assert {r["rank"] for r in own} == {rank}
        said = {int(tid): t["name"] for tid, t in target.stacks().items()}
        assert said.items() <= {int(r["tid"]): r["thread"] for r in own}.items()
    assert ask(everybody, "SELECT DISTINCT pid FROM threads WHERE rank = 8") == [
        {"pid": str(targets[1].pid)}]
    assert value(everybody, f"SELECT count(DISTINCT tid) FROM backtrace WHERE pid = {plain.pid} AND "
                            "depth = 0") == str(len(plain.tids()))
    # a join over processes and threads
    (row,) = ask(everybody, "SELECT count(*) AS n FROM threads t JOIN backtrace b USING (host, pid, "
                            f"tid) WHERE b.depth = 0 AND t.pid IN ({mine})")
    assert int(row["n"]) == len(seen)


def test_process_has_no_second_pid(python, everybody):
    target = python.run_source(WAIT, env={"RANK": "5"})
    (row,) = ask(everybody, f"SELECT * FROM process WHERE pid = {target.pid}")
    names = [name for name, _ in columns("process") if name not in ("pid", "rank")]
    assert list(row) == ["host", "pid", "rank"] + names
    assert (int(row["pid"]), row["rank"], row["host"]) == (target.pid, "5", platform.node())


def test_what_describes_tables(any_python, everybody):
    """The columns are no process's; the tables are, for what it has recorded is counted there."""
    target = any_python.run_source(WAIT)
    assert [r["name"] for r in ask(everybody, f"SELECT name FROM tables WHERE pid = {target.pid} "
                                              "ORDER BY 1")] == sorted(SCHEMA)
    assert [r["name"] for r in ask(everybody, "SELECT DISTINCT table_name AS name FROM columns "
                                              "ORDER BY 1")] == sorted(SCHEMA)


def test_replies_are_ones_own(probe, nobody):
    """Outside of processes, too, the last reply is that to the same user."""
    shared = probe.mount("allow_other")
    query = shared.path / "all" / "query"
    query.write_text("SELECT 'root' AS who\n")
    said = run_as(nobody, "sh", "-c", 'cat "$1"; echo "SELECT 2 AS x" > "$1"; cat "$1"', "sh", query)
    assert (said.stdout, said.stderr) == ("x\n2\n", "")
    assert query.read_text() == "who\nroot\n"


def test_only_those_who_may_be_looked_at(probe, any_python, nobody):
    shared = probe.mount("allow_other")
    own, other = (any_python.run_source(WAIT, user=user) for user in (nobody, None))
    assert {own.pid, other.pid} <= {int(r["pid"]) for r in ask(shared.path / "all" / "query",
                                                              "SELECT pid FROM process")}
    for read in ('echo "SELECT pid FROM process" > "$1/all/query"; cat "$1/all/query"',
                 'cut -d, -f 2 "$1/all/tables/process.csv"'):
        said = run_as(nobody, "sh", "-c", read, "sh", shared.path)
        assert said.stderr == ""
        assert {int(r["pid"]) for r in rows(said.stdout)} == {own.pid}
    query = shared.path / str(other.pid) / "query"
    assert answer(run_as(nobody, "sh", "-c", 'cat "$1"', "sh", query)) == errno.ENOENT  # hidepid
    query = shared.path / str(own.pid) / "query"
    said = run_as(nobody, "sh", "-c", 'echo "SELECT uid FROM process" > "$1"; cat "$1"', "sh", query)
    assert said.stdout == f"uid\n{os.stat(f'/proc/{own.pid}').st_uid}\n", said.stderr
    table = shared.path / str(own.pid) / "tables" / "threads.csv"
    assert len(rows(run_as(nobody, "cat", table).stdout)) == 1


@pytest.mark.long
def test_processes_that_end(probe, any_python, everybody):
    """A process that ends while it is read has no rows, and nothing else happens."""
    lasting = any_python.run_source(WAIT)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        targets = [any_python.run_source(WAIT, ready=False) for _ in range(3)]
        for target in targets:
            os.kill(target.pid, signal.SIGKILL)
            pids = {int(r["pid"]) for r in ask(everybody, "SELECT DISTINCT pid FROM backtrace")}
            assert lasting.pid in pids
        for target in targets:
            target.close()


def test_stopped_process(any_python, everybody):
    target = any_python.run_source(WAIT)
    target.signal(signal.SIGSTOP)
    eventually(lambda: target.state() == "T")
    assert value(everybody, f"SELECT state FROM threads WHERE pid = {target.pid}") == "stopped"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="wants userfaultfd's number")
def test_one_that_hangs(probe, any_python):
    """Costs its own rows, says so in its errors, and holds up nobody else."""
    other = probe.mount()  # its threads hang: not in the daemon of the other cases
    query = other.path / "all" / "query"
    well = any_python.run("threads.py", 1, 3)
    hangs = any_python.run_source(HANGS, ready=False)
    if hangs.readline() == "refused":
        pytest.skip("userfaultfd(2) is not allowed here")
    eventually(lambda: hangs.state() == "S")
    start = time.monotonic()
    seen = ask(query, f"SELECT DISTINCT pid FROM locals WHERE pid IN ({well.pid}, {hangs.pid}) AND "
                      "value <> ''")
    assert [int(r["pid"]) for r in seen] == [well.pid]
    assert time.monotonic() - start < patience(20)
    words = other.read(hangs.pid, "errors")
    assert "all/query ETIMEDOUT the process can't be read" in words
    start = time.monotonic()
    assert value(query, f"SELECT count(*) FROM threads WHERE pid = {well.pid}") == \
        str(len(well.tids()))
    assert time.monotonic() - start < patience(3)
    hangs.close()
    assert ask(query, "SELECT count(*) FROM locals WHERE value <> ''")


def test_many_processes(probe, any_python, everybody):
    """More than are read side by side."""
    targets = [any_python.run_source(WAIT) for _ in range(30)]
    seen = [int(r["pid"]) for r in ask(everybody, "SELECT pid FROM backtrace WHERE depth = 0")]
    assert {t.pid for t in targets} <= set(seen)
    assert seen == sorted(seen)


def test_files(probe, any_python):
    target = any_python.run("threads.py", 2, 4)
    for table in set(SCHEMA) - FUNCTIONS:
        path = probe.path / "all" / "tables" / f"{table}.csv"
        names = [name for name, _ in columns(table)]
        if table != "columns":
            lead = ["host", "pid", "rank"] + ["ended"] * (table in RECORDED)
            names = lead + [n for n in names if n not in lead]
        text = path.read_text()
        assert text.splitlines()[0] == ",".join(names)
        if table not in RECORDED and table not in ("columns", "tasks", "task_edges", "profile", "profile_stacks") \
                and not table.startswith("torch_"):
            assert target.pid in {int(r["pid"]) for r in rows(text)}
