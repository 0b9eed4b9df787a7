"""What is left of processes that recorded something and have ended: exited/<pid>/."""
import errno
import os
import signal
import subprocess
import time

import pytest

from interpreters import eventually, patience
from recorded import do, recorded, write_spans
from sql import RECORDED, ask, columns, value

pytestmark = pytest.mark.python(minimum=(3, 10))

FILES = {"status", "query", "tables", "exceptions.top", "profile"}  # and crash, where there was one
TABLES = {f"{name}.csv" for name in RECORDED | {"profile", "profile_stacks", "tables", "columns"}}


def failure(function, *args):
    with pytest.raises(OSError) as error:
        function(*args)
    return error.value.errno


def end(target, number=signal.SIGKILL):
    target.process.send_signal(number)
    target.process.wait()


def left(probe, target):
    """The directory of what a process left, once it is there."""
    top = probe.path / "exited" / str(target.pid)
    eventually(top.exists, what="a directory in exited/")
    return top


def status(top):
    return dict(line.split(": ", 1) for line in (top / "status").read_text().splitlines())


def test_rows_outlive_the_process(probe, recorded):
    target = recorded()
    write_spans(target, 1000)
    before = ask(probe.path / str(target.pid) / "query", "SELECT * FROM spans")
    assert len(before) == 1000
    end(target)
    top = left(probe, target)
    assert set(os.listdir(top)) == FILES
    assert set(os.listdir(top / "tables")) == TABLES
    assert str(target.pid) in os.listdir(probe.path / "exited")
    assert str(target.pid) not in os.listdir(probe.path)
    assert ask(top / "query", "SELECT * FROM spans") == before
    assert len((top / "tables" / "spans.csv").read_text().splitlines()) == 1001
    assert (top / "tables" / "gc.csv").read_text() == ",".join(name for name, _ in columns("gc")) + "\n"
    assert value(top / "query", "SELECT kept FROM tables WHERE name = 'spans'") == "1000"


def test_status(probe, recorded):
    target = recorded(env={"RANK": "3"})
    write_spans(target, 10)
    alive = status(probe.path / str(target.pid))
    end(target, signal.SIGTERM)
    said = status(left(probe, target))
    for key in "Pid", "Python", "Executable", "Cmdline", "Uid", "Gid", "Started", "Rank":
        assert said[key] == alive[key], key
    assert said["Exit"] == "signal 15 SIGTERM"
    assert said["Record"] == "spans on 1048576 rows=10 lost=0"
    assert abs(time.time() - time.mktime(time.strptime(said["Ended"][:19], "%Y-%m-%dT%H:%M:%S"))) < 60


def test_exit_status(probe, recorded):
    target = recorded()
    write_spans(target, 1)
    os.stat(probe.path / str(target.pid))
    target.send("os._exit(7)")
    target.process.wait()
    assert status(left(probe, target))["Exit"] == "status 7"


def test_nobody_waited(probe, recorded):
    """A zombie has ended."""
    target = recorded()
    write_spans(target, 1)
    os.stat(probe.path / str(target.pid))
    target.process.send_signal(signal.SIGKILL)
    assert status(left(probe, target))["Exit"] == "signal 9 SIGKILL"
    target.process.wait()
    assert ask(probe.path / "exited" / str(target.pid) / "query", "SELECT count(*) n FROM spans") == [{"n": "1"}]


def test_passive_tables(probe, recorded):
    target = recorded()
    write_spans(target, 1)
    os.stat(probe.path / str(target.pid))
    end(target)
    query = left(probe, target) / "query"
    with open(query, "r+b", buffering=0) as both:
        assert failure(both.write, b"SELECT * FROM threads\n") == errno.ESRCH
        words = both.read().decode()
        assert words == "error: the process has ended; what was recorded of it can be asked: " + \
            ", ".join(sorted(RECORDED)) + "\n"
    assert query.read_text()  # the last reply, to whoever asks later
    # recorded beside passive ones, too
    assert failure(query.write_text, "SELECT * FROM spans JOIN threads USING (tid)\n") == errno.ESRCH
    assert value(query, "SELECT count(*) FROM spans JOIN columns ON table_name = 'spans'") == str(len(columns("spans")))


def test_nothing_recorded(probe, any_python):
    target = any_python.run("spinner.py")
    os.stat(probe.path / str(target.pid))
    end(target)
    with pytest.raises(FileNotFoundError):
        os.stat(probe.path / "exited" / str(target.pid))


def test_killed_while_it_writes(probe, recorded):
    """The rows are whole, in order, and the last ones are there: those that it had said it wrote."""
    target = recorded()
    do(target, "ring = open_ring('spans', 65536)")
    os.stat(probe.path / str(target.pid))
    do(target, "n = 0")
    target.send("exec('while True:\\n n += 1\\n span(ring, n)\\n if n % 1000 == 0: print(n, flush=True)')")
    for _ in range(20):
        said = int(target.readline())
    end(target)
    rows = ask(left(probe, target) / "query", "SELECT id, name, duration FROM spans")
    numbers = [int(row["id"]) for row in rows]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[-1] >= said
    assert {(row["name"], row["duration"]) for row in rows} == {("step", "0.5")}


def test_larger_ring_takes_its_place(probe, recorded):
    target = recorded()
    write_spans(target, 5)
    query = probe.path / str(target.pid) / "query"
    assert value(query, "SELECT count(*) FROM spans") == "5"
    do(target, "ring = open_ring('spans', 4 << 20); [span(ring, i) for i in range(8)]")
    assert value(query, "SELECT count(*) FROM spans") == "8"
    do(target, "publish('spans', -1, inode=0, on=0)")
    assert value(query, "SELECT count(*) FROM spans") == "8"


def test_daemon_is_killed(probe, recorded):
    """The rings are the process's: a new daemon finds all rows."""
    target = recorded()
    write_spans(target, 100)
    assert value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM spans") == "100"
    probe.kill()
    do(target, "[span(ring, i) for i in range(50)]")
    probe.start()
    assert value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM spans") == "150"
    end(target)
    assert value(left(probe, target) / "query", "SELECT count(*) FROM spans") == "150"


def test_rmdir(probe, recorded):
    target = recorded()
    write_spans(target, 1)
    os.stat(probe.path / str(target.pid))
    assert failure(os.rmdir, probe.path / str(target.pid)) == errno.EPERM
    assert failure(os.rmdir, probe.path / "exited") == errno.EPERM
    end(target)
    top = left(probe, target)
    assert failure(os.rmdir, top / "tables") == errno.EPERM
    assert failure(os.unlink, top / "status") == errno.EPERM
    table = open(top / "tables" / "spans.csv")
    directory = os.open(top, os.O_RDONLY)
    os.rmdir(top)
    assert failure(os.rmdir, top) == errno.ENOENT
    assert failure(os.stat, top) == errno.ENOENT
    assert str(target.pid) not in os.listdir(probe.path / "exited")
    assert len(table.read().splitlines()) == 2  # what its open saw
    with pytest.raises(OSError):
        os.open("status", os.O_RDONLY, dir_fd=directory)
    table.close()
    os.close(directory)


def test_exec(probe, recorded, any_python):
    """The program that was is in exited/, while the process runs the next one."""
    target = recorded()
    write_spans(target, 3)
    os.stat(probe.path / str(target.pid))
    target.send(f"os.execv({str(any_python.executable)!r}, ['python', '-c', 'import time; print(1, flush=True); "
                f"time.sleep(1000)'])")
    target.readline()
    eventually(lambda: "-c" in (probe.path / str(target.pid) / "status").read_text(), what="the new program")
    top = left(probe, target)
    assert status(top)["Exit"] == "executed another program"
    assert value(top / "query", "SELECT count(*) FROM spans") == "3"
    assert value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM spans") == "0"
    end(target)


def as_nobody(*command):
    return subprocess.run(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *map(str, command)],
                          capture_output=True, text=True, timeout=patience(60))


def test_other_user(probe, recorded, nobody):
    mount = probe.mount("allow_other")
    mine, theirs = recorded(), recorded(user=nobody)
    for target in mine, theirs:
        write_spans(target, 2)
        os.stat(mount.path / str(target.pid))
        end(target)
        left(mount, target)

    exited = mount.path / "exited"
    seen = as_nobody("ls", exited).stdout.split()
    assert str(theirs.pid) in seen and str(mine.pid) not in seen
    for name in "", "status", "tables/spans.csv", "query":
        assert "No such file" in as_nobody("ls", exited / str(mine.pid) / name).stderr
    assert "No such file" in as_nobody("rmdir", exited / str(mine.pid)).stderr
    st = os.stat(exited / str(theirs.pid))
    assert (st.st_mode & 0o7777, st.st_uid) == (0o500, os.stat(exited / str(theirs.pid) / "status").st_uid)
    assert st.st_uid != 0 and os.stat(exited / str(mine.pid)).st_uid == 0
    assert len(as_nobody("cat", exited / str(theirs.pid) / "tables" / "spans.csv").stdout.splitlines()) == 3
    assert as_nobody("rmdir", exited / str(theirs.pid)).returncode == 0
    left_there = os.listdir(exited)
    assert str(mine.pid) in left_there and str(theirs.pid) not in left_there


def test_names_are_shown(probe, recorded, nobody):
    """hidepid=0: the names can be seen, and nothing else."""
    mount = probe.mount("allow_other", "hidepid=0")
    mine = recorded()
    write_spans(mine, 2)
    os.stat(mount.path / str(mine.pid))
    end(mine)
    top = left(mount, mine)
    assert set(as_nobody("ls", top).stdout.split()) == FILES
    for name in "status", "query", "tables/spans.csv":
        assert "Permission denied" in as_nobody("cat", top / name).stderr
    assert "Permission denied" in as_nobody("rmdir", top).stderr
    assert ask(top / "query", "SELECT count(*) n FROM spans") == [{"n": "2"}]


@pytest.mark.parametrize("how", [
    "import ctypes; ctypes.CDLL(None).prctl(4, 0)",  # PR_SET_DUMPABLE
    "os.setresuid(1, 65534, 65534)",
])
def test_not_only_its_users(probe, recorded, nobody, how):
    """Whoever could have looked at the process at its strictest moment may look at what it left."""
    mount = probe.mount("allow_other")
    target = recorded(user=nobody) if "prctl" in how else recorded()
    write_spans(target, 2)
    assert os.stat(mount.path / str(target.pid))
    do(target, how)
    time.sleep(1.1)  # what is known of it is that old
    os.stat(mount.path / str(target.pid))
    end(target)
    top = left(mount, target)
    assert os.stat(top).st_uid == 0
    assert "No such file" in as_nobody("ls", top).stderr
    assert ask(top / "query", "SELECT count(*) n FROM spans") == [{"n": "2"}]


def test_too_large(probe, recorded):
    target = recorded()
    do(target, "ring = open_ring('spans', 300 << 20); span(ring, 1)")
    assert value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM spans") == "1"
    end(target)
    top = left(probe, target)
    assert status(top)["Record"] == "nothing kept, it was more than 256 MiB"
    assert value(top / "query", "SELECT count(*) FROM spans") == "0"
