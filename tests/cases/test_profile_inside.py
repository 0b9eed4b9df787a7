"""Samples that the agent takes in a handler of SIGTRAP: when it is their turn, what they say of programs that measure
themselves, and that nobody is harmed by storms of threads, forks and execs, by a detach, or by the daemon's death."""
import errno
import os
import pathlib
import signal

import pytest

import shares
from command_files import writing
from commands import Commands, Refused, shell
from interpreters import eventually, patience
from mount import REPOSITORY, build
from sql import value
from test_profile import samples, started, status
from test_profile_kernel import STORM, descriptors, judged, noise
from watching import needs_hardware

# has a handler of its own, in Python; says how often that was called
HANDLES = """
import signal, sys, threading
called = []
signal.signal(signal.SIGTRAP, lambda *_: called.append(1))
def spin():
    x = 1
    while not over:
        x = x * 3 % 1000003
over = False
print("ready")
threading.Thread(target=spin).start()
for line in sys.stdin:
    print(len(called), flush=True)
over = True
"""

# writes where it can be watched, and computes
WRITES = """
import array
cells = array.array("d", [0.0])
def work():
    while True:
        cells[0] += 1
        sum(range(20000))
print("ready")
work()
"""

# its main thread ends while others compute, one of which is never waited for
ENDS = """
import sys, threading, time, zlib
block = bytes(1 << 22)
def without_gil():
    while True:
        zlib.crc32(block)
def with_gil():
    x = 1
    while not over:
        x = x * 3 % 1000003
over = False
threading.Thread(target=without_gil, daemon=True).start()
threading.Thread(target=with_gil).start()
print("ready")
sys.stdin.read()
over = True
"""


def without(*calls):
    return [REPOSITORY / "tests" / "seccomp-exec", "EPERM", ",".join(calls)]


@pytest.fixture
def own(probe):
    """A daemon that may not use BPF."""
    return probe.mount(within=without("bpf"))


@pytest.fixture
def allowed(probe, any_python):
    """Skips where perf events can't send SIGTRAP here: a daemon's own word for it."""
    target = any_python.run("shares.py", "mix")
    try:
        commands = begun(probe, target, "profile cpu inside", 0)
    except Refused as refused:
        pytest.skip(str(refused))
    commands.run("ctl", "profile off\n")
    target.close()


def in_time(act, *args):
    """Does it again where a machine that is busy hasn't let a thread be borrowed, or the GIL be had, in time."""
    def is_done():
        try:
            act(*args)
        except Refused as refused:
            if refused.errno != errno.ETIMEDOUT:
                raise
            return False
        return True
    eventually(is_done, what="that it is done in time")


def begun(probe, target, line, enough):
    """Of a program that lets go of the GIL and takes it again at once the agent may get it late, the first time."""
    commands = Commands(probe, target.pid)
    in_time(commands.attach)
    in_time(commands.eval, "1")
    in_time(commands.run, "ctl", line + "\n")
    eventually(lambda: samples(probe, target.pid) >= enough, patience(60), f"{enough} samples")
    return commands


def handled(pid):
    """Whether SIGTRAP has a handler."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTRAP - 1) & 1)


def test_whose_turn_it_is(probe, any_python, allowed):
    """The kernel's own, then the agent's where one is in already, then reading from outside; each says why not more."""
    for refused, source in (("bpf",), "inside"), (("bpf", "perf_event_open"), "timer"):
        target = any_python.run("shares.py", "mix")
        mount = probe.mount(within=without(*refused))
        commands = started(mount, target, "profile cpu 997hz", 20)
        said = status(mount, target.pid)
        assert said["Source"] == "timer" and "no agent" in mount.read(target.pid, "profile", "status")
        assert not handled(target.pid)
        begun(mount, target, "profile cpu 997hz", 20)
        said = status(mount, target.pid)
        assert said["Source"] == source and "NotBetter" in said
        assert handled(target.pid) == (source == "inside")
        commands.run("ctl", "profile wall 997hz\n")
        assert status(mount, target.pid)["Source"] == "timer"
        commands.detach()
        assert not handled(target.pid)
        mount.close()
        target.close()
    target = any_python.run("shares.py", "mix")
    commands = Commands(probe, target.pid)
    error, words = commands.refused("ctl", "profile wall inside\n")
    assert error == errno.EOPNOTSUPP and "processor time only" in words


# one of its threads has a filter of its own from the line on that says so; the filter lets everything through
FILTERS = """
import ctypes, sys, threading
class sock_filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class sock_fprog(ctypes.Structure):
    _fields_ = [("size", ctypes.c_ushort), ("filter", ctypes.POINTER(sock_filter))]
program = sock_fprog(1, ctypes.pointer(sock_filter(6, 0, 0, 0x7fff0000)))
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong
turn, done = threading.Event(), threading.Event()
def filtered():
    turn.wait()
    if not prctl(38, 1, None, 0, 0) and not prctl(22, 2, ctypes.addressof(program), 0, 0):
        done.set()
    spin()
def spin():
    x = 1
    while True:
        x = x * 3 % 1000003
threading.Thread(target=filtered, daemon=True).start()
threading.Thread(target=spin, daemon=True).start()
print("ready")
sys.stdin.readline()
turn.set()
done.wait()
print("filtered", flush=True)
sys.stdin.read()
"""


def under(*filters):
    return [str(word) for action, names in filters for word in (REPOSITORY / "tests" / "seccomp-exec", action, names)]


def test_seccomp(probe, any_python, allowed):
    """What a filter says to the calls of the handler is known before one is made: a container's doesn't mind."""
    for filters, words in ((("ENOSYS", "clone3"), ("EPERM", "containers")), None), (
            (("kill", "process_vm_readv"),), "its seccomp filter would answer process_vm_readv() with a signal"), (
            (("EPERM", "process_vm_readv"),), "may not use process_vm_readv(2)"):
        target = any_python.run("shares.py", "mix", within=under(*filters))
        if words:
            def refused():  # a machine that is busy may not let a thread be borrowed in time
                error, said = Commands(probe, target.pid).refused("ctl", "profile cpu inside\n")
                return error != errno.ETIMEDOUT and (error, said)
            error, said = eventually(refused, what="an answer")
            assert error in (errno.EPERM, errno.EOPNOTSUPP) and words in said
        else:
            in_time(Commands(probe, target.pid).run, "ctl", "profile cpu 997hz inside\n")
            eventually(lambda: samples(probe, target.pid) >= 20, what="samples")
            assert status(probe, target.pid)["Source"] == "inside"
            assert "in_python" in probe.read(target.pid, "profile", "folded")
        shares.begin(target)
        assert shares.end(target) is not None
        target.close()


# keeps the GIL from the line on that says so
HOGS = """
import ctypes, sys
print("ready")
sys.stdin.readline()
print("holds", flush=True)
ctypes.PyDLL(None).sleep(1000)
"""


def test_interrupted(probe, any_python, allowed):
    """Who waits for the GIL needn't: another source samples as well as before."""
    target = any_python.run_source(HOGS)
    commands = Commands(probe, target.pid)
    commands.attach()
    commands.eval("1")
    target.send("now")
    assert target.readline() == "holds"
    ctl, script = probe.path / str(target.pid) / "ctl", 'trap : INT; printf "%s" "$2" > "$1"'
    with writing(ctl, "profile cpu inside\n", script) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=patience(30))
    assert "Interrupted system call" in err, err
    said = status(probe, target.pid)
    assert said["State"] != "running", said
    assert started(probe, target, "profile wall 97hz", 5) and target.process.poll() is None


def test_seccomp_of_one_thread(probe, any_python, allowed):
    target = any_python.run_source(FILTERS)
    commands = begun(probe, target, "profile cpu 997hz inside", 20)
    target.send("filter")
    assert target.readline() == "filtered"
    eventually(lambda: status(probe, target.pid)["State"] != "running", patience(60), "its end")
    assert "seccomp filters of their own" in probe.read(target.pid, "profile", "status")
    error, words = commands.refused("ctl", "profile cpu inside\n")
    assert error == errno.EPERM and "seccomp filters of their own" in words
    assert target.process.poll() is None


# in a user namespace of its own: no capability is worth anything outside of it, as in a rootless container
CONTAINED = """
$1 $3 || exit 1
$2 -c 'def spin():
    while True:
        sum(range(1000))
spin()' &
for words in 'profile cpu 997hz' 'profile cpu 997hz inside'; do
    until echo "$words" >$3/$!/ctl; do sleep .1; done
    until grep -q spin $3/$!/profile/folded; do sleep .1; done
    grep -E '^(Source|NotBetter): ' $3/$!/profile/status
done
kill $!
umount $3
"""


def test_without_a_capability(any_python, allowed, tmp_path):
    """What an ordinary user or a container gets: first what reads from outside, which names the capabilities that more
    would take; what the agent does takes none."""
    path = str(tmp_path)
    done = shell('exec unshare --user --map-root-user --mount --pid --fork --mount-proc bash -c "$1" bash "${@:2}"',
                 CONTAINED, build() / "fs" / "probefs", any_python.executable, path)
    if "unshare failed" in done.stderr:
        pytest.skip("user namespaces are not allowed here")
    said = done.stdout.splitlines()
    assert said[0] == "Source: timer" and "CAP_BPF and CAP_PERFMON" in said[1], done
    assert said[-1] == "Source: inside" or pathlib.Path("/proc/sys/kernel/perf_event_paranoid").read_text() > "2", done


@pytest.mark.long
@pytest.mark.python(minimum=(3, 10))
def test_truth(probe, python, allowed):
    """And stacks that never were."""
    for kind in "mix", "calls":
        target = python.run("shares.py", kind)
        commands = begun(probe, target, "profile cpu 997hz inside", 20)
        commands.run("ctl", "profile clear\n")
        shares.begin(target)
        eventually(lambda: samples(probe, target.pid) > 900, patience(60), "samples")
        spent = shares.end(target)
        commands.run("ctl", "profile off\n")
        said = status(probe, target.pid)
        assert said["Source"] == "inside"
        # a thread that is interrupted as its evaluation loop begins has no frame yet; a daemon without a processor for
        # half a second loses some
        for what, share in ("Lost", 0.5), ("Torn", 0.01), ("NoStack", 0.01):
            assert int(said[what].split()[0]) <= share * int(said["Samples"].split()[0]), said
        assert not said["TargetCost"].startswith("0 ")
        cpu = {name: own for name, (own, _) in spent.items()}
        with_gil = {name: own for name, own in cpu.items() if name != "in_c_nogil"}
        for mode, truth in ("cpu", cpu), ("gil", with_gil):
            found = judged(probe, target, mode, truth)
            assert found.impossible == 0
            assert found.worst < noise(900), (mode, found, spent)
        commands.detach()
        shares.begin(target)
        assert shares.end(target) is not None
        target.close()


@pytest.mark.python(minimum=(3, 10))
def test_its_own_handler(probe, python, allowed):
    """A program's handler of SIGTRAP is called for its own, and for no sample; and is there again after a detach."""
    target = python.run_source(HANDLES)
    commands = begun(probe, target, "profile cpu 997hz inside", 50)
    os.kill(target.pid, signal.SIGTRAP)
    said = lambda: (target.send(""), int(target.readline()))[1]
    eventually(lambda: said() == 1, patience(30), "its handler's call")
    commands.detach()
    os.kill(target.pid, signal.SIGTRAP)
    eventually(lambda: said() == 2, patience(30), "its handler's call")
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0


@needs_hardware
def test_beside_a_watchpoint(probe, any_python, allowed):
    target = any_python.run_source(WRITES)
    commands = begun(probe, target, "profile cpu 997hz inside", 50)
    commands.run("breakpoints", "log watch cells[0]\n")
    hits = lambda: int(value(probe.path / str(target.pid) / "query", "SELECT count(*) FROM hits"))
    eventually(lambda: hits() > 20, patience(60), "hits")
    before, there = samples(probe, target.pid), hits()
    eventually(lambda: samples(probe, target.pid) > before + 50 and hits() > there, patience(60), "samples and hits")
    commands.run("breakpoints", "")
    eventually(lambda: samples(probe, target.pid) > before + 150, patience(60), "samples")
    commands.detach()
    assert target.process.poll() is None and not handled(target.pid)


@pytest.mark.python(minimum=(3, 10))
def test_sampled_to_its_end(probe, python, allowed):
    """An interpreter that ends frees what the handler looks at, while a daemon thread still computes."""
    for _ in range(3):
        target = python.run_source(ENDS)
        begun(probe, target, "profile cpu 9973hz inside", 50)
        target.stdin.close()
        assert target.process.wait(patience(60)) == 0
        target.close()


def test_goes_on_by_another_source(own, any_python, allowed):
    target = any_python.run("shares.py", "mix")
    commands = begun(own, target, "profile cpu 997hz for 1h", 20)
    assert status(own, target.pid)["Source"] == "inside"
    assert descriptors(own.pid, "[perf_event]")
    commands.detach()
    said = status(own, target.pid)
    assert said["Source"] == "timer" and said["State"] == "running" and "Left" in said
    assert not descriptors(own.pid, "[perf_event]") and not handled(target.pid)
    before = samples(own, target.pid)
    eventually(lambda: samples(own, target.pid) > before, patience(60), "more samples")


def test_a_killed_daemon(probe, own, any_python, allowed):
    """The events end with it; the next daemon takes the rest out."""
    target = any_python.run("shares.py", "mix")
    begun(own, target, "profile cpu 997hz inside", 50)
    own.kill()
    own.close(check=False)
    shares.begin(target)
    assert shares.end(target) is not None
    begun(probe, target, "profile cpu 997hz inside", 50)
    Commands(probe, target.pid).detach()
    assert target.process.poll() is None
    shares.begin(target)
    assert shares.end(target) is not None


@pytest.mark.long
def test_storm(probe, any_python, allowed):
    """Threads, 200 at once, forks and execs, while stacks are read, the profile begins and ends, the agent comes and
    goes, and the daemon dies: none of them notices."""
    target = any_python.run_source(STORM, 8)
    for last in False, True:
        own = probe.mount(within=without("bpf"))
        commands = begun(own, target, "profile cpu 9973hz inside", 50)
        for i in range(12):
            assert own.read(target.pid, "backtrace")
            if i % 4 == 1:
                commands.run("ctl", "profile off\n")
            if i % 4 == 2:
                commands.detach()
            in_time(commands.run, "ctl", "profile cpu 9973hz inside\n")
        if not last:
            own.kill()
            own.close(check=False)
    wrong, done = map(int, target.readline(patience(120)).split())
    assert wrong == 0 and done >= 200
    commands.detach()
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0
