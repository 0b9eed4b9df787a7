"""kill -9 of the daemon and of the program while rows are written at full speed and read by eight."""
import json
import os
import random
import threading
import time
import zlib

import pytest

from commands import Commands
from interpreters import eventually, patience
from sql import ask

pytestmark = [pytest.mark.long, pytest.mark.python(minimum=(3, 10))]

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
KILLS = 200 if FULL else 5
SEED = int(os.environ.get("PROBEFS_TEST_SEED", time.time_ns() % 10**6))
READERS = 8

WRITER = """
import sys, threading, zlib
print("ready", flush=True)
sys.stdin.readline()
import probing
print("writing", flush=True)

def work():
    n = 0
    while True:
        n += 1
        name = f"{n:x}." * (1 + n % 9)
        with probing.span(name, n=n, sum=zlib.crc32(name.encode())):
            pass

threading.Thread(target=work, daemon=True).start()
sys.stdin.read()
"""
LATEST = "SELECT id, name, duration, attrs FROM spans WHERE id > (SELECT max(id) FROM spans) - 500 ORDER BY id"


def check(rows):
    """Each row is whole, and none is missing but at the beginning. Returns the last one's number."""
    numbers = []
    for row in rows:
        attrs = json.loads(row["attrs"])
        assert row["name"] == f"{attrs['n']:x}." * (1 + attrs["n"] % 9)
        assert zlib.crc32(row["name"].encode()) == attrs["sum"]
        assert row["duration"] == "" or 0 <= float(row["duration"]) < 10
        numbers.append(attrs["n"])
    assert numbers and numbers == list(range(numbers[0], numbers[-1] + 1))
    return numbers[-1]


class Reader(threading.Thread):
    """Asks for the latest rows until the file fails: error. wrong: what was wrong with rows."""

    def __init__(self, file):
        super().__init__(daemon=True)
        self.file, self.error, self.wrong, self.answers = file, None, None, 0
        self.start()

    def run(self):
        last = 0
        try:
            while True:
                rows = ask(self.file, LATEST)
                now = check(rows)
                assert now >= last
                last = now
                self.answers += 1
        except OSError as error:
            self.error = error
        except AssertionError as error:
            self.wrong = error


def watch(file):
    return [Reader(file) for _ in range(READERS)]


def ended(readers):
    """Returns once all of them are told that nobody is there any more."""
    for reader in readers:
        reader.join(patience(30))
        assert not reader.is_alive(), f"a reader still waits (seed {SEED})"
        assert not reader.wrong, f"{reader.wrong} (seed {SEED})"
        assert reader.error


def start(probe, python):
    target = python.run_source(WRITER)
    Commands(probe, target.pid).eval("1")  # then `import probing` works
    target.send("go")
    target.expect("writing")
    file = probe.path / str(target.pid) / "query"
    eventually(lambda: ask(file, "SELECT id FROM spans LIMIT 1"), what="a row")
    return target, file


@pytest.mark.deadline(3600 if FULL else 120)
def test_the_daemon(probe, python):
    """The program writes on, and the next daemon finds its rows."""
    dice = random.Random(SEED)
    mounted = probe.mount()
    target, file = start(mounted, python)
    last = 0
    for number in range(KILLS):
        readers = watch(file)
        if number == 0:
            eventually(lambda: any(reader.answers for reader in readers), what="an answer")
        time.sleep(dice.random() * 0.5)
        mounted.kill()
        ended(readers)
        mounted.start()
        last = eventually(lambda: now if (now := check(ask(file, LATEST))) > last else None,
                          what=f"that it writes on (seed {SEED})")
    target.close()


@pytest.mark.deadline(3600 if FULL else 120)
def test_the_program(probe, any_python):
    """What it had recorded is whole, up to the end."""
    dice = random.Random(SEED)
    for _ in range(KILLS):
        target, file = start(probe, any_python)
        readers = watch(file)
        time.sleep(dice.random() * 0.5)
        before = check(ask(file, LATEST))
        target.process.kill()
        target.process.wait()
        ended(readers)
        kept = probe.path / "exited" / str(target.pid)
        eventually(kept.exists, what="a directory in exited/")
        rows = ask(kept / "query", "SELECT id, name, duration, attrs FROM spans")
        assert check(rows) >= before, f"seed {SEED}"
        assert sum(row["duration"] == "" for row in rows) <= 1
        os.rmdir(kept)
        target.close()
