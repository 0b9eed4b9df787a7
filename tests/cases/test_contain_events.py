"""-o contain: what a process has recorded is decoded by who has no rights, for events, exited/ and the history as well;
what becomes of that one is late, or said to be lost, and nobody else's trouble."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import threading
import time

import pytest

import sql
from interpreters import eventually
from puppet import Puppet
from recorded import do, recorded  # noqa: F401
from test_contain import connections, contained, debian, reply, status, traced  # noqa: F401
from test_events import Reader

pytestmark = [pytest.mark.attack, pytest.mark.python(minimum=(3, 10))]

NAMELESS = 0x7ffffffe


def begin(target, size=1 << 20):
    do(target, f"events = open_ring('events', {size})")
    do(target, "event = lambda i: events.write(time.time(), 1, None, 'event', f'number {i}', None, None)")


def write(target, first, count):
    do(target, f"[event(i) for i in range({first}, {first + count})]")


def numbers(lines):
    return [int(line["name"].split()[1]) for line in lines if line["kind"] == "event"]


def told(lines):
    return sum(line["count"] if line["kind"] == "lost" else line["kind"] == "event" for line in lines)


def mapped(pid):
    return [line for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if "probefs-ring" in line]


def decoders(mount):
    """What decodes, of all users."""
    found = []
    for pid in mount.children():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            its = status(pid)
            if its["Uid"][0] == str(NAMELESS) and its["State"][0] != "Z":
                found.append(pid)
    return found


def lie(mount, said):
    """Has all of them say that to what they are asked next; one that is asked, and ended for it, before it has said so
    by all of its connections has lied enough."""
    for pid in decoders(mount):
        with contextlib.suppress(ProcessLookupError), Puppet(pid) as puppet:
            for n, fd in enumerate(connections(pid)):
                try:
                    assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
                except (AssertionError, ProcessLookupError):
                    assert n
                    break


def test_no_rights(contained, recorded, nobody):
    """All of it is read, and the mount's process has nothing of it in its memory."""
    target = recorded(user=nobody)
    begin(target)
    write(target, 0, 3)
    os.stat(contained.path / str(target.pid))
    with Reader(contained, target.pid) as one, Reader(contained, "all") as all_:
        write(target, 3, 5)
        for reader in one, all_:
            lines = reader.read_until(lambda lines: len(numbers(lines)) >= 5)
            assert numbers(lines) == [3, 4, 5, 6, 7]
            assert {line["pid"] for line in lines} == {target.pid}
        assert "Record: events" in contained.read(target.pid, "ctl")
        its = status(*decoders(contained))
        assert its["Groups"] == [] and not any(int(its[f"Cap{which}"][0], 16) for which in ("Prm", "Eff", "Inh"))
        target.process.kill()
        assert one.rest()[-1]["kind"] == "exit"
    left = contained.path / "exited" / str(target.pid)
    eventually(left.exists, what="what it left")
    assert "rows=8 lost=0" in (left / "status").read_text()
    assert not mapped(contained.pid)


def test_daemon_reads_nothing(probe, debian, recorded, nobody, tmp_path):
    """Who follows it opens the rings, and looks at numbers of the kernel's and the agent's record."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    mount = probe.mount("allow_other", "contain=yes", f"history={tmp_path}/h.db", "history_interval=1s")
    target = recorded(user=nobody)

    def follow():
        begin(target)
        do(target, "import threading; over = threading.Event(); other = threading.Thread(target=over.wait)")
        with Reader(mount, target.pid, beside=()) as one, Reader(mount, "all") as all_:
            write(target, 0, 3)
            do(target, "other.start()")
            one.read_until(lambda lines: told(lines) == 3 and any(line["kind"] == "thread" for line in lines))
            all_.read_until(lambda lines: told(lines) == 3)
            eventually(lambda: sql.value(mount.path / "all" / "query", "SELECT count(*) FROM history.samples "
                                         f"WHERE pid = {target.pid} AND running IS NOT NULL") != "0", 60, "samples")
            do(target, "over.set()")

    said = traced(mount.pid, follow)
    opened = {re.sub(r"\d+", "N", path) for line in said for path in re.findall(r'^open(?:at)?\([^"]*"([^"]*)"', line)}
    assert opened and not [path for path in opened if re.search("/(mem|maps|map_files.*|exe|environ|cmdline|root.*)$",
                                                                 path)], opened
    assert not [line for line in said if re.match(r"(<\.\.\. )?(process_vm_readv|pidfd_getfd|ptrace)", line)
                and '"PROBFS' not in line and "unfinished" not in line]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda s: s.name)
def test_killed(contained, recorded, nobody, how):
    """In the middle of it: no line is missing that isn't said to be lost, and others have theirs."""
    mine, theirs = recorded(), recorded(user=nobody)
    for target in mine, theirs:
        begin(target)
        os.stat(contained.path / str(target.pid))
    with Reader(contained, theirs.pid) as reader, Reader(contained, mine.pid) as other:
        for turn in range(3):
            write(theirs, 100 * turn, 50)
            reader.read_until(lambda lines: told(lines) >= 100 * turn + 50)
            for pid in decoders(contained):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            write(theirs, 100 * turn + 50, 50)
            write(mine, 100 * turn, 100)
            reader.read_until(lambda lines: told(lines) >= 100 * turn + 100, 60)
            other.read_until(lambda lines: told(lines) >= 100 * turn + 100, 60)
        for one in reader, other:
            assert numbers(one.lines) == list(range(300)) and told(one.lines) == 300


def test_stopped_is_their_trouble(contained, recorded, nobody):
    """While what decodes for one user is stopped whenever there is any, root's lines come as ever."""
    mine, theirs = recorded(), recorded(user=nobody)
    for target in mine, theirs:
        begin(target)
        os.stat(contained.path / str(target.pid))
    over, stopped = threading.Event(), set()

    def stop_theirs():
        while not over.is_set():
            for pid in set(decoders(contained)) - its - stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.add(pid)
            time.sleep(0.001)
    with Reader(contained, mine.pid) as other:
        write(mine, 0, 1)
        other.read_until(lambda lines: numbers(lines) == [0])
        its = set(decoders(contained))
        assert len(its) == 1
        with Reader(contained, theirs.pid) as reader:
            stopper = threading.Thread(target=stop_theirs)
            stopper.start()
            try:
                write(theirs, 0, 10)
                eventually(lambda: stopped, what="one that is stopped")
                for i in range(1, 50):
                    write(mine, i, 1)
                    other.read_until(lambda lines: numbers(lines) == list(range(i + 1)))
            finally:
                over.set()
                stopper.join()
            reader.read_until(lambda lines: told(lines) == 10, 90)
            assert numbers(reader.lines) == list(range(10))
        assert set(decoders(contained)) >= its


@pytest.mark.parametrize("said", [
    reply(),
    reply(text=b"\0" * 7),
    reply(text=b"\xff" * 4096),
    reply(size=1 << 40),
    b"x",
], ids=["nothing", "short", "garbage", "size", "no reply"])
def test_lies(contained, recorded, nobody, said):
    """What can't be an answer is none: it is asked again, and nothing is told twice."""
    target = recorded(user=nobody)
    begin(target)
    os.stat(contained.path / str(target.pid))
    with Reader(contained, target.pid) as reader:
        write(target, 0, 10)
        reader.read_until(lambda lines: told(lines) == 10)
        lie(contained, said)
        write(target, 10, 10)
        reader.read_until(lambda lines: told(lines) >= 20, 60)
        assert numbers(reader.lines) == list(range(20))


def test_lies_in_rows(contained, recorded, nobody):
    """Whatever a row says, it is its own process's, and drives no terminal."""
    target = recorded(user=nobody)
    begin(target)
    os.stat(contained.path / str(target.pid))
    controls = "\\x1b[2J\\n\\r\\x7f\\x9b"
    with Reader(contained, target.pid) as reader:
        do(target, f"events.write(time.time(), 1, None, 'event', '{controls}', None, "
                   f"'{{\"pid\": 1, \"{controls}\": 2}}')")
        do(target, "events.write(time.time(), 1, None, 'event\", \"pid\": 1, \"x\": \"', 'last', None, "
                   "'}, \"pid\": 1')")
        lines = reader.read_until(lambda lines: lines and lines[-1].get("name") == "last")
        assert {line["pid"] for line in lines} == {target.pid}
        assert not {chr(c) for c in [*range(32), 127, *range(128, 160)]} & set(reader.bytes.decode().replace("\n", ""))


GARBAGE = {
    "zeros": "events.memory[4096:1 << 20] = bytes((1 << 20) - 4096)",
    "ones": "events.memory[4096:1 << 20] = b'\\xff' * ((1 << 20) - 4096)",
    "header": "events.memory[:4096] = b'\\xff' * 4096",
    "blocks": "struct.pack_into('@II', events.memory, 64, 0x7fffffff, 0x7fffffff)",
    "head": "struct.pack_into('@Q', events.memory, 72, 1 << 63)",
    "rows": "[struct.pack_into('@IIQQ', events.memory, at, 1 << 31, 7, 1 << 62, 1 << 62) "
            "for at in range(4128, 1 << 20, 8192)]",
    "random": "events.memory[64:1 << 20] = os.urandom((1 << 20) - 64)",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage(contained, recorded, nobody, what):
    """It costs lines of that process alone; another ring in its place is followed as ever, and so is its end."""
    mine, theirs = recorded(), recorded(user=nobody)
    for target in mine, theirs:
        begin(target)
        os.stat(contained.path / str(target.pid))
    with Reader(contained, theirs.pid) as reader, Reader(contained, mine.pid) as other:
        write(theirs, 0, 10)
        reader.read_until(lambda lines: told(lines) == 10)
        do(theirs, GARBAGE[what])
        for i in range(10):
            write(mine, i, 1)
            other.read_until(lambda lines: numbers(lines) == list(range(i + 1)))
        begin(theirs)
        write(theirs, 1000, 1)
        os.stat(contained.path / str(theirs.pid))
        reader.read_until(lambda lines: 1000 in numbers(lines), 60)
        do(theirs, GARBAGE[what])
        theirs.process.kill()
        assert reader.rest()[-1]["kind"] == "exit"
        assert {line["pid"] for line in reader.lines} == {theirs.pid}
    left = contained.path / "exited" / str(theirs.pid)
    eventually(left.exists, what="what it left")
    assert "Exit: signal 9" in (left / "status").read_text()
    assert not mapped(contained.pid)


def test_history(probe, debian, recorded, nobody, tmp_path):
    """What is appended comes the same way, before and after an end."""
    mount = probe.mount("allow_other", "contain=yes", f"history={tmp_path}/h.db", "history_interval=1s")
    target = recorded(user=nobody)
    begin(target)
    do(target, "exceptions = open_ring('exceptions')")
    do(target, "raised = lambda i: exceptions.write(time.time(), *[None if t != 'T' else str(i) "
               "for t in layouts['exceptions'][0][1:]])")
    os.stat(mount.path / str(target.pid))

    def rows(table):
        return int(sql.value(mount.path / "all" / "query",
                             f"SELECT count(*) FROM history.{table} WHERE pid = {target.pid} "
                             f"AND {'kind' if table == 'events' else chr(39) + 'event' + chr(39)} = 'event'"))
    write(target, 0, 5)
    do(target, "[raised(i) for i in range(5)]")
    eventually(lambda: rows("events") == 5 and rows("exceptions") == 5, 60, "what it recorded")
    for pid in decoders(mount):  # and what runs statements, which may have ended
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    write(target, 5, 5)
    do(target, "[raised(i) for i in range(5, 10)]")
    target.process.kill()
    eventually(lambda: rows("events") == 10 and rows("exceptions") == 10, 60, "the rest")
    assert not mapped(mount.pid)
