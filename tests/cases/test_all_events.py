"""all/events: what happens in every process that the reader may look at, those to come as well."""
import concurrent.futures
import errno
import json
import os
import pwd
import select
import socket
import subprocess
import sys
import time

import pytest

from agents import start
from interpreters import patience
from test_events import WRITER, Reader, kinds

SAYS_SO = """
import probing, sys
probing.event("hello", argument=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
"""


def of(lines, *targets):
    """Those of these processes: others run here, too."""
    pids = [target.pid for target in targets]
    return [line for line in lines if line["pid"] in pids]


def test_every_process(probe, any_python):
    one = start(any_python, WRITER, env={"RANK": "5"})
    other = start(any_python, WRITER)
    with Reader(probe, "all") as reader:
        for target, count in ((one, 3), (other, 2)):
            target.send(str(count))
            target.expect("done")
        lines = of(reader.read_until(lambda lines: len(of(lines, one, other)) >= 10), one, other)
        assert len(lines) == 10 and set(kinds(lines)) == {"event"}
        assert {line["host"] for line in lines} == {socket.gethostname()}
        for target, rank, count in ((one, 5, 3), (other, None, 2)):
            assert {line["rank"] for line in of(lines, target)} == {rank}
            for name in ("a", "b"):
                assert [line["attrs"]["i"] for line in of(lines, target) if line["name"] == name] == list(range(count))
        assert list(lines[0])[:5] == ["host", "rank", "ts", "kind", "pid"]
        one.close()
        lines = of(reader.read_until(lambda lines: "exit" in kinds(of(lines, one))), one)
        assert kinds(lines)[-1] == "exit"
        other.send("1")
        other.expect("done")
        reader.read_until(lambda lines: len(of(lines, other)) >= 6)


def test_one_that_comes_later(probe, any_python):
    """What it did before it was found isn't lost, and it is told of only once."""
    with Reader(probe, "all") as reader:
        target = start(any_python, SAYS_SO, "x")
        lines = of(reader.read_until(lambda lines: "event" in kinds(of(lines, target))), target)
        assert [line["attrs"] for line in lines if line["kind"] == "event"] == [{"argument": "x"}]
        target.close()
        lines = of(reader.read_until(lambda lines: "exit" in kinds(of(lines, target))), target)
        assert kinds(lines).count("event") == kinds(lines).count("attach") == 1


def test_nonblocking_and_interrupted(probe, any_python):
    target = start(any_python, WRITER)
    with Reader(probe, "all", os.O_NONBLOCK) as reader:
        try:
            while True:
                os.read(reader.fd, 65536)
        except OSError as error:
            assert error.errno == errno.EAGAIN
        target.send("1")
        assert select.select([reader.fd], [], [], patience(30))[0]
    cat = subprocess.Popen(["cat", probe.path / "all" / "events"], stdout=subprocess.DEVNULL)
    cat.terminate()
    assert cat.wait(patience(30)) == -15


def test_short_reads(probe, any_python):
    """Whatever size is read, no byte is lost."""
    target = start(any_python, WRITER)
    fd = os.open(probe.path / "all" / "events", os.O_RDONLY)
    try:
        target.send("20")
        target.expect("done")
        got = b""
        while got.count(b'"kind": "event", "pid": %d,' % target.pid) < 40:
            got += os.read(fd, 7)
        while not got.endswith(b"\n"):
            got += os.read(fd, 7)
        lines = of([json.loads(line) for line in got.splitlines()], target)
        assert len([line for line in lines if line["kind"] == "event"]) == 40
    finally:
        os.close(fd)


def test_64_readers(probe, any_python):
    """Each sees each event, of one process and of all."""
    target = start(any_python, WRITER)
    names = [str(target.pid), "all"] * 32
    readers = [Reader(probe, name) for name in names]
    try:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            done = [pool.submit(reader.read_until, lambda lines: len(of(lines, target)) >= 400)
                    for reader in readers]
            target.send("200")
            for one in done:
                lines = of(one.result(), target)
                assert kinds(lines) == ["event"] * 400
                for name in ("a", "b"):
                    assert [line["attrs"]["i"] for line in lines if line["name"] == name] == list(range(200))
    finally:
        for reader in readers:
            os.close(reader.fd)


READ = """
import os, select, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
print("reads", flush=True)
got = b""
while select.select([fd], [], [], 2)[0]:
    got += os.read(fd, 65536)
print(got.decode())
"""


def test_another_user(probe, any_python, nobody):
    """Sees what its own processes do, and no others'."""
    mine = start(any_python, WRITER)
    user = pwd.getpwnam(nobody)
    with probe.mount("allow_other") as mounted, Reader(mounted, "all") as reader:
        theirs = subprocess.Popen(
            ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", sys.executable, "-c",
             READ, str(mounted.path / "all" / "events")], stdout=subprocess.PIPE, text=True)
        assert theirs.stdout.readline() == "reads\n"
        mine.send("5")
        reader.read_until(lambda lines: len(of(lines, mine)) >= 10)
        said, _ = theirs.communicate(timeout=patience(30))
        assert theirs.returncode == 0
        assert of([json.loads(line) for line in said.splitlines() if line], mine) == []


POOL = """
import os, sys
print("ready", flush=True)
while sys.stdin.readline():
    waits, end = os.pipe()
    for _ in range(400):
        if os.fork() == 0:
            os.close(end)
            os.read(waits, 1)
            os._exit(0)
    print("there", flush=True)
    sys.stdin.readline()
    os.close(end)
    for _ in range(400):
        os.wait()
    os.close(waits)
    print("ended", flush=True)
"""


@pytest.mark.long
def test_slow_reader(probe, any_python):
    """Of processes that come and go while nobody reads only so many are kept; what is lost is said."""
    with Reader(probe, "all") as reader:
        target = any_python.run_source(POOL)
        for seconds in 1, 2, 4, 8, 16:  # until they all have been found, on a machine that is busy
            target.send("begin")
            target.expect("there")
            time.sleep(seconds)
            target.send("end")
            target.expect("ended")
            time.sleep(seconds)  # nobody reads; what is kept is looked at every half second
            while select.select([reader.fd], [], [], patience(2))[0]:
                reader.read()
            if "lost" in kinds(reader.lines):
                break
        lines = reader.lines
        lost = [line for line in lines if line["kind"] == "lost"]
        assert lost and all(line["pid"] == 0 and line["rank"] is None and line["count"] > 0 for line in lost)
        target.close()
        reader.read_until(lambda lines: "exit" in kinds(of(lines, target)))
