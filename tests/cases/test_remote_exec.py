"""The second door: a script that the interpreter itself runs (PEP 768), by `attach remote-exec`, and
where no thread can be borrowed."""
import contextlib
import errno
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from commands import Commands, fields
from interpreters import eventually, interpreters, patience
from stopping import waits_for_lock
from storming import Mounted, calm, storm
from victims import Victim

pytestmark = pytest.mark.python(minimum=(3, 14))

WAY = "remote-exec"
ATTACH = f"attach {WAY}\n"
PLACES = ["tmp", "var/tmp", "dev/shm"]
UNSHARE = ["unshare", "--mount", "sh", "-c"]
KILLS = 30
SEED = int(os.environ.get("PROBEFS_TEST_SEED", time.time_ns() % 10**6))

# does one thing for a while, and then says what is different in the interpreter
WAITS = """
import select, socket, sys, threading, time
place = sys.argv[1]
def state():
    return set(sys.modules), list(sys.path), set(vars(sys.modules["__main__"])), sys.gettrace()
def spin():
    while not done.is_set():
        pass
def do(seconds):
    end = time.monotonic() + seconds
    if place == "sleep":
        time.sleep(seconds)
    elif place == "select":
        select.select([], [], [], seconds)
    elif place == "poll":
        select.poll().poll(seconds * 1000)
    elif place == "epoll":
        select.epoll().poll(seconds)
    elif place == "recv":
        pair[0].settimeout(seconds)
        try:
            pair[0].recv(1)
        except TimeoutError:
            pass
    elif place == "threads":
        done.wait(seconds)
    else:
        spins = 0
        while time.monotonic() < end:
            spins += 1
    return time.monotonic() - end
done, pair = threading.Event(), socket.socketpair()
others = [threading.Thread(target=spin) for _ in range(4 * (place == "threads"))]
for other in others:
    other.start()
begun = end = late = before = after = None
before = state()
print("ready", flush=True)
late = do(8)
after = state()
done.set()
for other in others:
    other.join()
print(before == after, late, flush=True)
sys.stdin.read()
"""


def left(root, whose="*"):
    """What lies about of the files that went in."""
    return [str(path) for place in PLACES for path in pathlib.Path(root, place).glob(f".probefs-{whose}")]


def left_of(pid, root):
    """The same of those for one process: their names have its number and when it began."""
    began = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return left(root, f"{pid}-{began}-*")


@pytest.fixture(autouse=True)
def nothing_left(python):
    """Whoever else shares the root, as another run of cases, may have some in use."""
    yield
    eventually(lambda: left(python.root) == [], what="that nothing is left")


@pytest.mark.parametrize("place", ["sleep", "select", "poll", "epoll", "recv", "busy", "threads"])
def test_where_it_is(probe, python, place):
    """It gets in at once; the program's wait is as long as before, and it can't tell."""
    target = python.run_source(WAITS, place)
    commands = Commands(probe, target.pid)
    commands.attach(WAY)
    assert commands.status()["AgentOrigin"] == "remote_exec"
    assert left_of(target.pid, python.root) == []
    commands.detach()
    same, late = target.readline().split()
    assert same == "True" and -0.01 < float(late) < patience(5)
    assert target.stderr() == ""


# its only thread has the lock once SIGUSR1 has come
LOCKED = """
import signal, sys, threading
lock = threading.Lock()
lock.acquire()
signal.signal(signal.SIGUSR1, lambda *_: lock.release())
print("ready", flush=True)
print(lock.acquire(), flush=True)
sys.stdin.readline()
"""


def locked(python, **options):
    target = python.run_source(LOCKED, **options)
    eventually(lambda: waits_for_lock(target.pid), what="that it waits for its lock")
    return target


def unlock(target):
    """Not on its way back from a stop into its wait, where a signal is noticed only once the wait is over."""
    eventually(lambda: waits_for_lock(target.pid), what="that it waits for its lock")
    target.signal(signal.SIGUSR1)


def test_no_thread_comes_by(probe, python):
    """It waits for a lock, which nothing interrupts: the error says so, and nothing fires later."""
    target = locked(python)
    commands = Commands(probe, target.pid)
    error, words = commands.refused("ctl", ATTACH)
    assert error == errno.ETIMEDOUT and "no thread came" in words  # it may be just beginning to wait anew
    assert left_of(target.pid, python.root) == []
    unlock(target)
    target.expect("True")
    assert commands.status()["Agent"] == "none"
    assert ".probefs-" not in pathlib.Path(f"/proc/{target.pid}/maps").read_text()
    commands.attach(WAY)
    assert target.stderr() == ""


SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(10**6)"


def test_disabled(probe, python):
    target = python.run_source(SLEEPS, env={"PYTHON_DISABLE_REMOTE_DEBUG": "1"})
    error, words = Commands(probe, target.pid).refused("ctl", ATTACH)
    assert error == errno.EOPNOTSUPP and "disable-remote-debug" in words


def test_older(probe, python):
    older = [i for i in interpreters() if (3, 10) <= i.version < (3, 14)]
    if not older:
        pytest.skip("no older interpreter")
    target = older[-1].run_source(SLEEPS)
    error, words = Commands(probe, target.pid).refused("ctl", ATTACH)
    assert error == errno.EOPNOTSUPP and "3.14" in words


def test_stopped(probe, python):
    target = python.run_source(SLEEPS)
    target.signal(19)
    eventually(lambda: target.state() == "T", what="the stop")
    error, words = Commands(probe, target.pid).refused("ctl", ATTACH)
    assert error == errno.ETIMEDOUT and "SIGCONT" in words
    assert target.state() == "T"


def test_traced(probe, python):
    target = python.run_source(SLEEPS)
    strace = subprocess.Popen(["gdb", "-q", "-nx", "-p", str(target.pid)], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: target.state() == "t", 30, "the debugger")
        error, words = Commands(probe, target.pid).refused("ctl", ATTACH)
        assert error == errno.EBUSY and "gdb" in words
    finally:
        strace.kill()
        strace.wait()


def test_a_script_of_another_debugger(probe, python):
    """What sys.remote_exec() has left pending is not overwritten."""
    with_proc = [*UNSHARE, 'mount -t proc none "$1/proc" && shift && exec "$@"', "sh",
                 str(python.root)]
    target = locked(python, within=with_proc)
    script = python.directory / "other.py"
    script.write_text("print('the other one', flush=True)")
    inner = "/" + str(script.relative_to(python.root))
    order = python.command("-c", f"import sys; sys.remote_exec({target.pid}, {inner!r})")
    subprocess.run(["nsenter", f"--mount=/proc/{target.pid}/ns/mnt", *order], check=True,
                   timeout=patience(60))
    error, words = Commands(probe, target.pid).refused("ctl", ATTACH)
    assert error == errno.EBUSY and "sys.remote_exec" in words
    unlock(target)
    assert {target.readline(), target.readline()} == {"the other one", "True"}


@pytest.mark.parametrize("script, words", [
    ("mount -o remount,bind,ro .", "is read-only"),
    ("for i in tmp var/tmp dev/shm; do mount -t tmpfs -o noexec none $i; done", "noexec"),
    ("mkdir -p tmp/own; mount --bind tmp/own var/tmp; mount -t tmpfs -o noexec none tmp", None),
], ids=["read-only", "noexec", "second place"])
def test_places(probe, python, script, words):
    """The root that the process sees decides, not the daemon's."""
    (python.directory / "sleeps.py").write_text(SLEEPS)
    path = python.path("sleeps.py")
    # the victims lie below /tmp: it is opened before that is covered
    shell = f"exec <.{path}; {{ {script}; }} || exit 1; exec chroot . {python.executable} -u"
    inside = subprocess.Popen(
        [*UNSHARE, f'mount --bind "$1" "$1" && cd "$1" && {shell}', "sh", str(python.root)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={"PATH": os.environ["PATH"]})
    try:
        if inside.stdout.readline() != "ready\n":
            pytest.skip("no such mounts can be made here")
        commands = Commands(probe, inside.pid)
        if words:
            error, said = commands.refused("ctl", ATTACH)
            assert error == errno.EOPNOTSUPP and words in said
        else:
            commands.attach(WAY)
            assert left_of(inside.pid, f"/proc/{inside.pid}/root") == []
    finally:
        inside.kill()
        inside.wait()
        inside.stdout.close()
        with contextlib.suppress(OSError):
            os.rmdir(python.root / "tmp" / "own")


@contextlib.contextmanager
def prepared(python, user, script=":", *arguments):
    """A process of a user's, in a root in which a script (of sh, in the root) has prepared something."""
    (python.directory / "sleeps.py").write_text(SLEEPS)
    # the victims lie below /tmp: it is opened before that is covered
    run = f'exec <.{python.path("sleeps.py")}; {{ {script}; }} || exit 1; ' \
          f"exec chroot --userspec={user}: . {python.executable} -u"
    inside = subprocess.Popen(
        [*UNSHARE, f'cd "$1" && shift && {run}', "sh", str(python.root), *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    try:
        if inside.stdout.readline() != "ready\n":
            pytest.skip("no such mounts can be made here")
        yield inside
    finally:
        inside.kill()
        inside.wait()
        inside.stdout.close()


def test_other_user(probe, python, nobody):
    """The files belong to the process's user."""
    with prepared(python, nobody) as inside:
        commands = Commands(probe, inside.pid)
        commands.attach(WAY)
        assert commands.eval("__import__('os').geteuid() != 0") == "True\n"
        assert left_of(inside.pid, python.root) == []


@pytest.mark.attack
@pytest.mark.parametrize("more", [
    "os.setgid(65534); os.setuid(65534)",  # what it was before may still be in its memory
    "os.setresuid(65534, 65534, 0)",
    "os.setresgid(0, 0, 65534); os.setresuid(65534, 65534, 65534); ctypes.CDLL(None).prctl(4, 1)",
], ids=["not dumpable", "may be root again", "a group more"])
def test_more_than_its_user(probe, python, nobody, more):
    """Its user could rewrite a file, and so get rights that only the process has."""
    target = python.run_source(f"import ctypes, os\n{more}\n" + SLEEPS)
    commands = Commands(probe, target.pid)
    error, words = commands.refused("ctl", ATTACH)
    assert error == errno.EPERM and "more rights" in words


ORPHAN = "tmp/.probefs-4000000-1-0"


@contextlib.contextmanager
def orphan(python, user):
    """A directory that looks as if it had been left for a process that is gone."""
    path = python.root / ORPHAN
    path.mkdir(mode=0o700)
    try:
        shutil.chown(path, user)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.attack
def test_what_is_mounted_there(probe, python, nobody, tmp_path):
    """What is in a directory of somebody else's that was mounted on what looks like ours stays."""
    for name in "script.py", "reply", "other":
        (tmp_path / name).write_text("precious")
    with orphan(python, nobody), \
            prepared(python, nobody, f'mount --bind "$1" {ORPHAN}', tmp_path) as inside:
        Commands(probe, inside.pid).attach(WAY)
        assert sorted(os.listdir(tmp_path)) == ["other", "reply", "script.py"]


@pytest.mark.attack
@pytest.mark.parametrize("name, goes", [("reply", True), ("probe-agent0.so", True), ("precious", False)])
def test_what_it_sweeps(probe, python, nobody, name, goes):
    """What was left for a process that is gone goes; what only looks like it stays."""
    with orphan(python, nobody) as path:
        (path / name).touch()
        shutil.chown(path / name, nobody)
        with prepared(python, nobody) as inside:
            Commands(probe, inside.pid).attach(WAY)
        assert path.exists() is not goes


@pytest.mark.attack
@pytest.mark.parametrize("way", [ATTACH, "attach\n"])
def test_where_its_user_may_not_write(probe, python, nobody, tmp_path, way):
    """Nothing is ever made in directories in which the process could make nothing."""
    tmp_path.chmod(0o755)
    everywhere = 'for i in tmp var/tmp dev/shm run; do mount --bind "$1" $i; done'
    with prepared(python, nobody, everywhere, tmp_path) as inside:
        before = os.stat(tmp_path).st_mtime_ns
        error, words = Commands(probe, inside.pid).refused("ctl", way)
        assert (error, "no directory" in words) == (errno.EACCES if way != ATTACH else errno.EOPNOTSUPP, True)
        assert os.stat(tmp_path).st_mtime_ns == before


FILL = """
mount --bind . . && cd "$PWD" && mount -o remount,bind,ro . && for i in tmp var/tmp dev/shm run; do
    mount -t tmpfs -o size=8m none $i && { dd if=/dev/zero of=$i/filler bs=64k 2>/dev/null; true; }
done"""


@pytest.mark.parametrize("way", [WAY, ""])
@pytest.mark.parametrize("room", [0, 4096, 256 << 10])
def test_full(probe, python, way, room):
    """It says where there is no room, and how much is needed; once there is, the same command works."""
    if not way and (python.root / "proc/self").exists():
        pytest.skip("with /proc the library goes in as memory")
    with prepared(python, "root", FILL) as inside:
        # those of the process: its root is another directory of its mount namespace
        places = [f"/proc/{inside.pid}/root/{place}" for place in (*PLACES, "run")]
        commands = Commands(probe, inside.pid)
        fillers = [pathlib.Path(place, "filler") for place in places]
        for filler in fillers:
            os.truncate(filler, filler.stat().st_size - room)
        error, words = commands.refused("ctl", f"attach {way}\n")
        assert error == errno.ENOSPC and "/tmp is full" in words and "/dev/shm is full" in words, words
        assert "; free " in words and " KiB" in words
        assert [os.listdir(place) for place in places] == [["filler"]] * 4
        fillers[1].unlink()
        commands.attach(way)
        assert commands.eval("6 * 7") == "42\n"
        assert [len(os.listdir(place)) for place in places] == [1, 0, 1, 1]


FILTERED = """
import ctypes, errno, os, struct, time
libc = ctypes.CDLL(None, use_errno=True)
LOAD, EQUAL, RETURN, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050000 | errno.EPERM
MEMFD_CREATE = 319
rules = b"".join(struct.pack("=HBBI", *rule) for rule in [
    (LOAD, 0, 0, 0), (EQUAL, 0, 1, MEMFD_CREATE), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)])
program = ctypes.create_string_buffer(rules)
head = struct.pack("=HxxxxxxQ", len(rules) // 8, ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(head), 0, 0) == 0, ctypes.get_errno()
print("ready", flush=True)
time.sleep(10**6)
"""


def test_where_seccomp_forbids_the_other(probe, python):
    """Writing to eval takes this way by itself."""
    target = python.run_source(FILTERED)
    commands = Commands(probe, target.pid)
    assert commands.eval("6 * 7") == "42\n"
    assert commands.status()["AgentOrigin"] == "remote_exec"


SIGNALLED = """
import os, select, signal, sys, time
reader, writer = os.pipe()
handled = told = 0
def handle(number, frame):  # tells of it outside: the next one comes as soon as that is known
    global handled
    handled += 1
signal.signal(signal.SIGUSR1, handle)
victim = os.getpid()
if os.fork() == 0:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    sent = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        os.kill(victim, signal.SIGUSR1)
        sent += 1
        if not select.select([reader], [], [], 100)[0]:
            print("lost", flush=True)
            os._exit(1)
        assert os.read(reader, 9) == b"x"
    print("handled", sent > 100, flush=True)
    os._exit(0)
print("ready", flush=True)
while True:
    sum(range(1000))
    while told < handled:
        told += 1
        os.write(writer, b"x")
"""


def test_signals(probe, python):
    """Each signal is handled, and once, although the thread's flags are written meanwhile. (A flag
    that is lost stays so: no other signal comes before this one is handled.)"""
    target = python.run_source(SIGNALLED)
    commands = Commands(probe, target.pid)
    for _ in range(40):
        commands.attach(WAY)
        commands.detach()
    target.send("enough")
    target.expect("handled True")
    assert target.stderr() == ""


@pytest.mark.deadline(300)
@pytest.mark.parametrize("kind", [
    "idle", "sums", "200 threads", "waits", "signals", "fork", "loader", "importer", "exec",
    "pending calls", "asyncio", "malloc, 4 threads"])
def test_storm(probe, python, kind):
    """Programs that judge their own results find nothing wrong, and nothing leaks."""
    tally = storm(Mounted(probe, WAY), python, kind, 16)
    assert tally.harms == []
    if kind != "exec":  # which is another program more often than not
        assert sum(tally.refusals.values()) <= tally.cycles // 2, tally.refusals


def test_again_and_again(probe, python):
    """The library is loaded once: no descriptor and no mapping more after the fiftieth time."""
    def files(footprint):
        return sorted(line.split()[-1] for line in footprint.mappings if "/" in line)

    with Victim(python, "idle") as victim:
        commands = Commands(probe, victim.pid)
        for number in range(50):
            said = commands.attach(WAY)
            assert "running" in fields(said)["Agent"]
            if number % 10 == 0:
                assert commands.eval("1 + 1") == "2\n"
            commands.detach()
            now = victim.footprint()
            if number == 0:
                before = now
        now = calm(victim, before)
        assert now.leaked(before) == []
        assert files(now) == files(before)
        assert len([line for line in now.mappings if ".probefs-" in line and " r-xp " in line]) == 1
        assert abs(now.size() - before.size()) < 1 << 20
        victim.judge()
        victim.end()


def test_after_the_other_way(probe, python):
    """One library serves both ways in."""
    with Victim(python, "idle") as victim:
        commands = Commands(probe, victim.pid)
        for way in [WAY, "", WAY, ""]:
            commands.attach(way)
            assert commands.eval("1 + 1") == "2\n"
            commands.detach()
        victim.judge()
        victim.end()


class Writer(threading.Thread):
    """Attaches, evaluates and detaches until something fails, as it does when the daemon dies."""

    def __init__(self, commands):
        super().__init__(daemon=True)
        self.commands, self.begun = commands, threading.Event()

    def run(self):
        self.begun.set()
        with contextlib.suppress(OSError):
            while True:
                self.commands.attach(WAY)
                assert self.commands.eval("sum(range(100))") == "4950\n"
                self.commands.detach()


@pytest.mark.deadline(300)
@pytest.mark.parametrize("kind", ["idle", "sums", "asyncio"])
def test_kill_the_daemon(probe, python, kind):
    """The program goes on, all its results right, and says nothing; the next daemon gets in."""
    dice = random.Random(SEED)
    with Victim(python, kind) as victim:
        mounted = probe.mount()
        for number in range(KILLS):
            writer = Writer(Commands(mounted, victim.pid))
            writer.start()
            writer.begun.wait()
            time.sleep(dice.random() * 0.03)
            mounted.kill()
            writer.join(patience(30))
            assert not writer.is_alive(), "a writer still waits"
            eventually(lambda: not {"t", "T"} & set(victim.target.states().values()), 2,
                       f"going on (seed {SEED})")
            if number % 5 == 0:
                victim.judge()
            mounted.start()
        commands = Commands(mounted, victim.pid)
        commands.attach(WAY)
        assert commands.eval("6 * 7") == "42\n"
        commands.detach()
        victim.judge()
        assert victim.target.stderr() == "", f"seed {SEED}"
        victim.end()
    # what the daemon had not yet told the program of goes with the next one's visit
    other = python.run_source(SLEEPS)
    Commands(mounted, other.pid).attach(WAY)
