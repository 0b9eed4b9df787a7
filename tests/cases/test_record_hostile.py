"""What a process shows as its rings and isn't: the daemon takes none of it, and neither waits nor grows."""
import os
import signal

import pytest

from interpreters import eventually
from recorded import do, recorded, write_spans
from sql import value

pytestmark = [pytest.mark.attack, pytest.mark.python(minimum=(3, 10))]

# what takes the place of the ring of spans
OTHERS = {
    "pipe": "publish('spans', os.pipe()[0])",
    "fifo": "os.mkfifo(path); publish('spans', os.open(path, os.O_RDWR))",
    "zero": "publish('spans', os.open('/dev/zero', os.O_RDONLY))",
    "tty": "publish('spans', os.open('/dev/ptmx', os.O_RDWR))",
    "directory": "publish('spans', os.open('/', os.O_RDONLY))",
    "file": "f = open(path + '.file', 'w+b'); f.truncate(4096 + (1 << 20)); publish('spans', f.fileno())",
    "this mount": "publish('spans', os.open(help, os.O_RDONLY))",
    "memory": "publish('spans', os.open('/proc/self/mem', os.O_RDONLY))",
    "no such": "publish('spans', 999, inode=1)",
    "huge number": "publish('spans', 0x7fffffff, inode=1)",
    "negative": "publish('spans', -77, inode=1)",
    "another inode": "publish('spans', ring.fd, inode=1)",
    "not sealed": "publish('spans', Ring('spans', seals=0).fd)",
    "may shrink": "publish('spans', Ring('spans', seals=fcntl.F_SEAL_GROW).fd)",
    "another table": "publish('spans', Ring('gc').fd)",
    "empty": "publish('spans', os.memfd_create('probefs-ring'))",
    "huge": "fd = os.memfd_create('x'); os.ftruncate(fd, 1 << 46); publish('spans', fd)",
    "always changing": "record.rings[sorted(layouts).index('spans')].change = 77",
}


@pytest.mark.parametrize("what", OTHERS)
def test_is_no_ring(probe, recorded, tmp_path, what):
    target = recorded()
    write_spans(target, 3)
    query = probe.path / str(target.pid) / "query"
    assert value(query, "SELECT count(*) FROM spans") == "3"
    do(target, f"path = {str(tmp_path / 'x')!r}; help = {str(probe.path / 'help')!r}")
    do(target, OTHERS[what])
    assert value(query, "SELECT count(*) FROM spans") == "3"  # what was held still is
    do(target, "ring = Ring('spans'); [span(ring, i) for i in range(7)]")
    do(target, "record.rings[sorted(layouts).index('spans')].change = 100; publish('spans', ring.fd)")
    assert value(query, "SELECT count(*) FROM spans") == "7"
    target.process.kill()


def test_from_the_start(probe, recorded, tmp_path):
    """All of it at once, in a process of which nothing is held."""
    target = recorded()
    do(target, f"path = {str(tmp_path / 'x')!r}; help = {str(probe.path / 'help')!r}; ring = Ring('spans')")
    for what, line in OTHERS.items():
        do(target, line)
        assert value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM spans") == "0", what
    target.process.kill()


def test_changes_all_the_time(probe, recorded):
    """Other rings at each look, by a thread that does nothing else: no descriptor and no mapping stays."""
    target = recorded()
    do(target, "import threading")
    do(target, "both = [Ring('spans', 65536) for _ in range(2)]; [span(r, 1) for r in both]")
    do(target, "exec('def turn():\\n while True:\\n  for r in both: publish(\"spans\", r.fd)')")
    do(target, "threading.Thread(target=turn, daemon=True).start()")
    query = probe.path / str(target.pid) / "query"
    for _ in range(200):
        assert value(query, "SELECT count(*) FROM spans") in "01"
    inodes = {str(os.stat(f"/proc/{target.pid}/fd/{fd}").st_ino) for fd in os.listdir(f"/proc/{target.pid}/fd")}

    def mapped():
        with open(f"/proc/{probe.process.pid}/maps") as maps:
            return sum("probefs-ring" in line and line.split()[4] in inodes for line in maps)
    eventually(lambda: mapped() <= 1, what="the end of what was held before")
    target.process.kill()


def test_says_it_is_another(probe, recorded):
    """The record of a process that was forked still shows its parent's: not the child's rings."""
    target = recorded()
    write_spans(target, 3)
    do(target, "child = os.fork() or (time.sleep(1000), os._exit(0))")
    target.send("print(child)")
    child = int(target.readline())
    target.expect("done")
    try:
        eventually(lambda: (probe.path / str(child)).exists(), what="the child")
        assert value(probe.path / str(child) / "query", "SELECT count(*) FROM spans") == "0"
        assert value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM spans") == "3"
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("what", ["\\0" * 64, "\\xff" * 64])
def test_scribbled_over(probe, recorded, what):
    """The contents are the process's: whatever lies there, before and after its end."""
    target = recorded()
    write_spans(target, 1000)
    query = probe.path / str(target.pid) / "query"
    assert value(query, "SELECT count(*) FROM spans") == "1000"
    do(target, f"[ring.memory.__setitem__(slice(at, at + 64), b'{what}') for at in range(64, 1 << 20, 4096)]")
    assert int(value(query, "SELECT count(*) FROM spans")) <= 1000
    target.process.kill()
    left = probe.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert int(value(left / "query", "SELECT count(*) FROM spans")) <= 1000
    assert (left / "status").read_text()
