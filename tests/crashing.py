"""Programs that fail (tests/targets/crasher.py), and what is recorded of it."""
import contextlib
import json
import struct

import agent_client as agent
import ring_file
from agents import QUIET, connect, library

OFF, RECORD, STOP = range(3)
ORDER = struct.Struct("=IIQqQQ")


def start(python, *args, **options):
    _, inside = library(python)
    return python.run("crasher.py", "probing", *args, env={"PYTHONPATH": inside, **QUIET}, **options)


def on_crash(client, mode=RECORD, seconds=0):
    return client.wait(client.send(agent.ON_CRASH, ORDER.pack(mode, 0, int(seconds * 1e9), 0, 0, 0)))


def begin(python, *args, mode=RECORD, **options):
    """The program with the agent, crashes recorded."""
    target = start(python, *args, **options)
    client = connect(target)
    answer = on_crash(client, mode)
    assert answer.error == 0, answer.words
    assert client.record.read().on_crash == mode
    return target, client


def tell_seen(client):
    """What the process waits for, but not for ever: it may have ended."""
    with contextlib.suppress(agent.Gone):
        client.send(agent.CRASH_SEEN)


def ring_of(client):
    """Readable also after the process's end."""
    return ring_file.find(client.pid, "crash")


def last(ring, *kinds):
    """Rows of the last crash, all or those of these kinds."""
    rows = ring.rows
    number = max((row.crash for row in rows), default=0)
    return [row for row in rows if row.crash == number and (not kinds or row.kind in kinds)]


def said(target):
    return json.loads(target.readline())
