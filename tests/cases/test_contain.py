"""-o contain: what reads a user's processes has that user's rights and no others, and what becomes of it is nobody
else's trouble."""
import concurrent.futures
import contextlib
import errno
import os
import pathlib
import pwd
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import mount as daemon
import sql
from interpreters import eventually, interpreters, patience
from puppet import Puppet, leave
from stopping import reads_input
from test_hostile import is_sanitized
from watching import needs_hardware

pytestmark = pytest.mark.attack

SLEEPS = """
import ctypes, sys
def waits(answer):
    print("ready", flush=True)
    sys.stdin.read()
if sys.argv[1] == "hides":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
waits(42)
"""
SPINS = """
import threading, time
def descend(n, then):
    return descend(n - 1, then) if n else then()
def spin():
    n = 0
    while True:
        n += 1
        if n % 100000 == 0:
            time.sleep(0.0001)
for _ in range(4):
    threading.Thread(target=descend, args=(30, lambda: time.sleep(10000)), daemon=True).start()
print("ready", flush=True)
descend(30, spin)
"""
ALL_CAPABILITIES = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapPrm")), 16)


def status(pid):
    lines = (line.partition(":") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {key: value.split() for key, _, value in lines}


def readers(mount):
    """[(pid, its status)] of what reads for the mount."""
    found = []
    for pid in mount.owners():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            said = status(pid)
            if said["State"][0] != "Z":
                found.append((pid, said))
    return found


def owners(mount):
    """{uid: pid} of these."""
    return {int(said["Uid"][0]): pid for pid, said in readers(mount)}


class Sleeper:
    """A process that says nothing and does nothing, of any user; under: what starts it."""

    def __init__(self, interpreter, user=None, word="stays", group=None, under=()):
        who = {}
        if user:
            entry = pwd.getpwnam(user)
            who = dict(user=entry.pw_uid, group=entry.pw_gid if group is None else group, extra_groups=[4242])
        self.process = subprocess.Popen([*under, *interpreter.command(), "-c", SLEEPS, word], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, cwd="/", env={"LC_ALL": "C"}, **who)
        assert self.process.stdout.readline() == b"ready\n"
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def debian():
    if os.geteuid():
        pytest.skip("only root can take on the rights of others")
    found = next((i for i in interpreters() if i.source == "debian"), None)
    return found or pytest.skip("Debian's python is not installed")


@pytest.fixture
def contained(probe, debian):
    return probe.mount("allow_other", "contain=yes")


def error_of(mount, pid, file="locals"):
    """None, or the number of the error that reading ends in."""
    try:
        assert "answer = 42" in mount.read(pid, "threads", pid, file)
        return None
    except OSError as error:
        return error.errno


def test_rights(contained, probe, debian, nobody):
    uid = pwd.getpwnam(nobody).pw_uid
    plain = probe.mount("allow_other", "contain=no")
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        for victim in mine, theirs:
            for file in "stacks.folded", f"threads/{victim.pid}/locals", "tables/backtrace.csv":
                eventually(lambda file=file: contained.read(victim.pid, file) == plain.read(victim.pid, file),
                           what=f"the same {file}")  # it may have just gone to sleep
            assert os.listdir(contained.path / str(victim.pid) / "globals") == \
                os.listdir(plain.path / str(victim.pid) / "globals")
        assert not owners(plain)
        found = owners(contained)
        assert set(found) == {0, uid}
        said, twin = status(found[uid]), status(theirs.pid)
        for key in "Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapInh", "CapAmb":
            assert said[key] == twin[key], key
        for pid in found.values():
            assert status(pid)["NoNewPrivs"] == ["1"] and status(pid)["Seccomp"] == ["2"]
            # nothing of the daemon's, and no terminal or log; under sanitizers it says what it has found
            links = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
                     if fd != "2" or not is_sanitized()}
            assert all(re.match("/dev/null$|/proc/|socket:|anon_inode:", link) for link in links), links
        assert int(status(found[0])["CapPrm"][0], 16) == ALL_CAPABILITIES
        # its own user can end it, but not look into it
        looks = subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "cat",
                                f"/proc/{found[uid]}/environ"], capture_output=True)
        assert looks.returncode and b"Permission denied" in looks.stderr


@pytest.mark.skipif(bool(daemon.CONTAIN), reason="this run says it for all mounts")
def test_by_default(probe, debian, nobody):
    """Of root's daemon, where others are let in; where that can't be, it says so and reads itself."""
    allows, alone = probe.mount("allow_other"), probe.mount()
    filtered = probe.mount("allow_other", within=[daemon.REPOSITORY / "tests" / "seccomp-exec", "EPERM", "pivot_root"])
    with Sleeper(debian, nobody) as theirs:
        for mount in allows, alone, filtered:
            assert error_of(mount, theirs.pid) is None
        assert pwd.getpwnam(nobody).pw_uid in owners(allows)
        assert not owners(alone) and not owners(filtered)
    assert "contain=no, as it is mounted now" in filtered.log() and not allows.log() and not alone.log()


# makes a user namespace, in which it then is user argv[1], and executes the rest; 0 there is 100000 here
INSIDE = """
import ctypes, os, sys
me, ends = os.getpid(), os.pipe()
child = os.fork()
if child == 0:
    os.read(ends[0], 1)
    for name in "uid_map", "gid_map":
        open(f"/proc/{me}/{name}", "w").write("0 100000 65536")
    os._exit(0)
assert ctypes.CDLL(None).unshare(0x10000000) == 0  # CLONE_NEWUSER
os.write(ends[1], b"x")
assert os.waitpid(child, 0)[1] == 0
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
os.execv(sys.argv[2], sys.argv[2:])
"""
# who it is; what starts it; whether nothing but root's rights are enough
RIGHTS = {
    "another group": (dict(user="nobody", group=4243), (), False),
    "ambient capability": (dict(), ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                                    "--inh-caps=+net_raw", "--ambient-caps=+net_raw"), False),
    "not dumpable": (dict(user="nobody", word="hides"), (), True),
    "setuid": (dict(), ("setpriv", "--ruid=nobody", "--euid=root", "--clear-groups"), True),
    "setgid": (dict(), ("setpriv", "--reuid=nobody", "--rgid=nogroup", "--egid=root", "--clear-groups"), True),
    "its user's namespace": (dict(user="nobody"), ("unshare", "--user", "--map-root-user"), False),
    "root's namespace, user": (dict(), (sys.executable, "-c", INSIDE, "1000"), False),
    "root's namespace, root": (dict(), (sys.executable, "-c", INSIDE, "0"), False),
    "a container's root": (dict(), ("setpriv", "--bounding-set=-all,+chown,+net_raw"), False),
}


@pytest.mark.parametrize("which", RIGHTS)
def test_whose_rights(contained, probe, debian, nobody, which):
    """Exactly those of the process, which the kernel itself finds enough; else root's, or nobody's."""
    who, under, takes_root = RIGHTS[which]
    strict = probe.mount("allow_other", "contain=strict")
    with Sleeper(debian, under=under, **who) as victim:
        assert error_of(contained, victim.pid) is None
        ((pid, said),) = readers(contained)
        twin = status(victim.pid)
        if takes_root:
            assert int(said["CapPrm"][0], 16) == ALL_CAPABILITIES
            assert error_of(strict, victim.pid) == errno.EPERM
            assert str(victim.pid) not in os.listdir(strict.path)
            return
        assert error_of(strict, victim.pid) is None
        assert said["Uid"] == twin["Uid"]
        if which == "its user's namespace":  # whose owner may do anything in it, without any capability
            assert said["CapPrm"] == ["0000000000000000"]
            return
        for key in "Gid", "Groups", "CapPrm", "CapEff":
            assert said[key] == twin[key], key
        assert os.readlink(f"/proc/{pid}/ns/user") == os.readlink(f"/proc/{victim.pid}/ns/user")


def test_confined(contained, debian, nobody):
    """What has root's ids can do nothing with them but read its processes: as if one had taken it over."""
    with Sleeper(debian, under=RIGHTS["a container's root"][1]) as victim:
        assert error_of(contained, victim.pid) is None
        ((pid, said),) = readers(contained)
        assert said["Uid"] == ["0"] * 4
        assert os.listdir(f"/proc/{pid}/root") == ["proc"]
        mounts = [line.split() for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        assert sorted(words[4] for words in mounts) == ["/", "/proc"]
        assert all({"ro", "nosuid", "nodev", "noexec"} <= {*words[5].split(",")} for words in mounts)
        with Puppet(pid) as puppet:
            def opens(path, flags=os.O_RDONLY):
                return puppet.call("openat", -100, path.encode() + b"\0", flags)
            assert opens("/etc/shadow") == -errno.ENOENT
            assert opens("/proc/1/root/etc/shadow") == opens("/proc/1/mem") == -errno.EACCES
            assert opens("/proc/sys/kernel/core_pattern", os.O_WRONLY) == -errno.EROFS
            assert opens(f"/proc/{victim.pid}/root/etc/passwd") > 0  # it is its process's own
            for call in "socket", "fork", "execve", "chroot", "mount", "unshare", "setns", "clone3":
                assert puppet.call(call, 0, 0, 0, 0, 0) == -errno.ENOSYS, call
            assert puppet.call("kill", victim.pid, 0) == 0
            assert puppet.call("kill", victim.pid, signal.SIGTERM) == -errno.ENOSYS
        assert error_of(contained, victim.pid) is None
        assert [pid for pid, _ in readers(contained)] == [pid]


def test_rests(contained, debian, nobody):
    """What has read a process that records something waits for its end, and for nothing else."""
    with Sleeper(debian, nobody) as theirs:
        directory = contained.path / str(theirs.pid)
        (directory / "ctl").write_text("record gc on\n")
        assert error_of(contained, theirs.pid) is None
        assert "waits" in sql.reply(directory / "query", "SELECT func FROM backtrace")
        pid = owners(contained)[pwd.getpwnam(nobody).pw_uid]

        def rests():
            for _ in range(20):
                time.sleep(0.01)
                for tid in os.listdir(f"/proc/{pid}/task"):
                    if pathlib.Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(") ")[2][0] != "S":
                        return False
            return True
        eventually(rests, what="all its threads asleep")


def test_forgets_who_has_ended(contained, debian, nobody):
    """What has read a process keeps nothing of it once that has ended and nobody asks for a while."""
    def watched(pid):
        """Of whom it has pidfds; -1: one who has ended."""
        found = []
        for file in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it is closed just now
                found += map(int, re.findall(r"^Pid:\s+(-?\d+)$", file.read_text(), re.M))
        return sorted(found)

    with Sleeper(debian, nobody) as lives:
        with Sleeper(debian, nobody) as ends:
            assert error_of(contained, lives.pid) is None and error_of(contained, ends.pid) is None
            pid = owners(contained)[pwd.getpwnam(nobody).pw_uid]
            assert watched(pid) == sorted([lives.pid, ends.pid])
        assert error_of(contained, lives.pid) is None
        eventually(lambda: watched(pid) == [lives.pid], what="nothing of the one who has ended")


@needs_hardware
def test_while_traced(contained, debian):
    """Who traces a process is the only one who can stop its threads: all is read there, names too."""
    target = debian.run_source("import sys\nclass W: pass\nw = W()\nw.x = 1.5\nprint('ready', flush=True)\n"
                               "for line in sys.stdin:\n    w.x += 1\n")
    directory = contained.path / str(target.pid)
    sql.reply(directory / "breakpoints", "log watch w.x hw=ptrace\n")
    eventually(lambda: status(target.pid)["TracerPid"] != ["0"], what="the watch")
    assert {"sys", "__main__"} <= set(os.listdir(directory / "globals"))
    assert "source.py" in " ".join(os.listdir(directory / "sources"))
    assert "maxsize" in (directory / "globals" / "sys").read_text()
    assert "<module>" in sql.reply(directory / "query", "SELECT func FROM backtrace")
    assert "<module>" in (directory / "backtrace").read_text()
    eventually(lambda: reads_input(target.pid), what="its read(2), on from the stop for what was read")
    assert "reads a pipe" in (directory / "locks").read_text()
    eventually(lambda: reads_input(target.pid), what="its read(2), on from that stop")
    assert "pipe" in sql.reply(directory / "query", "SELECT kind FROM locks")


def traced(pid, act):
    """What a process does itself while act() runs, and no child that executes something: lines of strace."""
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory) / "log"
        # what is executed goes on by itself: who stands still at each call is taken for one that was stopped
        strace = subprocess.Popen(["strace", "-f", "-b", "execve", "-o", log, "-p", str(pid), "-e",
                                   "trace=process_vm_readv,pidfd_getfd,ptrace,open,openat,readlink,readlinkat,"
                                   "clone,clone3"],
                                  stderr=subprocess.PIPE, text=True)
        try:
            assert "attached" in strace.stderr.readline()
            act()
        finally:
            strace.send_signal(signal.SIGINT)
            try:
                strace.communicate(timeout=patience(5))
            except subprocess.TimeoutExpired:  # it waits for one that somebody else has stopped
                strace.kill()
                strace.communicate()
        lines = [words for line in log.read_text().splitlines() if len(words := line.split(None, 1)) == 2]
    its, shares, begun, found = {pid, *map(int, os.listdir(f"/proc/{pid}/task"))}, {}, {}, []
    for tid, line in lines:  # threads that are gone are those of theirs who made them
        if re.match(r"clone3?\(", line):
            shares[tid] = "CLONE_THREAD" in line
        made = re.match(r"(?:<\.\.\. )?clone3?.*= (\d+)$", line)
        if made and shares.get(tid) and int(tid) in its:
            its.add(int(made[1]))
        if line.endswith(" <unfinished ...>"):
            begun[tid] = line.removesuffix(" <unfinished ...>")
        elif int(tid) in its:
            resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", line)
            found.append(begun.pop(tid, "") + resumed[1] if resumed else line)
    return found + [line for tid, line in begun.items() if int(tid) in its]


def test_daemon_reads_nothing(contained, debian, nobody):
    """What it lists and shows of all processes it has been told: it opens no more than says whose they are."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")

    def look():
        with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
            assert {str(mine.pid), str(theirs.pid)} <= set(os.listdir(contained.path))
            for victim in mine, theirs:
                assert error_of(contained, victim.pid) is None
                assert {"status", "threads"} <= set(os.listdir(contained.path / str(victim.pid)))
                assert not (contained.path / str(victim.pid) / "torch").exists()
                contained.read(victim.pid, "status")
                contained.read(victim.pid, "tables", "threads.csv")
                assert "stays" in sql.reply(contained.path / str(victim.pid) / "query",
                                            "SELECT command, func FROM process, backtrace, environ, modules LIMIT 1")
                assert "LC_ALL" in contained.read(victim.pid, "tables", "environ.csv")
            for file in "backtrace", "stacks.folded", "backtrace.python", "stacks.python.folded":
                assert "waits" in contained.read("all", file)
            assert {str(mine.pid), str(theirs.pid)} <= set(
                sql.reply(contained.path / "all" / "query", "-- format: csv\nSELECT pid FROM threads").split())
            assert os.listdir(contained.path / "by-rank") == []

    # an agent's own record and rings: all/ may have brought one into whoever runs the cases
    said = [line for line in traced(contained.pid, look)
            if '"PROBFS' not in line and f'"/proc/{os.getpid()}/fd/' not in line]
    opened = {re.sub(r"\d+", "N", path) for line in said for path in re.findall(r'^open(?:at)?\([^"]*"([^"]*)"', line)}
    # the maps: of whatever else is in a namespace of its own just now; fdinfo: of who has written a statement;
    # self/fd: what it has open already, as those rings
    assert opened <= {"/proc", "/proc/N/stat", "/proc/N/statm", "/proc/N/status", "/proc/N/auxv", "/proc/N/ns/user",
                      "/proc/N/uid_map", "/proc/N/gid_map", "/proc/N/task", "N/status", "/proc/N/syscall",
                      "/proc/self/task/N/comm", "/dev/null", "/proc/sys/vm/overcommit_memory",
                      "/proc/N/fdinfo", "/proc/N/fdinfo/N", "/proc/self/fd/N", "/etc/localtime"}, opened
    assert "/proc/N/stat" in opened
    assert not [line for line in said if re.match("process_vm_readv|pidfd_getfd|ptrace|readlink", line)]


def connections(pid):
    """The descriptors that an owner process is asked by."""
    return [int(fd) for fd in os.listdir(f"/proc/{pid}/fd")
            if int(fd) > 4 and os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")]


def reply(error=0, text=b"", size=None, why=b""):
    """As owner/message.h has it."""
    return struct.pack("=iiIIIxxxxQ", error, 0, len(why), 0, 0, len(text) if size is None else size) + why + text


@pytest.mark.parametrize("said, read, words", [
    (reply(text=b"answer = 42\n\x1b[2J\xc2\x9b\r\n"), "answer = 42\n?[2J???\n", None),
    (reply(-errno.EPERM), errno.EPERM, "and the kernel says that it may"),
    (reply(-errno.ENOENT), errno.ENOENT, None),
    (reply(4242), errno.EIO, "has crashed"),
    (reply(size=1 << 40), errno.EIO, "has crashed"),
    (b"x", errno.EIO, "has crashed"),
], ids=["controls", "refused", "an error", "no error", "size", "garbage"])
def test_lies(contained, debian, nobody, said, read, words):
    """One that was taken over says what it likes: that reaches no terminal, and nobody with more rights is asked."""
    uid = pwd.getpwnam(nobody).pw_uid
    with Sleeper(debian, nobody) as theirs:
        assert error_of(contained, theirs.pid) is None
        pid = owners(contained)[uid]
        with Puppet(pid) as puppet:
            for fd in connections(pid):
                assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
        try:
            assert contained.read(theirs.pid, "threads", theirs.pid, "locals") == read
        except OSError as error:
            assert error.errno == read
        if words:
            assert words in contained.read(theirs.pid, "errors")
        assert 0 not in owners(contained)


@pytest.mark.parametrize("said, words", [
    (reply(-errno.EOPNOTSUPP), "not supported"),
    (reply(-errno.ENOMEM), ""),
    (reply(text=b"\0" * 8 + b"\xff" * 8), "has crashed"),  # so many rows
    (reply(text=struct.pack("=QQQ", 0, 1, 4242)), "has crashed"),  # of more columns
    (reply(), "has crashed"),
], ids=["refused", "no memory", "many", "others", "nothing"])
@pytest.mark.parametrize("all", [False, True], ids=["one", "all"])
def test_lies_about_rows(contained, debian, nobody, all, said, words):
    """What is asked of one process fails; of all processes the others have their rows."""
    statement = "-- format: csv\nSELECT DISTINCT pid FROM maps" if all else "SELECT count(*) FROM maps"
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        path = contained.path / ("all" if all else str(theirs.pid)) / "query"
        assert sql.reply(path, statement)
        with Puppet(owners(contained)[pwd.getpwnam(nobody).pw_uid]) as puppet:
            for fd in connections(puppet.pid):
                assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
        if all:
            found = sql.reply(path, statement).split()
            assert str(mine.pid) in found and str(theirs.pid) not in found
            assert words.lower() in contained.read(theirs.pid, "errors").lower()
        else:
            assert words.lower() in sql.refused(path, statement)[1].lower()


def test_recorded(contained, debian, nobody):
    """Who reads a process decodes what it records, too; once it has ended, somebody without any rights does."""
    statement, nameless = "SELECT count(*) FROM gc", 0x7ffffffe

    def lie(pid):
        with Puppet(pid) as puppet:
            for fd in connections(pid):
                assert puppet.call("sendto", fd, reply(), len(reply()), 0, 0, 0) == len(reply())

    with Sleeper(debian, nobody) as theirs:
        directory = contained.path / str(theirs.pid)
        (directory / "ctl").write_text("record gc on\n")
        assert sql.reply(directory / "eval", "import gc; _ = gc.collect()\n") == ""
        rows = sql.value(directory / "query", statement)
        assert int(rows) > 0
        lie(owners(contained)[pwd.getpwnam(nobody).pw_uid])
        assert "has crashed" in sql.refused(directory / "query", statement)[1]
        assert int(sql.value(directory / "query", statement)) >= int(rows)
    directory = contained.path / "exited" / str(theirs.pid)
    eventually(directory.exists, what="what is left")
    rows = sql.value(directory / "query", statement)
    assert int(rows) > 0
    its = status(owners(contained)[nameless])
    assert its["Groups"] == [] and not any(int(its[f"Cap{which}"][0], 16) for which in ("Prm", "Eff", "Inh"))
    lie(owners(contained)[nameless])
    assert "has crashed" in sql.refused(directory / "query", statement)[1]
    assert sql.value(directory / "query", statement) == rows
    found = sql.reply(contained.path / "all" / "query", "-- format: csv\nSELECT pid, count(*) FROM gc GROUP BY 1")
    assert f"{theirs.pid},{rows}" in found


def test_few_wait_for_one_user(contained, debian, nobody):
    """Of the mount's threads: who has many groups, and their owner processes in hand, holds up nobody else."""
    uid = pwd.getpwnam(nobody).pw_uid
    over, ended, begun = threading.Event(), [], time.monotonic()

    def read(victim):
        while not over.is_set():
            said = error_of(contained, victim.pid)
            if said is not None:
                ended.append(said)
                return

    with Sleeper(debian) as mine, Sleeper(debian, nobody) as one, Sleeper(debian, nobody, group=4243) as two, \
            concurrent.futures.ThreadPoolExecutor(48) as pool:
        for victim in mine, one, two:
            assert error_of(contained, victim.pid) is None
        for pid, said in readers(contained):
            if int(said["Uid"][0]) == uid:
                for tid in os.listdir(f"/proc/{pid}/task"):  # it answers nothing, and accepts no connection
                    leave(int(tid), "nanosleep", struct.pack("qq", 1000, 0), 0)
        reading = [pool.submit(read, victim) for victim in (one, two) * 24]
        try:
            eventually(lambda: errno.EAGAIN in ended, 10, "one that is too many")
            for _ in range(5):
                assert error_of(contained, mine.pid) is None
            assert set(ended) == {errno.EAGAIN} or time.monotonic() - begun > 10  # for so long the others wait
        finally:
            over.set()
        assert not concurrent.futures.wait(reading, patience(60)).not_done


def test_many_read_one_user(contained, debian, nobody):
    """As long as there are answers, who is too many only waits."""
    with Sleeper(debian, nobody) as theirs, concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert not any(pool.map(lambda _: error_of(contained, theirs.pid), range(512)))


def test_two_who_stop_threads(contained, debian, nobody):
    """What the daemon itself reads, and its owner process: neither takes a thread for one that is debugged."""
    with debian.run_source(SPINS, user=nobody) as victim:
        over = threading.Event()

        def ask():
            while not over.is_set():
                contained.read(victim.pid, "locks")

        asker = threading.Thread(target=ask)
        asker.start()
        try:
            for _ in range(300):
                begun = time.monotonic()
                said = contained.read(victim.pid, "backtrace")
                # what is read so late may be of a reader, or a thread, that had no processor
                assert "unreadable" not in said and "torn" not in said and "no native frames" not in said or \
                    time.monotonic() - begun > 0.05, said
        finally:
            over.set()
            asker.join(patience(60))


@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGKILL, signal.SIGSTOP], ids=lambda s: s.name)
def test_killed(contained, debian, nobody, how):
    """Its owner reads again; nobody else notices."""
    uid = pwd.getpwnam(nobody).pw_uid
    over, errors = threading.Event(), []

    def read_mine():
        while not over.is_set():
            errors.append(error_of(contained, mine.pid))

    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        assert error_of(contained, theirs.pid) is None
        reader = threading.Thread(target=read_mine)
        reader.start()
        try:
            for _ in range(3):
                before = owners(contained)[uid]
                os.kill(before, how)
                if how == signal.SIGSTOP:
                    eventually(lambda: status(before)["State"][0] == "T", 10, "its stop")
                else:
                    eventually(lambda: before not in owners(contained).values(), 10, "its end")
                # what is asked of one that is gone is asked of the next; one that is stopped is ended
                said = error_of(contained, theirs.pid)
                assert said in ((errno.ETIMEDOUT,) if how == signal.SIGSTOP else (None, errno.EIO))
                eventually(lambda: error_of(contained, theirs.pid) is None, 30, "another one that reads")
                assert owners(contained)[uid] != before
        finally:
            over.set()
            reader.join(patience(30))
        assert errors and not any(errors)


def test_crashes_at_the_same_place(contained, debian, nobody):
    """Killed whenever it reads: it is started again, but not all the time, and the errors say so."""
    uid = pwd.getpwnam(nobody).pw_uid
    over = threading.Event()

    def kill():
        while not over.is_set():
            for pid in [pid for who, pid in owners(contained).items() if who == uid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    with Sleeper(debian, nobody) as theirs:
        assert error_of(contained, theirs.pid) is None  # one that is not known yet has no `errors`
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            def told():
                error_of(contained, theirs.pid)
                return "times in a row: it is started again in" in contained.read(theirs.pid, "errors")
            eventually(told, 60, "a pause between two starts")
        finally:
            over.set()
            killer.join(patience(30))
        eventually(lambda: error_of(contained, theirs.pid) is None, 60, "a start after the pause")


def test_strict(probe, debian, nobody):
    """What needs root's rights since it is root's is read; what comes to need them isn't, and is told why."""
    strict = probe.mount("allow_other", "contain=strict")
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        for victim in mine, theirs:
            assert error_of(strict, victim.pid) is None
        with Puppet(theirs.pid) as puppet:
            assert puppet.call("prctl", 4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
        eventually(lambda: error_of(strict, theirs.pid) == errno.EPERM, 10, "the refusal")
        assert "only root's rights are enough" in strict.read(theirs.pid, "errors")


def test_is_not_read_in_turn(contained, debian, nobody):
    """What reads for a user: that would take one with root's rights for each of them."""
    with Sleeper(debian, nobody) as theirs:
        for _ in range(2):  # of what has come since, too
            assert str(theirs.pid) in os.listdir(contained.path)
        # one that is only starting has not taken on its user's yet
        eventually(lambda: [int(said["Uid"][0]) for _, said in readers(contained)].count(0) <= 1, what="its own alone")


def test_ends_with_the_daemon(contained, debian, nobody):
    with Sleeper(debian, nobody) as theirs:
        assert error_of(contained, theirs.pid) is None
        (pid,) = owners(contained).values()
        ended = os.pidfd_open(pid)
        contained.kill()
        assert select.select([ended], [], [], patience(20))[0]
        os.close(ended)
        contained.closed = True


def test_reads_itself(contained, debian):
    """A program that reads its own stack waits for the mount, and is never stopped for that."""
    reads = f"import os; print(open(f'{contained.path}/{{os.getpid()}}/backtrace').read())"
    said = subprocess.run([*debian.command(), "-c", reads], capture_output=True, text=True, timeout=patience(30))
    assert "<module> (<string>:1)" in said.stdout, said.stderr


def test_unknown_word(debian, tmp_path):
    from mount import build
    said = subprocess.run([build() / "fs" / "probefs", "-f", "-o", "contain=maybe", tmp_path], capture_output=True,
                          text=True)
    assert said.returncode == 2 and "contain takes no, yes" in said.stderr
