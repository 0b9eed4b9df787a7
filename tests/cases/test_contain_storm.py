"""-o contain: what reads and acts for one user, and what runs statements, is killed and stopped again and again. That
costs whoever waits for it, and nobody else."""
import errno
import os
import pwd
import random
import signal
import threading
import time

import pytest

from interpreters import eventually, patience
from sql import reply, value
from test_contain import Sleeper, contained, debian, error_of, readers  # noqa: F401
from test_contain_sql import crash, runners

pytestmark = pytest.mark.attack

SECONDS = 300 if os.environ.get("PROBEFS_TEST_FULL") == "1" else 4
COSTS = {None, errno.EIO, errno.ETIMEDOUT, errno.EAGAIN}


def outcome(act):
    """None, or the number of the error that it ends in."""
    try:
        act()
        return None
    except OSError as error:
        return error.errno


class Storm:
    """Threads that go on for a while; over: when they are to end."""

    def __init__(self):
        self.over, self.failed, self.threads = threading.Event(), [], []

    def start(self, act):
        def run():
            try:
                while not self.over.is_set():
                    act()
            except BaseException as error:
                self.failed.append(error)
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(patience(120))
        if self.failed:
            raise self.failed[0]


def test_storm(contained, debian, nobody):
    uid, chance, storm = pwd.getpwnam(nobody).pw_uid, random.Random(4711), Storm()
    slowest, hits, said = 0, 0, {"theirs": [], "asked": [], "acted": []}
    with Sleeper(debian) as mine, Sleeper(debian, nobody) as theirs:
        query = contained.path / str(mine.pid) / "query"
        assert error_of(contained, mine.pid) is error_of(contained, theirs.pid) is None

        def hit():
            nonlocal hits
            time.sleep(chance.random() / 20)
            targets = sorted(runners(contained)) + [pid for pid, its in readers(contained) if int(its["Uid"][0]) == uid]
            if targets:
                try:
                    os.kill(chance.choice(targets), chance.choice([crash(), signal.SIGSTOP, signal.SIGKILL]))
                    hits += 1
                except ProcessLookupError:
                    pass

        def read_mine():
            nonlocal slowest
            begun = time.monotonic()
            assert error_of(contained, mine.pid) is None
            slowest = max(slowest, (time.monotonic() - begun) / patience(1))

        def ask():
            number = outcome(lambda: said.__setitem__("n", value(query, "SELECT count(*) FROM threads")))
            assert number or said["n"] == "1"
            said["asked"].append(number)

        def act_on_theirs():
            directory = contained.path / str(theirs.pid)
            number = outcome(lambda: said.__setitem__("a", reply(directory / "eval", "print(6 * 7)\n")))
            assert number or said["a"] == "42\n"
            said["acted"] += [number, outcome(lambda: (directory / "ctl").write_text("detach\n"))]

        def read_theirs():
            said["theirs"].append(error_of(contained, theirs.pid))

        for act in hit, read_mine, read_theirs, act_on_theirs, ask, ask:
            storm.start(act)
        time.sleep(SECONDS)
        eventually(lambda: storm.failed or (hits and None in said["acted"] and None in said["asked"]),
                   what="some that get through")
        storm.end()
        assert hits and {*said["theirs"]} <= COSTS and {*said["asked"]} <= COSTS, said
        assert {*said["acted"]} <= COSTS and None in said["acted"], said
        assert None in said["asked"]
        assert slowest < 10
        # after so many crashes it is started again only now and then
        eventually(lambda: error_of(contained, theirs.pid) is None, 120, "another one that reads")
        eventually(lambda: outcome(lambda: value(query, "SELECT 1")) is None, what="a statement")
        eventually(lambda: set(contained.children().values()) <= {"probefs-owner", "probefs-sql"},
                   what="no other child")  # one that has only begun hasn't its name yet
