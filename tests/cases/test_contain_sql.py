"""-o contain: what runs a statement has no rights at all, and what becomes of it is the trouble of who asked alone."""
import concurrent.futures
import contextlib
import errno
import os
import pathlib
import select
import signal
import struct
import time

import pytest

from interpreters import eventually, patience
from puppet import Puppet
from sql import refused, reply, value
from test_contain import Sleeper, contained, debian, status  # noqa: F401
from test_hostile import is_sanitized

pytestmark = pytest.mark.attack

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
LATE = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000000) " \
       "SELECT (SELECT max(x) FROM c) + (SELECT count(*) * 0 FROM threads) AS n" + " " * 2000 + ";"
CRASHED = "what ran the statement has crashed: nothing but this reply is lost"
RECVFROM = "45"


def crash():
    """The signal of one, which a sanitizer doesn't take for its own."""
    return signal.SIGABRT if is_sanitized() else signal.SIGSEGV


def runners(mount):
    """The pids of what runs statements, or is to run the next one, and of what starts that."""
    return {pid for pid, name in mount.children().items() if name == "probefs-sql"}


def at_rest(mount):
    """The pids of what starts the others and of what is to run the next text, while nothing runs: that has one filter
    of system calls more."""
    def found():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # what was just made as its maker was killed is waited for no longer than a second
            its = [(status(pid), pid) for pid in runners(mount)]
            by_filters = sorted((said["Seccomp_filters"], pid) for said, pid in its if said["State"][0] != "Z")
            return [filters for filters, _ in by_filters] == [["1"], ["2"]] and [pid for _, pid in by_filters]

    def stays():  # what ran the last one lives for a moment, perhaps before there is another for the next
        seen = found()
        for _ in range(10):
            time.sleep(0.02)
            if found() != seen:
                return False
        return seen
    return eventually(stays, what="what starts, and what is to run the next")


def worked(pid):
    """Whether it has computed, as it does once it has the text, or is gone by now."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] == "Z" or int(fields[11]) + int(fields[12]) >= 2  # ticks
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def running(mount, text):
    """Has a statement run: (what will have come of it, the pid of what runs it, the pid of what started that)."""
    query = mount.path / "all" / "query"
    assert value(query, "SELECT 1") == "1"
    starter, pid = at_rest(mount)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        said = pool.submit(lambda: refused(query, text) if text is ENDLESS else reply(query, text))
        eventually(lambda: runners(mount) - {starter, pid} and worked(pid), what="its work, and another for the next")
        yield said, pid, starter


@contextlib.contextmanager
def waiting(mount):
    """Has LATE run, as running(): it waits for an answer of the daemon, which is stopped."""
    while True:
        with running(mount, LATE) as (said, pid, starter):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            mount.process.send_signal(signal.SIGSTOP)
            try:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                if eventually(lambda: where(pid), what="its question") == RECVFROM:
                    yield said, pid, starter
                    return
            finally:
                mount.process.send_signal(signal.SIGCONT)


def where(pid):
    """RECVFROM: a process waits in that call; "gone"; None: it does something else."""
    try:
        call = pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0]
        return "gone" if status(pid)["State"][0] == "Z" else RECVFROM if call == RECVFROM else None
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def test_no_rights(contained, debian):
    """As if somebody had taken it over: it can do nothing but compute."""
    with waiting(contained) as (said, pid, starter):
        for one in pid, starter:
            its = status(one)
            assert its["NoNewPrivs"] == ["1"] and its["Seccomp"] == ["2"]
            assert len(set(its["Uid"] + its["Gid"])) == 1 and its["Uid"][0] not in ("0", "65534")
            assert its["Groups"] == [] and not any(int(its[f"Cap{which}"][0], 16) for which in ("Prm", "Eff", "Inh"))
            assert os.listdir(f"/proc/{one}/root") == []
            assert sorted(os.listdir(f"/proc/{one}/fd"), key=int) == ["0", "1", "2", "3"]
            # by the last a sanitizer says what it has found
            assert {os.readlink(f"/proc/{one}/fd/{fd}") for fd in range(3 - is_sanitized())} == {"/dev/null"}
        with Puppet(pid) as puppet:
            said_by_sanitizer = ["write"] * is_sanitized()
            for call in {"openat", "read", "write", "socket", "fork", "execve", "chroot", "mount", "unshare", "setns",
                         "clone3", "prctl", "nanosleep"}.difference(said_by_sanitizer):
                assert puppet.call(call, 0, 0, 0, 0, 0) == -errno.ENOSYS, call
            for other in contained.pid, starter, os.getpid():
                assert puppet.call("kill", other, 0) == -errno.ENOSYS
    assert said.result(patience(60)) == "n\n1000000\n"
    with Puppet(starter) as puppet:
        assert puppet.call("kill", contained.pid, 0) == -errno.ENOSYS
        for call in "openat", "read", "socket", "fork", "execve", "mount", "setns", "clone3":
            assert puppet.call(call, 0, 0, 0, 0, 0) == -errno.ENOSYS, call
    assert value(contained.path / "all" / "query", "SELECT 1") == "1"


def request(op, number=0, more=b""):
    """As owner/sql_message.h has it."""
    return struct.pack("=QQ", op, number) + more


def done(error=0, said=0, consumed=len(LATE)):
    return request(10, 0, struct.pack("=iIQQQQ", error, 0, consumed, 0, 0, said))


SAYS = b"n\n1\x1b[2J\xc2\x9b\r\n"


LIES = {
    "no error": [done(error=5)],
    "size": [done(said=1 << 40)],
    "consumed": [done(consumed=1 << 20)],
    "more": [done(said=2), b"more than two"],
    "operation": [request(99)],
    "garbage": [b"x"],
    "text": [request(2, 1 << 40)],  # the text, behind its end
    "tables": [request(3, 1000)],  # rows of so many tables ...
    "table": [request(3, 1, struct.pack("=IIQ", 9999, 0, 1))],  # ... of one that isn't there ...
    "column": [request(3, 1, struct.pack("=IIQ", 0, 0, 1 << 63))],  # ... of a column
    "rows": [request(4)],  # more rows than there are
    "no file": [request(7, 0, bytes(120))],  # of a file that it may not ask
    "cursor": [request(8, 1 << 40)],
    "twice": [request(1)],  # that it has begun
    "deaf": [request(2)] * 2000,  # it doesn't listen to the text, which is longer than what asks for it
}


def say(puppet, messages):
    for message in messages:
        sent = puppet.call("sendto", 3, message, len(message), 0x40, 0, 0)  # MSG_DONTWAIT
        assert sent == len(message) or sent == -errno.EAGAIN


def test_lies(contained, debian):
    """One that was taken over asks and tells what it likes: that costs its caller, and nobody else."""
    for what, messages in LIES.items():
        with waiting(contained) as (said, pid, starter), Puppet(pid) as puppet:
            say(puppet, messages)
        with pytest.raises(OSError) as refusal:
            said.result(patience(60))
        assert refusal.value.errno == errno.EIO, what
        assert value(contained.path / "all" / "query", "SELECT 1") == "1"
        eventually(lambda: pid not in runners(contained), what="its end")
        assert starter in runners(contained)
    with waiting(contained) as (said, pid, starter), Puppet(pid) as puppet:
        say(puppet, [done(said=len(SAYS)), SAYS])
    assert said.result(patience(60)) == "n\n1?[2J??\r\n"  # nothing for a terminal


def test_killed(contained, debian):
    """Whoever asked is told; whoever asks at the same time, or next, notices nothing."""
    with Sleeper(debian) as mine:
        query = contained.path / str(mine.pid) / "query"
        for how in crash(), signal.SIGKILL, signal.SIGSTOP:
            with running(contained, ENDLESS) as (said, pid, starter):
                os.kill(pid, how)
                assert value(query, "SELECT count(*) FROM threads") == "1"
                wanted = (errno.ETIMEDOUT, "what ran the statement was stopped, and ended: run it again") \
                    if how == signal.SIGSTOP else (errno.EIO, CRASHED)
                assert said.result(patience(60)) == wanted
            os.kill(starter, how)  # it is made anew
            assert value(query, "SELECT count(*) FROM threads") == "1"
            eventually(lambda: value(query, "SELECT 1") == "1" and starter not in runners(contained), what="another")
            os.kill(at_rest(contained)[1], signal.SIGKILL)  # so is one that has no text yet
            assert value(query, "SELECT count(*) FROM threads") == "1"


def test_each_of_its_own(contained):
    """Those that run statements begin as one, and have no number of chance in common."""
    query = contained.path / "all" / "query"
    assert len({value(query, "SELECT hex(randomblob(16))") for _ in range(6)}) == 6


def test_long(contained):
    """A text that is more than a message, and what comes of it."""
    query = contained.path / "all" / "query"
    for size in 61000, 61400, 61440, 64000:
        text = "x" * size
        assert value(query, f"SELECT '{text}'") == text
    rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000) SELECT x FROM c"
    assert reply(query, rows) == "x\n" + "".join(f"{x}\n" for x in range(1, 100001))


def test_ends_with_the_daemon(contained):
    with running(contained, ENDLESS) as (said, pid, starter):
        eventually(lambda: len(runners(contained)) == 3, what="the one that is to run the next, too")
        ended = [os.pidfd_open(one) for one in runners(contained)]
        contained.kill()
        contained.closed = True
        with pytest.raises(OSError):
            said.result(patience(60))
        for one in ended:
            assert select.select([one], [], [], patience(60))[0]
            os.close(one)
