"""contrib/across over the real clush and pdsh, with stand-ins for ssh and Slurm: a host is a directory, in which `here`
is the mount."""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys

import pytest

from agents import start
from interpreters import CACHE, eventually, patience
from mount import REPOSITORY
from test_jobs import job_of

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"
# ssh ... HOST COMMAND
SSH = """#!/bin/sh
for last; do host=$before before=$last; done
[ "$host" != h3 ] || { echo "no route to host" >&2; exit 255; }
cd "${0%/*}/$host" && exec setsid -w sh -c "$last"
"""
# srun --overlap [--time=0:SECONDS] -N N -n N -w HOSTS sh -c COMMAND, and scontrol show hostnames HOSTS
SLURM = """#!/bin/sh
if [ "${0##*/}" = scontrol ]; then exec nodeset -S '\\n' -e "$3"; fi
shift
case $1 in --time=0:*) shift ;; esac
[ "$1 $3 $5 $7 $8" = "-N -n -w sh -c" ] && [ "$2" = "$4" ] || exit 1
for host in $(nodeset -e "$6"); do
    [ $host = h3 ] || (cd "${0%/*}/$host" && SLURMD_NODENAME=$host exec setsid -w sh -c "$9") &
done
wait
"""
ENGINES = {"clush": "clush", "pdsh": "pdsh -R ssh", "srun": "srun"}


@pytest.fixture
def across(tmp_path, probe):
    """h1 and h2 have the mount, h3 can't be reached, h4 has no mount."""
    for name, text in {"ssh": SSH, "srun": SLURM, "scontrol": SLURM}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for host in ("h1", "h2", "h4"):
        (tmp_path / host).mkdir()
    for host in ("h1", "h2"):
        (tmp_path / host / "here").symlink_to(probe.path)

    def command(hosts, *args, engine="clush", python=()):
        for needed in {"clush", engine} - {"srun"}:
            if not shutil.which(needed):
                pytest.skip(f"{needed} is not installed (Debian: clustershell, pdsh)")
        return [*python, REPOSITORY / "contrib" / "across", "-e", ENGINES[engine], "-w", hosts, "-m", "here", *args]

    def run(*args, status=0, **options):
        said = subprocess.run(command(*args, **options), capture_output=True, text=True, timeout=patience(60),
                              stdin=subprocess.DEVNULL, env=run.env)
        assert said.returncode == status, said
        return said
    run.command, run.path = command, tmp_path
    run.env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return run


def test_query(across, any_python):
    target = any_python.run_source(WAITS)
    statement = f"SELECT pid, 'a\nb, % \"x\"' AS t, NULL AS n FROM process WHERE pid = {target.pid}"
    row = {"pid": target.pid, "t": 'a\nb, % "x"', "n": None}
    said = across("h[1-2]", "-f", "jsonl", "query", statement).stdout
    assert [json.loads(line) for line in said.splitlines()] == [row, row]
    said = across("h1", "query", statement).stdout
    assert said == f'pid,t,n\n{target.pid},"a\nb, % ""x""",\n'
    assert "no such column: nope" in across("h1", "query", "SELECT nope", status=1).stderr


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.python(minimum=(3, 10))
def test_engines(across, any_python, engine):
    env, job = job_of(2, RANK="1")
    target = start(any_python, WAITS, env=env)

    def run(*args, **options):
        return across(*args, engine=engine, **options)
    said = run("h[1-4]", "query", "-f", "json", f"SELECT pid FROM process WHERE pid = {target.pid}", status=1)
    assert json.loads(said.stdout) == [{"pid": target.pid}] * 2
    assert "across: h3: missing: " in said.stderr and "across: h4: failed: here/all/query is not there" in said.stderr
    assert run("h[1-2]", "write", f"{target.pid}/eval", "print('%h; \"', 6 * 7)").stdout == 'h1,h2 (2):\n%h; " 42\n'
    assert run("h[1-2]", "cat", f"{target.pid}/threads/{target.pid}/ctl").stdout == "h1,h2 (2):\nrunning\n"
    assert run("h[1-2]", "-j", job, "eval", "'%h;'").stdout == "rank 1 (2): '%h;'\n"
    assert re.match(rf"2 hosts, 2 processes, .*\nJob {job}: ranks 1 of 2, missing: 0\n\nrank 1 \(2\): MainThread ",
                    run("h[1-2]", "-j", job, "backtrace").stdout)
    said = run("h1", "write", f"{target.pid}/eval", "1 / 0", status=1).stderr
    assert said.startswith("across: h1: failed: ") and "division by zero" in said


def readers(path):
    """Who has it open."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it, or the descriptor, has gone
            if any(os.readlink(link) == str(path) for link in os.scandir(f"/proc/{pid}/fd")):
                found.add(pid)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_events(across, probe, any_python, engine):
    """As they come; and nobody reads on for somebody who has gone."""
    target = any_python.run_source(WAITS)
    with subprocess.Popen(across.command("h[1-2]", "events", engine=engine), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, start_new_session=True, env=across.env) as process:
        eventually(lambda: len(readers(probe.path / "all" / "events")) == 2, what="two that read")
        target.close()
        said = b""
        while said.count(b'"pid": %d, "status"' % target.pid) < 2:
            assert select.select([process.stdout], [], [], patience(60))[0], said
            said += os.read(process.stdout.fileno(), 1 << 16)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(patience(60)) == 130
    eventually(lambda: not readers(probe.path / "all" / "events"), what="nobody who reads")


@pytest.mark.python(minimum=(3, 10))
def test_who_waits_is_told(across, any_python, tmp_path):
    """On a terminal, and it is taken away again."""
    target, done = start(any_python, WAITS), tmp_path / "done"
    master, terminal = pty.openpty()
    code = f"import os, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.01)\n\n'it is'"
    with subprocess.Popen(across.command("h1", "write", f"{target.pid}/eval", code), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=terminal, env=across.env) as process:
        os.close(terminal)
        told = b""
        while not re.search(rb"across: 0 of 1 hosts have answered, (?!1 s)\d+ s; Ctrl-C ends it ", told):
            assert select.select([master], [], [], patience(60))[0], told
            told += os.read(master, 4096)
        done.touch()
        assert process.communicate(timeout=patience(60))[0] == b"h1 (1):\n'it is'\n"
    with contextlib.suppress(OSError):  # nobody has the terminal any more
        while more := os.read(master, 4096):
            told += more
    os.close(master)
    assert told.endswith(b"\r\x1b[K")


@pytest.mark.parametrize("engine", ["clush", "pdsh"])
def test_one_that_hangs(across, engine):
    """It is missing, in words; the others' answers are there."""
    if not shutil.which(engine):
        pytest.skip(f"{engine} is not installed")
    for host in "h1", "h2":
        (across.path / host / "here").unlink()
        (across.path / host / "here").mkdir()
    (across.path / "h1" / "here" / "said").write_text("it\n")
    os.mkfifo(across.path / "h2" / "here" / "said")
    said = across("h[1-2]", "-t", str(int(patience(3))), "cat", "said", engine=engine, status=1)
    assert said.stdout == "h1 (1):\nit\n" and re.fullmatch("across: h2: missing: .*time.*\n", said.stderr), said


@pytest.mark.parametrize("engine", ENGINES)
def test_names(across, engine):
    """As each engine itself takes them; nobody is asked twice."""
    named = ["k", "n08", "n09", "n10", "n1x", "n3x"]
    for host in named:
        (across.path / host / "here").mkdir(parents=True)
        (across.path / host / "here" / "said").write_text("same\n")
    first, second = across("n[08-10],n[3,1]x,k,n09", "cat", "said", engine=engine).stdout.splitlines()
    assert second == "same" and sorted(first.partition(" ")[0].split(",")) == named


def test_names_that_only_the_engine_knows(across):
    for host in "h1", "h3x":
        (across.path / host / "said").parent.mkdir(exist_ok=True)
    (across.path / "h1" / "here").unlink()
    (across.path / "h1" / "here").mkdir()
    (across.path / "h1" / "here" / "said").write_text("it\n")
    assert across("h[1-3]!h[2-3]", "cat", "said").stdout == "h1 (1):\nit\n"
    assert "@nowhere" in across("@nowhere", "cat", "said", status=1).stderr
    assert across("h[3-1]", "cat", "said", status=1).stderr and across("h[1-3", "cat", "said", status=1).stderr


def test_whole_names(across):
    for host in ("a.one", "a.two"):
        (across.path / host / "here").mkdir(parents=True)
        (across.path / host / "here" / "said").write_text(f"of {host}\n")
    assert across("a.one,a.two", "cat", "said", engine="pdsh").stdout == "a.one (1):\nof a.one\na.two (1):\nof a.two\n"


def test_backtrace(across):
    """What the hosts say is a file here: ranks of one job on two hosts."""
    two = "rank 2 (1): MainThread [idle]\n  #0 f\n\nrank 3 (1): MainThread [idle]\n  #0 g\n"
    for host, ranks, stacks in ("h1", "0-1", "ranks 0-1 (2): MainThread [idle]\n  #0 g\n"), ("h2", "2-3", two):
        (across.path / host / "here").unlink()
        (across.path / host / "here" / "all").mkdir(parents=True)
        (across.path / host / "here" / "all" / "backtrace").write_text(
            f"2 processes, 3 threads, 1 different stack\nJob a:1: ranks {ranks} of 5, not here: 4\n\n{stacks}")
    assert across("h[1-2]", "backtrace").stdout == (
        "2 hosts, 4 processes, 6 threads, 2 different stacks\nJob a:1: ranks 0-3 of 5, missing: 4\n\n"
        "rank 2 (1): MainThread [idle]\n  #0 f\n\nranks 0-1,3 (3): MainThread [idle]\n  #0 g\n")


@pytest.fixture(scope="module")
def with_duckdb():
    """A Python that has it."""
    python = CACHE / "peers" / "bin" / "python3"
    if not python.exists() or subprocess.run([python, "-c", "import duckdb"], capture_output=True).returncode:
        pytest.skip("DuckDB is not installed (tests/run does, where there is a package index)")
    return [python]


def test_duckdb(across, any_python, with_duckdb):
    """Tables of all hosts in one: joins, columns that nobody has a value in, tables without rows, recorded ones."""
    targets = [any_python.run_source(WAITS, env={"RANK": rank}) for rank in "01"]
    mine = ", ".join(str(target.pid) for target in targets)

    def run(sql, *more, hosts="h[1-2]", **options):
        return across(hosts, "query", "--duckdb", *more, sql, python=with_duckdb, **options)
    said = run(f"SELECT p.rank, count(*) AS n FROM process p JOIN threads t USING (host, pid, rank) WHERE pid IN "
               f"({mine}) "
               "GROUP BY 1 ORDER BY 1", "-f", "json")
    assert json.loads(said.stdout) == [{"rank": 0, "n": 4}, {"rank": 1, "n": 4}]
    assert run(f"SELECT typeof(role) AS r, typeof(cpu_user) AS c, typeof(world) AS w FROM process "
               f"WHERE pid = {targets[0].pid}").stdout == "r,c,w\n" + "VARCHAR,DOUBLE,BIGINT\n" * 2
    said = run("SELECT count(*) AS n, sum(duration) AS s FROM spans WHERE ended > 0 AND name = 'of nobody'")
    assert said.stdout == "n,s\n0,\n"
    said = run("SELECT * FROM nowhere JOIN process USING (pid)", hosts="h[1-3]", status=1)
    assert said.stdout == "" and "across: h3: missing: " in said.stderr
    assert "across: DuckDB: failed: Catalog Error" in said.stderr
    # what is gathered can be kept, and asked again
    file = across.path / "it's.parquet"
    said = across("h[1-2]", "query", f"SELECT pid, 'x' AS x FROM process WHERE pid IN ({mine})", "-o", file,
                  python=with_duckdb)
    assert said.stdout == ""
    kept = file.rename(across.path / "its.parquet")
    assert run(f"SELECT x, count(DISTINCT pid) AS n, count(*) AS rows FROM '{kept}' GROUP BY "
               f"1").stdout == "x,n,rows\nx,2,4\n"
    run(f"SELECT pid FROM process WHERE pid IN ({mine})", "-o", file)
    assert file.read_bytes()[:4] == b"PAR1"


def test_without_duckdb(across):
    for args in ["--duckdb"], ["-o", "x.parquet"]:
        said = across("h1", "query", *args, "SELECT 1", python=[sys.executable, "-S", "-I"], status=1)
        assert "pip install duckdb" in said.stderr and not said.stdout
    assert "the shell's > does" in across("h1", "query", "-o", "x.csv", "SELECT 1", status=2).stderr
    assert "are for query" in across("h1", "cat", "--duckdb", "all/backtrace", status=2).stderr
