"""The cases of tests/arm64: run by the machine that it starts, as root, beside nothing else. What a victim says of
itself (faulthandler, sys._current_frames(), its own counters) judges what the mount says. Arguments: names of cases;
none: all."""
import ast
import collections
import contextlib
import csv
import ctypes
import errno
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import traceback

from stacks import parse_backtrace

MOUNT, OUT = pathlib.Path("/mnt"), pathlib.Path("/tmp/victim.out")
STACKS, SAYS = pathlib.Path("/tmp/stacks"), pathlib.Path("/tmp/says")
VICTIM = '''
import ctypes, faulthandler, json, select, signal, sys, threading, time
counter = wrong = rounds = 0
called = []
def tick(n):
    square = n * n
    called.append(n)
    return square
def sleeps(n):
    total = {"n": n, "half": n / 2}
    time.sleep(1e6)
def sleeps_below_c():
    """In a function whose return address is signed, where the processor does that."""
    ctypes.PyDLL("/signed.so").signed_call(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: sleeps(21)))
def busy():
    global wrong, rounds
    while True:
        if sum(float(i) * 0.5 for i in range(200)) != 9950.0:
            wrong += 1
        rounds += 1
def waits():
    lock.acquire()
def polls():
    select.select([sys.stdin], [], [], 1e6)
def say(*_):
    """What it knows of itself."""
    frames = {t.native_id: sys._current_frames()[t.ident] for t in threading.enumerate()}
    with open("/tmp/says", "w") as file:
        json.dump({"ids": {f"{t.ident:x}": t.native_id for t in threading.enumerate()},
                   "locals": {i: repr(f.f_locals) for i, f in frames.items() if f.f_code.co_name == "sleeps"},
                   "counter": counter, "wrong": wrong, "rounds": rounds, "called": called}, file)
        file.write("\\n")
class Kept:
    pass
kept = [Kept() for _ in range(4321)]
lock = threading.Lock()
lock.acquire()
for function in sleeps_below_c, busy, waits, polls:
    threading.Thread(target=function, name=function.__name__, daemon=True).start()
faulthandler.register(signal.SIGUSR1, file=open("/tmp/stacks", "w"), all_threads=True)
signal.signal(signal.SIGUSR2, say)
print("ready", flush=True)
while True:
    time.sleep(0.02)
    counter += 1
    tick(counter)
'''

STARTED = []
SLEEPERS = '''
import ctypes, select, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def sleeps():
    epoll, event = select.epoll(), (ctypes.c_char * 16)()
    epoll.register(sys.stdin, select.EPOLLIN)
    print("returned", libc.epoll_wait(epoll.fileno(), event, 1, -1), ctypes.get_errno(), flush=True)
threads = [threading.Thread(target=sleeps) for _ in range(3)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sleeps()
for thread in threads:
    thread.join()
'''


def eventually(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not in {seconds} s"
        time.sleep(0.05)
    return value


def start(*arguments, **options):
    STARTED.append(subprocess.Popen(*arguments, **options))
    return STARTED[-1]


class Victim:
    def __init__(self, *within, source=VICTIM):
        pathlib.Path("/tmp/victim.py").write_text(source)
        with OUT.open("w") as out:
            self.process = start([*within, "python3", "/tmp/victim.py"], stdin=subprocess.PIPE, stdout=out, stderr=out)
        self.pid = self.process.pid
        eventually("a victim that is ready", lambda: "ready" in OUT.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, OUT.read_text()
        self.before = self.footprint()

    def footprint(self):
        """Its threads, and what is mapped that has code or a name of ours."""
        maps = pathlib.Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return (sorted(os.listdir(f"/proc/{self.pid}/task")),
                [line for line in maps if "x" in line.split()[1] or "memfd" in line or "probefs" in line])

    def says(self):
        SAYS.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR2)
        eventually("its own words", lambda: SAYS.exists() and SAYS.read_text().endswith("\n"))
        return json.loads(SAYS.read_text())

    def stacks(self, ids=None):
        """faulthandler's: {tid: [(function, file, line), ...]}, innermost first."""
        ids, begin = ids or self.says()["ids"], STACKS.stat().st_size
        os.kill(self.pid, signal.SIGUSR1)
        eventually("its own stacks", lambda: STACKS.read_text()[begin:].endswith("in <module>\n"))
        found = {}
        for line in STACKS.read_text()[begin:].splitlines():
            if head := re.match(r"(?:Current thread|Thread) 0x0*([0-9a-f]+) ", line):
                frames = found[ids.get(head[1])] = []  # one of an agent is none of its own
            elif frame := re.match(r'  File "(.*)", line (\d+) in (.*)', line):
                frames.append((frame[3], frame[1], int(frame[2])))
        return found

    def goes_on(self):
        before, now = self.says(), {}
        eventually("both threads go on", lambda: now.update(self.says()) or all(
            now[name] > before[name] + 3 for name in ("counter", "rounds")))
        assert now["wrong"] == 0, f"{now['wrong']} wrong sums"
        assert OUT.read_text() == "ready\n", OUT.read_text()

    def is_as_before(self):
        eventually(f"no thread and no mapping more than {self.before}, but {self.footprint()}",
                   lambda: self.footprint() == self.before)


class Refused(OSError):
    pass


def read_all(fd):
    return b"".join(iter(lambda: os.read(fd, 65536), b"")).decode()


class Daemon:
    def __init__(self, pid, **environment):
        with open("/tmp/log", "w") as log:
            self.process = start(["/probefs", "-f", str(MOUNT)], stdout=log, stderr=log,
                                 env={**os.environ, **environment})
        self.at = MOUNT / str(pid)
        eventually(f"the mount ({pathlib.Path('/tmp/log').read_text()})", lambda: os.path.ismount(MOUNT))
        eventually("the victim's directory", lambda: pid == 0 or self.at.exists())

    def read(self, name):
        return (self.at / name).read_text()

    def run(self, name, text):
        """What the file says to it."""
        fd = os.open(self.at / name, os.O_RDWR)
        try:
            os.write(fd, f"{text}\n".encode())
        except OSError as error:
            raise Refused(error.errno, read_all(fd)) from None
        else:
            return read_all(fd)
        finally:
            os.close(fd)

    def hits(self):
        """The values of n that the breakpoints saw, in the order of the hits."""
        rows = csv.DictReader(io.StringIO(self.run("query", "SELECT * FROM hits ORDER BY rowid").strip()))
        return [int(json.loads(row["captured"])["n"]) for row in rows]

    def kill(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["umount", "-l", str(MOUNT)], check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def both(*within):
    victim = Victim(*within)
    daemon = Daemon(victim.pid)
    yield victim, daemon
    victim.goes_on()
    assert daemon.process.poll() is None, pathlib.Path("/tmp/log").read_text()
    end_all()


def end_all():
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
        subprocess.run(["umount", "-l", str(MOUNT)], check=False, stderr=subprocess.DEVNULL)


def line_of(text):
    return next(i for i, line in enumerate(VICTIM.splitlines(), 1) if text in line)


def case_status():
    with both() as (victim, daemon):
        status, ids = dict(re.findall(r"(.*?): (.*)", daemon.read("status"))), victim.says()["ids"]
        assert status["Python"] == sys.version.split()[0] and status["Supported"] == "yes", status
        assert int(status["Threads"]) == int(status["PythonThreads"]) == len(ids) == 5, status
        assert status["Uid"] == "0" and int(status["PPid"]) == os.getpid() and status["Agent"] == "none", status


def case_backtrace():
    """Python's frames are those that faulthandler has; native ones go down to where the thread began."""
    libc = ctypes.CDLL("libc.so.6")
    maps = pathlib.Path("/proc/self/maps").read_text()
    clone = ctypes.cast(libc.clone, ctypes.c_void_p).value - int(re.search(r"([0-9a-f]+)-.*libc\.so\.6", maps)[1], 16)
    whole = collections.Counter()
    with both() as (victim, daemon):
        while len(whole) < 5 or min(whole.values()) < 10:
            text = daemon.read("backtrace")
            seen, own = parse_backtrace(text, victim.pid).threads, victim.stacks()
            assert set(seen) == set(own) and len(own) == 5, (text, own)
            for tid, thread in seen.items():
                frames = [(name.rpartition(".")[2], file, line) for name, file, line in thread.frames]
                moves = thread.name in ("busy", "MainThread")
                if moves:  # these were elsewhere then
                    inner = ("busy", "tick", "say", "<genexpr>")
                    frames, own[tid] = ([f[:2] for f in stack if f[0] not in inner] for stack in (frames, own[tid]))
                assert frames == own[tid] and not thread.unreadable, f"{text}{tid}: {own[tid]}"
                if moves and thread.native_end == ["unreadable: no native frames: the thread ran meanwhile"]:
                    continue
                last = re.search(r"^  #\d+  (.*) \((.*)\+(0x.*)\) \[native\]$", thread.lines[-1])
                assert last and not thread.native_end, text
                assert last[1] == "_start" if tid == victim.pid else \
                    last[2] == "libc.so.6" and 0 < int(last[3], 16) - clone < 256, text
                assert thread.name != "sleeps_below_c" or "signed_call" in [f[1] for f in thread.native], text
                whole[tid] += 1
            assert whole.total() < 500 or len(whole) == 5, whole


def case_locals():
    with both() as (victim, daemon):
        (tid, own), = victim.says()["locals"].items()
        text = daemon.read(f"threads/{tid}/locals")
        assert dict(re.findall(r"^ +(n|total) = (.*)$", text, re.M)) == {k: repr(v) for k, v in
                                                                         ast.literal_eval(own).items()}, (text, own)


def case_eval():
    with both() as (victim, daemon):
        before, seen, after = victim.says(), int(daemon.run("eval", "counter")), victim.says()
        assert before["counter"] <= seen <= after["counter"]
        ids = daemon.run("eval", "[t.native_id for t in threading.enumerate()]")
        assert sorted(ast.literal_eval(ids)) == sorted(before["ids"].values())
        daemon.run("eval", "counter = 10 ** 9")
        assert victim.says()["counter"] >= 10 ** 9
        with raises(errno.EIO, "ZeroDivisionError"):
            daemon.run("eval", "1 / 0")
        daemon.run("ctl", "detach")
        victim.is_as_before()


def case_breakpoint():
    with both() as (victim, daemon):
        line = line_of("called.append")
        for condition, step in ("", 1), ("if n % 5 == 0", 5):
            begin = len(daemon.hits())
            daemon.run("breakpoints", f"log victim.py:{line} {{n}} {condition}")
            eventually("ten hits", lambda: len(daemon.hits()) >= begin + 10)
            daemon.run("breakpoints", f"-victim.py:{line}")
            hits, called = daemon.hits(), victim.says()["called"]
            seen = hits[begin:]
            assert seen == list(range(seen[0], seen[0] + len(seen) * step, step)), seen
            assert set(seen) <= set(called) and (step == 1 or seen[0] % step == 0), seen
            victim.goes_on()
            assert daemon.hits() == hits, "it hits though it was removed"
        daemon.run("ctl", "detach")
        victim.is_as_before()


def case_stop():
    with both() as (victim, daemon):
        line, ids = line_of("called.append"), victim.says()["ids"]
        daemon.run("breakpoints", f"stop victim.py:{line} if n % 7 == 0")
        eventually("a held thread", lambda: "breakpoint" in daemon.read(f"threads/{victim.pid}/ctl"))
        n = int(re.search(r"^n = (\d+)", daemon.read(f"threads/{victim.pid}/frames/0/locals"), re.M)[1])
        for _ in range(5):
            assert victim.stacks(ids)[victim.pid][0] == ("tick", "/tmp/victim.py", line)
        daemon.run("breakpoints", f"-victim.py:{line}")
        victim.goes_on()
        called = victim.says()["called"]
        assert n % 7 == 0 and called == list(range(1, len(called) + 1)), (n, called)


def case_census():
    """It finds the pages that are in memory, whatever their size is."""
    with both() as (victim, daemon):
        text = daemon.read("heap/census")
        assert re.search(r"^4321 \d+ __main__\.Kept$", text, re.M), text


def case_forked():
    """A child records nothing where its parent does."""
    with both() as (victim, daemon):
        daemon.run("eval", "import os, probing\nprobing.event('before')\npid = os.fork()\nif not pid:\n"
                           " try: probing.event('of the child')\n finally: os._exit(0)\n"
                           "os.waitpid(pid, 0)\nprobing.event('of the parent')")
        query = "SELECT name FROM events ORDER BY rowid"
        eventually("both rows", lambda: daemon.run("query", query) == "name\nbefore\nof the parent\n")


def case_again():
    """Attached and detached beside a thread that computes."""
    with both() as (victim, daemon):
        for _ in range(20):
            assert daemon.run("eval", "6 * 7") == "42\n"
            daemon.run("ctl", "detach")
            victim.is_as_before()
            assert victim.says()["wrong"] == 0


def case_killed():
    """The daemon is killed before and after each call by which it traces, while it attaches."""
    victim, at, ended, found = Victim(), 0, False, []
    while not ended:
        at += 1
        daemon = Daemon(victim.pid, LD_PRELOAD="/dies.so", DIES_AT=str(at))
        with contextlib.suppress(OSError):
            daemon.run("ctl", "attach")
            ended = True
        assert ended or daemon.process.wait() == -signal.SIGKILL, pathlib.Path("/tmp/log").read_text()
        daemon.kill()
        victim.goes_on()
        daemon = Daemon(victim.pid)
        found.append(re.search("Agent: (.*)", daemon.read("status"))[1])
        assert daemon.run("eval", "6 * 7") == "42\n"
        daemon.run("ctl", "detach")
        victim.is_as_before()
        daemon.kill()
    assert found[0] == "none" and found[-2] == "running" and len(found) > 8, found


def case_seccomp():
    may = {"ptrace": True, "memfd_create": False, "unlinkat": False, "tgkill": None, "ppoll": None}  # None: either
    for name, works in may.items():
        with both("python3", "/seccomp-exec", "kill", name) as (victim, daemon):
            try:
                assert daemon.run("eval", "6 * 7") == "42\n" and works is not False, name
                daemon.run("ctl", "detach")
            except Refused as refused:
                assert refused.errno == errno.EPERM and "seccomp" in refused.strerror and not works, (name, refused)
            victim.is_as_before()


def case_interrupted():
    """A stop has no call return EINTR that a signal would."""
    victim = Victim(source=SLEEPERS)
    daemon = Daemon(victim.pid)
    for _ in range(5):
        assert daemon.run("eval", "6 * 7") == "42\n"
        daemon.run("ctl", "detach")
        victim.is_as_before()
    assert OUT.read_text() == "ready\n", OUT.read_text()
    victim.process.communicate(b"\n")
    assert OUT.read_text() == "ready\n" + "returned 1 0\n" * 4 and victim.process.returncode == 0, OUT.read_text()


@contextlib.contextmanager
def raises(number, word):
    try:
        yield
    except Refused as refused:
        assert refused.errno == number and word in refused.strerror, refused
    else:
        raise AssertionError(f"no {word}")


def main(names):
    failed = 0
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    for name in names or cases:
        begin = time.monotonic()
        try:
            cases[name]()
            said = "ok"
        except Exception:
            said, failed = f"not ok\n{traceback.format_exc()}", failed + 1
        end_all()
        print(f"{name:40} {time.monotonic() - begin:4.0f} s  {said}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
