"""The table process_samples: what the process uses, while it has the GIL or not."""
import os
import pathlib
import signal
import time

import pytest

import ring_file
from agents import clients, connect, ended, start  # noqa: F401, a fixture
from interpreters import eventually, patience
from recording import links, off, on, tasks

pytestmark = pytest.mark.python(minimum=(3, 10))


def proc(pid):
    """What /proc says of it."""
    directory = pathlib.Path(f"/proc/{pid}")
    stat = (directory / "stat").read_text().rpartition(")")[2].split()
    switches = [0, 0]
    for task in (directory / "task").iterdir():
        lines = (task / "status").read_text().splitlines()
        switches = [n + int(line.split()[1]) for n, line in zip(switches, lines[-2:])]
    tick = os.sysconf("SC_CLK_TCK")
    return dict(minor_faults=int(stat[7]), major_faults=int(stat[9]), cpu_user=int(stat[11]) / tick,
                cpu_system=int(stat[12]) / tick, threads=int(stat[17]),
                rss=int(stat[21]) * os.sysconf("SC_PAGE_SIZE"), voluntary_switches=switches[0],
                involuntary_switches=switches[1])


def test_process(any_python):
    """One row at once and one a second, each between what /proc says before and after."""
    target = start(any_python, """
        import mmap, probing, sys, threading, time
        area = mmap.mmap(-1, 32 << 20)
        area[:] = bytes(len(area))
        def work():
            while True:
                area[:] = bytes(len(area))
                time.sleep(0.1)
        threading.Thread(target=work, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    before, began = proc(target.pid), time.time()
    on(client, "process_samples")
    first = ring_file.wait_rows(target.pid, "process_samples", 1)
    assert first[0].ts - began < patience(1)
    ring_file.wait_rows(target.pid, "process_samples", 4)
    rows, after = ring_file.rows(target.pid, "process_samples"), proc(target.pid)
    assert rows[0] == first[0] and began - 0.1 < rows[0].ts and rows[-1].ts < time.time() + 0.1
    assert 0.9 < (rows[-1].ts - began) / (len(rows) - 1) < patience(2)  # one that is late makes the next one soon
    for column in ("minor_faults", "major_faults", "voluntary_switches", "involuntary_switches", "cpu_user",
                   "cpu_system"):
        values = [before[column], *(row[column] for row in rows), after[column]]
        slack = 0.02 if column.startswith("cpu") else 0
        assert all(a <= b + slack for a, b in zip(values, values[1:])), (column, values)
    assert all(row.threads == after["threads"] == len(tasks(target.pid)) for row in rows)
    assert all(4 << 20 < row.rss < 256 << 20 for row in rows) and max(row.rss for row in rows) > 32 << 20
    assert rows[-1].voluntary_switches > rows[0].voluntary_switches
    off(client, "process_samples")
    target.close()


def test_process_signals(any_python):
    """Its thread takes no signal of the program."""
    target = start(any_python)
    client = connect(target)
    on(client, "process_samples")
    eventually(lambda: "probe-sampler" in tasks(target.pid))
    tid = next(int(tid) for tid in os.listdir(f"/proc/{target.pid}/task")
               if pathlib.Path(f"/proc/{target.pid}/task/{tid}/comm").read_text() == "probe-sampler\n")
    status = pathlib.Path(f"/proc/{target.pid}/task/{tid}/status").read_text()
    mask = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    assert all(mask >> (number - 1) & 1
               for number in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP})
    assert ended(target) == 0


def test_process_descriptors(any_python):
    """A program that closes what it doesn't know, and puts its own files there, keeps them."""
    target = start(any_python)
    client = connect(target)
    client.eval("import os; here = {int(n) for n in os.listdir('/proc/self/fd')}")
    on(client, "process_samples")
    ring_file.wait_rows(target.pid, "process_samples", 1)
    client.eval("stat = next(int(n) for n in os.listdir('/proc/self/fd') if int(n) not in here and\n"
                "    os.path.exists(f'/proc/self/fd/{n}') and os.readlink(f'/proc/self/fd/{n}').endswith('/stat'))")
    client.eval("zero = os.open('/dev/zero', 0); os.dup2(zero, stat); os.close(zero)")
    seen = len(ring_file.rows(target.pid, "process_samples"))
    rows = ring_file.wait_rows(target.pid, "process_samples", seen + 2)
    assert all(row.threads for row in rows)
    off(client, "process_samples")
    assert client.eval("os.read(stat, 1)").text == r"b'\x00'" + "\n"
    assert not any(link.endswith("/stat") for link in links(target.pid).values())
    assert ended(target) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="wants root")
def test_process_without_proc(any_python, tmp_path):
    """In a root without /proc there is what the kernel says itself; one that was opened before is kept."""
    target = start(any_python)
    client = connect(target)
    client.eval("import os; outside = os.open('/', os.O_RDONLY)")
    on(client, "process_samples")
    ring_file.wait_rows(target.pid, "process_samples", 1)
    client.eval(f"os.chroot({str(tmp_path)!r}); os.mkdir('/proc'); os.mkdir('/proc/self'); "
                f"os.mkfifo('/proc/self/stat')")
    rows = ring_file.wait_rows(target.pid, "process_samples", 3)
    assert all(row.threads for row in rows)
    off(client, "process_samples")
    seen = len(ring_file.rows(target.pid, "process_samples"))  # it may have gone on meanwhile
    on(client, "process_samples")
    last = ring_file.wait_rows(target.pid, "process_samples", seen + 2)[-1]
    assert last.threads is None and last.rss is None and last.minor_faults > 0
    assert ended(target) == 0
