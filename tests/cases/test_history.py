"""-o history=FILE: what is appended to it, who reads it, and what a disk or a kill -9 does to it."""
import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import textwrap
import time

import pytest

import mount as daemon
import readers
from commands import Commands
from interpreters import eventually, patience
from sql import ask, columns, refused, settle
from test_mount import probefs

pytestmark = pytest.mark.python(minimum=(3, 10))

# raises numbered exceptions, 25 a second, as many as a line says
RAISES = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    for i in range(*map(int, line.split())):
        try:
            raise LookupError(str(i))
        except LookupError:
            pass
        time.sleep(0.04)
    print("done", flush=True)
"""


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(prefix="probefs-history-") as path:
        yield pathlib.Path(path)


def rows(file, sql, *args):
    """What any other program sees while the daemon runs."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql, args)]


def one_row(file, sql, *args):
    return eventually(lambda: rows(file, sql, *args), 60, f"rows of {sql}")[0]


def sound(file):
    assert rows(file, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_samples_and_events(probe, any_python, directory):
    """What it says of a process is what /proc says, and its end is there."""
    file = directory / "x.db"
    shown = probe.mount(f"history={file}", "history_interval=1s")
    assert file.stat().st_mode & 0o777 == 0o600
    target = any_python.run_source(textwrap.dedent("""
        import sys
        area = bytes(range(256)) * (256 << 10)
        sum(i * i for i in range(3_000_000))
        print("ready", flush=True)
        sys.stdin.read()
        sys.exit(7)
        """), env={"RANK": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"})
    settle(target)
    began = time.time()
    sample = one_row(file, "SELECT * FROM samples WHERE pid = ? AND ts > ?", target.pid, began)
    fields = pathlib.Path(f"/proc/{target.pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    assert (sample["host"], sample["rank"], sample["job"]) == (os.uname().nodename, 3, "10.0.0.1:29500")
    assert (sample["uid"], sample["gid"]) == ((0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid()))
    assert sample["state"] == "S" and sample["threads"] == int(fields[17]) == 1
    assert sample["rss"] == int(fields[21]) * os.sysconf("SC_PAGE_SIZE") > 64 << 20
    assert (sample["cpu_user"], sample["cpu_system"]) == (int(fields[11]) / tick, int(fields[12]) / tick)
    assert (sample["running"], sample["gil_held"], sample["gil_waiting"]) == (0, 0, 0)
    target.process.stdin.close()
    end = one_row(file, "SELECT * FROM events WHERE pid = ? AND kind = 'exit'", target.pid)
    start = one_row(file, "SELECT * FROM events WHERE pid = ? AND kind = 'start'", target.pid)
    assert json.loads(end["line"])["status"] == 7 and end["ts"] == json.loads(end["line"])["ts"]
    assert target.script in json.loads(start["line"])["command"] and start["ts"] < began < end["ts"]
    sound(file)
    assert f"File: {file}\n" in shown.read("history") and "Error:" not in shown.read("history")


@pytest.mark.parametrize("reader", [readers.pandas_sql, readers.sqlite3])
def test_read_meanwhile(probe, any_python, directory, reader):
    """By programs that know nothing of us, as it is appended to. DuckDB's reader of SQLite comes by the network, from
    its own makers alone."""
    file = directory / "x.db"
    probe.mount(f"history={file}", "history_interval=1s")
    target = any_python.run_source("import sys; print('ready', flush=True); sys.stdin.read()")
    sql = f"SELECT host, pid, state, rss, gil_held, ts FROM samples WHERE pid = {target.pid} ORDER BY ts"
    found = eventually(lambda: (said := reader(file, sql)) and len(said) > 1 and said, patience(60), "two samples")
    kept = rows(file, sql)[:len(found)]
    for one, other in zip(found, kept):
        assert float(one.pop("ts")) == pytest.approx(other.pop("ts"), abs=1e-3)
        assert {name: str(value) for name, value in one.items()} == {name: str(value) for name, value in other.items()}
    more = eventually(lambda: (said := reader(file, sql)) and len(said) > len(found) and said, patience(60),
                      "a further one")
    assert [row["rss"] for row in more[:len(found)]] == [row["rss"] for row in found]


def test_gil(probe, any_python, directory):
    """Who waits for the GIL is counted."""
    file = directory / "x.db"
    probe.mount(f"history={file}", "history_interval=1s")
    target = any_python.run_source(textwrap.dedent("""
        import sys, threading
        sys.setswitchinterval(1000)  # who has it keeps it
        print("ready", flush=True)
        def spin():
            while True:
                pass
        threading.Thread(target=spin, daemon=True).start()
        """), ready=False)
    one_row(file, "SELECT * FROM samples WHERE pid = ? AND gil_held = 1 AND running = 1 AND gil_waiting = 1",
            target.pid)


def test_profile(probe, any_python, directory):
    """What was sampled is there when the process has ended, and sums up to what it used."""
    file = directory / "x.db"
    shown = probe.mount(f"history={file}", "history_interval=1s")
    target = any_python.run_source(textwrap.dedent("""
        import sys, time
        def spin(until):
            while time.process_time() < until:
                pass
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        spin(begun + 2)
        print(time.process_time() - begun, flush=True)
        """))
    Commands(shown, target.pid).run("ctl", "profile cpu\n")
    target.send("")
    used = float(target.readline(60))
    row = one_row(file, "SELECT sum(weight) AS ns, sum(samples) AS n FROM profile WHERE pid = ? AND mode = 'cpu' "
                        "AND stack LIKE '%<module>%;spin (%' HAVING ns > ?", target.pid, 0.8e9 * used)
    assert row["ns"] / 1e9 == pytest.approx(used, rel=0.2) and row["n"] > 20
    assert rows(file, "SELECT DISTINCT tid FROM profile WHERE pid = ?", target.pid) == [{"tid": target.pid}]
    assert not rows(file, "SELECT * FROM profile WHERE pid = ? AND coalesce(thread, '') = ''", target.pid)


def test_kill_9(probe, any_python, directory):
    """A daemon that is killed leaves a sound file, and the next one goes on: each exception is there, and once."""
    file = directory / "x.db"
    shown = probe.mount(f"history={file}", "history_interval=1s")
    target = any_python.run_source(RAISES)
    commands = Commands(shown, target.pid)
    commands.run("ctl", "record exceptions on\n")
    target.send("0 250")
    for ends in 100, 200:
        one_row(file, "SELECT 1 FROM exceptions WHERE pid = ? AND message = ?", target.pid, str(ends - 30))
        shown.kill()
        sound(file)
        shown.start()
    target.expect("done", 60)
    target.send("250 300")
    target.expect("done", 60)
    one_row(file, "SELECT 1 FROM exceptions WHERE pid = ? AND message = '299'", target.pid)
    found = rows(file, "SELECT * FROM exceptions WHERE pid = ? ORDER BY ts", target.pid)
    assert [row["message"] for row in found if row["type"] == "LookupError"] == [str(i) for i in range(300)]
    assert {(row["func"], row["lineno"]) for row in found} == {("<module>", 7)}
    assert [name for name in found[0]][6:] == [name for name, _ in columns("exceptions")]
    assert len(rows(file, "SELECT * FROM events WHERE pid = ? AND kind = 'start'", target.pid)) == 1
    sound(file)


def test_asked_in_sql(probe, any_python, directory, nobody):
    """history.NAME in all/query: root sees all of it, others what is theirs, nobody anything else of the file."""
    file = directory / "x.db"
    shown = probe.mount(f"history={file}", "history_interval=1s", "allow_other")
    own, foreign = (any_python.run_source("import sys; print('ready', flush=True); sys.stdin.read()", user=user)
                    for user in (nobody, None))
    for target in own, foreign:
        one_row(file, "SELECT * FROM samples WHERE pid = ?", target.pid)
    query = shown.path / "all" / "query"
    said = ask(query, "SELECT pid, state, ts FROM history.samples ORDER BY ts DESC")
    assert {int(row["pid"]) for row in said} >= {own.pid, foreign.pid}
    kept = [row["ts"] for row in rows(file, "SELECT ts FROM samples ORDER BY ts DESC")]
    assert [float(row["ts"]) for row in said] == pytest.approx(kept[-len(said):], abs=1e-4)
    joined = ask(query, f"""SELECT p.pid, count(*) AS n FROM process p JOIN history.samples s ON s.pid = p.pid
                            WHERE s.ts > 1e9 AND s.host = p.host AND p.pid = {own.pid} GROUP BY 1""")
    assert [int(row["pid"]) for row in joined] == [own.pid] and int(joined[0]["n"]) >= 1
    assert ask(query, "SELECT count(*) AS n FROM events")[0]["n"] == "0", "of the live table there are none"
    assert int(ask(query, "SELECT count(*) AS n FROM history.events")[0]["n"]) >= 2

    def as_nobody(sql):
        script = 'exec 3<>"$1"; echo "$2" >&3; cat <&3'
        return subprocess.run(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "bash", "-c", script,
                               "bash", query, sql], capture_output=True, text=True, timeout=patience(60)).stdout
    assert as_nobody("SELECT DISTINCT pid FROM history.samples") == f"pid\n{own.pid}\n"
    assert as_nobody(f"SELECT count(*) FROM history.events WHERE pid = {foreign.pid} OR uid = 0") == "count(*)\n0\n"
    for sql, words in (("SELECT * FROM history.followed\n", "no such table"),
                       (f"ATTACH '{file}' AS mine", "only reading"),
                       ("DELETE FROM history.samples", "may not be modified"),
                       ("DROP TABLE history.samples", "only reading")):
        assert words in refused(query, sql)[1]
    assert "all/query" in refused(shown.path / str(own.pid) / "query", "SELECT * FROM history.samples\n")[1]
    assert "-o history" in refused(probe.path / "all" / "query", "SELECT * FROM history.samples\n")[1]


@pytest.mark.alone
def test_full_disk(probe, any_python, directory):
    """It is said in words and nothing hangs; once there is room again it goes on, without a gap in what rings hold."""
    disk = directory / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "none", disk], check=True)
    try:
        file = disk / "x.db"
        shown = probe.mount(f"history={file}", "history_interval=1s")
        target = any_python.run_source(RAISES)
        Commands(shown, target.pid).run("ctl", "record exceptions on\n")
        one_row(file, "SELECT * FROM samples WHERE pid = ?", target.pid)
        with open(disk / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass
        target.send("0 50")
        said = eventually(lambda: (text := shown.read("history")) and "Error: no space left" in text and text, 60,
                          "words about a full disk")
        assert int(said.partition("Samples lost: ")[2].split()[0]) > 0
        assert target.pid in map(int, filter(str.isdigit, os.listdir(shown.path)))
        target.expect("done", 60)
        (disk / "filler").unlink()
        one_row(file, "SELECT 1 FROM exceptions WHERE pid = ? AND message = '49'", target.pid)
        found = rows(file, "SELECT message FROM exceptions WHERE type = 'LookupError' ORDER BY ts")
        assert [row["message"] for row in found] == [str(i) for i in range(50)]
        eventually(lambda: "Error:" not in shown.read("history"), what="what it says once that is appended")
        assert shown.log().count("no space left") == 1 and shown.log().count("goes on") == 1
        sound(file)
        shown.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_refusals(directory):
    """A file that won't do is refused before anything is mounted, and left as it is."""
    path = directory / "mount"
    path.mkdir()
    (directory / "text").write_text("no database at all, but long enough to be told from one" * 100)
    with sqlite3.connect(directory / "other.db") as db:
        db.execute("CREATE TABLE t(x)")
    (directory / "open").mkdir(mode=0o777)
    (directory / "open").chmod(0o777)
    (directory / "link").symlink_to("somewhere")
    before = (directory / "text").read_bytes(), (directory / "other.db").read_bytes()
    for option, words in ((f"history={directory}/none/x.db", "no such directory"),
                          (f"history={directory}/open/x.db", "others may write"),
                          (f"history={directory}/text", "no SQLite database"),
                          (f"history={directory}/other.db", "some other program's database"),
                          (f"history={directory}/link", "symbolic link"),
                          (f"history={path}/x.db", "below the mount point"),
                          (f"history={directory}/", "names no file"),
                          (f"history={directory}/x.db,history_age=3", "history_age takes"),
                          (f"history={directory}/x.db,history_size=5K", "history_size takes"),
                          ("history_size=5M", "name a file")):
        said = probefs("-o", option, path)
        assert said.returncode != 0 and words in said.stderr, (option, said.stderr)
        assert not os.path.ismount(path)
    assert before == ((directory / "text").read_bytes(), (directory / "other.db").read_bytes())
    first = daemon.Probe(f"history={directory}/x.db", at=path)
    try:
        second = directory / "second"
        second.mkdir()
        assert "another daemon appends to it" in probefs("-o", f"history={directory}/x.db", second).stderr
    finally:
        first.close()
