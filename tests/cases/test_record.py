"""What the agent records, asked for in its own protocol: rings that come and go, the tables gc and
process_samples, and that nothing of it stays in the program."""
import contextlib
import errno
import os
import pathlib
import signal
import time

import pytest

import agent_client as agent
import ring_file
from agents import LIBRARY, NAME, clients, connect, ended, start
from commands import Commands
from interpreters import eventually

pytestmark = pytest.mark.python(minimum=(3, 10))

AGAIN = """
import probing, sys
print("ready", flush=True)
for line in sys.stdin:
    probing.start()
"""

BY_ITSELF = {"spans", "events"}  # from their first row on
DEFAULT, MINIMUM, MAXIMUM = 4 << 20, 64 << 10, 1 << 30


def places(client):
    return client.record.read().rings


def links(pid):
    """What each descriptor is."""
    return [os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()]


def rings_of(pid):
    """How many descriptors of rings it has."""
    return sum(link.startswith(ring_file.NAME) for link in links(pid))


def tasks(pid):
    return sorted(pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
                  for tid in os.listdir(f"/proc/{pid}/task"))


def again(target):
    """The agent that follows one that was detached."""
    record = agent.Record(target.pid, LIBRARY, NAME)
    eventually(lambda: record.read().state == agent.ENDED)
    target.send("start")
    return connect(target)


def on(client, table, **options):
    """Switches it on; the same answer is how the next request finds it."""
    answer = client.switch(table, **options)
    assert answer.error == 0, answer.words
    place = places(client)[table]
    assert place["on"] == 1 and place["change"] % 2 == 0 and place["error"] == 0
    assert os.stat(f"/proc/{client.pid}/fd/{place['fd']}").st_ino == place["inode"]
    return answer


def off(client, table):
    answer = client.switch(table, agent.OFF)
    assert answer.error == 0, answer.words
    assert places(client)[table]["on"] == 0
    return answer


# ---- the rings ----

def test_places(python):
    """The record says where the rings are, and each change of it is told."""
    target = start(python)
    client = connect(target)
    assert all(place["on"] == (table in BY_ITSELF) and place["fd"] == -1
               for table, place in places(client).items())
    assert client.status()["rings"] == 0 and rings_of(target.pid) == 0
    on(client, "process_samples")
    on(client, "gc", size=1 << 20)
    told = client.rings_told
    assert told >= 2
    assert client.status()["rings"] >= DEFAULT + (1 << 20)
    assert places(client)["gc"]["size"] == 1 << 20
    assert places(client)["process_samples"]["size"] == DEFAULT
    off(client, "gc")
    assert places(client)["gc"]["fd"] >= 0  # the rows stay
    assert client.rings_told > told
    with ring_file.find(target.pid, "gc") as ring:
        assert ring.size == 1 << 20 and ring.pid == target.pid and ring.rows == []
    assert ended(target) == 0


def test_bad_requests(any_python):
    target = start(any_python)
    client = connect(target)
    for options, error in ((dict(table="gc", size=MINIMUM - 1), errno.EINVAL),
                           (dict(table="gc", size=MAXIMUM + 1), errno.EINVAL),
                           (dict(table="gc", size=2**64 - 1), errno.EINVAL),
                           (dict(table="gc", rate=0.5), errno.EINVAL),
                           (dict(table="gc", rate=-1.0), errno.EINVAL),
                           (dict(table="gc", rate=float("nan")), errno.EINVAL),
                           (dict(table="gc", action=0), errno.EINVAL),
                           (dict(table="gc", action=3), errno.EINVAL),
                           (dict(table="gc", interp=99), errno.ENOENT),
                           (dict(table=len(agent.TABLES)), errno.EOPNOTSUPP),
                           (dict(table=2**32 - 1), errno.EOPNOTSUPP)):
        answer = client.switch(**options)
        assert answer.error == error and answer.words, options
        assert {table for table, place in places(client).items() if place["on"]} == BY_ITSELF
    assert ended(target) == 0


def test_no_room(any_python):
    """What can't be had is said, and nothing has happened."""
    target = start(any_python)
    client = connect(target)
    client.eval("import resource")
    client.eval("resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))")
    for table in ("gc", "process_samples"):
        answer = client.switch(table)
        assert answer.error == errno.EFBIG and "4096 KiB" in answer.words
        assert places(client)[table]["fd"] == -1
    client.eval("resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)")
    client.eval("resource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))")
    assert client.switch("gc").error == errno.EMFILE
    client.eval("resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))")
    on(client, "gc")
    assert ended(target) == 0


def test_resize(python):
    """Rows are kept, in either direction; what is replaced is given back."""
    target = start(python)
    client = connect(target)
    client.eval("import gc; gc.disable()")
    on(client, "gc", size=MINIMUM)
    for generation in (0, 1, 2):
        client.eval(f"gc.collect({generation})")
    for size in (1 << 20, MINIMUM, 1 << 20, DEFAULT) * 10:
        on(client, "gc", size=size)
        assert places(client)["gc"]["size"] == size
        with ring_file.find(target.pid, "gc") as ring:
            assert ring.size == size and [row.generation for row in ring.rows] == [0, 1, 2]
        assert rings_of(target.pid) == 1
    assert client.status()["rings"] < DEFAULT + (1 << 20)
    on(client, "gc")  # as it is
    assert places(client)["gc"]["size"] == DEFAULT
    off(client, "gc")
    on(client, "gc")
    client.eval("gc.collect(0)")
    assert [row.generation for row in ring_file.rows(target.pid, "gc")] == [0, 1, 2, 0]
    assert ended(target) == 0


def test_resize_too_often(any_python):
    """Without Python nobody knows that no thread has an old one in hand: so many are kept, and no more."""
    target = start(any_python)
    client = connect(target)
    errors = [client.switch("process_samples", size=(i % 2 + 1) * MINIMUM).error for i in range(30)]
    assert errors[:16] == [0] * 16 and errors[-1] == errno.EBUSY
    assert client.status()["rings"] < 1 << 20
    assert places(client)["process_samples"]["on"] == 1  # as before
    off(client, "process_samples")  # its thread has ended
    on(client, "process_samples", size=1 << 20)
    assert client.detach().error == 0
    eventually(lambda: rings_of(target.pid) == 0)
    assert ended(target) == 0


def test_gil_held(python):
    """Switching on waits for the GIL, and can be given up; what needs none, and the end of writing, don't."""
    target = start(python)
    client = connect(target)
    client.eval("import ctypes")
    on(client, "gc")
    running = client.start("ctypes.PyDLL(None).usleep(3_000_000)")
    client.wait_started(running)
    begin = time.monotonic()
    on(client, "process_samples")
    assert ring_file.wait_rows(target.pid, "process_samples", 2)
    wanted = client.start_switch("gc", agent.OFF)
    eventually(lambda: places(client)["gc"]["on"] == 0)
    client.cancel(wanted)
    assert client.wait(wanted).error == errno.ECANCELED
    off(client, "process_samples")
    assert time.monotonic() - begin < 3
    assert client.answers[running].done is None
    client.wait(running)
    assert client.eval("import gc; len(gc.callbacks)").text == "1\n"  # it does nothing
    off(client, "gc")
    assert client.eval("gc.callbacks").text == "[]\n"
    assert ended(target) == 0


def test_on_and_off(python):
    """From all sides at once: the last one wins, and nothing is left."""
    target = start(python)
    client = connect(target)
    client.eval("import gc")
    for _ in range(20):
        asked = [client.start_switch(table, action) for action in (agent.ON, agent.ON, agent.OFF, agent.ON)
                 for table in ("gc", "process_samples")]
        assert all(client.wait(number).error == 0 for number in asked)
        assert client.eval("len(gc.callbacks)").text == "1\n"
        eventually(lambda: tasks(target.pid).count("probe-sampler") == 1)  # it names itself
        off(client, "gc")
        off(client, "process_samples")
        assert client.eval("gc.callbacks").text == "[]\n"
        assert "probe-sampler" not in tasks(target.pid)
    assert ended(target) == 0


def test_daemon_gone(python):
    """It is a flight recorder: nobody has to listen. The next daemon finds it as it is."""
    target = start(python)
    client = connect(target)
    client.eval("import gc, threading, time; gc.disable()")
    on(client, "gc")
    on(client, "process_samples")
    asked = client.start("threading.Thread(target=lambda: (time.sleep(0.5), gc.collect(1)), daemon=True).start()")
    client.wait(asked)
    client.close()
    assert [row.generation for row in ring_file.wait_rows(target.pid, "gc", 1)] == [1]
    seen = len(ring_file.rows(target.pid, "process_samples"))
    ring_file.wait_rows(target.pid, "process_samples", seen + 1)
    client = connect(target)
    assert [table for table, place in places(client).items() if place["fd"] >= 0] == ["gc", "process_samples"]
    on(client, "gc")
    client.eval("gc.collect(2)")
    assert [row.generation for row in ring_file.rows(target.pid, "gc")] == [1, 2]
    off(client, "gc")
    assert ended(target) == 0


def test_first_use(python):
    """Spans and events are recorded from the first one on. Where that can't be, it is said and not tried again."""
    target = start(python, """
        import probing, resource, sys
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "none\\n":
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))
            elif line == "some\\n":
                resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            elif line == "start\\n":
                probing.start()
            else:
                probing.event(line.strip())
            print("done", flush=True)
        """)

    def tell(line):
        target.send(line)
        target.expect("done")

    client = connect(target)
    for line in ("none", "first", "some", "second"):
        tell(line)
    assert rings_of(target.pid) == 0
    place = places(client)["events"]
    assert (place["on"], place["fd"], place["error"]) == (0, -1, errno.EMFILE)
    client.status()
    assert client.rings_told == 1
    on(client, "events")
    tell("third")
    off(client, "events")
    tell("fourth")
    on(client, "events", size=MINIMUM)
    tell("fifth")
    assert [row.name for row in ring_file.rows(target.pid, "events")] == ["third", "fifth"]
    assert client.detach().error == 0
    client = again(target)
    target.expect("done")
    tell("sixth")
    client.status()
    assert client.rings_told == 1 and places(client)["events"]["on"] == 1
    assert [row.name for row in ring_file.rows(target.pid, "events")] == ["sixth"]
    assert ended(target) == 0


def test_first_use_fails(probe, python):
    """A person sees why."""
    target = start(python, """
        import probing, resource, sys
        print("ready", flush=True)
        sys.stdin.readline()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        probing.event("lost")
        print("done", flush=True)
        sys.stdin.readline()
        """)
    target.send("go")
    target.expect("done")
    assert "Record: events off 0 rows=0 lost=0 error=EFBIG\n" in Commands(probe, target.pid).run("ctl", "record\n")
    assert ended(target) == 0


# ---- gc ----

def test_gc(python):
    """Each run, against what collect() returns and what the interpreter counts itself."""
    target = start(python)
    client = connect(target)
    client.eval("import gc, threading; gc.disable(); gc.collect()")
    client.eval("def cycles(n):\n    for _ in range(n):\n        x = []\n        x.append(x)\n")
    on(client, "gc")
    before = time.time()
    expected = []
    for i in range(12):
        expected.append((i % 3, int(client.eval(f"cycles({i * 10}); gc.collect({i % 3})").text)))
    rows = ring_file.rows(target.pid, "gc")
    assert [(row.generation, row.collected) for row in rows] == expected
    assert any(collected >= 100 for _, collected in expected)
    assert all(row.uncollectable == 0 and 0 < row.duration < 1 for row in rows)
    assert all(before - 0.1 < row.ts < time.time() for row in rows)
    assert [row.ts for row in rows] == sorted(row.ts for row in rows)
    assert {row.tid for row in rows} == {client.status()["python_tid"]}

    stats = "[s['collections'] for s in gc.get_stats()]"
    counted = eval(client.eval(stats).text)
    client.eval("gc.enable()\n"
                "threads = [threading.Thread(target=lambda: [cycles(300) for _ in range(100)]) for _ in range(4)]\n"
                "for t in threads: t.start()\n"
                "for t in threads: t.join()\n"
                "gc.disable()\n")
    more = [b - a for a, b in zip(counted, eval(client.eval(stats).text))]
    rows = ring_file.rows(target.pid, "gc")[len(expected):]
    by_generation = [sum(row.generation == g for row in rows) for g in range(3)]
    assert sum(more) > 10 and by_generation == more
    assert client.status()["python_tid"] not in {row.tid for row in rows}
    off(client, "gc")
    client.eval("gc.collect()")
    assert len(ring_file.rows(target.pid, "gc")) == len(expected) + len(rows)
    assert client.eval("gc.callbacks").text == "[]\n"
    assert ended(target) == 0


def test_gc_callbacks_of_the_program(python):
    """The list is the program's: it may clear it, replace it, call what is in it."""
    target = start(python, AGAIN)
    client = connect(target)
    client.eval("import gc; gc.disable(); mine = gc.callbacks; seen = []\n"
                "def program(phase, info): seen.append(phase)\n"
                "mine.append(program)")
    on(client, "gc")
    client.eval("gc.collect()")
    client.eval("for args in [(), ('stop',), ('stop', 1), (None, None), ('stop', {}), ('start', {}),\n"
                "             ('stop', {'generation': 'x', 'collected': 2**80})]:\n"
                "    assert mine[1](*args) is None\n")
    assert [row.generation for row in ring_file.rows(target.pid, "gc")][0] == 2
    client.eval("mine.clear(); gc.collect()")
    off(client, "gc")
    on(client, "gc")
    client.eval("mine.clear()")
    on(client, "gc")  # it is put there again
    assert client.eval("len(mine)").text == "1\n"
    client.eval("mine.append(mine[0]); gc.callbacks = None")
    off(client, "gc")  # everywhere it is
    assert client.eval("mine").text == "[]\n"
    answer = client.switch("gc")
    assert answer.error == errno.EIO and "replaced gc.callbacks" in answer.words
    client.eval("gc.callbacks = mine")
    on(client, "gc")
    client.eval("del gc.callbacks")
    assert client.detach().error == 0
    assert again(target).eval("mine").text == "[]\n"
    assert ended(target) == 0


def test_gc_kept_function(python):
    """Whoever keeps our function has one that does nothing."""
    target = start(python, AGAIN)
    client = connect(target)
    client.eval("import gc")
    on(client, "gc")
    client.eval("kept = gc.callbacks[0]")
    assert client.detach().error == 0
    client = again(target)
    client.eval("gc.callbacks.append(kept); gc.collect(); kept('stop', {})")
    assert ring_file.find(target.pid, "gc") is None
    on(client, "gc")
    assert client.eval("_ = gc.collect(); len(gc.callbacks)").text == "2\n"
    assert ended(target) == 0


def test_gc_subinterpreter(python):
    """Where it was asked for; and it is taken out everywhere."""
    target = start(python, """
        import probing, sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        if sys.version_info >= (3, 13):
            all = [interpreters.create("legacy"), interpreters.create("isolated")]
        else:
            all = [interpreters.create()]
        print("ready", flush=True)
        print(*map(int, all), flush=True)
        for line in sys.stdin:
            probing.start()
            while line == "destroy\\n" and all:
                interpreters.destroy(all.pop())
            if not all:
                print("destroyed", flush=True)
        """)
    others = [int(number) for number in target.readline().split()]
    client = connect(target)
    for other in others:
        client.eval("import gc; gc.disable(); gc.collect()", interp=other)
        on(client, "gc", interp=other)
        for generation in (2, 1):
            client.eval(f"gc.collect({generation})", interp=other)
    assert [row.generation for row in ring_file.rows(target.pid, "gc")] == [2, 1] * len(others)
    for size in (1 << 20, MINIMUM) * 2:
        on(client, "gc", interp=others[-1], size=size)
    off(client, "gc")
    for other in others:
        assert client.eval("gc.callbacks", interp=other).text == "[]\n"
        on(client, "gc", interp=other)
    assert client.detach().error == 0
    client = again(target)
    for other in others:
        assert client.eval("gc.callbacks", interp=other).text == "[]\n"
        on(client, "gc", interp=other)
    target.send("destroy")
    target.expect("destroyed")
    off(client, "gc")
    assert ended(target) == 0


# ---- process_samples ----

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
        print("ready", flush=True)
        area = mmap.mmap(-1, 32 << 20)
        def work():
            while True:
                area[:] = bytes(len(area))
                time.sleep(0.1)
        threading.Thread(target=work, daemon=True).start()
        sys.stdin.read()
        """)
    client = connect(target)
    before, began = proc(target.pid), time.time()
    on(client, "process_samples")
    first = ring_file.wait_rows(target.pid, "process_samples", 1)
    assert time.time() - began < 1
    ring_file.wait_rows(target.pid, "process_samples", 4)
    rows, after = ring_file.rows(target.pid, "process_samples"), proc(target.pid)
    assert rows[0] == first[0] and began - 0.1 < rows[0].ts and rows[-1].ts < time.time() + 0.1
    for a, b in zip(rows, rows[1:]):
        assert 0.5 < b.ts - a.ts < 3
    for column in ("minor_faults", "major_faults", "voluntary_switches", "involuntary_switches", "cpu_user",
                   "cpu_system"):
        values = [before[column], *(row[column] for row in rows), after[column]]
        slack = 0.02 if column.startswith("cpu") else 0
        assert all(a <= b + slack for a, b in zip(values, values[1:])), (column, values)
    assert all(row.threads == after["threads"] == len(tasks(target.pid)) for row in rows)
    assert all(4 << 20 < row.rss < 256 << 20 for row in rows) and max(row.rss for row in rows) > 32 << 20
    assert rows[-1].voluntary_switches > rows[0].voluntary_switches + 10
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
    assert not any(link.endswith("/stat") for link in links(target.pid))
    assert ended(target) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="wants root")
def test_process_without_proc(any_python, tmp_path):
    """In a root without /proc there is what the kernel says itself; one that was opened before is kept."""
    target = start(any_python)
    client = connect(target)
    client.eval("import os; outside = os.open('/', os.O_RDONLY)")
    on(client, "process_samples")
    ring_file.wait_rows(target.pid, "process_samples", 1)
    client.eval(f"os.chroot({str(tmp_path)!r}); os.mkdir('/proc'); os.mkdir('/proc/self'); os.mkfifo('/proc/self/stat')")
    rows = ring_file.wait_rows(target.pid, "process_samples", 3)
    assert all(row.threads for row in rows)
    off(client, "process_samples")
    seen = len(rows)
    on(client, "process_samples")
    last = ring_file.wait_rows(target.pid, "process_samples", seen + 2)[-1]
    assert last.threads is None and last.rss is None and last.minor_faults > 0
    assert ended(target) == 0


# ---- fork, exec, the end ----

FORKER = """
import ctypes, gc, os, probing, sys
print("ready", flush=True)
gc.disable()
for line in sys.stdin:
    if line in ("fork\\n", "raw\\n"):
        child = os.fork() if line == "fork\\n" else ctypes.CDLL(None).syscall(57)
        if child == 0:
            gc.collect()
            print(os.getpid(), flush=True)
        else:
            os.waitpid(child, 0)
    elif line == "collect\\n":
        print(gc.collect() >= 0, flush=True)
    elif line == "start\\n":
        probing.start()
    elif line == "end\\n":
        os._exit(0)
"""


@pytest.mark.parametrize("how", ["fork", "raw"])
def test_fork(python, how):
    """Nothing is recorded in a child until it has an agent of its own; one that is made behind libc's back
    doesn't spoil the parent's rows either."""
    target = start(python, FORKER)
    client = connect(target)
    on(client, "gc")
    on(client, "process_samples")
    ring_file.wait_rows(target.pid, "process_samples", 1)
    client.eval("gc.collect()")
    target.send(how)
    child = int(target.readline())
    for _ in range(3):
        target.send("collect")  # of the child: the parent waits
        target.expect("True")
    with ring_file.find(target.pid, "gc") as ring:
        assert len(ring.rows) == 1 and ring.rows[0].tid != child
    record = agent.Record(child, LIBRARY, NAME)
    if how == "fork":
        assert all(place["fd"] == -1 and not place["on"] for place in record.read().rings.values())
        assert rings_of(child) == 0
        assert len(tasks(child)) == 1
    assert "memfd:probefs-ring" not in pathlib.Path(f"/proc/{child}/maps").read_text() or how == "raw"
    seen = len(ring_file.rows(target.pid, "process_samples"))
    ring_file.wait_rows(target.pid, "process_samples", seen + 2)
    target.send("start")
    other = connect(target, child)
    assert other.eval("len(gc.callbacks)").text == "1\n"  # copied with the interpreter, and not twice
    on(other, "gc")
    on(other, "process_samples")
    target.send("collect")
    target.expect("True")
    assert other.eval("len(gc.callbacks)").text == "1\n"
    assert len(ring_file.rows(child, "gc")) == 1
    row, = ring_file.wait_rows(child, "process_samples", 1)[:1]
    if python.source != "sid":  # there is no /proc in its root
        assert row.threads == len(os.listdir(f"/proc/{child}/task"))
    assert other.detach().error == 0
    assert len(ring_file.rows(target.pid, "gc")) == 1
    target.send("end")
    assert client.eval("gc.collect() >= 0").text == "True\n"
    assert len(ring_file.rows(target.pid, "gc")) == 2
    assert ended(target) == 0


def test_fork_storm(python):
    """Children and threads while everything is recorded and switched; none hangs, none writes."""
    target = start(python, """
        import gc, os, probing, subprocess, sys
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range(200):
            if i % 20 == 0:
                assert subprocess.run(["/bin/true"]).returncode == 0
            child = os.fork()
            if child == 0:
                gc.collect(0)
                os._exit(i % 100)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == i % 100
        print("forked", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    on(client, "gc")
    target.send("fork")
    for i in range(40):
        for table in ("gc", "process_samples"):
            on(client, table, size=(i % 3 + 1) * MINIMUM if table == "gc" else 0)
            off(client, table)
    target.expect("forked")
    tids = {row.tid for row in ring_file.rows(target.pid, "gc")}
    assert tids <= set(map(int, os.listdir(f"/proc/{target.pid}/task")))
    assert ended(target) == 0


def test_exec(python):
    target = start(python, """
        import os, probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        os.execv(sys.executable, [sys.executable, "-uc", "import os; print(os.dup(0)); input()"])
        """)
    client = connect(target)
    on(client, "gc")
    on(client, "process_samples")
    target.send("exec")
    target.expect("3")  # the lowest one that is free


def test_detach(python):
    """Nothing stays: no hook, no thread, no descriptor, no mapping; and it can begin anew."""
    target = start(python, AGAIN)
    client = connect(target)
    client.eval("import gc")
    for _ in range(5):
        on(client, "gc")
        on(client, "process_samples", size=MINIMUM)
        client.eval("gc.collect()")
        with ring_file.find(target.pid, "gc") as ring:
            assert client.detach().error == 0
            eventually(lambda: len(tasks(target.pid)) == 1)
            assert len(ring.rows) == 1  # who holds it has it
        assert "probefs-ring" not in pathlib.Path(f"/proc/{target.pid}/maps").read_text()
        assert rings_of(target.pid) == 0
        assert all(place["fd"] == -1 and not place["on"] for place in client.record.read().rings.values())
        client = again(target)
        assert client.eval("gc.callbacks").text == "[]\n"
        assert client.status()["rings"] == 0
    assert ended(target) == 0


# what the daemon can record in every interpreter
MOUNTED = ["exceptions", "gc", "process", "spans", "events"]


@pytest.mark.parametrize("end", ["on", "off", "by turns"])
def test_unloaded(probe, python, end):
    """Where a daemon has put it in, the library goes with the last hook."""
    target = python.run_source("import gc, sys\nprint('ready', flush=True)\nsys.stdin.read()")
    before = links(target.pid), len(tasks(target.pid))
    for _ in range(3):
        commands = Commands(probe, target.pid)
        for table in MOUNTED:
            commands.run("ctl", f"record {table} on\n")
            if end == "by turns":
                commands.run("ctl", f"record {table} off\n")
        assert commands.value("gc.collect() >= 0") == "True"
        with contextlib.suppress(OSError):
            commands.eval("1 / 0")
        if end == "off":
            for table in MOUNTED:
                commands.run("ctl", f"record {table} off\n")
            assert commands.value("gc.callbacks") == "[]"
        said = commands.detach()
        assert "Agent: none" in said, said
        maps = pathlib.Path(f"/proc/{target.pid}/maps")
        eventually(lambda: "memfd:probe" not in maps.read_text(), what="no mapping")
        eventually(lambda: (links(target.pid), len(tasks(target.pid))) == before, what="as before")
    assert ended(target) == 0


def test_stays_loaded(probe, python):
    """As long as the program holds a function of it."""
    target = python.run_source("import gc, sys\nprint('ready', flush=True)\nsys.stdin.read()")
    commands = Commands(probe, target.pid)
    commands.run("ctl", "record gc on\n")
    commands.eval("kept = list(gc.callbacks)")
    assert int(commands.status()["AgentRings"]) >= DEFAULT
    assert "stays" in commands.detach()
    commands.attach()
    commands.run("ctl", "record gc on\n")
    assert commands.value("kept[0]('start', {}), kept[0]('stop', {})") == "(None, None)"
    commands.eval("del kept")
    assert "Agent: none" in commands.detach()
    assert ended(target) == 0


def test_detach_without_python(any_python):
    """What was recorded without Python needs no GIL to end."""
    target = start(any_python, """
        import ctypes, probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        print("holds", flush=True)
        ctypes.PyDLL(None).sleep(2)
        print("let go", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    target.send("go")
    target.expect("holds")
    on(client, "process_samples")
    begin = time.monotonic()
    assert client.detach().error == 0
    assert time.monotonic() - begin < 1.5
    target.expect("let go")
    assert ended(target) == 0


@pytest.mark.parametrize("how", ["pass", "sys.exit(3)", "os._exit(3)", "raise ValueError",
                                 "threading.Thread(target=time.sleep, args=(0.1,)).start()",
                                 "os.kill(os.getpid(), 9)"])
def test_exit(python, how):
    """The interpreter ends as ever, with collections at its very end."""
    target = start(python, f"""
        import gc, os, probing, sys, threading, time
        class Cycle:
            def __init__(self): self.me = self
        cycles = [Cycle() for _ in range(100)]
        print("ready", flush=True)
        sys.stdin.readline()
        {how}
        """)
    client = connect(target)
    on(client, "gc")
    on(client, "process_samples")
    with ring_file.find(target.pid, "gc") as ring:
        begin = time.monotonic()
        target.send("go")
        status = target.process.wait(30)
        assert time.monotonic() - begin < 5
        assert status == (-9 if "kill" in how else 3 if "exit" in how else 1 if "raise" in how else 0)
        assert target.stderr() == "" or "raise" in how
        if "exit(" not in how and "kill" not in how:
            assert ring.rows  # of the interpreter's end, read after it
