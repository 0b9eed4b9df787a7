"""Asking an agent to record in its own protocol, and what that leaves in the process."""
import contextlib
import errno
import os
import pathlib

import agent_client as agent
import ring_file
from agents import LIBRARY, NAME, connect, links
from interpreters import eventually

AGAIN = """
import probing, sys
print("ready", flush=True)
for line in sys.stdin:
    probing.start()
"""

BY_ITSELF = {"spans", "events", "breakpoints", "hits", "crash"}  # from their first row on
DEFAULT, MINIMUM, MAXIMUM = 4 << 20, 64 << 10, 1 << 30


def places(client):
    return client.record.read().rings


def rings_of(pid):
    """How many descriptors of rings it has."""
    return sum(link.startswith(ring_file.NAME) for link in links(pid).values())


def tasks(pid):
    """The names of its threads; one that ends just then is none."""
    names = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip())
    return sorted(names)


def again(target):
    """The agent that follows one that was detached."""
    record = agent.Record(target.pid, LIBRARY, NAME)
    eventually(lambda: record.read().state == agent.ENDED)
    target.send("start")
    return connect(target)


def switched(client, table, **options):
    """The answer; asked again where somebody who just wrote a row had no processor in time to end it."""
    def got():
        answer = client.switch(table, **options)
        return None if answer.error == errno.EAGAIN and "didn't get on" in answer.words else answer
    return eventually(got, what=f"an answer but EAGAIN of {table}")


def on(client, table, **options):
    """Switches it on; the same answer is how the next request finds it."""
    answer = switched(client, table, **options)
    assert answer.error == 0, answer.words
    place = places(client)[table]
    assert place["on"] == 1 and place["change"] % 2 == 0 and place["error"] == 0
    assert os.stat(f"/proc/{client.pid}/fd/{place['fd']}").st_ino == place["inode"]
    return answer


def off(client, table):
    answer = client.switch(table, agent.OFF)
    assert answer.error == 0, answer.words
    assert places(client)[table]["on"] == 0
    return answer
