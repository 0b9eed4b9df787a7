"""-o contain: what puts an agent into a process has that process's rights and no others, and lives for that alone; and
what a command has to know of its process is told by who reads it."""
import concurrent.futures
import contextlib
import errno
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

import sql
from interpreters import eventually, patience
from mount import REPOSITORY
from puppet import Puppet
from test_contain import (ALL_CAPABILITIES, RIGHTS, Sleeper, connections, contained, debian, error_of,  # noqa: F401
                          owners, reply, status, traced)
from test_contain_sql import crash
from test_contain_storm import outcome

pytestmark = pytest.mark.attack

COSTS = {None, errno.EIO, errno.ETIMEDOUT}


def run(mount, pid, code="print(6 * 7)", file="eval"):
    return sql.reply(mount.path / str(pid) / file, code + "\n")


def detach(mount, pid):
    (mount.path / str(pid) / "ctl").write_text("detach\n")


class Again:
    """As a context: an agent goes in and out again and again meanwhile."""

    def __init__(self, mount, pid):
        def go_on():
            while not self.over.is_set():
                self.said.append(outcome(lambda: run(mount, pid)))
                self.said.append(outcome(lambda: detach(mount, pid)))
        self.over, self.said, self.thread = threading.Event(), [], threading.Thread(target=go_on)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(patience(120))


def act_on(mount, known, do):
    """Calls do(pid, status) for each process of the mount's that isn't known."""
    for pid in set(mount.owners()) - known:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            do(pid, status(pid))


def test_daemon_does_not_act(contained, debian, nobody):
    """It traces nobody, reads no more of a process than what its agent says of itself, and takes no descriptor."""
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        victims = mine.pid, theirs.pid
        assert {*map(str, victims)} <= set(os.listdir(contained.path))

        def act():
            for pid in victims:
                assert run(contained, pid) == "42\n"
                assert run(contained, pid, "print(answer)", f"threads/{pid}/frames/0/eval") == "42\n"
                assert run(contained, pid, "print(answer)", f"threads/{pid}/eval") == "42\n"
                with (contained.path / str(pid) / "breakpoints").open("w") as file:
                    file.write("log waits()\n")
                assert "log waits()" in contained.read(pid, "breakpoints")
                assert "Agent: running, connected" in contained.read(pid, "status")
                with pytest.raises(OSError):
                    run(contained, pid, "print(answer)", f"threads/{agent_of(contained, pid)}/eval")

        assert not told(contained.pid, act)


LOOPS = """
import time
def waits(answer):
    print("ready", flush=True)
    while True:
        time.sleep(0.001)
waits(42)
"""


def told(pid, act):
    """What the daemon reads itself of processes while act() runs, but for what an agent says of itself and which
    threads are its own or held, and where whoever asks reads a source: lines of strace."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    said = traced(pid, act)
    # of what is unfinished the other half is what was read, unless strace goes before; and what failed has read nothing
    of_agent = re.compile(r'"PROBFS|iov_len=64}|process_vm_readv.* <(?:unfinished|detached)|process_vm_readv.* = -1 ')
    opens = re.compile(r'open(?:at)?\([^"]*"(?:/proc/\d+/)?(?:maps|mem|environ|exe|root|map_files/[^"]*)"')
    return [line for line in said if opens.match(line) and "O_PATH" not in line
            or re.match(r"(?:<\.\.\. )?(?:process_vm_readv|pidfd_getfd|ptrace|readlink)", line)
            and not of_agent.search(line)]


def test_daemon_is_told_for_ctl(contained, debian, nobody):
    """What a verb has to know of the process, and what ctl shows of it, is read with the process's own rights."""
    victim = debian.run_source(LOOPS, user=nobody, env={"RANK": "0"})
    ctl, thread = contained.path / str(victim.pid) / "ctl", contained.path / f"{victim.pid}/threads/{victim.pid}/ctl"
    assert error_of(contained, victim.pid) is None

    def act():
        assert "Agent: none\nInterpreter: 0\n" in ctl.read_text()
        assert thread.read_text() == "running\n"
        assert "Agent: running, connected" in sql.reply(ctl, "attach\n")
        assert "Agent: running, connected" in sql.reply(ctl, "status\n")
        for verb in "record gc on", "record gc off", "on-crash record", "on-crash off":
            assert sql.reply(ctl, verb + "\n")
        assert sql.reply(ctl, "heap sites on\n") == "HeapSites: on\n"
        assert sql.reply(ctl, "heap sites off\n") == "HeapSites: off\n"
        eventually(lambda: f"Stopped: {victim.pid}" in sql.reply(ctl, "pause\n"), what="its stop")
        assert f"Stopped: {victim.pid}" in ctl.read_text()
        assert re.match(r"stopped by pause at .*source.py:\d \(waits\) for .*, stop 1, goes on in \d+ s\n",
                        thread.read_text())
        sql.reply(thread, "next\n")
        eventually(lambda: "stopped by a step at" in thread.read_text(), what="a step")
        sql.reply(ctl, "continue\n")
        eventually(lambda: thread.read_text().startswith("running\n"), what="its going on")
        eventually(lambda: "stopped by pause at" in sql.reply(thread, "pause\n"), what="its stop")
        assert sql.reply(thread, "continue\n") == "running\n"
        everywhere = contained.path / "all" / "ctl"
        eventually(lambda: "Stopped: 1 thread\n" in sql.reply(everywhere, "on 0 stop all for 60s\n"), what="its stop")
        sql.reply(everywhere, "on 0 continue\n")
        assert "42" in sql.reply(contained.path / "all" / "eval", "on 0\n6 * 7\n")
        assert re.match("Agent: (none|ended)", sql.reply(ctl, "detach\n"))
        assert re.match("Agent: (none|loaded, not running)\n", ctl.read_text())

    assert not told(contained.pid, act)


def test_daemon_is_told_for_frames_and_heap(contained, debian, nobody):
    """What a frame's value is, where its source is, and what fills the heap, is read with the process's own rights."""
    victim = debian.run_source(LOOPS, user=nobody)
    directory = contained.path / str(victim.pid)
    frame = directory / "threads" / str(victim.pid) / "frames" / "0"
    assert error_of(contained, victim.pid) is None
    assert sql.reply(directory / "ctl", "attach\n") and os.listdir(directory / "sources")

    def act():
        assert sql.reply(frame / "value", "answer\n") == "answer = 42\n"
        assert "answer = 42\n" in sql.reply(frame / "value", "\n")
        assert "no_such" in sql.refused(frame / "value", "no_such.name\n")[1]
        assert "at most 1023 bytes" in sql.refused(frame / "value", "a" * 20000 + "\n")[1]
        source = (frame / "source").read_text()
        assert "time.sleep(0.001)\n" in source and "  ->  " in source
        (name,) = [name for name in os.listdir(directory / "sources") if name.endswith("!source.py")]
        assert (directory / "sources" / name).read_text() == LOOPS
        assert "HeapMarks: a\n" in sql.reply(directory / "ctl", "heap mark a\n")
        assert os.listdir(directory / "heap" / "diff") == ["a..now"]
        said = (directory / "heap" / "diff" / "a..now").read_text()
        assert re.match(r"# within \d+\.\d s, since .*\n", said), said
        assert "HeapMarks: a b\n" in sql.reply(directory / "ctl", "heap mark b\n")
        assert "# within" in (directory / "heap" / "diff" / "a..b").read_text()
        sql.reply(directory / "ctl", "heap drop a\n")
        assert os.listdir(directory / "heap" / "diff") == ["b..now"]

    assert not told(contained.pid, act)


def test_daemon_is_told_of_all(contained, debian, nobody):
    """What runs, where ranks stand, and which lines have allocated what lives, is read with the processes' rights."""
    victim = debian.run_source("print('ready', flush=True)\ndef spins():\n    while True: pass\nspins()\n", user=nobody)
    directory = contained.path / str(victim.pid)
    assert str(victim.pid) in os.listdir(contained.path)
    assert sql.reply(directory / "ctl", "heap sites on 1K\n") == "HeapSites: on\n"

    def act():
        eventually(lambda: "spins" in (directory / "top").read_text(), what="what runs")
        eventually(lambda: "spins" in contained.read("all", "top"), what="what runs")
        assert "no process here has a group" in contained.read("all", "collectives")
        assert re.match(r"# on, for \d+\.\d s, one in 1024 bytes sampled", (directory / "heap" / "sites").read_text())

    assert not told(contained.pid, act)
    stacks = "import os, sys\nprint('ready', flush=True)\ndef f():\n    os.abort()\nsys.stdin.readline()\nf()\n"
    with contextlib.closing(debian.run_source(stacks, name="aborts.py", user=nobody)) as ends:
        assert str(ends.pid) in os.listdir(contained.path)
        assert sql.reply(contained.path / str(ends.pid) / "ctl", "on-crash record\n") == "OnCrash: record\n"

        def end():
            ends.stdin.write(b"\n")
            ends.stdin.flush()
            assert ends.process.wait(patience(30)) == -signal.SIGABRT
            left = contained.path / "exited" / str(ends.pid) / "crash" / "backtrace"
            eventually(left.exists, what="what is left")
            text = left.read_text()
            assert "aborts.py:4" in text or not text  # it isn't waited for for ever

        assert not told(contained.pid, end)


WAITS = """
import fcntl, multiprocessing, os, select, sys, threading
lock, ends, taken, shared = threading.Lock(), os.pipe(), os.pipe(), multiprocessing.get_context("fork").Lock()
file = open(sys.argv[1], "w")
def other():
    kept = open(sys.argv[1], "w")
    fcntl.flock(kept, fcntl.LOCK_EX)
    with shared:
        os.write(taken[1], b"x")
        threading.Event().wait()
def takes():
    with lock:
        pass
def reads():
    os.read(ends[0], 1)
def polls():
    poll = select.poll()
    poll.register(ends[0], select.POLLIN)
    poll.poll()
def flocks():
    fcntl.flock(file, fcntl.LOCK_EX)
def shares():
    with shared:
        pass
if not (pid := os.fork()):
    other()
os.read(taken[0], 1)
print("ready\\n%d %d" % (pid, ends[1]), flush=True)
with lock:
    for run in takes, reads, polls, flocks, shares:
        threading.Thread(target=run).start()
    threading.Event().wait()
"""


def test_daemon_is_told_for_locks(contained, debian, nobody):
    """Who waits for what, and who is at the other ends, is read with those processes' own rights: its own and that of
    another user's. But for which descriptors there are, and which locks of files: that the kernel says."""
    with tempfile.TemporaryDirectory() as shared:
        os.chmod(shared, 0o777)
        victim = debian.run_source(WAITS, shared + "/file", user=nobody)
        other, fd = map(int, victim.readline().split())
        end = os.open(f"/proc/{other}/fd/{fd}", os.O_WRONLY)
        sleeps = subprocess.Popen(["sleep", "1000"], pass_fds=[end])
        os.close(end)
    directory, query = contained.path / str(victim.pid), contained.path / "all" / "query"
    ends = f"process {other} (", f"process {sleeps.pid} (sleep 1000)"
    wanted = {"takes": ["Lock lock", "held by thread"], "reads": ["reads a pipe", *ends],
              "polls": ["polls a pipe", *ends], "flocks": [f"file lock {shared}/file", "held by " + ends[0]],
              "shares": ["multiprocessing.Lock", "held by " + ends[0], ") (source.py:"]}

    def is_told():
        lines = (directory / "locks").read_text().splitlines()
        return all(any(f" in {who} (" in line and all(word in line for word in words) for line in lines)
                   for who, words in wanted.items())

    def act():
        eventually(is_told, what="all waits")
        statement = "SELECT holder_pid, kind, taken_func FROM locks JOIN threads USING (tid)"
        said = sql.reply(directory / "query", "-- format: csv\n" + statement).split()
        assert {f"{other},pipe,", f"{sleeps.pid},pipe,", f"{other},multiprocessing.Lock,other"} <= {*said}, said
        assert f",{other}," in (directory / "tables" / "locks.csv").read_text()
        said = sql.reply(query, "-- format: csv\nSELECT pid, holder_pid FROM locks").split()
        assert f"{victim.pid},{other}" in said

    with sleeps:
        try:
            act()
            of_descriptors = re.compile(r'readlinkat\(\d+, "\d+"|readlink\("/proc/\d+/fd/\d+"')
            assert not [line for line in told(contained.pid, act) if not of_descriptors.match(line)]
        finally:
            sleeps.kill()


def waits(*wait, thread=(1, 14, 0, 0, 0), holders=0, cycles=(0, 0), rest=()):
    """One wait, as fs/remote/waits/waits_told.c has it: `x` for `Lock`."""
    strings = b"\nLock\nheld by\nx\x1b[2J\xc2\x9b\n"
    return b"%d %s" % (len(strings), strings) + b"".join(
        b"%d " % number for number in (1, holders, *cycles, 0, 1, 0, 0, *wait, *rest, *thread))


WAITS_FOR_X = 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 6, 0, 0, 14, -1, 0, 0, 0, 0, 0


SOURCE = b"3 3 0 1 1 0\nf\n%s\n%s\n"


@pytest.mark.parametrize("file, said, read", [
    ("top", reply(text=b"f\x1bf\nx\n.\n"), "?f"),
    ("top", reply(text=b"fx"), ""),
    ("top", reply(text=b"fx\n"), errno.EIO),
    ("top", reply(text=b"x\n.\n"), errno.EIO),
    ("value", reply(text=b"a = \x1b[2J\n"), "a = ?[2J\n"),
    ("source", reply(text=SOURCE % (b"x\x1b", b"<x>".hex().encode())), "f (x?:3)\n(no source: x? is no file)\n"),
    ("source", reply(text=SOURCE % (b"x", b"x" * 8192)), errno.EIO),
    ("source", reply(text=SOURCE % (b"x", b"41" * 8192)), errno.EIO),
    ("source", reply(text=SOURCE % (b"x", b"4100")), errno.EIO),
    ("source", reply(text=b"3 3 0 1 1 0\nf"), errno.EIO),
    ("source", reply(text=b"x"), errno.EIO),
    ("source", reply(), errno.EIO),
    ("locks", reply(text=waits(*WAITS_FOR_X)), "thread 1 (x?[2J??) waits for Lock x?[2J??\n"),
    ("locks", reply(text=waits(2, *WAITS_FOR_X[1:])), errno.EIO),  # a process
    ("locks", reply(text=waits(*WAITS_FOR_X[:16], 1, 0, 0, 0)), errno.EIO),  # a holder that there isn't
    ("locks", reply(text=waits(*WAITS_FOR_X[:3], 4242, *WAITS_FOR_X[4:])), errno.EIO),  # such a string
    ("locks", reply(text=waits(*WAITS_FOR_X[:7], 0, *WAITS_FOR_X[8:])), errno.EIO),  # for nothing
    ("locks", reply(text=waits(*WAITS_FOR_X, cycles=(1, 1), rest=(1, 0, 0, 0))), errno.EIO),  # nobody holds it
    ("locks", reply(text=waits(*WAITS_FOR_X, 0)), errno.EIO),
    ("locks", reply(text=waits(*WAITS_FOR_X[:-1], 1 << 64)), errno.EIO),
    ("locks", reply(text=waits(*WAITS_FOR_X, thread=())), errno.EIO),
    ("locks", reply(text=b"1 \n"), errno.EIO),
    ("locks", reply(text=b"99999999 \n"), errno.EIO),
    ("locks", reply(text=b"x"), errno.EIO),
    ("locks", reply(), errno.EIO),
    ("growth", reply(text=b"1 0\n18446744073709551615 18446744073709551615 x\n"), errno.EIO),
    ("growth", reply(text=b"1 0\n1 1\n"), errno.EIO),
    ("growth", reply(), errno.EIO),
    ("growth", reply(text=b"1 0\n" + b"1099511627776 1099511627776 x\n" * 1000), "+109951"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_lies_to_files(contained, debian, nobody, file, said, read):
    with Sleeper(debian, nobody) as theirs:
        directory = contained.path / str(theirs.pid)
        frame = directory / "threads" / str(theirs.pid) / "frames" / "0"
        assert error_of(contained, theirs.pid) is None
        if file == "growth":
            sql.reply(directory / "ctl", "heap mark a\n")
        place, value = os.open(frame, os.O_PATH), os.open(frame / "value", os.O_RDWR)
        with Puppet(owners(contained)[pwd.getpwnam(nobody).pw_uid]) as puppet:
            for fd in connections(puppet.pid):
                assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
            try:
                if file == "value":
                    os.write(value, b"a\n")
                    assert os.read(value, 4096).decode() == read
                elif file == "source":
                    with open(os.open("source", os.O_RDONLY, dir_fd=place)) as opened:
                        assert opened.read() == read
                elif file == "locks":
                    assert contained.read(theirs.pid, "locks") == read
                elif file == "top":
                    assert read in (directory / "top").read_text()
                else:
                    assert read in (directory / "heap" / "diff" / "a..now").read_text()
            except OSError as error:
                assert error.errno == read
        os.close(place)
        os.close(value)
        assert 0 not in owners(contained)


@pytest.mark.parametrize("said, rows", [
    (waits(*WAITS_FOR_X), "waiter,name\nx?[2J??,x?[2J??\n"),
    (waits(2, *WAITS_FOR_X[1:]), None),
    (b"x", None),
    (b"", None),
], ids=["controls", "a process", "garbage", "nothing"])
def test_lies_about_locks(contained, debian, nobody, said, rows):
    """Waits stand behind the rows of a statement, of which there are none."""
    statement, said = "-- format: csv\nSELECT waiter, name FROM locks", reply(text=bytes(16) + said)
    with Sleeper(debian, nobody) as theirs:
        path = contained.path / str(theirs.pid) / "query"
        assert sql.reply(path, statement)
        with Puppet(owners(contained)[pwd.getpwnam(nobody).pw_uid]) as puppet:
            for fd in connections(puppet.pid):
                assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
        if rows:
            assert sql.reply(path, statement) == rows
        else:
            assert "has crashed" in sql.refused(path, statement)[1]


@pytest.mark.parametrize("said, shown", [
    (reply(text=b"0 0", why=b"Agent: \x1b[2J\xc2\x9b none\r\n"), "Agent: ?[2J?? none?\nInterpreter: 0\n"),
    (reply(text=b"all"), "Interpreter: 0\n"),
    (reply(-errno.EPERM), "Interpreter: 0\n"),
    (reply(size=1 << 40), "Interpreter: 0\n"),
    (b"x", "Interpreter: 0\n"),
], ids=["controls", "no numbers", "refused", "size", "garbage"])
def test_lies_to_ctl(contained, debian, nobody, said, shown):
    """What it is told is shown as what is read; where that can't be it is left out."""
    with Sleeper(debian, nobody) as theirs:
        assert contained.read(theirs.pid, "ctl").startswith("Agent: none\nInterpreter: 0\n")
        asked = owners(contained)  # root's is among them where it met this process before that had its user's ids
        pid = asked[pwd.getpwnam(nobody).pw_uid]
        with Puppet(pid) as puppet:
            for fd in connections(pid):
                assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
        assert contained.read(theirs.pid, "ctl").startswith(shown)
        assert set(owners(contained)) <= set(asked)


def agent_of(mount, pid):
    """The first of its agent's threads."""
    return re.search(r"^AgentThreads: (\d+)", mount.read(pid, "status"), re.M)[1]


@pytest.mark.parametrize("which", RIGHTS)
def test_acts_with_its_rights(contained, debian, nobody, which):
    """Exactly those, and root's where nothing else is enough, as for reading; it may write to that process's files."""
    who, under, takes_root = RIGHTS[which]
    with Sleeper(debian, under=under, **who) as victim:
        assert error_of(contained, victim.pid) is None
        known, twin, seen = set(contained.owners()), status(victim.pid), []

        def note(pid, said):
            if said["Seccomp"] == ["2"] and said["State"][0] != "Z":
                writable = [words[4] for words in map(str.split, open(f"/proc/{pid}/mountinfo"))
                            if "rw" in words[5].split(",")]
                if writable:  # others come to read
                    seen.append((said, writable))

        def is_seen():
            seen.clear()
            act_on(contained, known, note)
            return list(seen)
        with Again(contained, victim.pid) as again:
            said, writable = eventually(is_seen, what="what puts the agent in")[0]
        assert set(again.said) == {None}
        assert said["NoNewPrivs"] == ["1"] and writable == [f"/proc/{victim.pid}"]
        if takes_root:
            assert int(said["CapPrm"][0], 16) == ALL_CAPABILITIES
        else:
            assert said["Uid"] == twin["Uid"]
            if which != "its user's namespace":
                assert said["CapPrm"] == twin["CapPrm"] and said["Gid"] == twin["Gid"]
        eventually(lambda: not is_seen(), what="its end")


def test_two_callers_one_session(contained, debian, nobody):
    """Root and its user write to one process at once: one agent answers both, each has its own reply."""
    who = pwd.getpwnam(nobody).pw_uid

    def ask(user, number):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                os.setgroups([])
                os.setresgid(*[pwd.getpwnam(nobody).pw_gid] * 3 if user else [0] * 3)
                os.setresuid(user, user, user)
                os._exit(run(contained, theirs.pid, f"print({number})") != f"{number}\n")
            os._exit(2)
        return os.waitpid(child, 0)[1]

    with Sleeper(debian, nobody) as theirs, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert error_of(contained, theirs.pid) is None
        assert [*pool.map(ask, [0, who] * 12, range(24))] == [0] * 24
        said = contained.read(theirs.pid, "status")
        assert re.search("^AgentEvals: 24$", said, re.M) and said.count("AgentThreads: ") == 1


@pytest.mark.parametrize("how", ["crash", "kill", "stop"])
def test_killed(contained, debian, nobody, how):
    """That costs who writes; the process itself goes on, whatever had been done to it, and nobody else notices."""
    number = {"crash": crash(), "kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how]
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        assert error_of(contained, mine.pid) is error_of(contained, theirs.pid) is None
        known, hits = set(contained.owners()), []

        def hit(pid, said):
            os.kill(pid, number)
            hits.append(pid)

        def is_hit():
            act_on(contained, known, hit)
            assert error_of(contained, mine.pid) is None
            return len(hits) >= 5 and set(again.said) & {errno.EIO, errno.ETIMEDOUT}  # some have done it by then
        with Again(contained, theirs.pid) as again:
            eventually(is_hit, 60, "some that are hit")
        assert set(again.said) <= COSTS, again.said
        eventually(lambda: status(theirs.pid)["State"][0] == "S", what="that it sleeps on")
        eventually(lambda: outcome(lambda: run(contained, theirs.pid)) is None, 60, "an agent after all")
        assert run(contained, theirs.pid) == "42\n"
        eventually(lambda: set(contained.owners()) <= known, what="the end of all that were hit")


def test_filtered(contained, probe, debian, nobody):
    """Filters of system calls are read with root's rights: without these nobody knows what they would do."""
    strict = probe.mount("allow_other", "contain=strict")
    with Sleeper(debian, nobody) as theirs:
        assert run(strict, theirs.pid) == "42\n"
        detach(strict, theirs.pid)
    under = [str(REPOSITORY / "tests" / "seccomp-exec"), "EPERM", "bpf"]
    with Sleeper(debian, under=["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *under]) as theirs:
        assert outcome(lambda: run(strict, theirs.pid)) == errno.EPERM
        assert "seccomp filter that can't be read" in strict.read(theirs.pid, "errors")
        assert run(contained, theirs.pid) == "42\n"
