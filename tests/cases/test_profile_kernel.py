"""Samples that are taken in the kernel: what they say of programs that measure themselves, and what is left there by a
daemon that is killed, by a program that ends, and after storms of forks, execs and threads."""
import ctypes
import errno
import json
import math
import os
import pathlib
import re
import signal
import time

import pytest

import shares
from commands import Commands
from interpreters import eventually, patience
from mount import REPOSITORY
from test_profile import samples, started, status

BPF, PROG_GET_FD_BY_ID = 321, 13
ENOUGH = 10000  # samples: a share of a half is half a point off by chance alone

# forks, executes, and has a new thread each moment; says how many of them did what they should
STORM = """
import os, subprocess, sys, threading, time
done = wrong = 0
def short():
    global done
    done += 1
def spin(n):
    x = 1
    for _ in range(n):
        x = x * 3 % 1000003
print("ready")
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    begun = [threading.Thread(target=short) for _ in range(200)]
    before = done
    for thread in begun:
        thread.start()
    for thread in begun:
        thread.join()
    wrong += done != before + 200
    child = os.fork()
    if not child:
        spin(20000)
        os._exit(7)
    wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7
    wrong += subprocess.run([sys.executable, "-S", "-c", "print(6 * 7)"], capture_output=True).stdout != b"42\\n"
print(wrong, done, flush=True)
sys.stdin.read()
"""


# calls one(), which ends when a file comes; then other(), whose code object lies where one()'s did
AGAIN = """
import os, sys
def begun(name):
    place = {}
    exec(f"def {name}(path, exists):\\n  while not exists(path):\\n    sum(range(1000))\\n", place)
    return place[name]
print("ready")
one = begun("early")
at = id(one.__code__)
one(sys.argv[1], os.path.exists)
del one
others = []
while not others or id(others[-1].__code__) != at and len(others) < 100000:
    others.append(begun("later"))
print(id(others[-1].__code__) == at, flush=True)
others[-1](sys.argv[2], os.path.exists)
"""


# its memory grows by what each function says itself, in pages that it has touched first
GROWS = """
import json, resource, sys, zlib
try:
    import numpy
except ImportError:
    numpy = None
packed = zlib.compress(bytes(8 << 20))
kept, pages = [], {}
def grow_list():
    kept.append([i for i in range(100000, 200000)])
def grow_bytes():
    kept.append(b"x" * (12 << 20))
def grow_zlib():
    kept.append(zlib.decompress(packed))
def grow_numpy():
    kept.append(numpy.ones(500000))
def gives_back():
    for _ in range(20):
        b"y" * (100 << 10)
def touched():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
def rounds():
    for function in (grow_list, grow_bytes, grow_zlib, gives_back) + ((grow_numpy,) if numpy else ()):
        before = touched()
        function()
        pages[function.__name__] = pages.get(function.__name__, 0) + touched() - before
print("ready")
for line in sys.stdin:
    for i in range(12):
        rounds()
        if i % 4 == 3:
            kept.clear()
    print(json.dumps(pages), flush=True)
"""

# as regular as a timer, by its own processor time: two thirds in one(), a third in other()
REGULAR = """
import time
PERIOD = 1 / 97
def one(end):
    while time.thread_time() < end:
        pass
def other(end):
    while time.thread_time() < end:
        pass
print("ready")
turn = 0
while True:
    turn += 1
    one((turn - 1 / 3) * PERIOD)
    other(turn * PERIOD)
"""

# computes below some hundred native frames: more of a C stack than one piece
DEEP = """
def spin(_):
    x = 1
    for _ in range(100000):
        x = x * 3 % 1000003
    return x
def nested(n):
    return max([n - 1], key=nested if n > 1 else spin)
print("ready")
while True:
    nested(40)
"""

# many threads wait; one computes and starts its successor, and so on
CHAIN = """
import threading, time
threading.stack_size(512 << 10)
never = threading.Lock()
never.acquire()
def link():
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        pass
    threading.Thread(target=link, daemon=True).start()
for _ in range(200):
    threading.Thread(target=never.acquire, daemon=True).start()
link()
print("ready")
never.acquire()
"""


@pytest.fixture
def kernel(probe, any_python):
    """Skips where the kernel, or who may use it, doesn't allow it: a daemon's own word for it."""
    target = any_python.run("shares.py", "python")
    started(probe, target, "profile cpu 97hz", 1)
    said = status(probe, target.pid)
    Commands(probe, target.pid).run("ctl", "profile off\n")
    target.close()
    if said["Source"] != "bpf":
        pytest.skip("this machine's kernel takes no samples itself: " + said["NotBetter"])


def descriptors(pid, kind):
    """Of a process: what /proc says of each that is of this kind."""
    found = []
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(link) == f"anon_inode:{kind}":
                found.append(pathlib.Path(f"/proc/{pid}/fdinfo/{link.name}").read_text())
        except FileNotFoundError:
            pass
    return found


def programs(pid):
    """The kernel's numbers of the BPF programs that it holds."""
    return {int(line.split()[1]) for info in descriptors(pid, "bpf-prog") for line in info.splitlines()
            if line.startswith("prog_id:")}


def program_there(number):
    attributes = (ctypes.c_uint32 * 32)(number)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(BPF, PROG_GET_FD_BY_ID, attributes, ctypes.sizeof(attributes))
    if fd >= 0:
        os.close(fd)
        return True
    assert ctypes.get_errno() == errno.ENOENT
    return False


def judged(probe, target, mode, spent):
    return shares.judge(probe.read(target.pid, "profile", "modes", mode, "folded"), spent)


def noise(n):
    """Points that a share may be off by, of n samples: four standard deviations of a half, and what the profile has
    before and after the program's own account."""
    return 400 * math.sqrt(0.25 / n) + 2


def waited(pid):
    """Seconds in which its main thread wanted no processor, of all that there were: as it sleeps, when the kernel has
    said all."""
    def asleep():
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S":
            on, ready, _ = map(int, pathlib.Path(f"/proc/{pid}/schedstat").read_text().split())
            return time.monotonic() - (on + ready) / 1e9
    return eventually(asleep, patience(30), "its sleep")


def seconds(probe, target, mode, name):
    """Below a function."""
    return sum(count for stack, count in shares.stacks(probe.read(target.pid, "profile", "modes", mode, "folded"))
               if any(frame.startswith(name + " ") for frame in stack)) / 1e6


@pytest.mark.long
def test_truth(probe, python, kernel):
    """All modes of one profile of a program that computes with the GIL, without it, and sleeps: shares and seconds."""
    target = python.run("shares.py", "mix")
    commands = started(probe, target, "profile wall 9973hz", 20)
    assert status(probe, target.pid)["Source"] == "bpf"
    shares.hold(target)
    commands.run("ctl", "profile clear\n")
    least = -waited(target.pid)
    shares.begin(target)
    eventually(lambda: seconds(probe, target, "cpu", "<module>") * 9973 > ENOUGH, patience(100),
               "samples of processor time")
    shares.hold(target)
    least += waited(target.pid)
    commands.run("ctl", "profile off\n")
    spent = shares.end(target)
    said = status(probe, target.pid)
    assert said["Lost"].startswith("0 ") and said["Torn"].startswith("0 ") and said["NoStack"].startswith("0 ")
    cpu = {name: own for name, (own, _) in spent.items()}
    wall = {name: all_of_it for name, (_, all_of_it) in spent.items()}
    with_gil = {name: own for name, own in cpu.items() if name != "in_c_nogil"}
    # the time that others take from it, a hypervisor too, falls to one function or another in large pieces
    idle = 1 - sum(cpu.values()) / sum(wall.values())
    points = noise(ENOUGH)  # how well, under what: tests/bench
    for mode, truth, points in ("cpu", cpu, points), ("gil", with_gil, points), ("wall", wall, points + 10 * idle):
        found = judged(probe, target, mode, truth)
        assert found.impossible == 0
        assert found.worst < points, (mode, found, spent)
    for mode, name in ("nogil", "in_c_nogil"), ("cpu", "in_c_gil"), ("cpu", "in_python"):
        # a clock that ticks sees those pieces, where the thread's own doesn't
        assert seconds(probe, target, mode, name) == pytest.approx(cpu[name], rel=0.1 + 0.1 * idle), (mode, name, spent)
    off = {name: seconds(probe, target, "off", name) for name in (*spent, "<module>")}
    assert 0.5 * least < off.pop("<module>"), (least, off)
    assert off["asleep"] < 1.05 * (wall["asleep"] - cpu["asleep"])  # until it had a processor again
    assert off["asleep"] > 0.95 * sum(off.values()), off


@pytest.mark.long
def test_no_stack_that_never_was(probe, python, kernel):
    target = python.run("shares.py", "calls")
    commands = started(probe, target, "profile cpu 9973hz", ENOUGH)
    commands.run("ctl", "profile off\n")
    found = shares.judge(probe.read(target.pid, "profile", "folded"), {"hot_a": 1.0, "hot_b": 3.0})
    assert found.impossible == 0
    assert found.worst < 3, found  # calls alone don't say how long they took, beside whatever else runs
    said = status(probe, target.pid)
    assert said["Torn"].startswith("0 ")


def test_a_code_object_where_another_one_was(probe, python, kernel):
    flags = [python.directory / f"flag-{os.getpid()}-{i}" for i in (1, 2)]
    target = python.run_source(AGAIN, *(str("/" / flag.relative_to(python.root)) for flag in flags))
    try:
        started(probe, target, "profile cpu 997hz", 50)
        flags[0].touch()
        same = target.readline()
        path = probe.path / str(target.pid) / "profile" / "marks" / "now" / "top"

        def told_apart():  # names are good for a second
            Commands(probe, target.pid).run("ctl", "profile mark now\n")
            eventually(lambda: "later" in path.read_text(), patience(30), "what came behind")
            return "early" not in path.read_text()

        eventually(told_apart, patience(30), "the new name alone")
        assert "early" in probe.read(target.pid, "profile", "top")
        if same != "True":
            pytest.skip("its code objects didn't come to lie at the same place")
    finally:
        for flag in flags:
            flag.unlink(missing_ok=True)


FORBIDS = [[REPOSITORY / "tests" / "seccomp-exec", "EPERM", "perf_event_open"], ["prlimit", "--nofile=300"]]


@pytest.mark.parametrize("within", FORBIDS, ids=["events", "descriptors"])
def test_refused_half_way(probe, any_python, kernel, within):
    """The programs are loaded, the events aren't all to be had: it is told why, another source is taken, and nothing
    stays in the kernel."""
    target = any_python.run_source(CHAIN)
    own = probe.mount(within=within)
    started(own, target, "profile cpu 97hz", 5)
    words = "not allowed to open performance events" if within == FORBIDS[0] else "too few file descriptors"
    assert f"NotBetter: bpf: {words}" in own.read(target.pid, "profile", "status")
    assert status(own, target.pid)["Source"] != "bpf"
    assert not programs(own.pid) and not descriptors(own.pid, "[perf_event]") and not descriptors(own.pid, "bpf-map")


def test_sixteen_at_once(probe, any_python, kernel):
    """No memory has to be locked for it, and one program serves them all."""
    own = probe.mount(within=["prlimit", "--memlock=0"])
    targets = [any_python.run("shares.py", "python") for _ in range(16)]
    for target in targets:
        Commands(own, target.pid).run("ctl", "profile cpu 97hz\n")
    for target in targets:
        eventually(lambda target=target: samples(own, target.pid) > 5, patience(60), "samples")
        assert status(own, target.pid)["Source"] == "bpf"
    loaded = programs(own.pid)
    assert 0 < len(loaded) <= 8
    for target in targets:
        Commands(own, target.pid).run("ctl", "profile off\n")
    eventually(lambda: not descriptors(own.pid, "bpf-map"), patience(30), "the end of its maps")
    eventually(lambda: not any(map(program_there, loaded)), patience(30), "the end of its programs")


def test_a_killed_daemon_leaves_nothing(probe, any_python, kernel):
    target = any_python.run("shares.py", "mix")
    own = probe.mount()
    started(own, target, "profile wall 997hz", 50)
    loaded = programs(own.pid)
    assert loaded and descriptors(own.pid, "[perf_event]")
    assert all(map(program_there, loaded))
    own.kill()
    own.close(check=False)
    eventually(lambda: not any(map(program_there, loaded)), patience(30), "the end of its programs")
    shares.begin(target)  # and who was sampled goes on
    assert shares.end(target) is not None


def test_an_ended_process_leaves_nothing(probe, any_python, kernel):
    target = any_python.run("shares.py", "mix")
    own = probe.mount()
    started(own, target, "profile wall 997hz", 50)
    eventually(lambda: "in_python" in own.read(target.pid, "profile", "top"), patience(30), "its turn")
    os.kill(target.pid, signal.SIGKILL)
    target.process.wait(patience(30))
    eventually(lambda: not descriptors(own.pid, "[perf_event]"), patience(30), "the end of its events")
    target.close()
    eventually(lambda: (own.path / "exited" / str(target.pid)).exists(), patience(30), "what is left")
    assert "in_python" in own.read("exited", target.pid, "profile", "top")


def test_who_makes_memory_grow(probe, python, kernel):
    """By function, as the kernel counts it for the thread; what C code touches too."""
    target = python.run_source(GROWS)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "profile faults\n")
    target.send("go")
    truth = json.loads(target.readline(patience(60)))
    folded = probe.read(target.pid, "profile", "folded")  # has all; `profile off` doesn't wait for ever for the rest
    said = status(probe, target.pid)
    commands.run("ctl", "profile off\n")
    assert said["NoStack"].startswith("0 ")
    lost = int(said["Lost"].split()[0])  # more than the buffer holds, where the daemon gets no processor meanwhile
    found = dict.fromkeys(truth, 0)
    for stack, count in shares.stacks(folded):
        for name in truth:
            found[name] += count if any(frame.startswith(name) for frame in stack) else 0
    for name, pages in truth.items():
        part = 0.01 * sum(truth.values())
        assert -part < pages - found[name] < part + lost, (truth, found, said)
    assert found["gives_back"] < found["grow_list"] < found["grow_bytes"]


@pytest.mark.long
def test_never_in_step(probe, any_python, kernel):
    """What comes as regularly as samples would isn't met at the same point each time; nothing is lost of the time."""
    target = any_python.run_source(REGULAR)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "profile cpu 97hz\n")
    before = processor_seconds(target.pid)
    eventually(lambda: processor_seconds(target.pid) > before + 5, patience(60), "its work")
    commands.run("ctl", "profile off\n")
    spent = processor_seconds(target.pid) - before
    found = {name: sum(count for stack, count in shares.stacks(probe.read(target.pid, "profile", "folded"))
                       if any(frame.startswith(name + " ") for frame in stack)) / 1e6 for name in ("one", "other")}
    assert abs(found["one"] / (found["one"] + found["other"]) - 2 / 3) < 0.15, (found, spent)
    assert abs(sum(found.values()) / spent - 1) < 0.1, (found, spent)


def test_deep_native_stacks(probe, python, kernel):
    target = python.run_source(DEEP)
    commands = started(probe, target, "profile cpu 997hz native", 900)  # some of the first ones end too early
    commands.run("ctl", "profile off\n")
    said = status(probe, target.pid)
    early = re.search(r"(\d+) native stacks end too early", said.get("Note", ""))
    assert int(early[1] if early else 0) <= 0.1 * int(said["Samples"]), said
    whole = sum(count for _, count in shares.stacks(probe.read(target.pid, "profile", "folded")))
    deep = sum(count for stack, count in shares.stacks(probe.read(target.pid, "profile", "folded"))
               if sum(frame.startswith("nested ") for frame in stack) == 40)
    assert deep > 0.9 * whole


def processor_seconds(pid):
    """Of all threads that the process ever had."""
    ticks = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_threads_that_start_as_it_begins(probe, any_python, kernel):
    """Each is sampled, and once: whoever is not, or twice, has successors of which that is as true."""
    target = any_python.run_source(CHAIN)
    commands = Commands(probe, target.pid)
    for _ in range(6):
        commands.run("ctl", "profile cpu 997hz\n")
        commands.run("ctl", "profile clear\n")
        before = processor_seconds(target.pid)
        eventually(lambda: processor_seconds(target.pid) > before + 0.4, patience(30), "its work")
        least = processor_seconds(target.pid) - before
        commands.run("ctl", "profile off\n")
        most = processor_seconds(target.pid) - before
        seen = sum(count for _, count in shares.stacks(probe.read(target.pid, "profile", "folded"))) / 1e6
        assert 0.5 * least < seen < 1.5 * most, (least, seen, most)


@pytest.mark.long
def test_storm(probe, any_python, kernel):
    """Threads, 200 at once and some thousands a second where nothing else runs (the benchmark says how many), forks and
    execs: none of them notices, and no event of theirs stays."""
    target = any_python.run_source(STORM, 4)
    own = probe.mount()
    started(own, target, "profile wall 997hz children", 50)
    wrong, done = map(int, target.readline(patience(60)).split())
    assert wrong == 0 and done >= 200
    assert samples(own, target.pid) > 50
    Commands(own, target.pid).run("ctl", "profile off\n")
    eventually(lambda: not descriptors(own.pid, "[perf_event]"), patience(30), "the end of its events")
